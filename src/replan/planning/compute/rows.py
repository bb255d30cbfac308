"""The elements that an aggregate of a computed step is about: what they are called, and what counts in them."""

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from replan.encoding import JSON, JSONObject, decode, is_list, is_object
from replan.planning.references import MissingReference, pick, references

from .expression import is_reference, read
from .quantities import ComputeError, described, keys, listed, same, shown

__all__ = ["TESTS", "Row", "read_rows"]

_NAMES = ("name", "title", "label", "full_name", "city", "id", "key")
_LAST = re.compile(r"""(?:\.[^.\[\]{}]+|\[(?:[^\]"]|"(?:[^"\\]|\\.)*")*\])\}$""")


@dataclass(frozen=True, slots=True)
class Row:
    """One element. `name` is for errors, `label` for people; `value` is what counts: the element itself, or a field.

    `element` is what is given back: an object as it is, a plain value with its label if that says more.
    """

    name: str
    label: str
    element: JSON
    value: JSON

    @property
    def said(self) -> str:
        """`label (value)`, or one of them where the other adds nothing."""
        text = shown(self.value)
        return (
            self.label
            if is_object(self.value) or is_list(self.value) or text == self.label
            else f"{self.label} ({text})"
        )


@dataclass(frozen=True, slots=True)
class _Source:
    """One element as it was found. `label` is a label that somebody gave, `step` the words of its reference."""

    name: str
    value: JSON
    label: str | None = None
    step: str | None = None


def read_rows(
    operand: JSON, options: JSONObject, outputs: Mapping[str, JSONObject], labels: Mapping[str, str]
) -> list[Row]:
    """The elements of the operand that fulfil `where`. Raises `ComputeError` and `MissingReference`."""
    sources = list(_sources(operand, outputs, labels))
    if (given := options.get("labels")) is not None:
        sources = _labelled(sources, read(given, outputs))
    where: JSONObject | None = options.get("where")
    by = options.get("by")
    if where is not None:
        than = read(where["than"], outputs)
        sources = [source for source in sources if _holds(source, where.get("by") or by, where["is"], than)]
    return [_row(source, by) for source in sources]


def _sources(operand: JSON, outputs: Mapping[str, JSONObject], labels: Mapping[str, str]) -> Iterator[_Source]:
    items: list[JSON] = operand if is_list(operand) else [operand]
    values = [_opened(read(item, outputs)) for item in items]
    names = _reference_labels([item for item in items if is_reference(item)], outputs, labels)
    for place, (item, value) in enumerate(zip(items, values, strict=True), 1):
        if not is_reference(item):
            yield _Source(f"element {place}", value)
        elif is_list(value):
            yield from (_Source(f"{item}[{i}]", _opened(element)) for i, element in enumerate(value))
        elif not is_list(operand):
            raise ComputeError(f"{item} is {described(value)}, not a list{_lists(value)}")
        else:
            yield _Source(item, value, *names[item])


def _reference_labels(
    items: list[str], outputs: Mapping[str, JSONObject], labels: Mapping[str, str]
) -> dict[str, tuple[str | None, str]]:
    """For each reference a label, if it has one, and what it is called otherwise: the id of the step, or the path.

    The label is the name of the object that a field belongs to, if no other has it, else the label of the step; of
    several references to one step the latter names none.
    """
    steps = {item: next(references(item)) for item in items}
    owners = {item: _owner(item, outputs) for item in steps}
    of_step, of_owner = Counter(steps.values()), Counter(owners.values())
    found: dict[str, tuple[str | None, str]] = {}
    for item, step in steps.items():
        alone, owner = of_step[step] == 1, owners[item]
        label = owner if owner and of_owner[owner] == 1 else labels.get(step) if alone else None
        found[item] = (label, step if alone else item[2:-1])
    return found


def _owner(reference: str, outputs: Mapping[str, JSONObject]) -> str | None:
    """The name of the innermost object around what is referred to, as far as no list is in between."""
    while (outer := _LAST.sub("}", reference)) != reference:
        value = _opened(read(outer, outputs))
        if not is_object(value):
            return None
        if name := _name_in(value, strict=True):
            return name
        reference = outer
    return None


def _opened(value: JSON) -> JSON:
    """A text that is a JSON list or object, as tools give them, as what it says."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return decode(value)
        except ValueError:
            return value
    return value


def _lists(value: JSON) -> str:
    fields = [repr(key) for key, item in value.items() if is_list(item)] if is_object(value) else []
    return f"; there are lists in {listed(fields)}" if fields else ""


def _labelled(sources: list[_Source], labels: JSON) -> list[_Source]:
    if not is_list(labels) or len(labels) != len(sources):
        raise ComputeError(f"'labels' is {described(labels)}, and there are {len(sources)} elements: one text for each")
    return [replace(source, label=shown(label)) for source, label in zip(sources, labels, strict=True)]


def _row(source: _Source, by: str | None) -> Row:
    value = source.value
    pair = by is None and is_object(value) and value.keys() == {"label", "value"}
    label = source.label or _name_in(value) or source.step or shown(value)
    plain = is_object(value) or not (source.label or source.step)
    element = value if plain else {"label": label, "value": value}
    return Row(
        name=source.name if by is None else f"{by!r} of {source.name}",
        label=label,
        element=element,
        value=value["value"] if pair else _field(source, by),
    )


def _name_in(value: JSON, *, strict: bool = False) -> str | None:
    """What an object calls itself: a field that is a name, or else (unless `strict`) its first text."""
    if not is_object(value):
        return None
    named = [key for key in value if key.endswith("_name")]
    texts = [] if strict else [key for key, item in value.items() if isinstance(item, str)]
    found = (value.get(key) for key in (*_NAMES, *named, *texts))
    return next((shown(item) for item in found if item and isinstance(item, (str, int))), None)


def _field(source: _Source, by: str | None) -> JSON:
    if by is None:
        return source.value
    try:
        return pick(source.value, by)
    except (MissingReference, ValueError) as error:
        raise ComputeError(f"{by!r} of {source.name}: {error}") from None


def _holds(source: _Source, by: str | None, test: str, than: JSON) -> bool:
    row = _row(source, by)
    return TESTS[test](row.value, than, (row.name, "'than'"))


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[JSON, JSON, tuple[str, str]], bool]:
    return lambda value, than, names: test(*keys((value, than), names))


def _within(value: JSON, than: JSON, names: tuple[str, str]) -> bool:
    if not is_list(than):
        raise ComputeError(f"{names[1]} is {described(than)}, not a list")
    return any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in than)


TESTS: dict[str, Callable[[JSON, JSON, tuple[str, str]], bool]] = {
    "<": _compared(operator.lt),
    "<=": _compared(operator.le),
    ">": _compared(operator.gt),
    ">=": _compared(operator.ge),
    "==": same,
    "!=": lambda value, than, names: not same(value, than, names),
    "in": _within,
}
"""The tests of `where`: of the value and `than`, with what the two are called in errors. They raise `ComputeError`."""
