"""Reading a value again by the JSON schema that it should have fitted, where there is one reading.

Only the shape of a schema is looked at (types, enumerations, references, unions, properties, items); whether the result
is valid is for the tool's own validation to say.
"""

import ast
import json
import math
import re
from collections.abc import Iterator
from typing import Any, TypeAlias, cast

from replan.encoding import JSON, JSONObject

__all__ = ["coerce", "property_schemas"]

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,18})(\.\d+)?([eE][+-]?\d{1,3})?")
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})(\.0+)?")
_WORDS: dict[str, bool] = {"true": True, "false": False, "True": True, "False": False}
_NULLS = ("", "null", "None")
_MAX_TEXT = 1_000_000
_MAX_REFERENCES = 32

_ALL = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_NULL, _OBJECT, _INTEGERS = frozenset({"null"}), frozenset({"object"}), frozenset({"integer"})
_PYTHON: tuple[tuple[type, frozenset[str]], ...] = (
    (bool, frozenset({"boolean"})),
    (int, frozenset({"integer", "number"})),
    (float, frozenset({"number"})),
    (str, frozenset({"string"})),
    (list, frozenset({"array"})),
)
_Types: TypeAlias = frozenset[str]


def coerce(value: JSON, schema: JSON) -> JSON:
    """The value as the schema wants it, as far as that is clear. What is not clear stays; `value` is not changed."""
    try:
        return _Reader(schema).read(value, schema)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return value  # the schema is none, which is for the validation to say


def property_schemas(schema: JSONObject) -> JSONObject:
    """The schemas of an object schema's own properties."""
    properties = schema.get("properties")
    return cast("JSONObject", properties) if isinstance(properties, dict) else {}


class _Reader:
    def __init__(self, root: JSON) -> None:
        self._root = root

    def read(self, value: JSON, schema: JSON) -> JSON:
        resolved = self._resolve(schema)
        for part in resolved.get("allOf") or ():
            value = self.read(value, part)
        branches = resolved.get("anyOf") or resolved.get("oneOf")
        if branches:
            value = self._read_union(value, branches)
        types = self._types(resolved)
        if "enum" in resolved or "const" in resolved:
            return _read_enum(value, [resolved["const"]] if "const" in resolved else resolved["enum"])
        if types is not _ALL and not _fits(value, types):
            value = self._read_scalar_or_text(value, resolved, types)
        return self._read_inside(value, resolved)

    def _resolve(self, schema: JSON) -> JSONObject:
        """The schema behind references (within the document only), with what stands beside a reference."""
        found = cast("JSONObject", schema) if isinstance(schema, dict) else {}
        for _ in range(_MAX_REFERENCES):
            reference = found.get("$ref")
            if not isinstance(reference, str):
                return found
            beside = {key: inner for key, inner in found.items() if key != "$ref"}
            found = {**self._follow(reference), **beside}
        return {}

    def _follow(self, reference: str) -> JSONObject:
        target: Any = self._root
        if not reference.startswith("#"):
            return {}
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            target = cast("JSONObject", target).get(key) if isinstance(target, dict) else None
        return cast("JSONObject", target) if isinstance(target, dict) else {}

    def _types(self, schema: JSON, depth: int = 0) -> _Types:
        """The JSON types that a schema allows."""
        resolved = self._resolve(schema)
        if depth > _MAX_REFERENCES:
            return _ALL
        types = _ALL
        named = resolved.get("type")
        if named:
            types &= frozenset([named] if isinstance(named, str) else named)
        if "const" in resolved or "enum" in resolved:
            values = [resolved["const"]] if "const" in resolved else resolved["enum"]
            types &= frozenset().union(*(_types_of(v) for v in values))
        for union in (resolved.get("anyOf"), resolved.get("oneOf")):
            if union:
                types &= frozenset().union(*(self._types(branch, depth + 1) for branch in union))
        for part in resolved.get("allOf") or ():
            types &= self._types(part, depth + 1)
        if types == _ALL or "number" not in types:
            return _ALL if types == _ALL else types
        return types | _INTEGERS

    def _read_union(self, value: JSON, branches: list[JSON]) -> JSON:
        """By the one branch whose type the value has; else by the branches that can read it, if all read the same."""
        fitting = [branch for branch in branches if self._fits_branch(value, branch)]
        if fitting:
            return self.read(value, fitting[0]) if len(fitting) == 1 else value
        readings: list[JSON] = []
        for branch in branches:
            reading = self.read(value, branch)
            if self._fits_branch(reading, branch) and not _contains(readings, reading):
                readings.append(reading)
        return readings[0] if len(readings) == 1 else value

    def _fits_branch(self, value: JSON, branch: JSON) -> bool:
        resolved = self._resolve(branch)
        if "enum" in resolved and not _contains(resolved["enum"], value):
            return False
        if "const" in resolved and not _same(resolved["const"], value):
            return False
        return _fits(value, self._types(resolved))

    def _read_scalar_or_text(self, value: JSON, schema: JSONObject, types: _Types) -> JSON:
        """A value of a wrong type as one of the right types, if exactly one is possible."""
        readings: list[JSON] = []
        for reading in _scalars(value, types):
            if not _contains(readings, reading):
                readings.append(reading)
        if not readings and "array" in types and (wrapped := self._wrap(value, schema)) is not None:
            readings.append(wrapped)
        return readings[0] if len(readings) == 1 else value

    def _wrap(self, value: JSON, schema: JSONObject) -> list[JSON] | None:
        """A single value where a list is wanted, if it fits the items and does not look like several."""
        items = schema.get("items")
        types = self._types(items) if isinstance(items, dict) else _ALL
        if value is None or types == _ALL or (isinstance(value, str) and re.search(r"[,;\n]|^\s*$|^\s*[\[{]", value)):
            return None if not (isinstance(value, str) and types == _OBJECT) else self._wrap_text(value, items)
        item = self.read(value, items)
        return [item] if _fits(item, types) else None

    def _wrap_text(self, value: str, items: JSON) -> list[JSON] | None:
        item = self.read(value, items)
        return [item] if isinstance(item, dict) else None

    def _read_inside(self, value: JSON, schema: JSONObject) -> JSON:
        if isinstance(value, dict):
            return self._read_object(cast("JSONObject", value), schema)
        if isinstance(value, list):
            return self._read_array(cast("list[JSON]", value), schema)
        return value

    def _read_object(self, value: JSONObject, schema: JSONObject) -> JSONObject:
        properties, required = property_schemas(schema), schema.get("required") or ()
        others = schema.get("additionalProperties")
        result: JSONObject = {}
        for name, inner in value.items():
            if name in properties:
                if name in required or not self._is_empty(inner, properties[name]):
                    result[name] = self.read(inner, properties[name])
            else:
                result[name] = self.read(inner, others) if isinstance(others, dict) else inner
        return result

    def _is_empty(self, value: JSON, schema: JSON) -> bool:
        """Whether the value stands for "not given": null or empty text where the schema allows neither."""
        types = self._types(schema)
        return (value is None and "null" not in types) or (value == "" and "string" not in types)

    def _read_array(self, value: list[JSON], schema: JSONObject) -> list[JSON]:
        fixed: list[JSON] = schema.get("prefixItems") or []
        rest = schema.get("items")
        return [self.read(v, fixed[i] if i < len(fixed) else rest) for i, v in enumerate(value)]


def _types_of(value: JSON) -> _Types:
    if value is None:
        return _NULL
    return next((types for kind, types in _PYTHON if isinstance(value, kind)), _OBJECT)


def _fits(value: JSON, types: _Types) -> bool:
    return not types.isdisjoint(_types_of(value))


def _same(one: JSON, other: JSON) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _contains(values: list[JSON], value: JSON) -> bool:
    return any(_same(known, value) for known in values)


def _read_enum(value: JSON, allowed: list[JSON]) -> JSON:
    if _contains(allowed, value):
        return value
    readings = [known for known in allowed if any(_same(known, r) for r in _scalars(value, _types_of(known)))]
    return readings[0] if len(readings) == 1 else value


def _scalars(value: JSON, types: _Types) -> Iterator[JSON]:
    """The readings of a value as one of the types."""
    if isinstance(value, str):
        yield from _texts(value, types)
    elif isinstance(value, float) and "integer" in types and value.is_integer() and abs(value) < 2**53:
        yield int(value)
    elif isinstance(value, int) and not isinstance(value, bool) and "string" in types:
        yield str(value)


def _texts(text: str, types: _Types) -> Iterator[JSON]:
    word = text.strip()
    if "null" in types and word in _NULLS:
        yield None
    if "boolean" in types and word in _WORDS:
        yield _WORDS[word]
    if "integer" in types and _INTEGER.fullmatch(word):
        yield int(word.split(".")[0])
    elif "number" in types and _NUMBER.fullmatch(word) and math.isfinite(float(word)):
        yield json.loads(word)
    if word[:1] in ("[", "{") and len(word) <= _MAX_TEXT:
        kind = "array" if word[0] == "[" else "object"
        if kind in types and (found := _structure(word)) is not None and _fits(found, frozenset({kind})):
            yield found


def _structure(text: str) -> JSON:
    """The list or object that a text is, as JSON or as a Python literal; None where it is neither."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(json.dumps(ast.literal_eval(text), allow_nan=False))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
