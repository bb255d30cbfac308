"""The parameters of a tool as a plain object: at the root no API takes a union, a condition or a reference."""

from typing import NamedTuple

from replan.encoding import JSON, JSONObject

from .merging import both
from .references import target, tidied
from .words import DEFINITIONS, a_list, an_object, each, strings, types_of

__all__ = ["object_root"]

_NOT_AT_ROOT = frozenset({
    "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "not", "if", "then", "else", "type", "properties", "required",
    "additionalProperties", "unevaluatedProperties",
})  # fmt: skip
_MOST_REFERENCES = 12


class _Fields(NamedTuple):
    """What a schema says of the fields of an object: it is `closed` where no others are allowed."""

    properties: JSONObject
    required: list[str]
    closed: bool


_UNKNOWN = _Fields({}, [], closed=False)


def object_root(schema: JSONObject, *, keep: bool = False) -> JSONObject:
    """The schema, tidied, with a root that is a plain object; with `keep` references to definitions stay.

    A root that is a union becomes the object that allows what any of its branches allows; of a field that only some of
    them know it says what they say. Raises `ValueError` where no object fulfils the schema.
    """
    node = tidied(schema, keep=keep).schema
    gathered = _Gathered(node)
    for _ in range(_MOST_REFERENCES):
        if "$ref" in node:
            node = both(an_object(target(node["$ref"], gathered.root)), {w: v for w, v in node.items() if w != "$ref"})
    fields = gathered.of(node)
    if fields is None:
        raise ValueError("the parameters must be an object, and the schema allows none")
    found: JSONObject = {word: value for word, value in node.items() if word not in _NOT_AT_ROOT}
    found = {"type": "object", **found, "properties": fields.properties}
    if required := [name for name in fields.properties if name in fields.required]:
        found["required"] = required
    others = node.get("additionalProperties")
    if others is not None or (fields.closed and "patternProperties" not in found):
        found["additionalProperties"] = False if others is None else others
    return _with_definitions(found, schema) if keep else found


class _Gathered:
    """The fields of an object schema with all its branches; None where it allows no object."""

    def __init__(self, root: JSONObject) -> None:
        self.root = root
        self._known: dict[str, _Fields | None] = {}

    def of(self, node: JSONObject) -> _Fields | None:
        if not _allows_objects(node):
            return None
        found = _own(node)
        for part in a_list(node.get("allOf")):
            if not self._begun(part):
                more = self._referred(part)
                if more is None:
                    return None
                found = _together(more, found)
        for union in ("anyOf", "oneOf"):
            branches = [self._referred(branch) for branch in a_list(node.get(union)) if not self._begun(branch)]
            known = [branch for branch in branches if branch is not None]
            if branches and not known:
                return None
            found = _together(_either(known), found) if known else found
        return found

    def _begun(self, part: JSON) -> bool:
        """Whether a part refers to what it is in: then it adds nothing."""
        reference = an_object(part).get("$ref")
        return reference in self._known and self._known[reference] is _UNKNOWN

    def _referred(self, part: JSON) -> _Fields | None:
        node = an_object(part)
        if "$ref" not in node:
            return self.of(node)
        reference, beside = node["$ref"], {word: value for word, value in node.items() if word != "$ref"}
        if reference not in self._known:
            self._known[reference] = _UNKNOWN
            self._known[reference] = self._referred(target(reference, self.root))
        found, own = self._known[reference], self.of(beside)
        return None if found is None or own is None else _together(found, own)


def _own(node: JSONObject) -> _Fields:
    closed = node.get("additionalProperties") is False and "patternProperties" not in node
    return _Fields(an_object(node.get("properties")), strings(node.get("required")), closed)


def _allows_objects(node: JSONObject) -> bool:
    values = a_list(node.get("enum")) + ([node["const"]] if "const" in node else [])
    possible = not values or any(isinstance(value, dict) for value in values)
    return possible and node.get("not") != {} and ("object" in types_of(node) or "type" not in node)


def _together(one: _Fields, other: _Fields) -> _Fields:
    """What fulfils both."""
    properties = both({"properties": one.properties}, {"properties": other.properties})["properties"]
    return _Fields(properties, strings([*one.required, *other.required]), one.closed or other.closed)


def _either(branches: list[_Fields]) -> _Fields:
    """What fulfils any of several."""
    properties: JSONObject = {}
    for name in dict.fromkeys(name for branch in branches for name in branch.properties):
        choices: list[JSONObject] = []
        for branch in branches:
            if name in branch.properties and branch.properties[name] not in choices:
                choices.append(branch.properties[name])
        properties[name] = choices[0] if len(choices) == 1 else {} if {} in choices else _choice(choices)
    required = [name for name in branches[0].required if all(name in branch.required for branch in branches)]
    return _Fields(properties, required, all(branch.closed for branch in branches))


def _choice(choices: list[JSONObject]) -> JSONObject:
    """A union, or an enumeration where it is of values only."""
    kinds = {str(choice.get("type")) for choice in choices}
    if len(kinds) > 1 or not all(choice.keys() <= {"type", "const", "enum"} for choice in choices):
        return {"anyOf": choices}
    if not all(("const" in choice) != ("enum" in choice) for choice in choices):
        return {"anyOf": choices}
    values = [value for choice in choices for value in choice.get("enum", [choice.get("const")])]
    return {**({"type": choices[0]["type"]} if "type" in choices[0] else {}), "enum": values}


def _with_definitions(found: JSONObject, schema: JSONObject) -> JSONObject:
    """The translation with its definitions, if it refers to any; without references if one points to nothing now."""
    named: set[str] = set()

    def look(node: JSONObject) -> JSONObject:
        if "$ref" in node:
            named.add(node["$ref"])
        return node

    each(found, look)
    if not all(target(reference, found) is not None for reference in named):
        return object_root(schema)
    return found if named else {word: value for word, value in found.items() if word not in DEFINITIONS}
