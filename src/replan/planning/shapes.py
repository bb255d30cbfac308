"""The shapes of results, as JSON schemas that may be partial: published by a tool, or learnt from what it gave.

A shape says which paths a result has before the result is there. A text that held JSON is `{"type": "string",
"contentMediaType": "application/json", "contentSchema": ...}`: paths lead into it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from replan.encoding import JSON, JSONObject, is_list, is_object
from replan.tool import ToolInfo

from .references import parse_path, read_text, write_path

__all__ = ["Seen", "Shape", "Shapes", "at", "is_learnt", "learn", "mended_path", "of", "path_problem", "type_at"]

Shape: TypeAlias = JSONObject
"""A JSON schema, possibly partial; `{}` is any value."""

_LEARNT = "learnt from results"
_MAX_DEPTH, _MAX_KEYS, _MAX_ITEMS, _MAX_TEXT = 8, 60, 50, 200_000
_MAX_REFERENCES, _MAX_BRANCHES, _MAX_PLACES = 32, 12, 200
_KINDS = {"NoneType": "null", "bool": "boolean", "int": "integer", "float": "number", "str": "string"}
_DEFINITIONS = ("$defs", "definitions")
_Part: TypeAlias = str | int | None


class Seen(Protocol):
    """What is remembered of a tool: some results that it gave."""

    @property
    def samples(self) -> Sequence[JSON]:
        """The values of results, as later steps read them."""
        ...


def of(info: ToolInfo, history: Mapping[str, Seen]) -> Shape | None:
    """The shape of what a call of the tool gives to later steps; None where nothing is known.

    The published schema, a lone `{"result": x}` wrapper taken off; else what earlier results had.
    """
    published = info.output_schema
    if published:
        root = _resolve(published, published)
        properties = _object(root.get("properties"))
        if list(properties) == ["result"] and is_object(properties["result"]):
            return _with_definitions(properties["result"], published)
        return published
    seen = history.get(info.name)
    return learn(seen.samples) if seen and seen.samples else None


class Shapes(Mapping[str, Shape]):
    """The shapes of some tools' results by the tools' names, each found when it is asked for."""

    def __init__(self, tools: Iterable[ToolInfo], history: Mapping[str, Seen]) -> None:
        self._tools = {info.name: info for info in tools}
        self._history = history
        self._found: dict[str, Shape | None] = {}

    def __getitem__(self, name: str) -> Shape:
        if name not in self._found:
            self._found[name] = of(self._tools[name], self._history)
        found = self._found[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._tools if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def learn(values: Iterable[JSON]) -> Shape:
    """The shape of values that were seen.

    What lies deep and objects of very many keys are left open; the others are closed (`additionalProperties` is
    false): no key but those was seen.
    """
    return {"$comment": _LEARNT, **_learn(list(values)[:_MAX_ITEMS], _MAX_DEPTH)}


def is_learnt(shape: Shape) -> bool:
    """Whether the shape was learnt from results, so that another result may differ."""
    return shape.get("$comment") == _LEARNT


def _learn(values: list[JSON], depth: int) -> Shape:
    shapes: dict[str, Shape] = {}
    objects = [value for value in values if is_object(value)]
    lists = [value for value in values if is_list(value)]
    texts = [value for value in values if isinstance(value, str) and len(value) <= _MAX_TEXT]
    for value in values:
        kind = _KINDS.get(value.__class__.__name__)
        if kind:
            shapes[kind] = {"type": kind}
    if "number" in shapes:
        shapes.pop("integer", None)
    inside = [read for text in texts if not isinstance(read := read_text(text), str)]
    if inside and depth > 0:
        content = _learn(inside, depth - 1)
        shapes["string"] |= {"contentMediaType": "application/json", "contentSchema": content}
    if objects:
        shapes["object"] = _learn_objects(objects, depth)
    if lists:
        items = [item for value in lists for item in value[:_MAX_ITEMS]][: 4 * _MAX_ITEMS]
        shapes["array"] = {"type": "array", **({"items": _learn(items, depth - 1)} if items and depth > 0 else {})}
    found = list(shapes.values())
    return {} if not found else found[0] if len(found) == 1 else {"anyOf": found}


def _learn_objects(objects: list[JSONObject], depth: int) -> Shape:
    names = list(dict.fromkeys(name for value in objects for name in value))
    if depth <= 0 or len(names) > _MAX_KEYS:
        return {"type": "object"}
    return {
        "type": "object",
        "properties": {name: _learn([o[name] for o in objects if name in o], depth - 1) for name in names},
        "required": [name for name in names if all(name in value for value in objects)],
        "additionalProperties": False,
    }


def path_problem(shape: Shape, path: str) -> str | None:
    """Why a value of this shape has nothing at the path; None where it has, and where the shape does not say."""
    return _follow(shape, parse_path(path))[1]


def at(shape: Shape, path: str) -> Shape | None:
    """The shape of what a path leads to; None where this shape does not say, or has nothing there."""
    found = _follow(shape, parse_path(path))[0]
    return None if found is None else _with_definitions(found, shape)


def type_at(shape: Shape, path: str) -> frozenset[str] | None:
    """The JSON types of what a path leads to; None where the shape does not say."""
    found = at(shape, path)
    return None if found is None else _types(found, found, 3)


def mended_path(shape: Shape, path: str) -> str | None:
    """The path as it was meant, where one key is spelt otherwise (`customerId` for `customer_id`), or a wrapper that
    is taken off (`result`) was written; None where that does not help.
    """
    parts = parse_path(path)
    for number, part in enumerate(parts):
        if not isinstance(part, str) or _follow(shape, parts[: number + 1])[1] is None:
            continue
        before = at(shape, write_path(parts[:number]))
        alike = [name for name in dict.fromkeys(_names(before)) if _folded(name) == _folded(part)] if before else []
        if len(alike) == 1:
            parts[number] = alike[0]
        elif number == 0 and part == "result":
            return write_path(parts[1:]) if _follow(shape, parts[1:])[1] is None else None
        else:
            return None
    return write_path(parts) if _follow(shape, parts)[1] is None else None


def _names(shape: Shape, left: int = 3) -> list[str]:
    """The keys that a value of the shape may have, those of branches included."""
    resolved = _resolve(shape, shape)
    inside = [*_branches(resolved), *filter(is_object, [resolved.get("contentSchema")])] if left > 0 else []
    own = list(_object(resolved.get("properties")))
    return [*own, *(name for branch in inside for name in _names(_with_definitions(branch, shape), left - 1))]


def _folded(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


_Found: TypeAlias = tuple[Shape | None, str | None]
"""The shape behind a path (None: not known), or what is wrong with the path."""


def _follow(shape: Shape, parts: Sequence[_Part]) -> _Found:
    return _Walk(shape).follow(shape, parts)


class _Walk:
    """Follows paths through a schema, whose branches and references may lead in circles: it looks at so many places."""

    def __init__(self, root: Shape) -> None:
        self._root = root
        self._left = _MAX_PLACES

    def follow(self, shape: JSON, parts: Sequence[_Part]) -> _Found:
        resolved = _resolve(shape, self._root)
        if not parts:
            return resolved, None
        self._left -= 1
        if self._left <= 0:
            return None, None
        if branches := _branches(resolved):
            return self._union(branches, parts)
        kinds = _named_types(resolved)
        if "string" in kinds:
            content = resolved.get("contentSchema")
            return self.follow(content, parts) if is_object(content) and len(kinds) == 1 else (None, None)
        return self._key(resolved, parts) if isinstance(parts[0], str) else self._items(resolved, parts)

    def _items(self, shape: Shape, parts: Sequence[_Part]) -> _Found:
        index, kinds = parts[0], _named_types(shape)
        assert not isinstance(index, str)
        if kinds and "array" not in kinds:
            return None, f"[{'*' if index is None else index}] needs a list, and there is {_words(kinds)}"
        found, problem = self.follow(_item(shape, index), parts[1:])
        return ({"type": "array", "items": found} if index is None and found is not None else found), problem

    def _key(self, shape: Shape, parts: Sequence[_Part]) -> _Found:
        key, kinds = parts[0], _named_types(shape)
        if kinds and "object" not in kinds:
            return None, f"there is no {key!r}: the value is {_words(kinds)}"
        properties = _object(shape.get("properties"))
        if key in properties:
            return self.follow(properties[key], parts[1:])
        others = shape.get("additionalProperties")
        if is_object(others):
            return self.follow(others, parts[1:])
        if not properties or others is True or not shape.keys().isdisjoint(("patternProperties", "allOf")):
            return None, None
        return None, f"there is no {key!r}; there are {', '.join(map(repr, list(properties)[:20]))}"

    def _union(self, branches: list[JSON], parts: Sequence[_Part]) -> _Found:
        results = [self.follow(branch, parts) for branch in branches]
        if all(problem for _, problem in results):
            return max(results, key=lambda result: len(result[1] or ""))
        found = [shape for shape, problem in results if problem is None]
        known = [shape for shape in found if shape is not None]
        if len(known) < len(found):
            return None, None
        return (known[0] if len(known) == 1 else {"anyOf": known}), None


def _item(shape: Shape, index: int | None) -> JSON:
    fixed = shape.get("prefixItems")
    if index is not None and is_list(fixed) and 0 <= index < len(fixed):
        return fixed[index]
    return {} if is_list(fixed) and fixed else shape.get("items")


def _types(shape: JSON, root: Shape, left: int) -> frozenset[str] | None:
    resolved = _resolve(shape, root)
    if kinds := _named_types(resolved):
        return kinds
    branches = _branches(resolved)
    found = [_types(branch, root, left - 1) for branch in branches] if left > 0 else [None]
    if not branches or None in found:
        return None
    return frozenset[str]().union(*(kinds for kinds in found if kinds))


def _named_types(shape: Shape) -> frozenset[str]:
    """The types that a schema names itself, or by its constants; none where it does not."""
    named = shape.get("type")
    if named:
        return frozenset([named] if isinstance(named, str) else map(str, named))
    values: Any = [shape["const"]] if "const" in shape else shape.get("enum") or []
    return frozenset(_kind(value) for value in values)


def _kind(value: JSON) -> str:
    return "object" if is_object(value) else "array" if is_list(value) else _KINDS[value.__class__.__name__]


def _branches(shape: Shape) -> list[JSON]:
    branches = shape.get("anyOf") or shape.get("oneOf")
    return branches[:_MAX_BRANCHES] if is_list(branches) else []


def _resolve(shape: JSON, root: Shape) -> Shape:
    """The schema behind references within the document, with what stands beside a reference."""
    found = _object(shape)
    for _ in range(_MAX_REFERENCES):
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        target: JSON = root if reference.startswith("#") else {}
        for part in reference[1:].split("/")[1:]:
            target = _object(target).get(part.replace("~1", "/").replace("~0", "~"))
        found = {**_object(target), **{key: inner for key, inner in found.items() if key != "$ref"}}
    return {}


def _with_definitions(shape: JSON, root: Shape) -> Shape:
    shape = _object(shape)
    return {**shape, **{name: root[name] for name in (*_DEFINITIONS, "$comment") if name in root and name not in shape}}


def _object(value: JSON) -> JSONObject:
    return value if is_object(value) else {}


def _words(kinds: Iterable[str]) -> str:
    names = {"object": "an object", "array": "a list", "string": "a text", "null": "null", "boolean": "a boolean"}
    return " or ".join(sorted(names.get(kind, "a number") for kind in kinds))
