"""Finding JSON in a reply: models put it into fences, sentences and after a first try."""

import json
import re
from collections.abc import Iterator

from replan.encoding import JSON, normalise

_FENCE = re.compile(r"```[A-Za-z0-9_-]*[ \t]*\r?\n?")
_DECODER = json.JSONDecoder(strict=False)  # strings may hold raw line breaks
_MAX_STARTS = 500
_MAX_DEPTH = 250


class OutputProblem(Exception):
    """A reply cannot be used. The text goes to the model, which is asked again."""


def candidates(text: str) -> Iterator[JSON]:
    """The JSON values in a reply, likeliest first: the whole text, then the insides of fences, then each balanced
    object or list.

    A fence may hold fences inside a string: every closing fence is tried, the last one first.
    """
    whole = _decode(text)
    if whole is not _NONE:
        yield whole
        return
    fences = list(_FENCE.finditer(text))[:40]
    for number, start in enumerate(fences):
        for end in reversed(fences[number + 1 :]):
            found = _decode(text[start.end() : end.start()])
            if found is not _NONE:
                yield found
    yield from _balanced(text)


def _balanced(text: str) -> Iterator[JSON]:
    position = 0
    for _ in range(_MAX_STARTS):
        start = min((at for at in (text.find("{", position), text.find("[", position)) if at >= 0), default=-1)
        if start < 0:
            return
        try:
            value, position = _DECODER.raw_decode(text, start)
            yield normalise(value, _MAX_DEPTH)
        except (ValueError, RecursionError):
            position = start + 1


_NONE = object()


def _decode(text: str) -> JSON:
    try:
        return normalise(_DECODER.decode(text.strip().removeprefix("\ufeff")), _MAX_DEPTH)
    except (ValueError, RecursionError):
        return _NONE
