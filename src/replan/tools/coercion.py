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

from replan.encoding import JSON, JSONObject, normalise

__all__ = ["coerce", "property_schemas"]

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,18})(\.\d+)?([eE][+-]?\d{1,3})?")
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})(\.0+)?")
_WORDS: dict[str, bool] = {"true": True, "false": False, "True": True, "False": False}
_NULLS = ("", "null", "None")
_SEVERAL = re.compile(r"[,;\n]|^\s*$|^\s*[\[{]")
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
        self._known_types: dict[int, _Types] = {}

    def read(self, value: JSON, schema: JSON) -> JSON:
        resolved = self._resolve(schema)
        for part in resolved.get("allOf") or ():
            value = self.read(value, part)
        branches = resolved.get("anyOf") or resolved.get("oneOf")
        if branches:
            value = self._read_union(value, branches)
        if "enum" in resolved or "const" in resolved:
            return _read_enum(value, [resolved["const"]] if "const" in resolved else resolved["enum"])
        types = self._types(schema)
        if types != _ALL and not _fits(value, types):
            value = self._read_other_type(value, resolved, types)
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

    def _types(self, schema: JSON) -> _Types:
        """The JSON types that a schema allows; where it refers to itself, all of them."""
        if id(schema) not in self._known_types:
            self._known_types[id(schema)] = _ALL
            self._known_types[id(schema)] = self._find_types(self._resolve(schema))
        return self._known_types[id(schema)]

    def _find_types(self, resolved: JSONObject) -> _Types:
        types = _ALL
        named = resolved.get("type")
        if named:
            types &= frozenset([named] if isinstance(named, str) else named)
        if "const" in resolved or "enum" in resolved:
            values = [resolved["const"]] if "const" in resolved else resolved["enum"]
            types &= frozenset().union(*(_types_of(v) for v in values))
        for union in (resolved.get("anyOf"), resolved.get("oneOf")):
            if union:
                types &= frozenset().union(*(self._types(branch) for branch in union))
        for part in resolved.get("allOf") or ():
            types &= self._types(part)
        return types | _INTEGERS if "number" in types else types

    def _read_union(self, value: JSON, branches: list[JSON]) -> JSON:
        """By the one branch that the value is of; else by the branches that can read it, if all read the same."""
        fitting = [branch for branch in branches if self._fits_branch(value, branch)]
        if len(fitting) > 1:
            fitting = [branch for branch in fitting if self._is_of(value, branch)]
        if fitting:
            return self.read(value, fitting[0]) if len(fitting) == 1 else value
        readings: list[JSON] = []
        for branch in branches:
            reading = self.read(value, branch)
            fits = self._fits_branch(reading, branch) and self._is_of(reading, branch)
            if fits and not _contains(readings, reading):
                readings.append(reading)
        return readings[0] if len(readings) == 1 else value

    def _fits_branch(self, value: JSON, branch: JSON) -> bool:
        resolved = self._resolve(branch)
        if "enum" in resolved and not _contains(resolved["enum"], value):
            return False
        if "const" in resolved and not _same(resolved["const"], value):
            return False
        return _fits(value, self._types(branch))

    def _is_of(self, value: JSON, branch: JSON) -> bool:
        """Whether an object has what tells a branch from others: the required properties, and those of fixed value."""
        if not isinstance(value, dict):
            return True
        resolved = self._resolve(branch)
        properties = property_schemas(resolved)
        fixed = {n: s for n, s in properties.items() if n in value and not s.keys().isdisjoint(("const", "enum"))}
        has_required = all(name in value for name in resolved.get("required") or ())
        return has_required and all(self._fits_branch(value[name], schema) for name, schema in fixed.items())

    def _read_other_type(self, value: JSON, schema: JSONObject, types: _Types) -> JSON:
        """A value of a wrong type as one of the right types, if exactly one is possible; as a list of one at last."""
        if "format" in schema and not isinstance(value, str):
            types -= {"string"}  # a number is no date
        readings: list[JSON] = []
        for reading in _scalars(value, types):
            if not _contains(readings, reading):
                readings.append(reading)
        if not readings and "array" in types:
            readings = self._wrap(value, schema.get("items"))
        return readings[0] if len(readings) == 1 else value

    def _wrap(self, value: JSON, items: JSON) -> list[JSON]:
        """The lists of one that a value can be: none where items may be anything, or a text looks like several."""
        types = self._types(items) if isinstance(items, dict) else _ALL
        if value is None or types == _ALL:
            return []
        item = self.read(value, items)
        several = isinstance(item, str) and _SEVERAL.search(item)
        return [[item]] if _fits(item, types) and not several else []

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
        if value is None:
            return "null" not in types
        return "string" not in types and (value == "" or (value in _NULLS and "null" not in types))

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
        return normalise(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        pass
    try:
        return normalise(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
