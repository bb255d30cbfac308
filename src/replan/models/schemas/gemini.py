"""Schemas for Gemini: the part of JSON schema that `parametersJsonSchema` and `responseJsonSchema` take (API reference,
`FunctionDeclaration` and `GenerationConfig`; guide "Structured output").
"""

from replan.encoding import JSON, JSONObject

from .merging import spread, without_all_of
from .references import tidied
from .roots import object_root
from .words import a_list, an_object, deep, each, strings, types_of, with_null

__all__ = ["gemini_output", "gemini_parameters"]

_WORDS = frozenset({
    "type", "title", "description", "enum", "format", "items", "prefixItems", "minItems", "maxItems", "minimum",
    "maximum", "anyOf", "properties", "required", "additionalProperties",
})  # fmt: skip
_ABOUT = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "number": {"minimum", "maximum"},
}
_FORMATS = {"string": {"date-time"}, "integer": {"int32", "int64"}, "number": {"float", "double"}}
_ANNOTATIONS = frozenset({"title", "description"})


def gemini_parameters(schema: JSONObject) -> JSONObject:
    """The `parametersJsonSchema` of a function: the words that Gemini knows, and no references.

    Raises `ValueError` where no object fulfils the schema.
    """
    return _settled(object_root(schema))


def gemini_output(schema: JSONObject) -> JSONObject | None:
    """The `responseJsonSchema`; None for a schema that contains itself, and for a root that is no object."""
    found, cut = tidied(schema)
    found = _settled(found)
    return found if found.get("type") == "object" and not cut else None


def _settled(schema: JSONObject) -> JSONObject:
    """The schema in Gemini's words: what a part can be depends on what it is in, and on what is in it."""
    return each(deep(schema, _node), _node)


def _node(node: JSONObject) -> JSONObject:
    """A node of one type, or a union of such nodes and nothing beside it."""
    node = _known(_by_values(without_all_of(node)))
    if "anyOf" in node:
        node = spread(node, _ANNOTATIONS)
        return _union(node) if "anyOf" in node else _node(node)
    types = types_of(node) or [kind for kind in ("object", "array") if node.keys() & _ABOUT[kind]][:1]
    real = [name for name in types if name != "null"]
    if len(real) > 1:
        here = {word: value for word, value in node.items() if word in _ANNOTATIONS}
        rest = {word: value for word, value in node.items() if word not in _ANNOTATIONS}
        return _union({**here, "anyOf": [_of_type({**rest, "type": name}, name) for name in types]})
    return _of_type({**node, "type": node.get("type", types[0])}, [*real, "null"][0]) if types else node


def _known(node: JSONObject) -> JSONObject:
    """The words that are known. Where names may follow a pattern, any name may."""
    found = {word: value for word, value in node.items() if word in _WORDS}
    if node.get("oneOf"):
        found["anyOf"] = [*a_list(node.get("anyOf")), *node["oneOf"]]
    if "patternProperties" in node or found.get("additionalProperties") == {}:
        found.pop("additionalProperties", None)
    return found


def _by_values(node: JSONObject) -> JSONObject:
    """Values as texts and numbers, which are taken; of others the type is."""
    values = [node["const"]] if "const" in node else a_list(node.get("enum"))
    if not values:
        return node
    rest = {word: value for word, value in node.items() if word not in ("enum", "const", "type", "format")}
    branches = [branch for kind in _KINDS if (branch := _values_of(kind, values, types_of(node)))]
    if len(branches) == 1:
        return {**rest, **branches[0]}
    return {**rest, "anyOf": branches} if "anyOf" not in rest and "oneOf" not in rest else rest


_KINDS = ("string", "number", "boolean", "null", "object", "array")
_PYTHON = {"string": str, "number": int | float, "boolean": bool, "null": type(None), "object": dict, "array": list}


def _values_of(kind: str, values: list[JSON], types: list[str]) -> JSONObject:
    fitting = [v for v in values if isinstance(v, _PYTHON[kind]) and (kind == "boolean" or not isinstance(v, bool))]
    if not fitting:
        return {}
    if kind == "number":
        whole = "number" not in types and all(isinstance(value, int) for value in fitting)
        return {"type": "integer" if whole else "number", "enum": fitting}
    return {"type": kind, "enum": fitting} if kind == "string" and "" not in fitting else {"type": kind}


def _of_type(node: JSONObject, kind: str) -> JSONObject:
    """The node without words that are about other types, and with those that its type needs."""
    strange = {w for name, words in _ABOUT.items() for w in words if name != kind.replace("integer", "number")}
    found = {word: value for word, value in node.items() if word not in strange}
    if found.get("format") not in _FORMATS.get(kind, ()):
        found.pop("format", None)
    if kind == "array":
        found.setdefault("items", {})
    if "required" in found:
        known = an_object(found.get("properties"))
        found["required"] = [name for name in strings(found["required"]) if name in known]
    return {word: value for word, value in found.items() if not (word == "required" and not value)}


def _union(node: JSONObject) -> JSONObject:
    """A union alone in its node; with null, or with what allows anything, it is none."""
    branches: list[JSONObject] = []
    for branch in map(_node, a_list(node["anyOf"])):
        branches += [part for part in branch.get("anyOf", [branch]) if part not in branches]
    here = {word: value for word, value in node.items() if word in _ANNOTATIONS}
    if not all("type" in branch for branch in branches):
        return here
    real = [branch for branch in branches if branch["type"] != "null"]
    if len(real) == 1 and not ("enum" in real[0] and len(branches) > 1):
        return {**(with_null(real[0]) if len(branches) > 1 else real[0]), **here}
    if not real or not here:
        return {"anyOf": branches} if real else {**branches[0], **here}
    first = {**branches[0], **{word: _joined(here[word], branches[0].get(word)) for word in here}}
    return {"anyOf": [first, *branches[1:]]}


def _joined(one: JSON, other: JSON) -> str:
    return f"{one} {other}" if other and other != one else str(one)
