"""Schemas for OpenAI (guides "Function calling" and "Structured outputs"), and for servers that speak as it does."""

from replan.encoding import JSON, JSONObject

from .references import target, tidied
from .roots import object_root
from .words import a_list, an_object, each, strings, types_of

__all__ = ["openai_output", "openai_parameters", "openai_strict"]

_STRICT_WORDS = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
    "definitions", "description", "title", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
})  # fmt: skip
_STRICT_FORMATS = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])
_LOOKING_AROUND = ("(?=", "(?!", "(?<=", "(?<!")
_DEPTH, _PROPERTIES, _VALUES = 10, 5_000, 1_000
"""Most levels of objects, properties and values of enumerations of a strict schema."""


def openai_parameters(schema: JSONObject) -> JSONObject:
    """The parameters of a tool: a plain object at the root, below it nearly any schema.

    References to definitions stay. A schema with nothing to change is given back itself. Raises `ValueError` where no
    object fulfils the schema.
    """
    found = _strict_if_possible(each(object_root(schema, keep=True), _with_items))
    return schema if found == schema else found


def openai_output(schema: JSONObject) -> JSONObject:
    """The schema of an output, tidied, in such words that it is strict where it can be."""
    return _strict_if_possible(tidied(schema, keep=True).schema)


def openai_strict(schema: JSONObject) -> bool:
    """Whether strict mode takes the schema: objects closed, all properties required, only what it knows."""
    if schema.get("type") != "object" or "anyOf" in schema:
        return False
    counts = [0, 0]
    parts = [schema, *an_object(schema.get("$defs")).values(), *an_object(schema.get("definitions")).values()]
    return all(_strict(part, schema, _DEPTH, counts) for part in parts)


def _strict_if_possible(schema: JSONObject) -> JSONObject:
    wrapped = each(schema, _alone)
    return wrapped if openai_strict(wrapped) else schema


def _alone(node: JSONObject) -> JSONObject:
    """A reference has nothing beside it in strict mode; a union has."""
    if "$ref" not in node or len(node) == 1 or "anyOf" in node:
        return node
    return {"anyOf": [{"$ref": node["$ref"]}], **{word: value for word, value in node.items() if word != "$ref"}}


def _with_items(node: JSONObject) -> JSONObject:
    """The API refuses lists without `items`."""
    return {**node, "items": {}} if "array" in types_of(node) and "items" not in node else node


def _strict(schema: JSON, root: JSONObject, depth: int, counts: list[int]) -> bool:
    node = an_object(schema)
    if depth < 0 or not node.keys() <= _STRICT_WORDS or not _typed(node, root):
        return False
    properties = an_object(node.get("properties"))
    counts[0] += len(properties)
    counts[1] += len(a_list(node.get("enum")))
    if counts[0] > _PROPERTIES or counts[1] > _VALUES:
        return False
    if ("properties" in node or "object" in types_of(node)) and not _closed(node, properties):
        return False
    deeper = [*properties.values(), *([node["items"]] if "items" in node else [])]
    inside = depth - (1 if properties else 0)
    return all(_strict(part, root, inside, counts) for part in [*deeper, *a_list(node.get("anyOf"))])


def _typed(node: JSONObject, root: JSONObject) -> bool:
    """Whether the node says what it is, in a way that is known."""
    if "$ref" in node:
        return len(node.keys() - {"$defs", "definitions"}) == 1 and target(str(node["$ref"]), root) is not None
    if "array" in types_of(node) and "items" not in node:
        return False
    if "format" in node and node["format"] not in _STRICT_FORMATS:
        return False
    if any(token in str(node.get("pattern")) for token in _LOOKING_AROUND):
        return False
    return any(word in node for word in ("type", "anyOf", "enum", "const"))


def _closed(node: JSONObject, properties: JSONObject) -> bool:
    return node.get("additionalProperties") is False and set(strings(node.get("required"))) == properties.keys()
