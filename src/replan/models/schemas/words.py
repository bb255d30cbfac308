"""The words of JSON schema 2020-12, and values of them that make sense; the words of older drafts in its words."""

import re
from collections.abc import Callable
from math import isfinite
from typing import Any, cast

from replan.encoding import JSON, JSONObject

__all__ = [
    "ANNOTATIONS",
    "DEFINITIONS",
    "LISTS",
    "MAPS",
    "SINGLE",
    "TYPES",
    "a_list",
    "an_object",
    "deep",
    "each",
    "modern",
    "plain",
    "strings",
    "types_of",
    "with_null",
]

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
DEFINITIONS = ("$defs", "definitions")
MAPS = frozenset(["properties", "patternProperties", "dependentSchemas", *DEFINITIONS])
LISTS = frozenset(["anyOf", "oneOf", "allOf", "prefixItems"])
SINGLE = frozenset({
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})


def plain(word: str, value: JSON) -> JSON:
    """The value of a word that has no schemas in it; None where it is not known, or the value makes no sense."""
    check = _CHECKS.get(word)
    return None if check is None else check(value)


def modern(node: JSONObject) -> JSONObject:
    """A node in the words of 2020-12: bounds that are true or false, tuples as lists of `items`, `nullable`."""
    found = dict(node)
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(found.get(bound), bool):
            found[bound] = found.pop(limit, None) if found[bound] else None
            if not _number(found[bound]):
                del found[bound]
    if isinstance(found.get("items"), list):
        found["prefixItems"] = found.pop("items")
        if "additionalItems" in found:
            found["items"] = found["additionalItems"]
    found.pop("additionalItems", None)
    return with_null(found) if found.pop("nullable", None) is True else found


def with_null(node: JSONObject) -> JSONObject:
    """The node, that may be null too."""
    found = dict(node)
    if "const" in found:
        found["enum"] = [found.pop("const")]
    if "enum" in found:
        found["enum"] = [*a_list(found["enum"]), *([] if None in a_list(found["enum"]) else [None])]
    if types := a_list(found.get("type")):
        found["type"] = types if "null" in types else [*types, "null"]
    for union in ("anyOf", "oneOf"):
        if union in found and {"type": "null"} not in found[union]:
            found[union] = [*found[union], {"type": "null"}]
    return found


def each(node: JSONObject, change: Callable[[JSONObject], JSONObject]) -> JSONObject:
    """The schema with every part of it changed, from the inside out."""
    found: JSONObject = {}
    for word, value in node.items():
        if word in MAPS:
            found[word] = {name: _changed(part, change) for name, part in an_object(value).items()}
        elif word in LISTS:
            found[word] = [_changed(part, change) for part in a_list(value)]
        else:
            found[word] = _changed(value, change) if word in SINGLE else value
    return change(found)


def deep(node: JSONObject, change: Callable[[JSONObject], JSONObject]) -> JSONObject:
    """The schema with every part of it changed, from the outside in."""
    found = change(node)
    for word, value in found.items():
        if word in MAPS:
            found = {**found, word: {name: _deep(part, change) for name, part in an_object(value).items()}}
        elif word in LISTS:
            found = {**found, word: [_deep(part, change) for part in a_list(value)]}
        elif word in SINGLE:
            found = {**found, word: _deep(value, change)}
    return found


def types_of(node: JSONObject) -> list[str]:
    """The types that a node names."""
    return [name for name in a_list(node.get("type")) if name in TYPES]


def strings(value: JSON) -> list[str]:
    """The texts in a list, each once."""
    return list(dict.fromkeys(name for name in a_list(value) if isinstance(name, str)))


def an_object(value: JSON) -> JSONObject:
    """The value if it is an object, else an empty one."""
    return cast("JSONObject", value) if isinstance(value, dict) else {}


def a_list(value: JSON) -> list[Any]:
    """The value if it is a list, else a list of it; none of null."""
    return cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]


def _changed(part: JSON, change: Callable[[JSONObject], JSONObject]) -> JSON:
    return each(cast("JSONObject", part), change) if isinstance(part, dict) else part


def _deep(part: JSON, change: Callable[[JSONObject], JSONObject]) -> JSON:
    return deep(cast("JSONObject", part), change) if isinstance(part, dict) else part


# ---- values that make sense


def _number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and (type(value) is int or isfinite(value))


def _types(value: JSON) -> JSON:
    known = [name for name in strings(value) if name in TYPES]
    return (known if isinstance(value, list) else known[0]) if known else None


def _text(value: JSON) -> JSON:
    return value if isinstance(value, str) else None


def _flag(value: JSON) -> JSON:
    return value if isinstance(value, bool) else None


def _some(value: JSON) -> JSON:
    return (a_list(value) or None) if isinstance(value, list) else None


def _count(value: JSON) -> JSON:
    return int(value) if _number(value) and value == value // 1 and value >= 0 else None


def _bound(value: JSON) -> JSON:
    return value if _number(value) else None


def _pattern(value: JSON) -> JSON:
    try:
        re.compile(value)
    except (re.error, TypeError, RecursionError, OverflowError):
        return None
    return value


def _needed(value: JSON) -> JSON:
    return {name: strings(names) for name, names in an_object(value).items() if isinstance(names, list)} or None


_CHECKS: dict[str, Callable[[JSON], JSON]] = {
    "type": _types,
    "enum": _some,
    "required": lambda value: strings(value) if isinstance(value, list) else None,
    "pattern": _pattern,
    "multipleOf": lambda value: value if _number(value) and value > 0 else None,
    "exclusiveMinimum": lambda value: value if isinstance(value, bool) else _bound(value),
    "exclusiveMaximum": lambda value: value if isinstance(value, bool) else _bound(value),
    "examples": _some,
    "dependentRequired": _needed,
    **dict.fromkeys(("minimum", "maximum"), _bound),
    **dict.fromkeys(("title", "description", "format", "contentEncoding", "contentMediaType"), _text),
    **dict.fromkeys(("nullable", "uniqueItems", "deprecated", "readOnly", "writeOnly"), _flag),
    **dict.fromkeys(
        (
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ),
        _count,
    ),
}
