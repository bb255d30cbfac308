"""Never run: what a type checker must make of `@tool`."""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, assert_type

from replan.tool import Tool, ToolContext
from replan.tools import FunctionTool, Toolbox, tool


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(read_only=True, timeout=2.0)
async def look_up(key: str, context: ToolContext[int]) -> str:
    return key * context.deps


@tool
def count(n: int) -> Iterator[int]:
    yield from range(n)


class Shop:
    @tool
    def price(self, item: str) -> float:
        return len(item)

    @staticmethod
    @tool
    def currency() -> str:
        return "EUR"


def plain(text: str) -> None: ...


assert_type(add(1), int)
assert_type(add(1, b=2), int)
assert_type(count(2), Iterator[int])
assert_type(Shop().price("tea"), float)
assert_type(Shop.currency(), str)
assert_type(tool(plain)("a"), None)
assert_type(tool(partial(add, 1), name="inc")(b=3), int)


async def call(context: ToolContext[int]) -> None:
    coroutine: Coroutine[Any, Any, str] = look_up("a", context)
    coroutine.close()
    assert_type(await look_up("a", context=context), str)


as_tool: Tool = count
as_function: Callable[[int, int], int] = add
checked: FunctionTool[..., int] = add.check()
box = Toolbox([add, look_up, plain, Shop().price, as_tool])
assert_type(box.find("add"), Tool | None)

add("a")  # pyright: ignore[reportArgumentType]
add()  # pyright: ignore[reportCallIssue]
add(1, c=2)  # pyright: ignore[reportCallIssue]
Shop().price()  # pyright: ignore[reportCallIssue]
tool(plain, read_only="yes")  # pyright: ignore[reportArgumentType]
asyncio.run(add(1))  # pyright: ignore[reportArgumentType]
