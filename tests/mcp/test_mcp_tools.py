import asyncio
import subprocess
import sys
import time

import mcp_types as types
import pytest
from mcp.server.mcpserver import Context

from replan.mcp import McpServers, McpTool, StdioServer
from replan.mcp.connection import Connection
from replan.testing.mcp import http_server
from replan.tool import InvalidArguments, Tool


def mounted(tool, **options):
    return McpTool(Connection("s", StdioServer("x", **options)), tool, "s__t")


def described(description="", schema=None, **more):
    return types.Tool(name="t", description=description, input_schema=schema or {}, **more)


def test_an_mcp_tool_is_a_tool():
    assert isinstance(mounted(described()), Tool)


def test_a_schema_is_made_an_object_and_otherwise_kept():
    assert mounted(described()).info.parameters == {"type": "object"}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"a": {"$anchor": "x", "type": "string"}},
        "if": {"required": ["b"]},
        "additionalProperties": False,
    }
    assert mounted(described(schema=schema)).info.parameters == schema


def test_descriptions_lose_what_people_do_not_see():
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "do evil")
    assert mounted(
        described(f" Add\x1b[31m\x00 \u202eup\u2066\n\tnow \U0001f468\u200d\U0001f469{hidden}\ud800 ")
    ).info.description == ("Add[31m up\n\tnow \U0001f468\u200d\U0001f469\ufffd")
    assert mounted(described(title="The title")).info.description == "The title"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (False, False)),
        ({"trusted": True}, (True, True)),
        ({"read_only": ("x", "t*")}, (True, False)),
        ({"idempotent": ("t",)}, (False, True)),
        ({"read_only": ("T",)}, (False, False)),
    ],
)
def test_hints_count_only_where_the_host_says_so(options, expected):
    hints = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, destructive_hint=False)
    tool = mounted(described(annotations=hints), **options)
    assert (tool.info.read_only, tool.info.idempotent) == expected
    assert (tool.hint_read_only, tool.hint_idempotent, tool.hint_destructive, tool.hint_open_world) == (
        True,
        True,
        False,
        None,
    )


def test_a_trusted_server_may_say_that_a_tool_writes():
    tool = mounted(described(annotations=types.ToolAnnotations(read_only_hint=False)), trusted=True)
    assert not tool.info.read_only


def test_arguments_are_checked_and_unwanted_nulls_left_out():
    tool = mounted(
        described(schema={"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n"]})
    )
    assert tool.validate({"n": 1, "s": None}) == {"n": 1}
    with pytest.raises(InvalidArguments) as caught:
        tool.validate({"s": 1})
    assert caught.value.problems == ["'n': missing; expected integer", "'s': expected string, got 1"]


def fresh() -> str:
    return "fresh"


async def grow(ctx: Context) -> str:
    ctx.mcp_server.add_tool(fresh)
    ctx.mcp_server.remove_tool("grow")
    await ctx.notify_tools_changed()
    return "grown"


async def test_a_changed_list_is_noticed_on_the_newest_protocol_too(context):
    with http_server(grow) as server:
        async with McpServers({"t": server.url}) as servers:
            (tool,) = servers.tools
            assert (await tool.call({}, context)).structured == "grown"
            deadline = time.monotonic() + 5
            while "no longer offers" not in (await tool.call({}, context)).content[0].text:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            assert [tool.info.original for tool in servers.list_tools()] == ["fresh"]


LIGHT = """
import sys
before = set(sys.modules)
import replan.mcp
heavy = {"mcp", "mcp_types", "httpx2", "jsonschema", "pydantic", "anyio"} & (set(sys.modules) - before)
print(sorted(heavy))
"""


def test_importing_the_package_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_exports_are_sorted_and_real():
    import replan.mcp as package

    assert package.__all__ == sorted(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)


async def test_tools_come_in_the_order_of_the_configuration(wire):
    async with McpServers({"z": wire("pages"), "a": wire(), "m": wire("empty-cursor")}) as servers:
        order = list(dict.fromkeys(tool.info.server for tool in servers.tools))
    assert order == ["z", "a", "m"]


async def test_equal_names_on_two_servers_reach_their_own(wire, context):
    async with McpServers({"a": wire(env={"WHO": "a"}), "b": wire(env={"WHO": "b"})}) as servers:
        states = [tool for tool in servers.tools if tool.info.original == "get_state"]
        assert [tool.info.name for tool in states] == ["a__get_state", "b__get_state"]
        outputs = [await tool.call({}, context) for tool in states]
        assert [output.structured["env"]["WHO"] for output in outputs] == ["a", "b"]
