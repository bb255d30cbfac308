"""Schemas made tidy, and their references resolved."""

from typing import Any, NamedTuple

from replan.encoding import JSON, JSONObject

from .merging import both
from .words import ANNOTATIONS, DEFINITIONS, LISTS, MAPS, SINGLE, TYPES, a_list, an_object, modern, plain

__all__ = ["Tidied", "inline", "target", "tidied"]

_MOST_DEPTH = 48
_TIMES = 2
"""How often a schema may be inside itself before it is cut off."""

_REFUSING = ("not", "if", "unevaluatedItems", "unevaluatedProperties", "maxContains")
_BESIDE = ANNOTATIONS | {*DEFINITIONS}
"""What counts beside a reference in old drafts, too."""

_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")


class Tidied(NamedTuple):
    """A schema with only known words and values that make sense. `cut` says that a part of it allows anything now:
    it contains itself, refers to nothing, or is too deep or too large.
    """

    schema: JSONObject
    cut: bool


def inline(schema: JSONObject) -> JSONObject:
    """The schema without references: each is replaced by what it points to.

    Where it points to nothing or outside anything is allowed, and so it is where a schema is inside itself for the
    third time, beyond a depth of 48, and once it has grown to five times its size.
    """
    return tidied(schema).schema


def tidied(schema: JSONObject, *, keep: bool = False) -> Tidied:
    """The schema, tidy and without references; with `keep` those to `#` and its definitions stay."""
    walk = _Walk(an_object(schema), keep)
    return Tidied(walk.schema(schema, (), _MOST_DEPTH), walk.cut)


def target(reference: str, root: JSONObject) -> JSON:
    """What a reference points to, None where that is nothing."""
    if reference in ("#", ""):
        return root
    if not reference.startswith("#/"):
        named = [*an_object(root.get("$defs")).values(), *an_object(root.get("definitions")).values()]
        return next((part for part in named if f"#{an_object(part).get('$anchor')}" == reference), None)
    node: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("%25", "%").replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            items = a_list(node)
            node = items[int(name)] if name.isdecimal() and len(name) < 6 and int(name) < len(items) else None
        else:
            node = an_object(node).get(name)
    return an_object(node) if isinstance(node, dict) else node if isinstance(node, bool) else None


class _Walk:
    def __init__(self, root: JSONObject, keep: bool) -> None:
        self._root, self._keep = root, keep
        self._alone = any(draft in str(root.get("$schema")) for draft in _OLD_DRAFTS)
        self._left = 5 * _size(root, 100_000) + 1_000
        self._wider = self.cut = False

    def schema(self, node: JSON, path: tuple[str, ...], depth: int) -> JSONObject:
        if not isinstance(node, dict):
            return {"not": {}} if node is False else {}
        fields = an_object(node)
        self._left -= 1
        if depth <= 0 or self._left <= 0:
            self._wider = self.cut = self.cut or bool(fields)
            return {}
        if not isinstance(reference := fields.get("$ref"), str):
            return self._node(fields, path, depth)
        beside = {w: v for w, v in fields.items() if w != "$ref" and not (self._alone and w not in _BESIDE)}
        own = self._node(beside, path, depth)
        if self._keep and _stays(reference, self._root):
            self._wider = True  # what it points to may have become wider
            return {"$ref": reference, **own}
        return self._resolved(reference, own, path, depth)

    def _resolved(self, reference: str, own: JSONObject, path: tuple[str, ...], depth: int) -> JSONObject:
        found = target(reference, self._root)
        if found is None or path.count(reference) >= _TIMES:
            self._wider = self.cut = True
            kind = an_object(found).get("type")
            return {**({"type": kind} if kind in TYPES else {}), **own} if "type" not in own else own
        whole = self.schema(found, (*path, reference), depth - 1)
        if own.keys() <= ANNOTATIONS:
            return {**whole, **own}
        self._wider = True
        return both(whole, own)

    def _node(self, fields: JSONObject, path: tuple[str, ...], depth: int) -> JSONObject:
        before, self._wider = self._wider, False
        found: JSONObject = {}
        for word, value in fields.items():
            if (tidy := self._value(word, value, path, depth)) is not None:
                found[word] = tidy
        if "const" in fields:
            found["const"] = fields["const"]
        if "default" in fields:
            found["default"] = fields["default"]
        if self._wider:
            found = _refusing_nothing(found)
        self._wider = self._wider or before
        return _conditional(modern(found))

    def _value(self, word: str, value: JSON, path: tuple[str, ...], depth: int) -> JSON:
        if word in MAPS:
            return self._map(word, value, path, depth)
        if word in LISTS or (word == "items" and isinstance(value, list)):
            return [self.schema(part, path, depth - 1) for part in a_list(value)] if isinstance(value, list) else None
        if word in SINGLE:
            if isinstance(value, bool) and word in (
                "additionalProperties",
                "unevaluatedItems",
                "unevaluatedProperties",
            ):
                return value
            return self.schema(value, path, depth - 1) if isinstance(value, dict | bool) else None
        return plain(word, value)

    def _map(self, word: str, value: JSON, path: tuple[str, ...], depth: int) -> JSON:
        unused = word in DEFINITIONS and not (self._keep and depth == _MOST_DEPTH)
        if not isinstance(value, dict) or unused:
            return None
        parts = an_object(value)
        if word == "patternProperties":
            parts = {name: part for name, part in parts.items() if plain("pattern", name) is not None}
        return {name: self.schema(part, path, depth - 1) for name, part in parts.items()}


def _refusing_nothing(node: JSONObject) -> JSONObject:
    """A node without the words that refuse more when what is in them allows more."""
    found = {word: value for word, value in node.items() if word not in _REFUSING}
    if "oneOf" in found:
        one_of = found.pop("oneOf")
        found = {**found, "anyOf": one_of} if "anyOf" not in found else found
    return found


def _conditional(node: JSONObject) -> JSONObject:
    """A node with conditions that have all that belongs to them, and lists that have something in them."""
    if "if" not in node or not ("then" in node or "else" in node):
        node = {word: value for word, value in node.items() if word not in ("if", "then", "else")}
    return {word: value for word, value in node.items() if not (word in LISTS and not value)}


def _stays(reference: str, root: JSONObject) -> bool:
    steps = reference.split("/")
    named = len(steps) == 3 and steps[0] == "#" and steps[1] in DEFINITIONS
    return reference == "#" or (named and target(reference, root) is not None)


def _size(value: JSON, most: int) -> int:
    """The number of objects in a value, up to `most`."""
    count, waiting = 0, [value]
    while waiting and count < most:
        part = waiting.pop()
        if isinstance(part, dict):
            count += 1
            waiting += an_object(part).values()
        elif isinstance(part, list):
            waiting += a_list(part)
    return count
