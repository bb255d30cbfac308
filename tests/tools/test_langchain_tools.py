import asyncio
import importlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, ToolException
from langchain_core.tools import tool as their_tool
from pydantic import BaseModel, Field

from replan import Agent, ToolContext, tool
from replan.errors import ConfigError, MissingDependency
from replan.mcp import McpServers
from replan.messages import Audio, File, Image, Text
from replan.testing import ScriptedModel, call
from replan.testing.mcp import http_server
from replan.tool import InvalidArguments, Tool, ToolError, ToolOutput
from replan.tools import prepare
from replan.tools.langchain import from_langchain_tools, to_langchain_tools


class Search(BaseModel):
    """Not the description."""

    query: str = Field(description="what to look for")
    limit: int = 3


@their_tool(args_schema=Search)
def search(query: str, limit: int = 3) -> dict[str, Any]:
    """Search for something."""
    return {"query": query, "limit": limit, "thread": threading.current_thread().name}


@their_tool
async def slow(key: str) -> str:
    """Look up slowly."""
    await asyncio.sleep(0)
    return f"{key} is 7 in {threading.current_thread().name}"


def only(*tools: BaseTool, **options: Any) -> Tool:
    return from_langchain_tools(tools, **options)[0]


# ---- theirs as ours


def test_the_schema_is_what_a_model_fills():
    info = only(search).info
    assert (info.name, info.description, info.original) == ("search", "Search for something.", None)
    assert info.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for", "title": "Query"},
            "limit": {"type": "integer", "default": 3, "title": "Limit"},
        },
        "required": ["query"],
    }
    assert isinstance(only(search), Tool)


def test_names_that_no_model_can_call_are_changed():
    made = StructuredTool.from_function(lambda: "x", name="my search!", description="Search.")
    info = only(made).info
    assert (info.name, info.original) == ("my_search_", "my search!")


def test_what_is_read_only_or_idempotent_is_said_by_name():
    one, two = from_langchain_tools([search, slow], read_only=["search"], idempotent=["slow"])
    assert (one.info.read_only, one.info.idempotent) == (True, False)
    assert (two.info.read_only, two.info.idempotent) == (False, True)
    with pytest.raises(ConfigError, match="no tool 'serch'; known are 'search', 'slow'"):
        from_langchain_tools([search, slow], read_only=["serch"])


async def test_a_sync_tool_runs_in_a_thread_and_its_object_is_structured(context: ToolContext[Any]):
    output = await only(search).call({"query": "a"}, context)
    assert output.structured == {"query": "a", "limit": 3, "thread": "replan-tool"}
    assert output.content == (Text('{"query": "a", "limit": 3, "thread": "replan-tool"}'),)
    assert not output.is_error


async def test_an_async_tool_runs_on_the_event_loop(context: ToolContext[Any]):
    output = await only(slow).call({"key": "a"}, context)
    assert output == ToolOutput((Text(f"a is 7 in {threading.current_thread().name}"),))


async def test_a_subclass_runs_where_its_code_is(context: ToolContext[Any]):
    class Both(BaseTool):
        name: str = "both"
        description: str = "Both."

        def _run(self) -> str:
            return "sync"

        async def _arun(self) -> str:
            return "async"

    class Sync(BaseTool):
        name: str = "sync"
        description: str = "Sync."

        def _run(self) -> str:
            return threading.current_thread().name

    assert (await only(Both()).call({}, context)).content == (Text("async"),)
    assert (await only(Sync()).call({}, context)).content == (Text("replan-tool"),)


async def test_an_artifact_is_the_structured_result(context: ToolContext[Any]):
    @their_tool(response_format="content_and_artifact")
    def count() -> tuple[str, list[int]]:
        """Count."""
        return "three numbers", [1, 2, 3]

    assert await only(count).call({}, context) == ToolOutput((Text("three numbers"),), [1, 2, 3])


@pytest.mark.parametrize(
    ("text", "structured"), [('{"a": 1}', {"a": 1}), (" [1]", [1]), ("{not JSON", None), ("7", None)]
)
async def test_a_text_that_is_an_object_or_a_list_is_structured(
    context: ToolContext[Any], text: str, structured: object
):
    @their_tool
    def say() -> str:
        """Say."""
        return text

    assert await only(say).call({}, context) == ToolOutput((Text(text),), structured)


async def test_a_block_that_we_have_no_part_for_is_text(context: ToolContext[Any]):
    @their_tool
    def point() -> ToolMessage:
        """Point."""
        blocks: Any = [{"type": "image", "file_id": "f1"}, {"type": "audio", "url": "https://example.com/a.wav"}]
        return ToolMessage(blocks, tool_call_id="c1")

    unknown, sound = (await only(point).call({}, context)).content
    assert isinstance(unknown, Text)
    assert '"file_id"' in unknown.text
    assert sound == Audio("audio/wav", None, "https://example.com/a.wav")


async def test_content_blocks_become_parts(context: ToolContext[Any]):
    @their_tool
    def draw() -> list[dict[str, Any]]:
        """Draw."""
        return [
            {"type": "text", "text": "here"},
            {"type": "image", "base64": "MTIz", "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "file", "base64": "MTIz", "mime_type": "application/pdf", "extras": {"filename": "a.pdf"}},
        ]

    text, drawn, linked, file = (await only(draw).call({}, context)).content
    assert (text, drawn) == (Text("here"), Image("image/png", b"123"))
    assert isinstance(linked, Image)
    assert linked.url == "https://example.com/a.png"
    assert file == File("application/pdf", "a.pdf", b"123")


async def test_their_error_is_one_for_the_model(context: ToolContext[Any]):
    @their_tool
    def fail() -> str:
        """Fail."""
        raise ToolException("no such key")

    with pytest.raises(ToolError, match="no such key"):
        await only(fail).call({}, context)
    fail.handle_tool_error = True
    assert await only(fail).call({}, context) == ToolOutput((Text("no such key"),), is_error=True)


async def test_other_errors_are_raised(context: ToolContext[Any]):
    @their_tool
    def fail() -> str:
        """Fail."""
        raise ZeroDivisionError("zero")

    with pytest.raises(ZeroDivisionError):
        await only(fail).call({}, context)


async def test_the_call_id_is_passed_on(context: ToolContext[Any]):
    @their_tool
    def own(key: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Tell the id."""
        return f"{key} {call_id}"

    made = only(own)
    assert list(made.info.parameters["properties"]) == ["key"]
    assert (await made.call({"key": "a"}, context)).content == (Text("a c1"),)


def test_arguments_are_checked_against_the_schema_and_repaired():
    made = only(search)
    assert prepare(made, '{"query": "a", "limit": "4"}') == {"query": "a", "limit": 4}
    with pytest.raises(InvalidArguments, match="limit: 'many' is not of type 'integer'"):
        made.validate({"query": "a", "limit": "many"})
    with pytest.raises(InvalidArguments, match="'query' is a required property"):
        made.validate({})


async def test_an_agent_calls_their_tools():
    model = ScriptedModel([call("search", query="a"), call("slow", key="b")], "done")
    result = await Agent(model, tools=from_langchain_tools([search, slow])).run("go")
    assert result.text == "done"
    first, second = model.requests[1].conversation.messages[-2:]
    assert '"query": "a"' in first.text  # type: ignore[union-attr]
    assert second.text.startswith("b is 7")  # type: ignore[union-attr]


# ---- ours as theirs


@tool
async def lookup(key: str, context: ToolContext[Any], times: int = 1) -> dict[str, Any]:
    """Look up a key.

    Args:
        key: what to look up
    """
    return {"key": key, "times": times, "deps": context.deps}


async def invoke(made: StructuredTool, **arguments: Any) -> ToolMessage:
    return await made.ainvoke({"type": "tool_call", "name": made.name, "args": arguments, "id": "c9"})


async def test_our_tool_is_called_with_its_context():
    (made,) = to_langchain_tools([lookup], deps="mine")
    assert (made.name, made.description) == ("lookup", "Look up a key.")
    assert made.args == lookup.info.parameters["properties"]
    message = await invoke(made, key="a", times="2")
    assert message.artifact == {"key": "a", "times": 2, "deps": "mine"}
    assert message.content == '{"key":"a","times":2,"deps":"mine"}'
    assert (message.status, message.tool_call_id) == ("success", "c9")


def test_our_tool_can_be_called_without_an_event_loop():
    (made,) = to_langchain_tools([lookup])
    assert made.invoke({"key": "a"}) == '{"key":"a","times":1,"deps":null}'


async def test_functions_can_be_given_as_they_are():
    def double(number: int) -> int:
        """Double it."""
        return 2 * number

    (made,) = to_langchain_tools([double])
    assert (await invoke(made, number=4)).artifact == 8


async def test_our_errors_are_for_the_model():
    @tool
    def fail(how: str) -> ToolOutput:
        """Fail."""
        if how == "raise":
            raise ToolError("no such key")
        return ToolOutput((Text("not this one"),), is_error=True)

    (made,) = to_langchain_tools([fail])
    for arguments, text in (
        ({"how": "raise"}, "no such key"),
        ({"how": "give"}, "not this one"),
        ({}, "how: is missing"),
    ):
        message = await invoke(made, **arguments)
        assert message.status == "error"
        assert text in str(message.content)


async def test_parts_become_content_blocks(tmp_path: Path):
    @tool
    def draw(context: ToolContext[Any]) -> list[Any]:
        """Draw."""
        kept = context.keep(b"123", "image/png")
        assert kept == context.keep(b"123", "image/png")
        assert kept.parent == context.sandbox == tmp_path / "files"
        return [Text("here"), Image("image/png", url=str(kept)), File("application/pdf", "a.pdf", b"123")]

    (made,) = to_langchain_tools([draw], folder=tmp_path / "files")
    assert (await invoke(made)).content == [
        {"type": "text", "text": "here"},
        {"type": "image", "mime_type": "image/png", "base64": "MTIz"},
        {"type": "file", "mime_type": "application/pdf", "base64": "MTIz", "extras": {"filename": "a.pdf"}},
    ]


@pytest.mark.parametrize("name", ["config", "run_manager", "callbacks"])
def test_parameters_that_langchain_fills_are_refused(name: str):
    names: dict[str, Any] = {}
    exec(f"def f({name}: str) -> str:\n    'Do.'\n    return {name}", names)
    with pytest.raises(ConfigError, match=f"parameter '{name}'"):
        to_langchain_tools([names["f"]])


def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


async def test_tools_of_mcp_servers_go_too():
    with http_server(add) as server:
        async with McpServers({"sums": server.url}) as servers:
            (made,) = to_langchain_tools(servers.tools)
            assert str((await invoke(made, a=2, b=3)).content) == "5"


# ---- there and back


async def test_a_tool_comes_back_as_it_went(context: ToolContext[Any], make_context: Callable[..., ToolContext[Any]]):
    (back,) = from_langchain_tools(to_langchain_tools([lookup], deps="mine"))
    own = lookup.info
    assert (back.info.name, back.info.description, back.info.parameters) == (own.name, own.description, own.parameters)
    expected = await lookup.call({"key": "a"}, make_context("mine"))
    assert await back.call({"key": "a"}, context) == expected


async def test_an_error_comes_back_as_an_error(context: ToolContext[Any]):
    @tool
    def fail() -> str:
        """Fail."""
        raise ToolError("no such key")

    (back,) = from_langchain_tools(to_langchain_tools([fail]))
    assert await back.call({}, context) == ToolOutput((Text("no such key"),), is_error=True)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "replan.tools.langchain")
    monkeypatch.setitem(sys.modules, "langchain_core.tools", None)
    with pytest.raises(MissingDependency, match="pip install langchain-core"):
        importlib.import_module("replan.tools.langchain")
