import pytest

from replan.models.schemas import openai_parameters, openai_strict

CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def test_a_closed_schema_is_strict():
    nested = {**CLOSED, "properties": {"a": {"type": "array", "items": CLOSED}}, "$defs": {"x": CLOSED}}
    assert openai_strict(CLOSED)
    assert openai_strict(nested)


@pytest.mark.parametrize(
    "schema",
    [
        {**CLOSED, "required": []},
        {**CLOSED, "additionalProperties": True},
        {k: v for k, v in CLOSED.items() if k != "additionalProperties"},
        {**CLOSED, "properties": {"a": {"type": "object"}}},
        {**CLOSED, "properties": {"a": {"type": ["object", "null"], "additionalProperties": {"type": "string"}}}},
        {**CLOSED, "properties": {"a": {"oneOf": [{"type": "string"}]}}},
        {**CLOSED, "properties": {"a": {"type": "string", "default": "x"}}},
        {**CLOSED, "$defs": {"x": {"type": "object", "properties": {"b": {}}}}},
        {"type": "array", "items": CLOSED},
        {"anyOf": [CLOSED, CLOSED]},
        {},
    ],
)
def test_other_schemas_are_not(schema: dict):
    assert not openai_strict(schema)


def test_a_plain_object_is_left_alone():
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}}
    assert openai_parameters(schema) is schema


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"$schema": "http://json-schema.org/draft-07/schema#"}])
def test_a_root_without_properties_gets_some(schema: dict):
    assert openai_parameters(schema) == {"type": "object", "properties": {}}


def test_a_root_reference_is_followed_and_recursion_stays():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
    plain = openai_parameters({"$ref": "#/$defs/Node", "$defs": {"Node": node}})
    assert plain == {"type": "object", **node, "$defs": {"Node": node}}


def test_a_root_that_refers_to_itself_ends():
    assert openai_parameters({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})["properties"] == {}


def test_a_root_union_accepts_what_its_branches_accept():
    union = {
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
        "oneOf": [
            {"properties": {"a": {"type": "string"}, "c": {}}, "required": ["a", "c"]},
            {"properties": {"b": {"type": "string"}, "c": {}}, "required": ["b", "c"]},
        ],
    }
    plain = openai_parameters(union)
    assert set(plain["properties"]) == {"id", "a", "b", "c"}
    assert sorted(plain["required"]) == ["c", "id"]
    assert "oneOf" not in plain


def test_all_of_at_the_root_requires_everything():
    plain = openai_parameters(
        {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}
    )
    assert sorted(plain["required"]) == ["a", "b"]
