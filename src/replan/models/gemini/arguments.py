"""Arguments of a call that come in pieces (Vertex AI, reference "PartialArg"); places are JSON paths (RFC 9535)."""

import re
from typing import Any, cast

from replan.encoding import JSON, JSONObject
from replan.models.fields import a_text

__all__ = ["Arguments"]

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,4})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")
_ESCAPED = re.compile(r"\\(.)")


class Arguments:
    """The arguments as far as they have come. Pieces of a text are joined; of anything else the last counts."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: JSONObject = {}

    def add(self, piece: JSONObject) -> None:
        """Put a piece in its place. One whose place or value is not known is passed over."""
        steps = _steps(a_text(piece.get("jsonPath")))
        names = [name for name in ("stringValue", "numberValue", "boolValue", "nullValue") if name in piece]
        if steps and names:
            value: JSON = None if names[0] == "nullValue" else piece[names[0]]
            self.value = cast("JSONObject", _put(self.value, steps, value))


def _steps(path: str) -> list[str | int]:
    """The names and the numbers of a path; none where it is no path to one place in an object."""
    steps: list[str | int] = []
    at = 1
    while path.startswith("$") and at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return []
        plain, number, *quoted = found.groups()
        name = plain if plain is not None else next((text for text in quoted if text is not None), "")
        steps.append(int(number) if number is not None else _ESCAPED.sub(r"\1", name))
        at = found.end()
    return steps if steps and isinstance(steps[0], str) else []


def _put(inside: JSON, steps: list[str | int], value: JSON) -> JSON:
    """What is in a place with the value put into it; lists grow as far as they must."""
    if not steps:
        return inside + value if isinstance(inside, str) and isinstance(value, str) else value
    step, *rest = steps
    if isinstance(step, str):
        known = cast("JSONObject", inside) if isinstance(inside, dict) else {}
        known[step] = _put(known.get(step), rest, value)
        return known
    items = cast("list[Any]", inside) if isinstance(inside, list) else []
    items += [None] * (step + 1 - len(items))
    items[step] = _put(items[step], rest, value)
    return items
