"""What a journal's own runs know of tools: how often they were called lately, how long that took, what they gave."""

import math
import re
from collections.abc import Collection
from typing import Any

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from replan.encoding import JSON, decode, encode

from .records import Record

__all__ = ["RecentCalls", "ToolHistory"]

MAX_CALLS = 100
"""How many of the newest tool calls are looked at."""

MAX_RECORDS = 1_000
"""How many of the newest records are looked at for them."""

MAX_BYTES = 300_000
"""How much of the results, as stored, is read whole."""

SMALL = 3_500
"""Records of up to so many bytes lie in one page of a SQLite file: reading them costs no more than finding them."""

TOLD = b'{"type":"step.tool-call"'
"""How the record of an event begins that says that a tool is about to be called."""

_MAX_RESULT = 64_000
_MAX_SAMPLE = 20_000
_SAMPLES = 3
_HEAD = re.compile(rb'"call_id":"((?:[^"\\]|\\.)*)","(?:name|tool)":"((?:[^"\\]|\\.)*)"')


class ToolHistory(Struct, frozen=True):
    """What is known of one tool from its last calls.

    `calls` were made, `failed` of them gave an error. `seconds` and `chars` (of the output's text) are the median and
    the 90th percentile; 0 where nothing is known of it. `samples` are what the last calls that succeeded gave, newest
    first: the structured content, or the text; those over 20 kB are left out.
    """

    calls: int = 0
    failed: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)
    chars: tuple[int, int] = (0, 0)
    samples: tuple[JSON, ...] = ()


class _Part(Struct):
    text: str = ""


class _Result(Struct):
    call_id: str
    name: str
    content: list[_Part]
    is_error: bool = False
    structured: Raw = Raw(b"null")


class _Told(Struct):
    call_id: str = ""
    tool: str = ""


class _Call(Struct):
    """One call that ended. `structured` is JSON, or a value."""

    tool: str
    failed: bool
    chars: int
    ended: float
    place: tuple[Any, str]
    call_id: str = ""
    text: str | None = None
    structured: JSON = None


_result = Decoder(_Result)
_told = Decoder(_Told)


class RecentCalls:
    """Gathers calls of some tools from records, which are added newest first. `run` tells the records of runs apart.

    A damaged record counts as none.
    """

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = frozenset(tools)
        self._calls: list[_Call] = []
        self._untold: dict[tuple[Any, str], float] = {}
        self._intents: dict[tuple[Any, str], float] = {}
        self._starts: dict[tuple[Any, str], float] = {}
        self._bytes = self.count = 0

    def wants(self, length: int) -> bool:
        """Whether a result of that length, in bytes, is to be read whole; its first 500 bytes suffice otherwise."""
        return length <= _MAX_RESULT and self._bytes + length <= MAX_BYTES

    def add_stored(self, run: Any, kind: str, key: str, at: float, length: int, body: bytes | None) -> None:
        """One record as it is stored: `body` is JSON; the end of a result may be missing, anything else that is large.

        Of events only those that tell of calls may be given.
        """
        place = (run, key)
        try:
            match kind:
                case "completed" if body is not None:
                    self._bytes += len(body)
                    whole = len(body) == length
                    self._add(_from_whole(body, place, at) if whole else _from_head(body, length, place, at))
                case "event" | "intent":
                    self._start(place, kind, at, _told.decode(body or b"{}"))
                case _:
                    self._fail(place, kind, at)
        except (MsgspecError, ValueError, TypeError):
            pass

    def add(self, run: Any, record: Record) -> None:
        """One record of a run in memory."""
        place, body = (run, record.key), record.body
        try:
            if record.kind == "event" and body["type"] == "step.tool-call":
                self._start(place, "event", record.at, _Told(body["call_id"], body["tool"]))
            elif record.step != "tool":
                pass
            elif record.kind == "completed":
                self._add(_from_value(body, place, record.at))
            elif record.kind == "intent":
                self._start(place, "intent", record.at, _Told(body["call_id"], body["tool"]))
            else:
                self._fail(place, record.kind, record.at)
        except (LookupError, TypeError, AttributeError):
            pass

    def known(self) -> dict[str, ToolHistory]:
        """What is known of each tool of which calls were found."""
        by_tool: dict[str, list[_Call]] = {}
        for call in self._calls:
            by_tool.setdefault(call.tool, []).append(call)
        return {tool: self._history(calls) for tool, calls in by_tool.items()}

    def _add(self, call: _Call) -> None:
        self.count += 1
        if call.tool in self._tools:
            self._calls.append(call)

    def _fail(self, place: tuple[Any, str], kind: str, at: float) -> None:
        """A call that ended without a result; which tool it was of, the note of its start says, where there is one."""
        if kind == "failed":
            self._untold[place] = at

    def _start(self, place: tuple[Any, str], kind: str, at: float, told: _Told) -> None:
        if kind == "event":
            self._starts[place[0], told.call_id] = at
            return
        self._intents[place] = at
        if (ended := self._untold.pop(place, None)) is not None:
            self._add(_Call(tool=told.tool, failed=True, chars=0, ended=ended, place=place))

    def _history(self, calls: list[_Call]) -> ToolHistory:
        good = [call for call in calls if not call.failed]
        samples = [sample for call in good[:_SAMPLES] if (sample := _sample(call)) is not None]
        times = [call.ended - start for call in calls if (start := self._started(call)) is not None]
        return ToolHistory(
            calls=len(calls),
            failed=len(calls) - len(good),
            seconds=_typical([max(0.0, seconds) for seconds in times], 0.0),
            chars=_typical([call.chars for call in good or calls], 0),
            samples=tuple(samples),
        )

    def _started(self, call: _Call) -> float | None:
        run, key = call.place
        return self._intents.get((run, key), self._starts.get((run, call.call_id)))


def _from_value(body: Any, place: tuple[Any, str], at: float) -> _Call:
    texts = [part["text"] for part in body["content"] if part["type"] == "text"]
    chars = max(0, sum(map(len, texts)) + len(texts) - 1)
    return _Call(
        tool=body["name"],
        failed=bool(body.get("is_error")),
        chars=chars,
        ended=at,
        place=place,
        call_id=body["call_id"],
        text="\n".join(texts) if chars <= _MAX_SAMPLE else None,
        # encoding it to find out how large it is would cost what it is not worth
        structured=body.get("structured") if chars <= 2 * _MAX_SAMPLE else None,
    )


def _from_whole(body: bytes, place: tuple[Any, str], at: float) -> _Call:
    result = _result.decode(body)
    texts = [part.text for part in result.content if part.text]
    return _Call(
        tool=result.name,
        failed=result.is_error,
        chars=max(0, sum(map(len, texts)) + len(texts) - 1),
        ended=at,
        place=place,
        call_id=result.call_id,
        text="\n".join(texts),
        structured=result.structured,
    )


def _from_head(body: bytes, length: int, place: tuple[Any, str], at: float) -> _Call:
    """A call whose result is too large to be read for this: taken as one that succeeded, as long as its record is."""
    found = _HEAD.search(body[:500])
    if found is None:
        raise ValueError("the record does not begin like a result")
    call_id, tool = (decode(b'"' + group + b'"') for group in found.groups())
    return _Call(tool=tool, failed=False, chars=length, ended=at, place=place, call_id=call_id)


def _sample(call: _Call) -> JSON:
    structured = call.structured
    if structured is not None:
        data = bytes(structured) if isinstance(structured, Raw) else encode(structured)
        if data != b"null":
            return decode(data) if len(data) <= _MAX_SAMPLE else None
    return call.text if call.text is not None and len(call.text) <= _MAX_SAMPLE else None


def _typical(values: list[Any], otherwise: Any) -> tuple[Any, Any]:
    """The median (of an even number the lower one of the two) and the 90th percentile."""
    if not values:
        return otherwise, otherwise
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2], ordered[math.ceil(0.9 * len(ordered)) - 1]
