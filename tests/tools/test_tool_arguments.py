import copy
import json
from typing import Any, Literal

import hypothesis
import hypothesis.strategies as st
import jsonschema
import pytest

from replan.tool import InvalidArguments, ToolContext, ToolInfo, ToolOutput
from replan.tools import prepare, tool
from replan.tools.coercion import coerce


class SchemaTool:
    """A tool of nothing but a JSON schema, as one from a server."""

    def __init__(self, schema: dict[str, Any], name: str = "server__f", original: str | None = "f") -> None:
        self._validator = jsonschema.Draft202012Validator(schema)
        self.info = ToolInfo(name=name, description="", parameters=schema, original=original)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        problems = [f"{'.'.join(map(str, e.path))}: {e.message}" for e in self._validator.iter_errors(arguments)]
        if problems:
            raise InvalidArguments(problems)
        return arguments

    async def call(self, arguments: dict[str, Any], context: ToolContext[Any]) -> ToolOutput:
        raise NotImplementedError


def of(properties: dict[str, Any], *required: str, **more: Any) -> SchemaTool:
    return SchemaTool({"type": "object", "properties": properties, "required": list(required), **more})


def problems(subject: Any, raw: Any) -> list[str]:
    with pytest.raises(InvalidArguments) as caught:
        prepare(subject, raw)
    return caught.value.problems


EDITS = {
    "edits": {
        "type": "array",
        "items": {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]},
    },
    "n": {"type": "integer"},
    "note": {"type": "string"},
}
NOTHING = ["", "null", "{}", "   ", None, {}, ' "{}" ', '""', '"null"', "\n"]


@pytest.mark.parametrize("raw", NOTHING)
def test_nothing_means_no_arguments(raw: Any):
    assert prepare(SchemaTool({"type": "object"}), raw) == {}
    assert prepare(SchemaTool({}), raw) == {}

    @tool
    def now() -> None: ...

    assert prepare(now, raw) == {}


@pytest.mark.parametrize("raw", NOTHING)
def test_nothing_for_a_required_parameter_is_a_missing_parameter(raw: Any):
    @tool
    def f(city: str, limit: int = 1) -> None: ...

    assert problems(f, raw) == ["city: is missing", "f takes city (string, required), limit (integer)"]
    assert "'a' is a required property" in problems(of({"a": {}}, "a"), raw)[0]


@pytest.mark.parametrize(
    "raw",
    [
        {"edits": '[{"at": 1}]', "n": "5", "note": "[1,2]"},
        {"edits": '[{"at": "1"}]', "n": 5, "note": "[1,2]"},
        {"edits": ['{"at": 1}'], "n": "5.0", "note": "[1,2]"},
        {"edits": {"at": 1}, "n": 5.0, "note": "[1,2]"},
        {"edits": '{"at": 1}', "n": " 5 ", "note": "[1,2]"},
        {"edits": "[{'at': 1}]", "n": 5, "note": "[1,2]"},
        '{"edits": [{"at": 1}], "n": 5, "note": "[1,2]"}',
        json.dumps(json.dumps({"edits": [{"at": 1}], "n": 5, "note": "[1,2]"})),
        json.dumps(json.dumps({"edits": '[{"at": 1}]', "n": "5", "note": "[1,2]"})),
        '```json\n{"edits": [{"at": 1}], "n": 5, "note": "[1,2]"}\n```',
        '{"edits": [{"at": 1,}], "n": 5, "note": "[1,2]",}',
        "{'edits': [{'at': 1}], 'n': 5, 'note': '[1,2]'}",
        {"arguments": {"edits": [{"at": 1}], "n": 5, "note": "[1,2]"}},
        {"input": '{"edits": [{"at": 1}], "n": "5", "note": "[1,2]"}'},
        {"name": "f", "arguments": {"edits": [{"at": 1}], "n": 5, "note": "[1,2]"}},
        {"name": "server__f", "parameters": {"edits": [{"at": 1}], "n": 5, "note": "[1,2]"}},
    ],
)
def test_one_reading_is_taken(raw: Any):
    subject = of(EDITS, "edits", "n", "note", additionalProperties=False)
    before = copy.deepcopy(raw)
    assert prepare(subject, raw) == {"edits": [{"at": 1}], "n": 5, "note": "[1,2]"}
    assert raw == before


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        ({"type": "integer"}, "-3", -3),
        ({"type": "integer"}, "1e3", None),
        ({"type": "integer"}, "5.5", None),
        ({"type": "integer"}, "1,000", None),
        ({"type": "integer"}, "007", None),
        ({"type": "integer"}, "0x10", None),
        ({"type": "integer"}, "five", None),
        ({"type": "integer"}, True, None),
        ({"type": "integer"}, [5], None),
        ({"type": "integer"}, "9" * 5000, None),
        ({"type": "integer"}, "9007199254740993", 9007199254740993),
        ({"type": "number"}, "1.50", 1.5),
        ({"type": "number"}, "3", 3),
        ({"type": "number"}, "2e3", 2000.0),
        ({"type": "number"}, "1e999", None),
        ({"type": "number"}, "NaN", None),
        ({"type": "number"}, "Infinity", None),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "boolean"}, "yes", None),
        ({"type": "boolean"}, 1, None),
        ({"type": "boolean"}, "1", None),
        ({"type": "string"}, 12345, "12345"),
        ({"type": "string"}, 1.5, None),
        ({"type": "string"}, True, None),
        ({"type": "string"}, {"a": 1}, None),
        ({"type": "array", "items": {"type": "string"}}, '["a"]', ["a"]),
        ({"type": "array", "items": {"type": "string"}}, "a", ["a"]),
        ({"type": "array", "items": {"type": "string"}}, "a, b", None),
        ({"type": "array", "items": {"type": "string"}}, "a\nb", None),
        ({"type": "array", "items": {"type": "string"}}, "[a", None),
        ({"type": "array", "items": {"type": "string"}}, "[1]", ["1"]),
        ({"type": "array", "items": {"type": "integer"}}, "5", [5]),
        ({"type": "array", "items": {"type": "integer"}}, 5, [5]),
        ({"type": "array", "items": {"type": "integer"}}, ["5", 6], [5, 6]),
        ({"type": "array", "items": {"type": "integer"}}, "a", None),
        ({"type": "array"}, "a", None),
        ({"type": "array"}, {"a": 1}, None),
        ({"type": "array"}, "[1, [2]]", [1, [2]]),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "[[1], [2]]", [[1], [2]]),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, '["1", "2"]', [1, "2"]),
        ({"type": "object"}, '{"a": "1"}', {"a": "1"}),
        ({"type": "object"}, "[1]", None),
        ({"type": "object"}, "{", None),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "1"}, {"a": 1}),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "string"]}, "5", "5"),
        ({"type": ["integer", "boolean"]}, "5", 5),
        ({"type": ["object", "array"]}, "[1]", [1]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", "5"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "x", None),
        ({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "integer"}]}, "5", 5),
        ({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "boolean"}]}, ["5"], [5]),
        ({"allOf": [{"type": "integer"}]}, "5", 5),
        ({"allOf": [{"$ref": "#/$defs/n"}], "description": "d"}, "5", 5),
        ({"$ref": "#/$defs/n"}, "5", 5),
        ({"$ref": "#/$defs/tree"}, '{"v": "1", "kids": [{"v": "2"}]}', {"v": 1, "kids": [{"v": 2}]}),
        ({"$ref": "#/$defs/loop"}, "5", "5"),
        ({"$ref": "elsewhere.json"}, "5", "5"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["1", "2"]}, 2, "2"),
        ({"enum": ["2", 2]}, "2", "2"),
        ({"enum": [1, 2]}, "3", None),
        ({"enum": [True, False]}, "true", True),
        ({"const": 7}, "7", 7),
        ({"type": "integer", "enum": [1, 2]}, "2", 2),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 5.0, 5),
        ({"type": "string", "format": "date-time"}, 1700000000, None),
        ({"$ref": "#/$defs/pet"}, {"kind": "dog", "age": "3"}, {"kind": "dog", "age": 3}),
        ({"$ref": "#/$defs/pet"}, '{"kind": "cat", "lives": "9"}', {"kind": "cat", "lives": 9}),
        ({"$ref": "#/$defs/pet"}, {"kind": "cow", "lives": "9"}, None),
        ({"$ref": "#/$defs/wide"}, "5", "5"),
        ({"type": "integer", "minimum": 3}, "2", None),
        ({}, "5", "5"),
        (True, "[1]", "[1]"),
    ],
)
def test_values_are_read_by_their_schema_or_left(schema: Any, value: Any, read: Any):
    definitions = {
        "n": {"type": "integer"},
        "tree": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        },
        "wide": {"anyOf": [*([{"$ref": "#/$defs/wide"}] * 20), {"type": "string"}]},
        "pet": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": kind}, number: {"type": "integer"}},
                    "required": ["kind", number],
                }
                for kind, number in (("cat", "lives"), ("dog", "age"))
            ]
        },
        "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {}]},
    }
    # the unfit second parameter makes validation fail, so that the first is read again even where it could stay
    subject = of({"v": schema, "n": {"type": "integer"}}, "v", "n", **{"$defs": definitions})
    raw = {"v": value, "n": "1"}
    unresolvable = [{"$ref": "elsewhere.json"}, {"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/wide"}]
    if schema in unresolvable:
        assert coerce(raw, subject.info.parameters) == {"v": value, "n": 1}
        return
    if read is None and value != "null":
        assert problems(subject, raw)
    else:
        assert prepare(subject, raw) == {"v": read, "n": 1}


def test_nulls_are_left_out_only_where_they_are_not_allowed():
    clearing = {"type": ["string", "null"]}
    subject = of(
        {"limit": {"type": "integer"}, "after": {"type": "string"}, "note": clearing, "any": {}, "must": clearing},
        "must",
    )
    raw = {"limit": None, "after": None, "note": None, "any": None, "must": None}
    assert prepare(subject, raw) == {"note": None, "any": None, "must": None}
    assert raw["limit"] is None
    nested = of(
        {
            "o": {"type": "object", "properties": {"a": {"type": "integer"}}},
            "l": {"type": "array", "items": {"type": "integer"}},
        }
    )
    assert prepare(nested, {"o": {"a": None}}) == {"o": {}}
    assert problems(nested, {"l": [None]})


def test_a_required_null_stays_an_error():
    assert problems(of({"a": {"type": "integer"}}, "a"), {"a": None})


def test_empty_text_for_an_optional_number_is_left_out():
    subject = of({"limit": {"type": "integer"}, "q": {"type": "string"}, "tags": {"type": "array"}})
    assert prepare(subject, {"limit": "", "q": "", "tags": ""}) == {"q": ""}
    assert prepare(subject, {"limit": "null", "q": "null", "tags": "None"}) == {"q": "null"}
    assert problems(of({"limit": {"type": "integer"}}, "limit"), {"limit": ""})


@pytest.mark.parametrize("key", ["arguments", "input", "parameters", "args", "params"])
def test_an_envelope_that_could_be_a_parameter_stays(key: str):
    own = of({key: {"type": "object"}, "n": {"type": "integer"}}, key)
    assert prepare(own, {key: {"n": "5"}}) == {key: {"n": "5"}}
    free = SchemaTool({"type": "object"})
    assert prepare(free, {key: {"n": 5}}) == {key: {"n": 5}}
    wanted = of({"n": {"type": "integer"}}, "n")
    assert prepare(wanted, {key: {"n": 5}}) == {"n": 5}
    assert problems(wanted, {key: {"n": 5}, "other": 1})
    assert problems(wanted, {key: [5]})


def test_a_single_model_parameter_named_like_an_envelope_is_kept():
    @tool
    def f(input: dict[str, int]) -> None: ...

    assert prepare(f, {"input": {"a": 1}}) == {"input": {"a": 1}}
    assert prepare(f, '{"input": "{\\"a\\": \\"1\\"}"}') == {"input": {"a": 1}}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("[1]", "must be one JSON object, not an array"),
        ("5", "must be one JSON object, not a number"),
        ("true", "must be one JSON object, not a truth value"),
        ([1], "must be one JSON object, not an array"),
        ('"text"', "not valid JSON"),
        ('{"n": 5', "not valid JSON"),
        ('{"n": 5}}', "not valid JSON"),
        ('{"n": 5} {"n": 6}', "not valid JSON"),
        ("{'n': __import__('os')}", "not valid JSON"),
        ("{n: 5}", "not valid JSON"),
        ("{'n': {5}}", None),
        ("[" * 100_000, "not valid JSON"),
        ("{'n':" * 5_000, "not valid JSON"),
        ("{1: 2}", "not valid JSON"),
    ],
)
def test_what_is_no_object_is_an_error_that_says_so(raw: Any, message: str | None):
    subject = of({"n": {"type": "integer"}}, "n")
    found = problems(subject, raw)
    assert found[-1] == "server__f takes n (integer, required)"
    if message:
        assert message in found[0]
    assert len(found[0]) < 250


def test_raw_line_breaks_and_surrogates_in_text_are_read():
    subject = of({"code": {"type": "string"}}, "code")
    assert prepare(subject, '{"code": "a\nb\tc"}') == {"code": "a\nb\tc"}
    assert prepare(subject, '{"code": "a,}"}') == {"code": "a,}"}
    assert prepare(subject, '{"code": "say \\",}\\" now",}') == {"code": 'say ",}" now'}
    assert prepare(subject, '{"code": "a\\ud800"}') == {"code": "a\ufffd"}


def test_the_error_lists_parameters_with_types():
    @tool
    def f(
        path: str,
        mode: Literal["r", "w"],
        lines: list[int] = [],  # noqa: B006
    ) -> None: ...

    assert problems(f, {"path": "a", "mode": "x", "lines": "many"}) == [
        "mode: should be 'r' or 'w', got \"x\"",
        'lines: should be a valid array, got "many"',
        'f takes path (string, required), mode (one of "r", "w", required), lines (array of integer)',
    ]


def test_the_error_stays_short_for_a_large_tool():
    subject = of({f"p{i}": {"type": "integer", "description": "x" * 500} for i in range(200)}, "p0")
    found = problems(subject, {"p0": "x" * 10_000, **{f"p{i}": "y" for i in range(1, 100)}})
    assert len(found) <= 10
    assert found[-1].endswith("and 180 more")
    assert all(len(problem) <= 700 for problem in found)


def test_broken_schemas_do_not_break_reading():
    class Lenient(SchemaTool):
        def __init__(self, schema: Any) -> None:
            self.info = ToolInfo(name="f", description="", parameters=schema)

        def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
            if arguments.get("n") != 1:
                raise InvalidArguments(["n: no"])
            return arguments

    for schema in (
        {"properties": []},
        {"properties": {"n": None}},
        {"properties": {"n": {"type": 5}}},
        {"properties": {"n": {"anyOf": {}}}},
        {"properties": {"n": {"enum": 3}}},
        {"required": None, "properties": {"n": {"$ref": "#/x/y"}}},
        {"properties": {"n": {"$ref": "#/properties/n"}}},
        {"properties": {"n": {"items": [{}]}}},
        {"allOf": 3},
    ):
        assert prepare(Lenient(schema), {"n": 1}) == {"n": 1}
        assert problems(Lenient(schema), {"n": "x"})


# Schemas without strings and unions, and values of them: whatever is written as text has one reading.
scalars = st.sampled_from([{"type": "integer"}, {"type": "number"}, {"type": "boolean"}])
schemas = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda properties: {"type": "object", "properties": properties, "required": sorted(properties)},
            st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=6,
)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    match schema["type"]:
        case "integer":
            return st.integers(-(2**53), 2**53)
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(schema["items"]), min_size=1, max_size=3)
        case _:
            return st.fixed_dictionaries({name: values(inner) for name, inner in schema["properties"].items()})


@st.composite
def written(draw: st.DrawFn) -> tuple[dict[str, Any], Any, Any]:
    """A schema, a value of it, and the value with parts of it as JSON text."""
    properties = draw(st.dictionaries(st.sampled_from("wxyz"), schemas, min_size=1, max_size=3))
    schema = {"type": "object", "properties": properties, "required": sorted(properties), "additionalProperties": False}
    value = draw(values(schema))

    def disturb(part: Any) -> Any:
        if isinstance(part, dict):
            part = {key: disturb(inner) for key, inner in part.items()}
        elif isinstance(part, list):
            part = [disturb(inner) for inner in part]
        return json.dumps(part) if draw(st.booleans()) else part

    return schema, value, disturb(value)


@hypothesis.given(written())
@hypothesis.settings(max_examples=150, deadline=None)
def test_values_written_as_text_are_read_back(case: tuple[dict[str, Any], Any, Any]):
    schema, value, disturbed = case
    subject = SchemaTool(schema)
    before = copy.deepcopy(disturbed)
    prepared = prepare(subject, disturbed)
    assert prepared == value
    assert disturbed == before
    assert prepare(subject, prepared) is prepared
    assert prepare(subject, json.dumps(disturbed)) == value


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-100, 100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.sampled_from("abn"), inner, max_size=3)
    ),
    max_leaves=8,
)


@hypothesis.given(
    schemas, st.dictionaries(st.sampled_from("abcn"), plain | st.sampled_from(["[1]", "5", "null", ""]), max_size=4)
)
@hypothesis.settings(max_examples=150, deadline=None)
def test_whatever_comes_is_valid_or_an_error(inner: dict[str, Any], arguments: dict[str, Any]):
    union = {"anyOf": [inner, {"type": "null"}]}
    subject = of({"a": inner, "b": union, "c": {"type": "string"}, "n": {"type": ["integer", "null"]}}, "a")
    before = copy.deepcopy(arguments)
    try:
        valid = subject.validate(arguments) is arguments
    except InvalidArguments:
        valid = False
    try:
        prepared = prepare(subject, arguments)
    except InvalidArguments:
        assert not valid
    else:
        assert subject.validate(prepared) == prepared
        assert prepare(subject, prepared) == prepared
        assert not valid or prepared is arguments
    assert arguments == before
