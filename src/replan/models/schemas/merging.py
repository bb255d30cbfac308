"""Two schemas that both hold, as one."""

from replan.encoding import JSON, JSONObject

from .words import a_list, an_object, strings, types_of

__all__ = ["both", "spread", "without_all_of"]

_GROUPS = (
    ("items", "prefixItems"),
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
)
_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")


def both(one: JSONObject, other: JSONObject) -> JSONObject:
    """A schema for what fulfils both; wider where they say something of the same: the second counts then."""
    found = {**one, **other}
    for group in _GROUPS:
        if any(word in one for word in group) and any(word in other for word in group):
            found = {word: value for word, value in found.items() if word not in group or word in other}
    if "type" in one and "type" in other:
        found["type"] = _common(one, other)
    for word in ("properties", "patternProperties", "$defs", "definitions"):
        if word in one and word in other:
            found[word] = _merged(an_object(one[word]), an_object(other[word]))
    if "required" in one and "required" in other:
        found["required"] = strings([*one["required"], *other["required"]])
    if "enum" in one and "enum" in other:
        found["enum"] = [value for value in other["enum"] if value in one["enum"]] or other["enum"]
    if "allOf" in one and "allOf" in other:
        found["allOf"] = [*one["allOf"], *other["allOf"]]
    for word in _UNEVALUATED:
        found.pop(word, None)
    return found


def without_all_of(node: JSONObject) -> JSONObject:
    """The node with the parts of its `allOf` in it."""
    if "allOf" not in node:
        return node
    found = {word: value for word, value in node.items() if word != "allOf"}
    for part in a_list(node["allOf"]):
        found = both(without_all_of(an_object(part)), found)
    return found


def spread(node: JSONObject, kept: frozenset[str]) -> JSONObject:
    """A union with nothing beside it but the `kept` words: all else is in each branch of it, `oneOf` as `anyOf`."""
    branches = [an_object(branch) for branch in [*a_list(node.get("anyOf")), *a_list(node.get("oneOf"))]]
    if not branches:
        return node
    beside = {w: v for w, v in node.items() if w not in ("anyOf", "oneOf") and w not in kept}
    here = {word: value for word, value in node.items() if word in kept}
    possible = [both(beside, branch) for branch in branches if _possible(beside, branch)]
    return {**here, "anyOf": _distinct(possible)} if possible else {**here, **beside}


def _possible(beside: JSONObject, branch: JSONObject) -> bool:
    return not ("type" in beside and "type" in branch) or bool(_shared(types_of(beside), types_of(branch)))


def _distinct(branches: list[JSONObject]) -> list[JSONObject]:
    found: list[JSONObject] = []
    for branch in branches:
        if branch not in found:
            found.append(branch)
    return found


def _merged(one: JSONObject, other: JSONObject) -> JSONObject:
    found = {**one, **other}
    for name in one.keys() & other.keys():
        found[name] = both(an_object(one[name]), an_object(other[name]))
    return found


def _common(one: JSONObject, other: JSONObject) -> JSON:
    shared = _shared(types_of(one), types_of(other))
    return (shared if len(shared) > 1 else shared[0]) if shared else other["type"]


def _shared(one: list[str], other: list[str]) -> list[str]:
    """The types that both name, with `integer` as a kind of `number`."""
    shared = [name for name in other if name in one]
    for some, rest in ((one, other), (other, one)):
        if "integer" in some and "number" in rest and not {"integer", "number"} & set(shared):
            shared.append("integer")
    return shared
