import time
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from replan.errors import ConfigError
from replan.tool import Tool, ToolContext, ToolInfo, ToolOutput
from replan.tools import FunctionTool, Toolbox, nearest, tool, unknown_tool_text


class Served:
    def __init__(self, name: str, original: str | None = None, server: str | None = "docs") -> None:
        self.info = ToolInfo(name=name, description="", parameters={"type": "object"}, original=original, server=server)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    async def call(self, arguments: dict[str, Any], context: ToolContext[Any]) -> ToolOutput:
        return ToolOutput(())


def search(query: str) -> str:
    """Search."""
    return query


def box(*names: str) -> Toolbox:
    return Toolbox([Served(name) for name in names])


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("serch", ["delete", "search", "sum"], ["search"]),
        ("Search", ["search"], ["search"]),
        ("serch", ["docs__search", "docs__delete"], ["docs__search"]),
        ("functions.search", ["search", "fetch"], ["search"]),
        ("get-weather", ["get_weather", "set_weather"], ["get_weather", "set_weather"]),
        ("zzz", ["search"], []),
        ("", ["search"], []),
        ("search", [], []),
        ("x" * 100_000, ["search"], []),
    ],
)
def test_nearest_names_come_best_first(name: str, known: list[str], found: list[str]):
    assert nearest(name, known) == found


def test_nearest_gives_no_more_than_the_limit():
    assert len(nearest("tool_1", [f"tool_{i}" for i in range(50)])) == 3
    assert nearest("tool_7", [f"tool_{i}" for i in range(50)], 1) == ["tool_7"]


@hypothesis.given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=6))
def test_nearest_gives_known_names_only(name: str, known: list[str]):
    found = nearest(name, known)
    assert set(found) <= set(known)
    assert len(found) <= 3


def test_a_misspelt_name_is_answered_with_the_one_that_is_meant():
    text = unknown_tool_text("serch", box("docs__search", "docs__delete_everything"))
    assert text == "There is no tool 'serch'. Did you mean 'docs__search'? Call it by exactly that name."


def test_the_servers_own_name_is_answered_with_the_alias():
    tools = Toolbox([Served("docs__q1", "query"), Served("docs__query_plan", "query_plan"), search])
    assert "Did you mean 'docs__q1'?" in unknown_tool_text("query", tools)
    both = Toolbox([Served("a__query", "query"), Served("b__query", "query"), search])
    assert unknown_tool_text("query", both).endswith("Call one of these by exactly its name: a__query, b__query.")


def test_a_large_catalogue_is_not_listed():
    many = box(*(f"server__tool_{i:03}" for i in range(300)))
    start = time.process_time()
    text = unknown_tool_text("launch_rocket", many)
    assert time.process_time() - start < 0.5
    assert text.startswith("There is no tool 'launch_rocket'. None of the 300 available tools has a similar name;")
    assert len(text) < 120
    assert len(unknown_tool_text("tool_00", many)) < 200


@pytest.mark.parametrize("name", ["", "   "])
def test_an_empty_name_is_said_to_be_empty(name: str):
    assert (
        unknown_tool_text(name, box("a", "b")) == "The call names no tool. Call one of these by exactly its name: a, b."
    )


def test_a_huge_name_is_cut_and_no_tools_is_said():
    assert len(unknown_tool_text("y" * 9999, box("a"))) < 200
    assert "no tools are available" in unknown_tool_text("search", Toolbox())


def test_a_toolbox_keeps_order_and_wraps_functions():
    @tool
    def delete() -> None: ...

    tools = Toolbox([Served("docs__b"), search, delete])
    assert list(tools) == ["docs__b", "search", "delete"]
    assert isinstance(tools["search"], FunctionTool)
    assert tools["delete"] is delete
    assert len(tools) == 3
    assert "nothing" not in tools
    assert all(isinstance(t, Tool) for t in tools.values())
    assert list(Toolbox(tools.values())) == list(tools)


def test_find_takes_the_name_or_the_only_original():
    tools = Toolbox(
        [Served("a__get", "get"), Served("b__get", "get"), Served("a__put", "put"), Served("put2", "search"), search]
    )
    assert tools.find("a__get") is tools["a__get"]
    assert tools.find("put") is tools["a__put"]
    assert tools.find("get") is None
    assert tools.find("search") is tools["search"]
    assert tools.find("") is None


def test_two_tools_of_one_name_are_refused_naming_both():
    with pytest.raises(
        ConfigError, match=r"two tools are named 'search': the function .*search and 'find' of server 'docs'"
    ):
        Toolbox([search, Served("search", "find")])
    with pytest.raises(ConfigError, match=r"two tools are named 'x'.*<lambda>"):
        Toolbox([tool(lambda: 1, name="x"), Served("x", server=None)])


@pytest.mark.parametrize("name", ["", "a.b", "x" * 65, "café", "a b", "a\n"])
def test_names_that_no_model_can_call_are_refused(name: str):
    with pytest.raises(ConfigError, match="cannot be the name of a tool"):
        Toolbox([Served(name)])


@pytest.mark.parametrize("thing", ["search", 3, None, int, Served])
def test_what_is_no_tool_is_refused(thing: Any):
    with pytest.raises(ConfigError, match="cannot be a tool"):
        Toolbox([thing])


def test_check_reports_the_function_that_no_model_can_fill():
    def bad(link: "type[Any] | Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    tools = Toolbox([search, Served("docs__a"), bad])
    with pytest.raises(ConfigError, match="tool 'bad'"):
        tools.check()
    assert Toolbox([search]).check()["search"].info.description == "Search."
