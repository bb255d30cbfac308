import re
import string

from hypothesis import given
from hypothesis import strategies as st

from replan.mcp import tool_aliases

ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
NAMES = st.one_of(st.text(string.ascii_letters + "._-/é ", min_size=1, max_size=8), st.text(min_size=1, max_size=90))


def test_names_that_fit_stay_as_they_are():
    assert tool_aliases("docs", ["get-sum", "read_file"]) == {
        "get-sum": "docs__get-sum",
        "read_file": "docs__read_file",
    }


def test_forbidden_characters_are_replaced():
    assert tool_aliases("cal", ["calendar.update", "1st/tool"]) == {
        "calendar.update": "cal__calendar_update",
        "1st/tool": "cal__1st_tool",
    }


def test_names_that_would_meet_are_told_apart():
    aliases = tool_aliases("s", ["a.b", "a_b", "a/b"])
    assert aliases["a_b"] == "s__a_b"
    assert len(set(aliases.values())) == 3
    assert re.fullmatch(r"s__a_b_[0-9a-f]{8}", aliases["a.b"])


def test_a_tool_named_like_an_alias_keeps_its_own():
    taken = tool_aliases("s", ["a.b", "a_b"])["a.b"].removeprefix("s__")
    aliases = tool_aliases("s", ["a.b", "a_b", taken])
    assert aliases[taken] == f"s__{taken}"
    assert len(set(aliases.values())) == 3


def test_the_longest_name_that_fits_is_not_cut():
    name = "t" * 61
    assert tool_aliases("s", [name]) == {name: f"s__{name}"}
    assert len(tool_aliases("s", [name + "t"])[name + "t"]) == 64


def test_server_names_with_double_underscores_are_told_apart():
    assert tool_aliases("a", ["b__c"])["b__c"] != tool_aliases("a__b", ["c"])["c"]
    assert tool_aliases("a_", ["b"])["b"] != tool_aliases("a", ["_b"])["_b"]


def test_the_first_character_is_a_letter_or_underscore():
    assert tool_aliases("1st", ["x"])["x"].startswith("_1st_")


@given(st.lists(st.tuples(NAMES, NAMES), max_size=12, unique=True))
def test_aliases_are_valid_and_unique_over_all_servers(pairs):
    servers = {server: [tool for other, tool in pairs if other == server] for server, _ in pairs}
    aliases = [alias for server, tools in servers.items() for alias in tool_aliases(server, tools).values()]
    assert len(set(aliases)) == len(aliases) == len(pairs)
    assert all(ALIAS.fullmatch(alias) for alias in aliases)


@given(NAMES, st.lists(NAMES, max_size=8, unique=True), st.randoms())
def test_aliases_do_not_depend_on_the_order(server, tools, random):
    shuffled = list(tools)
    random.shuffle(shuffled)
    assert tool_aliases(server, tools) == tool_aliases(server, shuffled)
