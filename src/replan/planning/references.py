"""References between steps: `${id.name.path}` stands for a value that an earlier step gave.

A path is a chain of `.key`, `["odd key"]`, `[index]` (negative from the end) and `[*]` (all elements, as a list). `$${`
is a literal `${`. Missing is not null: a path that leads nowhere raises, with the keys that exist. A path into a text
that is a JSON object or list reads that JSON.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from replan.encoding import JSON, decode, encode, is_list, is_object

_PATH = r"""(?:\.[^.\[\]{}"'$\s]+|\[(?:-?\d+|\*|"(?:[^"\\]|\\.)*")\])*"""
_REFERENCE = re.compile(rf"\$\$\{{|\$\{{([a-z][a-z0-9_]{{0,31}})({_PATH})\}}|\$\{{([a-z][a-z0-9_]{{0,31}})\b[^}}]*\}}")
_RESULT = re.compile(r"""\.result(?![^.\[])|\["result"\]""")
_PLAIN = re.compile(r"[^.\[\]{}\"'$\s]+")
_PART = re.compile(r"""\.([^.\[\]]+)|\[(-?\d+)\]|\[(\*)\]|\[("(?:[^"\\]|\\.)*")\]""")


class MissingReference(LookupError):
    """A reference leads nowhere. The text says where it ended and what there is."""


def references(value: JSON) -> Iterator[str]:
    """The ids of the steps that a value refers to, in order, with repetitions."""
    return (ident for ident, _ in reference_paths(value))


def reference_paths(value: JSON) -> Iterator[tuple[str, str]]:
    """The references in a value, in order, with repetitions: the id of the step and the path, which may be empty."""
    return ((match[1], match[2]) for match in _matches(value) if match[1])


def malformed_references(value: JSON) -> Iterator[tuple[str, str]]:
    """What looks like a reference and is none: the id and the whole of it (`${s1.first name}`)."""
    return ((match[3], match[0]) for match in _matches(value) if match[3])


def _matches(value: JSON) -> Iterator[re.Match[str]]:
    if isinstance(value, str):
        if "${" in value:
            yield from _REFERENCE.finditer(value)
    elif is_list(value) or is_object(value):
        for item in value.values() if is_object(value) else value:
            yield from _matches(item)


def whole_reference(value: JSON) -> tuple[str, str] | None:
    """The id and path of a text that is one reference and nothing else; None for any other value."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return (match[1], match[2]) if match and match[1] else None


def replace_references(value: JSON, new: Callable[[str, str], str | None]) -> JSON:
    """The value with another text for each reference for which `new(id, path)` gives one."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: (new(match[1], match[2]) if match[1] else None) or match[0], value)
    if is_list(value):
        return [replace_references(item, new) for item in value]
    if is_object(value):
        return {key: replace_references(item, new) for key, item in value.items()}
    return value


def resolve(value: JSON, outputs: Mapping[str, JSON]) -> JSON:
    """The value with its references replaced. A text that is only a reference takes the type of what it stands for.

    `outputs` maps the id of a step to its outputs by name. Raises `MissingReference`.
    """
    if isinstance(value, str):
        return _resolve_text(value, outputs)
    if is_list(value):
        return [resolve(item, outputs) for item in value]
    if is_object(value):
        return {key: resolve(item, outputs) for key, item in value.items()}
    return value


def render(text: str, outputs: Mapping[str, JSON]) -> str:
    """A description with its references replaced; those to no known step are left as they are: prose may hold `${x}`.

    Raises `MissingReference` where a known step has nothing at the path.
    """
    known = replace_references(text, lambda ident, path: None if ident in outputs else f"$${{{ident}{path}}}")
    found = resolve(known, outputs)
    return found if isinstance(found, str) else encode(found).decode()


def _resolve_text(text: str, outputs: Mapping[str, JSON]) -> JSON:
    whole = _REFERENCE.fullmatch(text)
    if whole and whole[1]:
        return _look_up(whole, outputs)

    def render(match: re.Match[str]) -> str:
        if match[3] in outputs:
            raise MissingReference(f"{match[0]!r} is not a reference; write it like ${{{match[3]}.result.items[0].id}}")
        if not match[1]:
            return match[0].removeprefix("$") if match[0] == "$${" else match[0]
        value = _look_up(match, outputs)
        return value if isinstance(value, str) else encode(value).decode()

    return _REFERENCE.sub(render, text)


def _look_up(match: re.Match[str], outputs: Mapping[str, JSON]) -> JSON:
    step, path = match[1], match[2]
    if step not in outputs:
        raise MissingReference(f"{match[0]!r}: the step {step!r} has no output; there are {_names(outputs)}")
    value: JSON = outputs[step]
    if is_object(value) and list(value) == ["result"] and not _RESULT.match(path):
        value = value["result"]  # the one undeclared output may be left out of the path
    try:
        return pick(value, path)
    except MissingReference as error:
        raise MissingReference(f"{match[0]!r}: {error}") from None


def parse_path(path: str) -> list[str | int | None]:
    """The parts of a path: keys, indexes, and None for `[*]`. Raises `ValueError` where it is none."""
    path = path if not path or path[0] in ".[" else f".{path}"
    at, parts = 0, list[str | int | None]()
    while at < len(path):
        part = _PART.match(path, at)
        if part is None:
            raise ValueError(f"{path!r} is not a path; write it like name.items[0].id")
        at = part.end()
        try:
            parts.append(None if part[3] else int(part[2]) if part[2] else json.loads(part[4]) if part[4] else part[1])
        except ValueError:
            raise ValueError(f"{part[0]!r} is no key: it is written as JSON text is") from None
    return parts


def write_path(parts: Sequence[str | int | None]) -> str:
    """The path of such parts."""
    return "".join(map(_written, parts))


def _written(part: str | int | None) -> str:
    if part is None or isinstance(part, int):
        return f"[{'*' if part is None else part}]"
    return f".{part}" if _PLAIN.fullmatch(part) else f"[{json.dumps(part, ensure_ascii=False)}]"


def pick(value: JSON, path: str) -> JSON:
    """What a path leads to inside a value. Raises `MissingReference`, and `ValueError` where the path is none."""
    return _pick(value, parse_path(path))


def _pick(value: JSON, parts: Sequence[str | int | None]) -> JSON:
    for number, part in enumerate(parts, 1):
        value = read_text(value)
        if part is None:
            if not is_list(value):
                raise MissingReference(f"[*] needs a list, and there is {_kind(value)}")
            return [_pick(item, parts[number:]) for item in value]
        value = _index(value, part) if isinstance(part, int) else _key(value, part)
    return value


def read_text(value: JSON) -> JSON:
    """The JSON object or list that a text holds; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            found = decode(value)
        except ValueError:
            return value
        return found if is_object(found) or is_list(found) else value
    return value


def _key(value: JSON, key: str) -> JSON:
    if not is_object(value):
        raise MissingReference(f"there is no {key!r}: the value is {_kind(value)}")
    if key not in value:
        raise MissingReference(f"there is no {key!r}; there are {_names(value)}")
    return value[key]


def _index(value: JSON, index: int) -> JSON:
    if not is_list(value):
        raise MissingReference(f"there is no [{index}]: the value is {_kind(value)}")
    if not -len(value) <= index < len(value):
        raise MissingReference(f"there is no [{index}]: the list has {len(value)} elements")
    return value[index]


def _kind(value: JSON) -> str:
    names = {"NoneType": "null", "bool": "a boolean", "str": "a text", "list": "a list", "dict": "an object"}
    return names.get(value.__class__.__name__, "a number")


def _names(value: Mapping[str, JSON]) -> str:
    return ", ".join(map(repr, list(value)[:20])) or "none"
