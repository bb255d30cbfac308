import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.encoding import JSON
from replan.mcp.arguments import ArgumentSchema
from replan.planning import shapes
from replan.planning.references import MissingReference, pick
from replan.tool import ToolInfo

PUBLISHED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"$ref": "#/$defs/Order"}},
        "owner": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]},
        "count": {"type": "integer"},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]},
        "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        "any": {},
        "raw": {"type": "string"},
        "either": {"anyOf": [{"$ref": "#/$defs/Person"}, {"$ref": "#/$defs/Order"}]},
    },
    "$defs": {
        "Order": {"type": "object", "properties": {"total_eur": {"type": "number"}, "by": {"$ref": "#/$defs/Person"}}},
        "Person": {"type": "object", "properties": {"name": {"type": "string"}, "boss": {"$ref": "#/$defs/Person"}}},
    },
}


@dataclass
class Seen:
    samples: list[JSON] = field(default_factory=list)


def info(output: dict[str, Any] | None = None) -> ToolInfo:
    return ToolInfo(name="look", description="", parameters={"type": "object"}, output_schema=output)


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("", {"object"}),
        ("items", {"array"}),
        (".items[0].total_eur", {"number"}),
        ("items[*].total_eur", {"array"}),
        ('["items"][-1].by.boss.boss.name', {"string"}),
        ("owner", {"object", "null"}),
        ("owner.name", {"string"}),
        ("pair[1]", {"number"}),
        ("prices.oslo", {"number"}),
        ("any", None),
        ("any.thing[0]", None),
        ("raw.key", None),
        ("pair[5]", None),
        ("either.name", {"string"}),
        ("either.by.name", {"string"}),
    ],
)
def test_a_published_shape_says_what_is_where(path: str, kinds: set[str] | None):
    assert shapes.path_problem(PUBLISHED, path) is None
    assert shapes.type_at(PUBLISHED, path) == kinds


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("item", "there is no 'item'; there are 'items', 'owner'"),
        ("items.total_eur", "there is no 'total_eur': the value is a list"),
        ("items[*].total", "there is no 'total'; there are 'total_eur', 'by'"),
        ("count.x", "the value is a number"),
        ("count[0]", "[0] needs a list, and there is a number"),
        ("prices[*]", "[*] needs a list, and there is an object"),
        ("owner.age", "there is no 'age'; there are 'name', 'boss'"),
        ("either.age", "there is no 'age'"),
    ],
)
def test_a_path_that_a_published_shape_does_not_have_is_wrong(path: str, words: str):
    assert words in (shapes.path_problem(PUBLISHED, path) or "")
    assert shapes.type_at(PUBLISHED, path) is None


def test_an_object_that_says_nothing_of_its_keys_or_allows_others_is_not_known():
    for open_shape in ({"type": "object"}, {}, {"properties": {"a": {}}, "additionalProperties": True}):
        assert shapes.path_problem(open_shape, "b.c") is None
        assert shapes.at(open_shape, "b.c") is None


def test_the_shape_of_a_tool_is_the_published_one_without_a_lone_wrapper():
    wrapped = {"type": "object", "properties": {"result": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"type": "integer"}}}
    found = shapes.of(info(wrapped), {"look": Seen([{"a": 1}])})
    assert found is not None
    assert shapes.type_at(found, "") == {"integer"}
    assert shapes.of(info(PUBLISHED), {}) == PUBLISHED
    two = {"type": "object", "properties": {"result": {}, "more": {}}}
    assert shapes.of(info(two), {}) == two


def test_without_a_published_shape_earlier_results_say_what_is_there():
    found = shapes.of(info(), {"look": Seen([{"a": 1}, {"a": 2.5, "b": None}])})
    assert found is not None
    assert shapes.is_learnt(found)
    assert not shapes.is_learnt(PUBLISHED)
    assert shapes.type_at(found, "a") == {"number"}
    assert shapes.type_at(found, "b") == {"null"}
    assert shapes.path_problem(found, "c") == "there is no 'c'; there are 'a', 'b'"
    assert found["required"] == ["a"]
    assert shapes.of(info(), {}) is None
    assert shapes.of(info(), {"look": Seen()}) is None


def test_the_shapes_of_tools_are_found_when_they_are_asked_for():
    tools = [info(PUBLISHED), ToolInfo(name="other", description="", parameters={"type": "object"})]
    found = shapes.Shapes(tools, {})
    assert (found.get("look"), found.get("other"), found.get("none")) == (PUBLISHED, None, None)
    assert dict(found) == {"look": PUBLISHED}
    assert len(shapes.Shapes(tools, {"other": Seen([1])})) == 2


def test_a_text_that_holds_json_has_its_paths_and_is_still_a_text():
    found = shapes.learn([json.dumps({"rows": [{"id": 1}]})])
    assert shapes.type_at(found, "") == {"string"}
    assert shapes.type_at(found, "rows[0].id") == {"integer"}
    assert shapes.path_problem(found, "row") == "there is no 'row'; there are 'rows'"
    assert shapes.path_problem(shapes.learn(["no json", "{"]), "row") is None


def test_what_is_deep_or_wide_is_left_open():
    deep: Any = 1
    for _ in range(30):
        deep = {"a": deep}
    assert shapes.path_problem(shapes.learn([deep]), ".a" * 29 + ".b") is None
    wide = shapes.learn([{f"k{n}": n for n in range(1000)}])
    assert shapes.path_problem(wide, "other") is None
    assert len(json.dumps(shapes.learn([[{"a": n}] * 100 for n in range(500)]))) < 1000


def test_schemas_that_lead_in_circles_or_are_none_say_nothing():
    circle: dict[str, Any] = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert shapes.path_problem(circle, "a.b") is None
    assert shapes.type_at(circle, "") is None
    assert shapes.path_problem({"$ref": "#/a", "a": {"$ref": "#/a"}}, "x") is None
    assert shapes.path_problem({"properties": [], "type": "object"}, "x") is None
    assert shapes.path_problem({"$ref": "other.json#/a"}, "x") is None


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("Items[0].totalEur", ".items[0].total_eur"),
        ("result.items[*].by.name", ".items[*].by.name"),
        ("items[0].sum", None),
        ("owner.Name", ".owner.name"),
        ("items.total", None),
        ("count", ".count"),
    ],
)
def test_a_key_that_is_only_spelt_otherwise_is_mended(path: str, meant: str | None):
    assert shapes.mended_path(PUBLISHED, path) == meant


keys = st.sampled_from(["a", "b", "odd key", "c.d"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(values, min_size=1, max_size=4))
def test_values_fit_the_shape_that_was_learnt_from_them(seen: list[Any]):
    schema = ArgumentSchema({"type": "object", "properties": {"value": shapes.learn(seen)}}, "test")
    assert [schema.problems({"value": value}) for value in seen] == [[]] * len(seen)


@given(value=values, path=st.lists(st.sampled_from([".a", ".b", '["odd key"]', "[0]", "[*]"]), max_size=4).map("".join))
def test_a_shape_of_one_value_refuses_no_path_that_the_value_has(value: Any, path: str):
    try:
        pick(value, path)
    except MissingReference:
        return
    assert shapes.path_problem(shapes.learn([value]), path) is None
