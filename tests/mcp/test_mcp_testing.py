import asyncio
import time

import pytest
from mcp.server.mcpserver import Context

from replan.errors import ConfigError
from replan.mcp import McpServers
from replan.testing.mcp import http_server, stdio_server


def add(a: int, b: int = 1) -> int:
    "Add two numbers."
    return a + b


async def walk(steps: int, ctx: Context) -> str:
    "Report each step."
    for number in range(steps):
        await ctx.report_progress(number + 1, steps)
    return "there"


async def test_functions_become_a_server_in_a_process(context):
    async with McpServers({"t": stdio_server(add, walk, read_only=("add",))}) as servers:
        first, second = servers.tools
        assert (first.info.name, first.info.description, first.info.read_only) == ("t__add", "Add two numbers.", True)
        assert first.info.parameters["required"] == ["a"]
        assert (await first.call({"a": 1, "b": None}, context)).structured == 2
        assert (await second.call({"steps": 2}, context)).structured == "there"
        assert context.cancelled.steps == [(1, 2, None), (2, 2, None)]


async def test_functions_become_a_server_behind_a_url(context):
    base = 40

    def add_to_base(a: int) -> int:
        return base + a

    with http_server(add_to_base, walk) as server:
        async with McpServers({"t": server.url}) as servers:
            first, second = servers.tools
            output = await first.call({"a": 2}, context)
            assert (output.structured, output.content[0].text) == (42, "42")
            assert not (await second.call({"steps": 2}, context)).is_error
            assert context.cancelled.steps == [(1, 2, None), (2, 2, None)]
            wrong = await first.call({"a": "x"}, context)
            assert wrong.is_error


def test_functions_inside_functions_cannot_be_loaded_by_a_process():
    def inner():
        pass

    with pytest.raises(ConfigError, match=r"'test_functions_inside.*inner' is not at the top level of a file"):
        stdio_server(inner)


async def test_cancelling_a_call_stops_the_tool_on_the_newest_protocol(context):
    seen = []

    async def wait() -> str:
        seen.append("began")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("stopped")
            raise
        return "late"

    with http_server(wait) as server:
        async with McpServers({"t": server.url}) as servers:
            call = asyncio.create_task(servers.tools[0].call({}, context))
            deadline = time.monotonic() + 5
            while not seen:
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while len(seen) < 2 and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
    assert seen == ["began", "stopped"]
