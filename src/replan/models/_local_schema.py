"""JSON schemas as the engine's grammar takes them.

The engine (llguidance) covers most of JSON schema, but generates without any constraint when a schema has something
that it refuses. So only what it is known to hold is passed on, references are resolved, and what cannot be expressed is
left out: the result allows more than the schema did, never something of another shape.
"""

import json
import re
from typing import Any, TypeGuard

from replan.encoding import JSON, JSONObject

__all__ = ["clean", "grammar", "is_list", "is_object"]

_TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")
_FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "ipv6")
_BOUNDS = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_REFUSED = re.compile(r"\\[bBAZz1-9]|\(\?[=!<>P#]|[*+?}][+]")
_LARGEST, _SMALLEST = 10**15, 0.000001
_NOTHING = object()


def grammar(schema: JSONObject) -> str:
    """The grammar that holds a reply to a cleaned schema, without white space between the parts."""
    layout = {"whitespace_flexible": False, "lenient": True}
    return f"%llguidance {{}}\nstart: %json {json.dumps({**schema, 'x-guidance': layout}, ensure_ascii=False)}"


def clean(schema: JSONObject, *, strict: bool = True, prefix: str = "") -> JSONObject:
    """The schema in the part of the language that the engine knows.

    With `strict=False` only types, properties, constants and choices are kept, for a schema that the engine refuses in
    spite of all. What is referred to stands in `$defs`, under names that begin with `prefix`.
    """
    cleaner = _Cleaner(schema, strict=strict, prefix=prefix)
    cleaned = cleaner.clean(schema)
    if cleaned is _NOTHING:
        cleaned = {}
    return {**cleaned, "$defs": cleaner.definitions} if cleaner.definitions else cleaned


class _Cleaner:
    def __init__(self, root: JSONObject, *, strict: bool, prefix: str) -> None:
        self._root, self._strict, self._prefix = root, strict, prefix
        self._names: dict[str, str] = {}
        self.definitions: JSONObject = {}

    def clean(self, schema: JSON) -> Any:
        """The cleaned schema, or `_NOTHING` where no value fulfils it."""
        if schema is False:
            return _NOTHING
        if not is_object(schema):
            return {}
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        schema = self._merged(schema)
        if "const" in schema:
            return {"const": schema["const"]}
        if "enum" in schema:
            return {"enum": schema["enum"]} if schema["enum"] else _NOTHING
        return self._by_type(schema)

    def _by_type(self, schema: JSONObject) -> Any:
        cleaned: JSONObject = {}
        for keys in (self._type, self._object, self._array, self._number, self._scalar, self._choice):
            part = keys(schema)
            if part is _NOTHING:
                return _NOTHING
            cleaned.update(part)
        if schema.get("nullable") is True and cleaned.get("type") != "null":
            return {"anyOf": [cleaned, {"type": "null"}]}
        return cleaned

    def _reference(self, pointer: JSON) -> JSONObject:
        target = _follow(self._root, pointer)
        if target is None:
            return {}
        if pointer not in self._names:
            name = self._names[pointer] = f"{self._prefix}d{len(self._names)}"
            self.definitions[name] = {}
            cleaned = self.clean(target)
            self.definitions[name] = {} if cleaned is _NOTHING else cleaned
        return {"$ref": f"#/$defs/{self._names[pointer]}"}

    def _merged(self, schema: JSONObject) -> JSONObject:
        if not is_list(schema.get("allOf")):
            return schema
        merged: JSONObject = {}
        for part in ({key: value for key, value in schema.items() if key != "allOf"}, *schema["allOf"]):
            merged = _united(merged, self._merged(self._resolved(part)))
        return merged

    def _resolved(self, schema: JSON) -> JSONObject:
        if is_object(schema) and "$ref" in schema:
            schema = _follow(self._root, schema["$ref"])
        return schema if is_object(schema) else {}

    def _type(self, schema: JSONObject) -> JSONObject:
        kind = schema.get("type")
        if is_list(kind):
            known = [name for name in kind if name in _TYPES]
            return {"type": known} if known else {}
        if kind in _TYPES:
            return {"type": kind}
        return {"type": "object"} if is_object(schema.get("properties")) else {}

    def _object(self, schema: JSONObject) -> Any:
        properties = schema.get("properties")
        more = schema.get("additionalProperties")
        if not is_object(properties) or not properties:
            return {"additionalProperties": self.clean(more)} if is_object(more) else {}
        required = [name for name in schema.get("required") or () if name in properties]
        cleaned = {name: self.clean(value) for name, value in properties.items()}
        if any(cleaned[name] is _NOTHING for name in required):
            return _NOTHING
        cleaned = {name: value for name, value in cleaned.items() if value is not _NOTHING}
        extra = self.clean(more) if is_object(more) else more is True
        return {"properties": cleaned, "required": required, "additionalProperties": extra}

    def _array(self, schema: JSONObject) -> JSONObject:
        items, prefix = schema.get("items"), schema.get("prefixItems")
        if is_list(items):
            items, prefix = schema.get("additionalItems"), items
        cleaned: JSONObject = {}
        if is_list(prefix) and prefix:
            cleaned["prefixItems"] = [{} if (part := self.clean(item)) is _NOTHING else part for item in prefix]
        if items is not None:
            part = self.clean(items)
            cleaned["items"] = False if part is _NOTHING else part
        return cleaned

    def _number(self, schema: JSONObject) -> JSONObject:
        """Ends for numbers that have none: a small model that has begun to write zeros does not stop by itself."""
        kinds = schema.get("type")
        kinds = kinds if is_list(kinds) else [kinds]
        if "number" not in kinds and "integer" not in kinds:
            return {}
        low, high = (schema[key] if _is_number(schema.get(key)) else 0 for key in ("minimum", "maximum"))
        limits: JSONObject = {"minimum": min(-_LARGEST, 2 * high), "maximum": max(_LARGEST, 2 * low)}
        if "number" in kinds:
            limits["multipleOf"] = _SMALLEST
        return limits

    def _scalar(self, schema: JSONObject) -> JSONObject:
        if not self._strict:
            return {}
        cleaned: JSONObject = {}
        if _is_number(schema.get("multipleOf")) and schema["multipleOf"] > 0:
            cleaned["multipleOf"] = schema["multipleOf"]
        for low, high in _BOUNDS:
            bounds = {key: schema[key] for key in (low, high) if _is_number(schema.get(key))}
            if len(bounds) < 2 or bounds[low] <= bounds[high]:
                cleaned.update(bounds)
        for key in ("exclusiveMinimum", "exclusiveMaximum"):
            if _is_number(schema.get(key)):
                cleaned[key] = schema[key]
        if schema.get("format") in _FORMATS:
            cleaned["format"] = schema["format"]
        elif _is_pattern(schema.get("pattern")):
            cleaned["pattern"] = schema["pattern"]
        return cleaned

    def _choice(self, schema: JSONObject) -> Any:
        branches = schema.get("anyOf") or schema.get("oneOf")
        if not is_list(branches):
            return {}
        cleaned = [part for branch in branches if (part := self.clean(branch)) is not _NOTHING]
        return {"anyOf": cleaned} if cleaned else _NOTHING


def _united(first: JSONObject, second: JSONObject) -> JSONObject:
    united = {**first, **second}
    if properties := {**first.get("properties", {}), **second.get("properties", {})}:
        united["properties"] = properties
        united["required"] = [*first.get("required", ()), *second.get("required", ())]
    return united


def is_object(value: JSON) -> TypeGuard[JSONObject]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: JSON) -> TypeGuard[list[Any]]:
    """Whether a JSON value is a list."""
    return isinstance(value, list)


def _is_number(value: JSON) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_pattern(value: JSON) -> bool:
    if not isinstance(value, str) or _REFUSED.search(value):
        return False
    try:
        re.compile(re.sub(r"\\p\{\w+\}", "x", value))
    except re.error:
        return False
    return True


def _follow(root: JSONObject, pointer: JSON) -> JSON:
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        return None
    target: Any = root
    for key in pointer[1:].split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")  # noqa: PLW2901  # the same key, unescaped
        if not is_object(target) or key not in target:
            return None
        target = target[key]
    return target
