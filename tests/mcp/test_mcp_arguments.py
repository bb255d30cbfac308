import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.mcp.arguments import ArgumentSchema


def schema(properties, required=(), **more):
    return ArgumentSchema({"type": "object", "properties": properties, "required": list(required), **more}, "s/t")


LIMITED = {"limit": {"type": "integer"}, "after": {"type": "string"}, "note": {"type": ["string", "null"]}}


def test_nulls_are_left_out_only_where_null_is_not_allowed():
    arguments = {"limit": None, "after": None, "note": None, "other": None, "kept": 1}
    assert schema(LIMITED).prune(arguments) == {"note": None, "other": None, "kept": 1}


def test_a_required_null_stays_and_is_a_problem():
    tested = schema(LIMITED, ["limit"])
    assert tested.prune({"limit": None}) == {"limit": None}
    assert tested.problems({"limit": None}) == ["'limit': expected integer, got null"]


@pytest.mark.parametrize(
    ("allowed", "spec"),
    [
        (True, {}),
        (True, True),
        (True, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (True, {"enum": ["a", None]}),
        (True, {"const": None}),
        (True, {"$ref": "#/$defs/maybe"}),
        (False, {"$ref": "#/$defs/number"}),
        (False, {"enum": ["a"]}),
        (False, {"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}),
        (False, {"oneOf": [{"type": "string"}, {"type": "array"}]}),
    ],
)
def test_null_is_judged_by_the_whole_schema(allowed, spec):
    definitions = {"maybe": {"type": ["string", "null"]}, "number": {"type": "number"}}
    assert schema({"x": spec}, **{"$defs": definitions}).prune({"x": None}) == ({"x": None} if allowed else {})


def test_nulls_are_found_inside_lists_references_and_unions():
    point = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"]}
    tested = schema(
        {
            "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
            "maybe": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]},
        },
        **{"$defs": {"point": point}},
    )
    arguments = {"points": [{"x": 1, "y": None}, {"x": None}], "maybe": {"x": 2, "y": None}}
    assert tested.prune(arguments) == {"points": [{"x": 1}, {"x": None}], "maybe": {"x": 2}}
    assert arguments["points"][0] == {"x": 1, "y": None}


def test_a_schema_that_refers_to_itself_ends():
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}}}
    loop = {"$ref": "#/$defs/loop"}
    tested = schema({"root": {"$ref": "#/$defs/tree"}}, **{"$defs": {"tree": tree, "loop": loop}})
    assert tested.prune({"root": {"child": {"child": {"n": None}}}}) == {"root": {"child": {"child": {}}}}
    assert schema({"x": loop}, **{"$defs": {"loop": loop}}).prune({"x": [None]}) == {"x": [None]}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "'n': missing; expected integer"),
        ({"n": "5"}, "'n': expected integer, got \"5\""),
        ({"n": 1, "colour": "pink"}, '\'colour\': expected one of "red", "blue", got "pink"'),
        ({"n": 1, "who": 3}, "'who': expected string or null, got 3"),
        ({"n": 1, "edits": [{"text": 1}]}, "'edits[0].text': expected string, got 1"),
        ({"n": 1, "edits": [{}]}, "'edits[0].text': missing; expected string"),
        ({"n": 1, "extra": 1}, "the arguments: unknown parameters 'extra'; known are 'n', 'colour', 'who', 'edits'"),
        ({"n": 99}, "'n': 99 is greater than the maximum of 10"),
    ],
)
def test_problems_name_the_parameter_and_what_is_expected(arguments, problem):
    tested = schema(
        {
            "n": {"type": "integer", "maximum": 10},
            "colour": {"enum": ["red", "blue"]},
            "who": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "edits": {
                "type": "array",
                "items": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
            },
        },
        ["n"],
        additionalProperties=False,
    )
    assert tested.problems(arguments) == [problem]


def test_defaults_need_not_be_given():
    assert schema({"n": {"type": "integer", "default": 3}}).problems({}) == []


def test_the_dialect_of_the_schema_is_used():
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
    draft7 = schema({"pair": pair}, **{"$schema": "http://json-schema.org/draft-07/schema#"})
    assert draft7.problems({"pair": ["a", "b"]}) == ["'pair[1]': expected integer, got \"b\""]
    latest = schema({"pair": {"type": "array", "prefixItems": pair["items"]}})
    assert latest.problems({"pair": ["a", "b"]}) == ["'pair[1]': expected integer, got \"b\""]


@pytest.mark.parametrize(
    "properties",
    [
        {"x": {"$ref": "https://example.invalid/schema.json"}},
        {"x": {"$ref": "#/$defs/absent"}},
        {"x": {"type": "text"}},
        {"x": {"type": "string", "pattern": "(?<name>"}},
    ],
)
def test_a_schema_that_cannot_be_used_checks_nothing_and_warns_once(caplog, properties):
    tested = schema(properties)
    assert tested.problems({"x": "a"}) == []
    assert tested.problems({"x": 1}) == []
    assert tested.prune({"x": None}) == {"x": None}
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "the input schema of tool 's/t' cannot be used"
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3))
def test_pruning_is_stable_and_takes_only_nulls(arguments):
    tested = schema(
        {"a": {"type": "object", "properties": {"b": {"type": "string"}}}, "b": {"type": "string"}, "c": {}}
    )
    once = tested.prune(arguments)
    assert tested.prune(once) == once
    assert {key: value for key, value in arguments.items() if value is not None}.keys() <= once.keys()
