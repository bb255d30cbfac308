"""Schemas for Anthropic (guides "Tool use" and "Structured outputs"), and for Amazon Bedrock's Converse."""

import re

from replan.encoding import JSON, JSONObject, encode

from .merging import both, spread, without_all_of
from .references import tidied
from .roots import object_root
from .words import ANNOTATIONS, a_list, an_object, deep, each, strings, types_of

__all__ = ["anthropic_output", "anthropic_parameters", "bedrock_parameters"]

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_FORMATS = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid",
})  # fmt: skip
_KEPT = frozenset({"type", "title", "description", "enum", "const", "anyOf", "properties", "required", "items"})
_UNSAID = frozenset({"deprecated", "readOnly", "writeOnly"})
_OF_TYPES = {
    "object": {"properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains"},
    "string": {"pattern", "format", "minLength", "maxLength"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}
_MOST_OPTIONAL, _MOST_UNIONS = 24, 16
"""The API's "schema complexity limits"."""


def anthropic_parameters(schema: JSONObject) -> JSONObject:
    """The `input_schema` of a tool: JSON schema of 2020-12, with a plain object at the root and no references.

    The API refuses parameters with odd names; they are told in the description. Raises `ValueError` where no object
    fulfils the schema.
    """
    found = object_root(schema)
    odd = [name for name in found["properties"] if not _NAME.fullmatch(name)]
    if not odd:
        return found
    found["properties"] = {name: part for name, part in found["properties"].items() if name not in odd}
    if required := [name for name in strings(found.pop("required", None)) if name not in odd]:
        found["required"] = required
    found.pop("additionalProperties", None)
    said = ", ".join(encode(name).decode() for name in odd)
    return {**found, "description": _noted(found.get("description"), f"more properties: {said}")}


def bedrock_parameters(schema: JSONObject) -> JSONObject:
    """The `inputSchema.json` of a tool: as for Anthropic, which all models behind it take."""
    return anthropic_parameters(schema)


def anthropic_output(schema: JSONObject) -> JSONObject | None:
    """The schema of a native structured output: closed objects, and what is not taken said in descriptions.

    None where it cannot be: a schema that contains itself, objects with names that are not known, parts that allow
    anything, more optional properties and unions than the API takes, a root that is no object.
    """
    found, cut = tidied(schema)
    found = each(deep(found, _output), _output)
    return found if found.get("type") == "object" and not cut and _expressible(found) else None


def _output(node: JSONObject) -> JSONObject:
    node = _shaped(node)
    kept = {word: value for word, value in node.items() if word in _KEPT}
    said = {word: value for word, value in node.items() if word not in _KEPT | _UNSAID}
    if said.get("default", ...) is None:
        del said["default"]
    if "object" in types_of(kept):
        properties = an_object(kept.setdefault("properties", {}))
        if required := [name for name in strings(kept.pop("required", None)) if name in properties]:
            kept["required"] = required
        others = said.pop("additionalProperties", None)
        open_ended = "patternProperties" in said or isinstance(others, dict) or (others is not False and not properties)
        kept["additionalProperties"] = {} if open_ended else False
    if kept.get("type") == "string" and said.get("format") in _FORMATS:
        kept["format"] = said.pop("format")
    if kept.get("type") == "array" and said.get("minItems") in (0, 1):
        kept["minItems"] = said.pop("minItems")
    if "prefixItems" in said:
        rest = [kept["items"]] if kept.get("items", {"not": {}}) != {"not": {}} else []
        kept["items"] = {"anyOf": [*said["prefixItems"], *rest]}
    note = ", ".join(f"{word}: {encode(value).decode()}" for word, value in said.items())
    return {**kept, "description": _noted(kept.get("description"), note)} if note else kept


def _shaped(node: JSONObject) -> JSONObject:
    """A node of one type, or a union with nothing beside it but what describes it."""
    node = spread(_by_type(_inferred(without_all_of(node))), ANNOTATIONS)
    if len(node.get("anyOf", ())) != 1:
        return node
    return _shaped(both(node["anyOf"][0], {word: value for word, value in node.items() if word != "anyOf"}))


def _inferred(node: JSONObject) -> JSONObject:
    """The node with its type, where what it says is of one type only. Values say all that there is to say."""
    if "enum" in node or "const" in node:
        return {word: value for word, value in node.items() if word in ANNOTATIONS | {"enum", "const"}}
    if "type" in node:
        return node
    kinds = [kind for kind, words in _OF_TYPES.items() if node.keys() & words]
    return {"type": kinds[0], **node} if len(kinds) == 1 and kinds[0] in ("object", "array") else node


def _by_type(node: JSONObject) -> JSONObject:
    """Several types as a union of them, each without the words that are about others."""
    types = types_of(node)
    if not types or "anyOf" in node or "oneOf" in node:
        return node
    if len(types) == 1:
        return _of_type(node, types[0])
    beside = {word: value for word, value in node.items() if word in ANNOTATIONS}
    rest = {word: value for word, value in node.items() if word not in ANNOTATIONS}
    return {**beside, "anyOf": [_of_type(rest, name) for name in types]}


def _of_type(node: JSONObject, name: str) -> JSONObject:
    kind = "number" if name == "integer" else name
    strange = {word for other, words in _OF_TYPES.items() if other != kind for word in words}
    return {"type": name, **{word: value for word, value in node.items() if word not in strange and word != "type"}}


def _noted(description: JSON, note: str) -> str:
    return f"{description} ({note})" if description else f"({note})"


def _expressible(schema: JSONObject) -> bool:
    """Whether the API takes the schema: each object is closed, each part has a type, values are simple."""
    counts = {"optional": 0, "unions": 0}
    fitting = True

    def look(node: JSONObject) -> JSONObject:
        nonlocal fitting
        values = a_list(node.get("enum")) + ([node["const"]] if "const" in node else [])
        fitting = fitting and not any(isinstance(value, dict | list) for value in values)
        fitting = fitting and any(word in node for word in ("type", "enum", "const", "anyOf"))
        fitting = fitting and node.get("additionalProperties") in (None, False)
        fitting = fitting and not ("array" in types_of(node) and "items" not in node)
        counts["optional"] += len(an_object(node.get("properties"))) - len(a_list(node.get("required")))
        counts["unions"] += "anyOf" in node
        return node

    each(schema, look)
    return fitting and counts["optional"] <= _MOST_OPTIONAL and counts["unions"] <= _MOST_UNIONS
