import asyncio
import contextvars
import dataclasses
import functools
import inspect
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from replan.errors import ConfigError
from replan.messages import Text
from replan.tool import InvalidArguments, Tool, ToolContext, ToolError, ToolOutput
from replan.tools import FunctionTool, tool

place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


def text_of(output: ToolOutput) -> str:
    return "".join(part.text for part in output.content if isinstance(part, Text))


def test_a_tool_is_still_the_function():
    @tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert add(1) == 2
    assert add(1, b=4) == 5
    assert isinstance(add, Tool)
    assert (add.__name__, add.__doc__) == ("add", "Add.")
    assert str(inspect.signature(add)) == "(a: int, b: int = 1) -> int"
    assert repr(add) == "<tool 'add'>"


async def test_an_async_tool_is_still_the_function():
    @tool
    async def add(a: int) -> int:
        return a + 1

    assert await add(1) == 2


def test_options_are_in_the_info():
    @tool(name="look-up", description="Looks.", read_only=True, idempotent=True)
    def f() -> None:
        """Not this."""

    info = f.info
    assert (info.name, info.description, info.read_only, info.idempotent) == ("look-up", "Looks.", True, True)
    assert not tool(lambda: None, name="g").info.repeatable
    assert tool(lambda: None, name="g", description="").info.description == ""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tool(lambda a: a), "'<lambda>' cannot be the name of a tool.*name="),
        (lambda: tool(len, name="a b"), "'a b' cannot be"),
        (lambda: tool(len, name=""), "'' cannot be"),
        (lambda: tool(lambda: 1, name="x" * 65), "cannot be the name"),
        (lambda: tool(lambda: 1, name=3), "3 cannot be the name"),  # type: ignore[call-overload]
        (lambda: tool(int), "int.* cannot be a tool"),
        (lambda: tool(3), "3 cannot be a tool"),
        (lambda: tool(classmethod(lambda cls: 1)), "classmethod"),
        (lambda: tool(lambda: 1, name="f", timeout=0), "timeout of tool 'f' is 0"),
        (lambda: tool(len), "no model can fill parameter 'obj'"),
        (lambda: tool(max), "no model can fill|cannot be read"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_once(make: Callable[[], Any], message: str):
    with pytest.raises(ConfigError, match=message):
        make()


async def test_parameters_are_typed_values(context: ToolContext[Any]):
    seen: list[Any] = []

    @tool
    async def f(point: Point, points: list[Point], pair: tuple[int, str] = (0, ""), tags: frozenset[str] = frozenset()):
        seen.extend([point, points, pair, tags])

    await f.call({"point": {"x": 1}, "points": [{"x": 2, "y": 3}], "pair": [1, "a"], "tags": ["t"]}, context)
    assert seen == [Point(1), [Point(2, 3.0)], (1, "a"), frozenset({"t"})]


async def test_a_call_with_wrong_arguments_raises(context: ToolContext[Any]):
    @tool
    async def f(a: int) -> int:
        return a

    with pytest.raises(InvalidArguments, match="a: should be a valid integer"):
        await f.call({"a": "1"}, context)


async def test_defaults_are_the_functions_own_objects(context: ToolContext[Any]):
    marker = object()
    seen: list[Any] = []

    @tool
    def f(a: Any = marker) -> None:
        seen.append(a)

    await f.call({}, context)
    assert seen == [marker]


async def test_the_context_is_injected_under_any_name(make_context: Callable[..., ToolContext[Any]]):
    @tool
    async def first(a: int, where: ToolContext[str], b: int = 2) -> str:
        return f"{a}{b}{where.deps}"

    @tool
    def second(ctx: ToolContext[str] | None = None) -> str:
        return ctx.deps if ctx else "none"

    context = make_context("deps")
    assert text_of(await first.call({"a": 1}, context)) == "12deps"
    assert text_of(await second.call({}, context)) == "deps"
    assert second() == "none"
    with pytest.raises(InvalidArguments):
        first.validate({"a": 1, "where": {}})


async def test_methods_partials_and_callable_objects(context: ToolContext[Any]):
    class Shop:
        name = "shop"

        def buy(self, item: str) -> str:
            return f"{self.name}: {item}"

        @tool
        async def sell(self, item: str) -> str:
            return f"{self.name} sells {item}"

        async def __call__(self, item: str) -> str:
            """Ask the shop."""
            return f"called {item}"

        @classmethod
        def close(cls) -> str:
            return cls.name

    shop = Shop()
    assert text_of(await tool(shop.buy).call({"item": "tea"}, context)) == "shop: tea"
    assert text_of(await shop.sell.call({"item": "tea"}, context)) == "shop sells tea"
    assert await shop.sell("tea") == "shop sells tea"
    called = tool(shop, name="ask")
    assert called.info.description == "Ask the shop."
    assert text_of(await called.call({"item": "tea"}, context)) == "called tea"
    assert text_of(await tool(Shop.close).call({}, context)) == "shop"
    part = tool(functools.partial(shop.buy, "milk"), name="milk")
    assert text_of(await part.call({}, context)) == "shop: milk"


async def test_a_wrapped_async_function_is_awaited(context: ToolContext[Any]):
    async def inner(a: int) -> int:
        return a + 1

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    assert (await tool(outer).call({"a": 1}, context)).structured == 2


async def test_generators_are_collected(context: ToolContext[Any]):
    @tool
    def sync(n: int) -> Iterator[int]:
        yield from range(n)

    @tool
    async def other(n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i

    assert (await sync.call({"n": 3}, context)).structured == [0, 1, 2]
    assert (await other.call({"n": 3}, context)).structured == [0, 1, 2]


@pytest.mark.parametrize("sync", [True, False])
async def test_exceptions_reach_the_caller(sync: bool, context: ToolContext[Any]):
    def fail() -> None:
        raise LookupError("not here")

    async def fail_later() -> None:
        fail()

    with pytest.raises(LookupError, match="not here"):
        await tool(fail if sync else fail_later).call({}, context)


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize(
    ("error", "raised"),
    [(SystemExit(3), ToolError), (StopIteration("x"), RuntimeError), (TimeoutError("own"), TimeoutError)],
)
async def test_errors_with_a_meaning_to_python_stay_errors_of_the_tool(
    sync: bool, error: BaseException, raised: type[Exception], context: ToolContext[Any]
):
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        fail()

    with pytest.raises(raised):
        await tool(fail if sync else fail_later, timeout=20).call({}, context)
    assert not context.cancelled.is_set()


async def test_sync_tools_run_at_once_while_the_loop_lives(make_context: Callable[..., ToolContext[Any]]):
    ticks: list[float] = []

    @tool
    def slow(n: int) -> int:
        time.sleep(0.2)
        return n

    async def beat() -> None:
        while True:
            ticks.append(time.perf_counter())
            await asyncio.sleep(0.01)

    heart = asyncio.create_task(beat())
    start = time.perf_counter()
    outputs = await asyncio.gather(*(slow.call({"n": n}, make_context()) for n in range(2)))
    took = time.perf_counter() - start
    heart.cancel()
    assert [o.structured for o in outputs] == [0, 1]
    assert 0.2 <= took < 0.38
    assert max(b - a for a, b in itertools.pairwise(ticks)) < 0.15
    assert len(ticks) >= 5


async def test_threads_see_the_callers_context_variables(context: ToolContext[Any]):
    @tool
    def where() -> str:
        before = place.get()
        place.set("thread")
        return before

    place.set("here")
    assert text_of(await where.call({}, context)) == "here"
    assert place.get() == "here"


async def test_sync_tools_never_run_on_the_loops_thread(context: ToolContext[Any]):
    @tool
    def ident() -> int:
        return threading.get_ident()

    assert (await ident.call({}, context)).structured != threading.get_ident()


async def test_a_timeout_is_an_error_result_and_the_late_result_is_dropped(
    make_context: Callable[..., ToolContext[Any]],
):
    context = make_context()
    ended = threading.Event()

    @tool(timeout=0.05)
    def slow(ctx: ToolContext[Any]) -> str:
        ctx.cancelled.wait(10)
        ended.set()
        return "late"

    start = time.perf_counter()
    output = await slow.call({}, context)
    assert time.perf_counter() - start < 1
    assert output.is_error
    assert text_of(output) == "slow gave no result within 0.05 s; what it was to change may have changed"
    assert await asyncio.to_thread(ended.wait, 10)


async def test_a_timeout_stops_an_async_tool(context: ToolContext[Any]):
    stopped: list[bool] = []

    @tool(timeout=0.05, read_only=True)
    async def slow() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            stopped.append(True)

    output = await slow.call({}, context)
    assert (output.is_error, text_of(output)) == (True, "slow gave no result within 0.05 s")
    assert stopped == [True]
    assert context.cancelled.is_set()


async def test_cancelling_returns_at_once_and_tells_the_thread(make_context: Callable[..., ToolContext[Any]]):
    context = make_context()
    started, ended = threading.Event(), threading.Event()

    @tool
    def slow() -> None:
        started.set()
        context.cancelled.wait(10)
        ended.set()

    task = asyncio.create_task(slow.call({}, context))
    assert await asyncio.to_thread(started.wait, 10)
    start = time.perf_counter()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.perf_counter() - start < 0.5
    assert context.cancelled.is_set()
    assert await asyncio.to_thread(ended.wait, 10)


async def test_a_context_of_a_cancelled_call_does_not_stop_another(context: ToolContext[Any]):
    context.cancelled.set()

    @tool
    def f() -> str:
        return "ran"

    assert text_of(await f.call({}, context)) == "ran"


async def test_a_cancelled_generator_stops(make_context: Callable[..., ToolContext[Any]]):
    counted: list[int] = []
    started = threading.Event()

    @tool(timeout=0.05)
    def forever() -> Iterator[int]:
        while True:
            started.set()
            counted.append(1)
            yield 1
            time.sleep(0.001)

    assert (await forever.call({}, make_context())).is_error
    assert started.is_set()
    seen = -1
    for _ in range(200):
        if seen == len(counted):
            break
        seen = len(counted)
        await asyncio.sleep(0.02)
    assert seen == len(counted)


async def test_threads_are_bounded_and_waiting_calls_run_later(make_context: Callable[..., ToolContext[Any]]):
    running, most, lock, go = 0, 0, threading.Lock(), threading.Event()

    @tool
    def job(n: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go.wait(10)
        with lock:
            running -= 1
        return n

    calls = [asyncio.create_task(job.call({"n": n}, make_context())) for n in range(70)]
    for _ in range(500):
        if running == 64:
            break
        await asyncio.sleep(0.01)
    assert running == 64
    unstarted = make_context()
    waiting = asyncio.create_task(job.call({"n": 99}, unstarted))
    await asyncio.sleep(0)
    waiting.cancel()
    go.set()
    assert [o.structured for o in await asyncio.gather(*calls)] == list(range(70))
    assert most == 64


def test_a_tool_that_hangs_does_not_keep_the_process_alive():
    script = (
        "import asyncio, logging, threading\nfrom pathlib import Path\n"
        "from replan.tool import ToolContext\nfrom replan.tools import tool\n"
        "@tool(timeout=0.05)\ndef hang() -> None: threading.Event().wait()\n"
        "context = ToolContext('r', 'c', 't', 'k', None, logging.getLogger(), Path.cwd, lambda *_: Path.cwd())\n"
        "print(asyncio.run(hang.call({}, context)).is_error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=True)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


async def test_tools_work_in_one_event_loop_after_another(context: ToolContext[Any]):
    @tool
    def f() -> str:
        return "ok"

    assert text_of(await f.call({}, context)) == "ok"
    output = await asyncio.to_thread(lambda: asyncio.run(f.call({}, context)))
    assert text_of(output) == "ok"


async def test_a_plain_call_is_cheap(context: ToolContext[Any]):
    @tool
    async def quick(a: int = 1) -> None: ...

    @tool
    def threaded(a: int = 1) -> None: ...

    async def cost(subject: FunctionTool[..., Any], times: int) -> float:
        best = float("inf")
        for _ in range(5):
            start = time.process_time()
            for _ in range(times):
                await subject.call(subject.validate({"a": 1}), context)
            best = min(best, (time.process_time() - start) / times)
        return best * 1e6

    assert await cost(quick, 500) < 90
    assert await cost(threaded, 200) < 360
