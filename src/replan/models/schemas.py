"""JSON schemas as each provider takes them. Nothing is changed in place; parameters of tools only get wider, because
arguments are checked against the tool's own schema anyway.

Rules: OpenAI, guides "Structured outputs" and "Function calling"; Anthropic, guides "Tool use" and "Structured
outputs"; Gemini, guide "Structured output" (JSON schema support).
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

from replan.encoding import JSON, JSONObject, encode

__all__ = [
    "anthropic_output",
    "anthropic_parameters",
    "bedrock_parameters",
    "gemini_output",
    "gemini_parameters",
    "inline",
    "openai_parameters",
    "openai_strict",
]

_UNIONS = ("anyOf", "oneOf", "allOf")
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_LISTS = (*_UNIONS, "prefixItems")
_SINGLE = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_NAMING = frozenset(
    ["$schema", "$id", "id", "$anchor", "$comment", "$defs", "definitions", "$dynamicAnchor", "$vocabulary"]
)
_NOT_AT_ROOT = (*_UNIONS, "enum", "not", "const", "if", "then", "else", "$schema", "$id", "$ref")
_STRICT_WORDS = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
    "definitions", "description", "title", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
})  # fmt: skip
_GEMINI_WORDS = frozenset({
    "type", "title", "description", "enum", "format", "items", "prefixItems", "minItems", "maxItems", "minimum",
    "maximum", "anyOf", "properties", "required", "additionalProperties",
})  # fmt: skip
_GEMINI_FORMATS = frozenset(["date-time", "date", "time", "int32", "int64", "float", "double"])
_ANTHROPIC_WORDS = frozenset({
    "type", "title", "description", "enum", "const", "format", "items", "anyOf", "allOf", "properties", "required",
    "additionalProperties", "default",
})  # fmt: skip
_ANTHROPIC_FORMATS = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid",
})  # fmt: skip
_MOST_NODES = 20_000
_MOST_DEPTH = 48


# ---- references


def inline(schema: JSONObject) -> JSONObject:
    """The schema without references: each is replaced by what it points to.

    Where it points to itself, to nothing or outside, anything is allowed, and so it is beyond a depth of 48 and a size
    of 20,000 parts.
    """
    return _Inliner(schema).whole()


def recursive(schema: JSONObject) -> bool:
    """Whether the schema contains itself."""
    inliner = _Inliner(schema)
    inliner.whole()
    return inliner.cut


class _Inliner:
    def __init__(self, root: JSONObject) -> None:
        self._root = root
        self._left = _MOST_NODES
        self.cut = False

    def whole(self) -> JSONObject:
        return _dict(self._schema(self._root, (), _MOST_DEPTH))

    def _schema(self, node: JSON, path: tuple[str, ...], depth: int) -> JSON:
        if isinstance(node, bool):
            return {} if node else {"not": {}}
        if not isinstance(node, dict):
            return {}
        self._left -= 1
        if depth <= 0 or self._left <= 0:
            self.cut = True
            return {}
        fields = cast("JSONObject", node)
        reference = fields.get("$ref", fields.get("$dynamicRef"))
        if isinstance(reference, str):
            return self._resolved(fields, reference, path, depth)
        return {word: self._value(word, value, path, depth) for word, value in fields.items() if word not in _NAMING}

    def _resolved(self, fields: JSONObject, reference: str, path: tuple[str, ...], depth: int) -> JSON:
        beside = {word: value for word, value in fields.items() if word not in ("$ref", "$dynamicRef")}
        own = self._schema(beside, path, depth)
        target = _target(reference, self._root)
        if reference in path or target is None:
            self.cut = self.cut or reference in path
            return own
        found = self._schema(target, (*path, reference), depth - 1)
        return _both(_dict(found), _dict(own))

    def _value(self, word: str, value: JSON, path: tuple[str, ...], depth: int) -> JSON:
        if word in _MAPS and isinstance(value, dict):
            return {name: self._schema(each, path, depth - 1) for name, each in cast("JSONObject", value).items()}
        if word in _LISTS or (word == "items" and isinstance(value, list)):
            return [self._schema(each, path, depth - 1) for each in _list(value)]
        if word == "additionalProperties" and isinstance(value, bool):
            return value
        return self._schema(value, path, depth - 1) if word in _SINGLE else value


def _both(found: JSONObject, own: JSONObject) -> JSONObject:
    """What a reference points to, and what stands beside it: that counts where both say something, or both hold."""
    merged = {**found, **own}
    for word in ("properties", "$defs"):
        if word in found and word in own:
            merged[word] = {**_dict(found[word]), **_dict(own[word])}
    if "required" in found and "required" in own:
        merged["required"] = list(dict.fromkeys([*_list(found["required"]), *_list(own["required"])]))
    return merged


def _target(reference: str, root: JSONObject) -> JSON:
    if reference in ("#", ""):
        return root
    if not reference.startswith("#/"):
        return next((each for each in _named(root) if _dict(each).get("$anchor") == reference.removeprefix("#")), None)
    node: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~").replace("%25", "%")
        if isinstance(node, list):
            items = cast("list[Any]", node)
            node = items[int(name)] if name.isdecimal() and int(name) < len(items) else None
        else:
            node = _dict(node).get(name)
    return node if isinstance(node, bool) else _dict(node) if isinstance(node, dict) else None


def _named(root: JSONObject) -> Iterable[JSON]:
    return [*_dict(root.get("$defs")).values(), *_dict(root.get("definitions")).values()]


# ---- OpenAI


def openai_strict(schema: JSONObject) -> bool:
    """Whether strict mode accepts the schema: objects closed, all properties required, only words that it knows."""
    return schema.get("type") == "object" and "anyOf" not in schema and _strict(schema, 32)


def openai_parameters(schema: JSONObject) -> JSONObject:
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


# ---- Anthropic, Bedrock


def anthropic_parameters(schema: JSONObject) -> JSONObject:
    """The `input_schema` of a tool: JSON schema of 2020-12, with a plain object at the root and no references."""
    return _each(openai_parameters(inline(schema)), _modern)


def bedrock_parameters(schema: JSONObject) -> JSONObject:
    """The `inputSchema.json` of a tool: as for Anthropic, which all models behind it take."""
    return anthropic_parameters(schema)


def anthropic_output(schema: JSONObject) -> JSONObject | None:
    """The schema of a native structured output: closed objects, and what is not taken said in descriptions.

    None where it cannot be: a schema that contains itself, open objects, a root that is no object.
    """
    if recursive(schema):
        return None
    found = _each(inline(schema), _anthropic_node)
    return found if found.get("type") == "object" and not _open(found) else None


def _modern(node: JSONObject) -> JSONObject:
    """Tuples in the words of 2020-12, and `nullable` as a type."""
    if isinstance(node.get("items"), list):
        rest = node.get("additionalItems")
        node = {**node, "prefixItems": node["items"]}
        del node["items"]
        if rest is not None:
            node["items"] = rest if rest is not False else {"not": {}}
    node.pop("additionalItems", None)
    return _with_null(node) if node.get("nullable") is True else node


def _anthropic_node(node: JSONObject) -> JSONObject:
    node = _modern(node)
    if "oneOf" in node:
        node = {**node, "anyOf": [*_list(node.get("anyOf")), *_list(node["oneOf"])]}
    said = {w: v for w, v in node.items() if w not in _ANTHROPIC_WORDS and w not in ("oneOf", "nullable", "examples")}
    kept = {word: value for word, value in node.items() if word in _ANTHROPIC_WORDS}
    if kept.get("format") not in _ANTHROPIC_FORMATS and "format" in kept:
        said["format"] = kept.pop("format")
    if "properties" in kept or "object" in _list(kept.get("type")):
        kept.setdefault("type", "object")
        kept.setdefault("properties", {})
        if kept.get("additionalProperties") in (None, True, {}) and kept["properties"]:
            kept["additionalProperties"] = False
    if said:
        note = ", ".join(f"{word}: {encode(value).decode()}" for word, value in said.items())
        kept["description"] = f"{kept['description']} ({note})" if kept.get("description") else f"({note})"
    return kept


def _open(node: JSON) -> bool:
    """Whether a schema has an object whose names are not all known, or a part that allows anything."""
    fields = _dict(node)
    if "object" in _list(fields.get("type")) and fields.get("additionalProperties") is not False:
        return True
    if not any(word in fields for word in ("type", "enum", "const", "anyOf", "allOf")):
        return True
    inner = [*_dict(fields.get("properties")).values(), *_list(fields.get("anyOf")), *_list(fields.get("allOf"))]
    return any(_open(part) for part in [*inner, *([fields["items"]] if "items" in fields else [])])


# ---- Gemini


def gemini_parameters(schema: JSONObject) -> JSONObject:
    """The `parametersJsonSchema` of a function: the words that Gemini knows, and no references."""
    return _each(openai_parameters(inline(schema)), _gemini_node)


def gemini_output(schema: JSONObject) -> JSONObject | None:
    """The `responseJsonSchema`; None for a schema that contains itself."""
    return None if recursive(schema) else _each(inline(schema), _gemini_node)


def _gemini_node(node: JSONObject) -> JSONObject:
    node = _merged(_modern(node))
    branches = [*_list(node.get("anyOf")), *_list(node.get("oneOf"))]
    kept = {word: value for word, value in node.items() if word in _GEMINI_WORDS and word != "anyOf"}
    if "const" in node:
        kept["enum"] = [node["const"]]
    if branches:
        kept["anyOf"] = branches
    if kept.get("format") not in _GEMINI_FORMATS:
        kept.pop("format", None)
    if isinstance(kept.get("additionalProperties"), dict) and not kept["additionalProperties"]:
        kept["additionalProperties"] = True
    return _gemini_types(_gemini_enum(kept))


def _gemini_enum(node: JSONObject) -> JSONObject:
    """An enumeration of texts or of numbers; null beside them is a type, and anything else allows too much to say."""
    if "enum" not in node:
        return node
    values = _list(node["enum"])
    rest = {word: value for word, value in node.items() if word != "enum"}
    named = [value for value in values if value is not None]
    if named and all(isinstance(value, str) for value in named):
        found: JSONObject = {**rest, "type": "string", "enum": named}
    elif named and all(isinstance(value, int | float) and not isinstance(value, bool) for value in named):
        found = {"type": "number", **rest, "enum": named}
    else:
        return rest
    return _with_null(found) if None in values else found


def _gemini_types(node: JSONObject) -> JSONObject:
    """At most one type besides null; several are branches."""
    types = [name for name in _list(node.get("type")) if isinstance(name, str)]
    real = [name for name in types if name != "null"]
    if len(real) < 2:
        return node
    shared = {word: node[word] for word in ("title", "description") if word in node}
    rest = {word: value for word, value in node.items() if word not in ("type", *shared)}
    return {**shared, "anyOf": [_of_type(rest, name) for name in types]}


def _of_type(node: JSONObject, name: str) -> JSONObject:
    words = {
        "object": ("properties", "required", "additionalProperties"),
        "array": ("items", "prefixItems", "minItems", "maxItems"),
    }
    others = [word for kind, known in words.items() if kind != name for word in known]
    return {"type": name, **{word: value for word, value in node.items() if word not in others}}


def _merged(node: JSONObject) -> JSONObject:
    """The node with the parts of its `allOf` in it."""
    parts = [_dict(part) for part in _list(node.get("allOf"))]
    found = {word: value for word, value in node.items() if word != "allOf"}
    for part in parts:
        found = _both(part, found)
    return found


# ---- walking


def _each(schema: JSONObject, change: Callable[[JSONObject], JSONObject]) -> JSONObject:
    """The schema with every part of it changed, from the inside out."""
    found: JSONObject = {}
    for word, value in schema.items():
        if word in _MAPS and isinstance(value, dict):
            found[word] = {name: _changed(part, change) for name, part in cast("JSONObject", value).items()}
        elif word in _LISTS or (word == "items" and isinstance(value, list)):
            found[word] = [_changed(part, change) for part in _list(value)]
        elif word in _SINGLE:
            found[word] = _changed(value, change)
        else:
            found[word] = value
    return change(found)


def _changed(part: JSON, change: Callable[[JSONObject], JSONObject]) -> JSON:
    return _each(cast("JSONObject", part), change) if isinstance(part, dict) else part


def _with_null(node: JSONObject) -> JSONObject:
    """The node, that may be null too."""
    node = {word: value for word, value in node.items() if word != "nullable"}
    types = _list(node.get("type"))
    return {**node, "type": [*types, "null"]} if types and "null" not in types else node


def _names(value: JSON) -> set[str]:
    return {name for name in _list(value) if isinstance(name, str)}


def _dict(value: JSON) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}


def _list(value: JSON) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]
