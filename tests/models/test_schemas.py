import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from anthropic import transform_schema
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from replan.models.schemas import (
    anthropic_output,
    anthropic_parameters,
    bedrock_parameters,
    gemini_output,
    gemini_parameters,
    inline,
    openai_output,
    openai_parameters,
    openai_strict,
)

Schema = dict[str, Any]
PARAMETERS: list[Callable[[Schema], Schema]] = [
    openai_parameters,
    anthropic_parameters,
    bedrock_parameters,
    gemini_parameters,
]
OUTPUTS: list[Callable[[Schema], Schema | None]] = [anthropic_output, gemini_output]
NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}},
    "required": ["name"],
}
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
DEEP: Schema = {"type": "string"}
for _ in range(200):
    DEEP = {"type": "object", "properties": {"a": DEEP}}

parameters = pytest.mark.parametrize("translate", PARAMETERS)
outputs = pytest.mark.parametrize("translate", OUTPUTS)


def of(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties}


def parts(schema: Any) -> list[Schema]:
    """All objects in a schema."""
    if isinstance(schema, dict):
        return [schema, *(part for value in schema.values() for part in parts(value))]
    return [part for value in schema for part in parts(value)] if isinstance(schema, list) else []


def accepts(schema: Schema, value: Any) -> bool:
    return Draft202012Validator(schema).is_valid(value)


AWKWARD: dict[str, Schema] = {
    "empty": {},
    "object": {"type": "object"},
    "draft-07": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}},
    "recursive": {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}},
    "recursive root": of(child={"$ref": "#"}, children={"type": "array", "items": {"$ref": "#"}}),
    "mutually recursive": {
        **of(a={"$ref": "#/$defs/A"}),
        "$defs": {"A": of(b={"$ref": "#/$defs/B"}), "B": of(a={"$ref": "#/$defs/A"})},
    },
    "definitions": {**of(a={"$ref": "#/definitions/A"}), "definitions": {"A": {"type": "integer"}}},
    "siblings": {
        **of(a={"$ref": "#/$defs/A", "description": "d", "minimum": 3}),
        "$defs": {"A": {"type": "integer", "maximum": 5}},
    },
    "remote": of(a={"$ref": "https://example.com/schema.json"}, b={"$ref": "#/$defs/nothing"}),
    "escapes": {**of(a={"$ref": "#/$defs/a~1b~0c"}), "$defs": {"a/b~c": {"type": "string"}}},
    "pointer": of(a={"type": "string", "maxLength": 3}, b={"$ref": "#/properties/a"}),
    "anchor": {**of(a={"$ref": "#here"}), "$defs": {"A": {"$anchor": "here", "type": "string"}}},
    "map or null": of(m={"type": ["object", "null"], "additionalProperties": {"type": "string"}}),
    "union": of(
        x={
            "anyOf": [{"type": "string"}, {"type": "array", "items": of(a={"type": "integer"})}, {"type": "null"}],
            "default": None,
            "description": "some",
        }
    ),
    "values": of(
        a={"const": "x"}, b={"enum": ["a", None]}, c={"enum": [1, "a", True, None, {"k": 1}, [2]]}, d={"const": None}
    ),
    "one of": of(a={"oneOf": [{"type": "integer"}, {"type": "string", "minLength": 2}]}),
    "all of": of(a={"allOf": [of(x={"type": "string"}), {"required": ["x"]}, {"$ref": "#/$defs/A"}]})
    | {"$defs": {"A": of(y={"type": "integer"})}},
    "not": of(a={"not": {"type": "string"}}, b={"type": "integer", "not": {"const": 3}}),
    "condition": of(
        a={"type": "object", "if": {"required": ["x"]}, "then": {"required": ["y"]}, "else": {"required": ["z"]}}
    ),
    "patterns": of(
        a={"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}
    ),
    "tuple": of(a={"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}),
    "old tuple": of(a={"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}}),
    "booleans": of(a=True, b=False) | {"additionalProperties": True},
    "nullable": of(a={"type": "string", "nullable": True}, b={"enum": ["x"], "nullable": True}),
    "format": of(a={"type": "string", "format": "color"}, b={"type": "integer", "format": "int64"}),
    "defaults": of(a={"type": "string", "default": "x"}, b={"type": "array", "default": []}),
    "names": {
        **of(**{"$ref": {"type": "string"}, "type": {"type": "integer"}, "properties": of(required={})}),
        "required": ["$ref", "type", "nobody"],
    },
    "old bounds": of(a={"type": "integer", "minimum": 1, "exclusiveMinimum": True, "exclusiveMaximum": False}),
    "root union": {"anyOf": [CLOSED, of(b={"type": "integer"}), {"type": "null"}]},
    "root conditions": {**of(a={}), "if": {"required": ["a"]}, "then": {"required": ["b"]}, "not": {"required": ["c"]}},
    "root types": {"type": ["object", "null"], "properties": {"a": {"type": "string"}}},
    "deep": DEEP,
}

awkward = pytest.mark.parametrize("schema", AWKWARD.values(), ids=AWKWARD.keys())


# ---- what holds for all


@parameters
@awkward
def test_awkward_parameters_are_translated(translate: Callable[[Schema], Schema], schema: Schema):
    before = copy.deepcopy(schema)
    found = translate(schema)
    Draft202012Validator.check_schema(found)
    assert found["type"] == "object"
    assert isinstance(found["properties"], dict)
    assert not found.keys() & {"anyOf", "oneOf", "allOf", "not", "if", "enum", "$ref", "$schema"}
    assert schema == before
    assert translate(found) == found


@outputs
@awkward
def test_awkward_outputs_are_translated_or_none(translate: Callable[[Schema], Schema | None], schema: Schema):
    before = copy.deepcopy(schema)
    found = translate(schema)
    assert schema == before
    if found is not None:
        Draft202012Validator.check_schema(found)
        assert found["type"] == "object"
        assert translate(found) == found


@parameters
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {}},
        {"type": ["string", "null"]},
        {"enum": ["a", 1]},
        {"const": None},
        {"not": {}},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"allOf": [{"type": "object"}, {"type": "string"}]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}},
    ],
)
def test_what_no_object_fulfils_is_refused(translate: Callable[[Schema], Schema], schema: Schema):
    with pytest.raises(ValueError, match="must be an object"):
        translate(schema)


@parameters
def test_ten_thousand_parts_are_translated(translate: Callable[[Schema], Schema]):
    wide = of(**{f"p{number}": of(a={"type": "string"}, b={"type": "array"}) for number in range(3_400)})
    assert len(translate(wide)["properties"]) == 3_400


@parameters
def test_what_would_grow_without_end_is_cut(translate: Callable[[Schema], Schema]):
    many = {f"D{n}": of(**{f"p{k}": {"$ref": f"#/$defs/D{k}"} for k in range(12)}) for n in range(12)}
    unions = {f"U{n}": {"anyOf": [{"$ref": f"#/$defs/U{k}"} for k in range(12)]} for n in range(12)}
    found = translate({**of(a={"$ref": "#/$defs/D0"}), "$defs": many})
    assert len(json.dumps(found)) < 200_000
    assert translate({**of(a={"$ref": "#/$defs/U0"}), "$defs": unions})["type"] == "object"
    assert translate({"$ref": "#/$defs/U0", "$defs": {**unions, "U3": CLOSED}})["properties"]


# ---- references


def test_references_are_replaced():
    schema = AWKWARD["escapes"] | {"$id": "x"}
    assert inline(schema) == of(a={"type": "string"})
    assert inline(AWKWARD["anchor"]) == of(a={"type": "string"})
    assert inline(AWKWARD["pointer"])["properties"]["b"] == {"type": "string", "maxLength": 3}


def test_what_contains_itself_is_open_at_the_third_time():
    found = inline(AWKWARD["recursive"])
    assert found["properties"]["next"]["properties"]["next"] == {"type": "object"}


def test_what_is_not_there_allows_anything():
    assert inline(AWKWARD["remote"]) == of(a={}, b={})


def test_both_count_that_stand_beside_a_reference():
    assert inline(AWKWARD["siblings"])["properties"]["a"] == {
        "type": "integer",
        "maximum": 5,
        "description": "d",
        "minimum": 3,
    }


def test_in_old_drafts_only_words_about_it_count_beside_a_reference():
    old = {**AWKWARD["siblings"], "$schema": "http://json-schema.org/draft-07/schema#"}
    assert inline(old)["properties"]["a"] == {"type": "integer", "maximum": 5, "description": "d"}


def test_what_refuses_is_dropped_where_it_would_refuse_more():
    schema = {
        **of(
            a={"not": {"$ref": "elsewhere"}, "type": "string"},
            b={"oneOf": [{"type": "string"}, {"$ref": "elsewhere"}]},
            c={"if": {"$ref": "elsewhere"}, "then": {"type": "string"}},
        ),
    }
    found = inline(schema)["properties"]
    assert found == {"a": {"type": "string"}, "b": {"anyOf": [{"type": "string"}, {}]}, "c": {}}


def test_draft_words_are_replaced():
    assert inline(of(a={"type": "string", "x-own": 1, "$comment": "c", "title": 5})) == of(a={"type": "string"})
    assert inline(AWKWARD["old tuple"])["properties"]["a"] == {
        "type": "array",
        "prefixItems": [{"type": "string"}],
        "items": {"type": "integer"},
    }
    assert inline(AWKWARD["old bounds"])["properties"]["a"] == {"type": "integer", "exclusiveMinimum": 1}
    assert inline(AWKWARD["nullable"])["properties"] == {"a": {"type": ["string", "null"]}, "b": {"enum": ["x", None]}}


# ---- roots


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"$schema": "http://json-schema.org/draft-07/schema#"}])
@parameters
def test_a_root_without_properties_gets_some(translate: Callable[[Schema], Schema], schema: Schema):
    assert translate(schema) == {"type": "object", "properties": {}}


@parameters
def test_a_root_union_accepts_what_its_branches_accept(translate: Callable[[Schema], Schema]):
    union = {
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
        "oneOf": [
            {"properties": {"kind": {"const": "a"}, "a": {"type": "string"}}, "required": ["kind", "a"]},
            {"properties": {"kind": {"const": "b"}, "b": {"type": "string"}}, "required": ["kind", "b"]},
        ],
    }
    found = translate(union)
    assert set(found["properties"]) == {"id", "kind", "a", "b"}
    assert sorted(found["required"]) == ["id", "kind"]
    assert found["properties"]["kind"]["enum"] == ["a", "b"]


@parameters
def test_all_of_at_the_root_requires_everything(translate: Callable[[Schema], Schema]):
    found = translate(
        {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}
    )
    assert sorted(found["required"]) == ["a", "b"]


@parameters
def test_a_union_of_closed_objects_is_closed(translate: Callable[[Schema], Schema]):
    other = {**of(b={"type": "integer"}), "additionalProperties": False}
    assert translate({"anyOf": [CLOSED, other]})["additionalProperties"] is False
    assert "additionalProperties" not in translate({"anyOf": [CLOSED, of(b={})]})


@parameters
def test_a_root_that_refers_to_itself_ends(translate: Callable[[Schema], Schema]):
    assert translate({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})["properties"] == {}
    assert translate({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [CLOSED, {"$ref": "#/$defs/A"}]}}})["properties"]


@parameters
def test_what_a_root_reference_says_of_itself_is_kept(translate: Callable[[Schema], Schema]):
    found = translate({"$ref": "#/$defs/A", "$defs": {"A": {**CLOSED, "description": "the thing"}}})
    assert found["description"] == "the thing"
    assert found["additionalProperties"] is False


# ---- OpenAI


def test_references_to_definitions_stay_for_openai():
    found = openai_parameters(AWKWARD["recursive"])
    assert found["properties"]["next"] == {"$ref": "#/$defs/Node"}
    assert found["$defs"]["Node"] == NODE
    assert openai_parameters(AWKWARD["anchor"]) == of(a={"type": "string"})


def test_references_that_would_point_to_nothing_do_not_stay():
    schema = {"anyOf": [of(a={"type": "string"})], "properties": {"b": {"$ref": "#/anyOf/0/properties/a"}}}
    assert openai_parameters(schema)["properties"]["b"] == {"type": "string"}


def test_a_schema_with_nothing_to_change_is_given_back():
    schema = of(a={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None})
    assert openai_parameters(schema) is schema


def test_lists_have_items_for_openai():
    assert openai_parameters(of(a={"type": "array"}))["properties"]["a"] == {"type": "array", "items": {}}
    assert openai_parameters(of(a={"type": ["array", "null"]}))["properties"]["a"]["items"] == {}


def test_a_closed_schema_is_strict():
    nested = {
        **CLOSED,
        "properties": {"a": {"type": "array", "items": CLOSED}},
        "$defs": {"x": CLOSED},
    }
    assert openai_strict(CLOSED)
    assert openai_strict(nested)
    assert openai_strict({**CLOSED, "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": CLOSED}})


@pytest.mark.parametrize(
    "part",
    [
        {"type": "object"},
        {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        {"oneOf": [{"type": "string"}]},
        {"type": "string", "default": "x"},
        {"type": "string", "minLength": 1},
        {"type": "string", "format": "color"},
        {"type": "string", "pattern": "(?=a)"},
        {"type": "array"},
        {"type": "array", "items": {}},
        {"$ref": "#/$defs/nothing"},
        {"$ref": "#/$defs/x", "description": "d"},
        {"not": {"type": "string"}},
        {"enum": list(range(1_001))},
        {},
        True,
    ],
)
def test_other_schemas_are_not_strict(part: Any):
    assert not openai_strict({**CLOSED, "properties": {"a": part}, "$defs": {"x": {"type": "string"}}})


@pytest.mark.parametrize(
    "schema",
    [
        {**CLOSED, "required": []},
        {**CLOSED, "additionalProperties": True},
        {k: v for k, v in CLOSED.items() if k != "additionalProperties"},
        {**CLOSED, "$defs": {"x": of(b={"type": "string"})}},
        {"type": "array", "items": CLOSED},
        {"anyOf": [CLOSED, CLOSED]},
        {},
    ],
)
def test_other_roots_are_not_strict(schema: Schema):
    assert not openai_strict(schema)


def test_too_many_levels_are_not_strict():
    deep: Schema = {"type": "string"}
    for _ in range(10):
        deep = {**CLOSED, "properties": {"a": deep}}
    assert openai_strict(deep)
    assert not openai_strict({**CLOSED, "properties": {"a": {**CLOSED, "properties": {"a": deep}}}})


def test_a_described_reference_is_strict_as_a_union():
    schema = {
        **CLOSED,
        "properties": {"a": {"$ref": "#/$defs/x", "description": "d"}},
        "$defs": {"x": {"type": "string"}},
    }
    for found in (openai_output(schema), openai_parameters(schema)):
        assert openai_strict(found)
        assert found["properties"]["a"] == {"anyOf": [{"$ref": "#/$defs/x"}], "description": "d"}


# ---- Anthropic


def test_parameters_with_odd_names_are_told_to_anthropic_only():
    found = anthropic_parameters({**AWKWARD["names"], "additionalProperties": False})
    assert list(found["properties"]) == ["type", "properties"]
    assert found["required"] == ["type"]
    assert "additionalProperties" not in found
    assert found["description"] == '(more properties: "$ref")'
    assert "$ref" in openai_parameters(AWKWARD["names"])["properties"]


def test_outputs_for_anthropic_are_closed_and_say_what_is_not_taken():
    schema = {
        **of(
            count={"type": "integer", "minimum": 1, "description": "how many", "default": None},
            names={"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
            one={"type": "array", "items": {"type": "string"}, "minItems": 1},
            when={"type": "string", "format": "date-time"},
            color={"type": "string", "format": "color"},
        ),
        "required": ["count", "nobody"],
    }
    assert anthropic_output(schema) == {
        **of(
            count={"type": "integer", "description": "how many (minimum: 1)"},
            names={"type": "array", "items": {"type": "string"}, "description": "(minItems: 2, maxItems: 3)"},
            one={"type": "array", "items": {"type": "string"}, "minItems": 1},
            when={"type": "string", "format": "date-time"},
            color={"type": "string", "description": '(format: "color")'},
        ),
        "required": ["count"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "patternProperties": {"^x": {}}},
        {"type": "array"},
        {"type": "array", "items": {}},
        {"$ref": "#"},
        {"not": {"type": "string"}},
        {"enum": [{"a": 1}]},
        {"anyOf": [{"type": "string"}, {}]},
        False,
    ],
)
def test_what_anthropic_cannot_be_told_has_no_native_schema(part: Any):
    assert anthropic_output(of(a=part)) is None


def test_too_many_optional_properties_and_unions_have_no_native_schema():
    some = {f"p{n}": {"type": "string"} for n in range(25)}
    assert anthropic_output(of(**some)) is None
    assert anthropic_output({**of(**some), "required": ["p1"]})
    union = {f"p{n}": {"type": ["string", "null"]} for n in range(17)}
    assert anthropic_output({**of(**union), "required": list(union)}) is None


def test_parts_of_all_of_are_one_closed_object_for_anthropic():
    found = anthropic_output(of(a={"allOf": [of(x={"type": "string"}), of(y={"type": "integer"})]}))
    assert found is not None
    assert found["properties"]["a"] == {
        **of(x={"type": "string"}, y={"type": "integer"}),
        "additionalProperties": False,
    }


def test_what_stands_beside_a_union_is_in_its_branches_for_anthropic():
    part = {**of(x={"type": "string"}, y={"type": "integer"}), "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}
    found = anthropic_output(of(a=part))
    assert found is not None
    branches = found["properties"]["a"]["anyOf"]
    assert [branch["required"] for branch in branches] == [["x"], ["y"]]
    assert all(branch["additionalProperties"] is False and len(branch["properties"]) == 2 for branch in branches)


# ---- Gemini


GEMINI_WORDS = {
    "type", "title", "description", "enum", "format", "items", "prefixItems", "minItems", "maxItems", "minimum",
    "maximum", "anyOf", "properties", "required", "additionalProperties",
}  # fmt: skip


def gemini_nodes(schema: Schema) -> list[Schema]:
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("prefixItems", ())]
    inner += [schema[word] for word in ("items", "additionalProperties") if isinstance(schema.get(word), dict)]
    return [schema, *(node for part in inner for node in gemini_nodes(part))]


def assert_gemini(schema: Schema) -> None:
    for node in gemini_nodes(schema):
        assert node.keys() <= GEMINI_WORDS
        assert "anyOf" not in node or len(node) == 1
        types = node["type"] if isinstance(node.get("type"), list) else [node.get("type")]
        assert len([name for name in types if name != "null"]) <= 1
        assert "items" in node or "array" not in types
        assert "required" not in node or set(node["required"]) <= node["properties"].keys()
        assert all(isinstance(value, str | int | float) and value != "" for value in node.get("enum", ()))
        assert node.get("format", "date-time") in ("date-time", "int32", "int64", "float", "double")


@awkward
def test_gemini_gets_only_what_it_knows(schema: Schema):
    assert_gemini(gemini_parameters(schema))
    if output := gemini_output(schema):
        assert_gemini(output)


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer", "enum": [1, 2]}),
        ({"enum": [True, False]}, {"type": "boolean"}),
        ({"enum": ["", "a"]}, {"type": "string"}),
        ({"enum": ["a", None]}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "title": "T"}, {"type": ["string", "null"], "title": "T"}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"anyOf": [{"type": "string"}, {}], "description": "d"}, {"description": "d"}),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        (
            {"description": "d", "anyOf": [{"type": "string", "description": "s"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string", "description": "d s"}, {"type": "integer"}]},
        ),
        ({"type": "string", "format": "color", "minLength": 3}, {"type": "string"}),
        ({"type": "string", "minimum": 3, "items": {}}, {"type": "string"}),
        ({"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False}, {"type": "object"}),
        ({"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "string"}}, "type": "object"}),
    ],
)
def test_parts_in_the_words_of_gemini(part: Schema, found: Schema):
    assert gemini_parameters(of(a=part))["properties"]["a"] == found


@pytest.mark.parametrize("name", ["recursive", "recursive root", "remote", "root union"])
def test_an_output_that_gemini_cannot_be_told_has_no_native_schema(name: str):
    assert gemini_output(AWKWARD[name]) is None


# ---- properties of all translations

NAMES = ["a", "b", "xy"]
scalars = st.sampled_from([None, True, False, 0, 1, 2.5, 7, "", "a", "abc", "2020-01-01"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
)


def _object(properties: Schema, needed: bool) -> Schema:
    return {**of(**properties), **({"required": list(properties)} if needed else {})}


simple = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "null"])},
        optional={
            "description": st.just("d"),
            "format": st.sampled_from(["date-time", "date", "odd"]),
            "minLength": st.integers(0, 2),
            "minimum": st.integers(0, 3),
            "exclusiveMaximum": st.integers(5, 8),
            "default": scalars,
        },
    ),
    st.fixed_dictionaries({"type": st.lists(st.sampled_from(["string", "integer", "null"]), min_size=1, unique=True)}),
    st.fixed_dictionaries({"enum": st.lists(scalars, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"const": scalars}),
)
leaves = (
    simple
    | st.sampled_from([{}, True, {"$ref": "#/$defs/D"}, {"$ref": "#/$defs/E", "description": "e"}, {"$ref": "#"}])
    | st.sampled_from([{"$ref": "#/$defs/E", "maxLength": 2}, {"$ref": "gone"}, {"not": {"type": "string"}}])
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)},
        optional={
            "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^x", "b"]), inner, max_size=1),
            "title": st.just("T"),
        },
    )


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        objects(inner),
        st.fixed_dictionaries(
            {"type": st.just("array")},
            optional={"items": inner, "minItems": st.integers(0, 2), "maxItems": st.integers(1, 3)},
        ),
        st.fixed_dictionaries({"type": st.just("array"), "prefixItems": some}, optional={"items": inner}),
        st.fixed_dictionaries({"anyOf": some}, optional={"description": st.just("u"), "type": st.just("object")}),
        st.fixed_dictionaries({"oneOf": some}),
        st.fixed_dictionaries({"allOf": some}, optional={"description": st.just("u")}),
        st.fixed_dictionaries({"type": st.just("object"), "not": inner}),
        st.fixed_dictionaries({"if": inner, "then": inner}, optional={"else": inner}),
        st.builds(lambda one, other: {**one, "anyOf": [other]}, objects(inner), objects(inner)),
    )


nodes = st.recursive(leaves, compound, max_leaves=8)
schemas = st.builds(lambda root, d, e: {**root, "$defs": {"D": d, "E": e}}, objects(nodes), objects(nodes), simple)


@parameters
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(schema=schemas, data=st.data())
def test_parameters_only_get_wider(translate: Callable[[Schema], Schema], schema: Schema, data: st.DataObject):
    found = translate(schema)
    Draft202012Validator.check_schema(found)
    assert translate(found) == found
    for value in data.draw(st.lists(near(schema, schema), min_size=5, max_size=8)):
        if _valid(schema, value):
            assert accepts(found, value)


def _valid(schema: Schema, value: Any) -> bool:
    """Whether a value is valid; what refers outside or to nothing allows anything here."""
    try:
        return accepts(schema, value)
    except Exception:  # jsonschema raises several kinds for references that cannot be resolved
        return False


def near(schema: Any, root: Schema, depth: int = 5) -> st.SearchStrategy[Any]:
    """Values that a schema is likely to allow."""
    if not isinstance(schema, dict) or depth == 0:
        return values
    if isinstance(schema.get("$ref"), str):
        name = schema["$ref"].rsplit("/", 1)[-1]
        return near(root if schema["$ref"] == "#" else root["$defs"].get(name), root, depth - 1)
    choices = [near(part, root, depth - 1) for word in ("anyOf", "oneOf", "allOf") for part in schema.get(word, ())]
    choices += [st.sampled_from(schema["enum"])] if "enum" in schema else []
    choices += [st.just(schema["const"])] if "const" in schema else []
    if "properties" in schema:
        known = {name: near(part, root, depth - 1) for name, part in schema["properties"].items()}
        needed = {name: known.get(name, values) for name in schema.get("required", ())}
        optional = {name: part for name, part in known.items() if name not in needed}
        choices.append(st.fixed_dictionaries(needed, optional=optional))
    if schema.get("type") == "array":
        rest = near(schema.get("items"), root, depth - 1)
        fixed = [near(part, root, depth - 1) for part in schema.get("prefixItems", ())]
        choices.append(st.builds(lambda first, more: [*first, *more], st.tuples(*fixed), st.lists(rest, max_size=3)))
    return st.one_of(*choices) if choices else values


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(schema=schemas, data=st.data())
def test_an_output_for_anthropic_is_as_the_vendor_would_have_it(schema: Schema, data: st.DataObject):
    found = anthropic_output(schema)
    assume(found is not None)
    assert found is not None
    Draft202012Validator.check_schema(found)
    assert anthropic_output(found) == found
    assert transform_schema(copy.deepcopy(found)) == found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=schemas)
def test_what_gemini_gets_is_what_it_knows(schema: Schema):
    assert_gemini(gemini_parameters(schema))
    if output := gemini_output(schema):
        assert_gemini(output)
        assert gemini_output(output) == output


exact = st.recursive(
    st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda name: {"type": name})
    | st.lists(st.sampled_from(["a", "abc", "x"]), min_size=1, unique=True).map(lambda found: {"enum": found})
    | st.sampled_from([{"const": "a"}, {"type": ["string", "null"]}, {"$ref": "#/$defs/D"}]),
    lambda inner: st.one_of(
        st.builds(_object, st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3), st.booleans()),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}, optional={"title": st.just("t")}),
        st.builds(lambda one, two: {"allOf": [of(a=one), of(b=two)]}, inner, inner),
    ),
    max_leaves=6,
)
exact_roots = st.builds(
    lambda found, inner, needed: {**_object(found, needed), "$defs": {"D": inner}},
    st.dictionaries(st.sampled_from(NAMES), exact, min_size=1, max_size=3),
    st.sampled_from([{"type": "string"}, CLOSED]),
    st.booleans(),
)


@outputs
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(schema=exact_roots, data=st.data())
def test_an_output_that_can_be_told_is_valid_without_repair(
    translate: Callable[[Schema], Schema | None], schema: Schema, data: st.DataObject
):
    found = translate(schema)
    assume(found is not None)
    assert found is not None
    for value in data.draw(st.lists(near(found, found), min_size=5, max_size=8)):
        if accepts(found, value):
            assert accepts(schema, value)


WORDS = [
    "type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const",
    "$ref", "$defs", "definitions", "additionalProperties", "patternProperties", "prefixItems", "minimum", "minItems",
    "exclusiveMinimum", "multipleOf", "format", "pattern", "description", "default", "nullable", "dependentRequired",
    "dependentSchemas", "contains", "maxContains", "unevaluatedProperties", "propertyNames", "$schema", "$anchor", "a",
    "uniqueItems", "examples", "additionalItems", "$id", "x-own",
]  # fmt: skip
junk = st.recursive(
    st.sampled_from(["string", "object", "array", "#", "#/$defs/a", "#/properties/a", "(", "^a", "nobody"])
    | scalars
    | st.sampled_from([-1, 1e400, float("nan")]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=st.dictionaries(st.sampled_from(WORDS), junk, max_size=6))
def test_whatever_looks_like_a_schema_is_translated(schema: Schema):
    before = copy.deepcopy(schema)
    for translate in (*PARAMETERS, *OUTPUTS, inline, openai_output):
        try:
            found = translate(schema)
        except ValueError:
            continue
        if found is not None:
            Draft202012Validator.check_schema(found)
            assert json.dumps(translate(found), sort_keys=True) == json.dumps(found, sort_keys=True)
    openai_strict(schema)
    assert repr(schema) == repr(before)
