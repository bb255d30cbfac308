"""JSON schemas as the Chat Completions API takes them.

Rules: strict mode as in OpenAI's guide "Structured outputs" (supported schemas); the root of a tool's parameters must
be an object without `anyOf`, `oneOf`, `allOf`, `enum` or `not` beside it.
"""

from typing import Any, cast

from replan.encoding import JSON, JSONObject

__all__ = ["plain_parameters", "strict_schema"]

_STRICT_WORDS = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
    "definitions", "description", "title", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
})  # fmt: skip
_UNIONS = ("anyOf", "oneOf", "allOf")
_NOT_AT_ROOT = (*_UNIONS, "enum", "not", "const", "if", "then", "else", "$schema", "$id", "$ref")


def strict_schema(schema: JSONObject) -> bool:
    """Whether strict mode accepts the schema: objects closed, all properties required, only words that it knows."""
    return schema.get("type") == "object" and "anyOf" not in schema and _strict(schema, 32)


def plain_parameters(schema: JSONObject) -> JSONObject:
    """The parameters of a tool with a root that is a plain object; below the root nothing changes.

    A root that is a reference or a union becomes the object that accepts what any of its branches accepts.
    """
    if schema.get("type") == "object" and "properties" in schema and not any(word in schema for word in _NOT_AT_ROOT):
        return schema
    properties, required = _gather(schema, schema, 8)
    kept = {word: value for word, value in schema.items() if word not in _NOT_AT_ROOT}
    found: JSONObject = {**kept, "type": "object", "properties": properties}
    if required:
        found["required"] = sorted(required, key=list(properties).index)
    else:
        found.pop("required", None)
    return found


def _strict(schema: JSON, depth: int) -> bool:
    if not isinstance(schema, dict) or depth <= 0 or not schema.keys() <= _STRICT_WORDS:
        return False
    node = cast("JSONObject", schema)
    properties = _dict(node.get("properties"))
    if ("properties" in node or "object" in _list(node.get("type"))) and not (
        node.get("additionalProperties") is False and _names(node.get("required")) == properties.keys()
    ):
        return False
    inner = [*properties.values(), *_dict(node.get("$defs")).values(), *_dict(node.get("definitions")).values()]
    inner += _list(node.get("anyOf"))
    if "items" in node:
        inner.append(node["items"])
    return all(_strict(part, depth - 1) for part in inner)


def _gather(schema: JSON, root: JSONObject, depth: int) -> tuple[JSONObject, set[str]]:
    """The properties of an object schema with its branches, and those that every accepted object has."""
    node = _dict(schema)
    properties, required = dict(_dict(node.get("properties"))), _names(node.get("required"))
    if depth > 0:
        parts = [("allOf", [_target(node["$ref"], root)])] if isinstance(node.get("$ref"), str) else []
        parts += [(word, _list(node.get(word))) for word in _UNIONS if node.get(word)]
        for word, branches in parts:
            gathered = [_gather(branch, root, depth - 1) for branch in branches]
            for more, _ in gathered:
                properties = {**more, **properties}
            needed = [set(names) for _, names in gathered]
            every = [name for name in properties if all(name in names for names in needed)]
            required |= set[str]().union(*needed) if word == "allOf" else set(every)
    return properties, required & properties.keys()


def _names(value: JSON) -> set[str]:
    return {name for name in _list(value) if isinstance(name, str)}


def _target(reference: str, root: JSONObject) -> JSON:
    node: Any = root
    for step in reference.removeprefix("#").strip("/").split("/") if reference.startswith("#/") else [""]:
        node = _dict(node).get(step.replace("~1", "/").replace("~0", "~"))
    return node


def _dict(value: JSON) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}


def _list(value: JSON) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]
