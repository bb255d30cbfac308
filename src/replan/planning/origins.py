"""Where the values of planned calls come from: the goal, a result, the tool's schema, an error, or the model alone."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from replan.encoding import JSON, JSONObject, encode, is_list, is_object
from replan.tool import ToolInfo
from replan.tools.coercion import property_schemas

from .catalogue import for_planner
from .lint.report import Finding
from .plan import Plan, Step
from .references import references, write_path
from .words import numbers, quoted

__all__ = ["Origin", "origins", "ungrounded"]

Origin: TypeAlias = Literal["goal", "output", "schema", "error", "model"]

_FREE = re.compile(
    r"body|text|message|content|comment|note|description|summary|subject|title|query|prompt|expression|reason", re.I
)
_MAX_SHOWN = 80


def origins(
    plan: Plan, tools: Sequence[ToolInfo], goal: str, *, errors: Iterable[str] = ()
) -> dict[str, dict[str, Origin]]:
    """For each call of a plan the origin of each value that it gives, by the value's path in the arguments.

    `goal` is a text or number of the goal (in upper or lower case, singular or plural), `output` holds a reference,
    `schema` is a value that the tool offers for the parameter (an enumeration, a default, an example, or its
    description), `error` one that an error named.
    """
    named = {step.call.tool for step in plan.steps if step.call}
    called = [info for info in tools if info.name in named]
    known = {info.name: shown for info, shown in zip(called, for_planner(called), strict=True)}
    said = _Said(goal, [word for error in errors for word in quoted(error)])
    found: dict[str, dict[str, Origin]] = {}
    for step in plan.steps:
        if step.call and step.call.tool in known and step.call.arguments:
            properties = property_schemas(known[step.call.tool].parameters)
            rows = [(p, v, _at(properties, p)) for p, v in _leaves(step.call.arguments)]
            found[step.id] = {write_path(p).removeprefix("."): said.origin(v, s) for p, v, s in rows}
    return found


def ungrounded(plan: Plan, tools: Sequence[ToolInfo], found: Mapping[str, Mapping[str, Origin]]) -> list[Finding]:
    """A finding for each value of a call that may write that only the model knows, other than free text."""
    reads = {info.name for info in tools if info.read_only}
    findings: list[Finding] = []
    for step in plan.steps:
        if step.call is None or step.call.tool in reads:
            continue
        values = {write_path(p).removeprefix("."): v for p, v in _leaves(step.call.arguments)}
        for path, origin in found.get(step.id, {}).items():
            if origin == "model" and not _FREE.search(path):
                findings.append(Finding(step.id, "ungrounded", _sentence(step, path, values[path])))
    return findings


def _sentence(step: Step, path: str, value: JSON) -> str:
    shown = encode(value).decode()
    shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
    return f"step {step.id!r}: {path} = {shown} is neither in the goal nor in a result"


_Path: TypeAlias = tuple[str | int, ...]


def _leaves(value: JSON, path: _Path = ()) -> Iterator[tuple[_Path, JSON]]:
    """The values inside a value that are neither lists, objects nor null, with their paths."""
    if is_object(value):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    elif is_list(value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*path, number))
    elif value is not None:
        yield path, value


def _at(properties: JSONObject, path: _Path) -> JSONObject:
    """The schema of a value inside the arguments, as far as it is written out; else that of its argument."""
    schema: JSON = properties.get(str(path[0]))
    for part in path[1:]:
        inner = _object(schema).get("items") if isinstance(part, int) else _inner(schema, part)
        schema = inner if is_object(inner) else schema
    return _object(schema)


def _inner(schema: JSON, name: str) -> JSON:
    return _object(_object(schema).get("properties")).get(name)


def _object(value: JSON) -> JSONObject:
    return value if is_object(value) else {}


class _Said:
    """What the goal and errors say."""

    def __init__(self, goal: str, offered: Sequence[str]) -> None:
        self._goal = _words(goal)
        self._numbers = set(numbers(goal))
        self._offered = {_words(text) for text in offered}

    def origin(self, value: JSON, schema: JSONObject) -> Origin:
        """The origin of one value."""
        if isinstance(value, str) and any(references(value)):
            return "output"
        if self._in_goal(value):
            return "goal"
        if _offers(schema, value):
            return "schema"
        return "error" if _words(str(value)) in self._offered else "model"

    def _in_goal(self, value: JSON) -> bool:
        if isinstance(value, bool):
            return False
        if not isinstance(value, str):
            return value in self._numbers
        words = _words(value)
        forms = {words, f"{words}s", f"{words}es", words.removesuffix("s"), words.removesuffix("es")}
        return bool(words.strip()) and any(_holds(self._goal, form) for form in forms if form.strip())


def _words(text: str) -> str:
    return " ".join(text.split()).casefold()


def _holds(text: str, words: str) -> bool:
    """Whether words stand in a text, not as a part of others, or of an address or a path."""
    if not words or words not in text:
        return False
    return re.search(rf"(?<![\w@./-]){re.escape(words)}(?![\w@/]|[.-]\w)", text) is not None


def _offers(schema: JSONObject, value: JSON) -> bool:
    branches: list[JSON] = [b for key in ("anyOf", "oneOf", "allOf") for b in schema.get(key) or ()]
    if isinstance(value, bool) or any(_offers(branch, value) for branch in branches if is_object(branch)):
        return True
    listed = [*(schema.get("enum") or ()), *(schema.get("examples") or ())]
    listed += [schema[name] for name in ("default", "const", "example") if name in schema]
    if value in listed:
        return True
    return isinstance(value, str) and _holds(_words(str(schema.get("description") or "")), _words(value))
