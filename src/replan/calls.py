"""One tool call: how it is started, what becomes of it, and what is told of it.

A call that may write is never repeated unasked: when it was interrupted, somebody is asked what came of it, and where
nobody knows, the model reads that.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from . import events
from .answers import read_approval
from .durable import Cancelled, Completed, Completion, Durable, Failed, InDoubt
from .encoding import JSON, JSONObject, is_list, is_object
from .messages import Text, ToolResult, to_json

__all__ = [
    "OUTCOME_UNKNOWN",
    "Ask",
    "Call",
    "Gate",
    "Instead",
    "open_gate",
    "same_call",
    "start_call",
    "take_call_outcome",
    "tell",
    "tell_call",
    "tell_result",
]

OUTCOME_UNKNOWN = (
    "Outcome unknown: the call was interrupted, and it may or may not have taken effect. It was not repeated. "
    "Find out what happened before you do anything that builds on it; if you cannot, say so."
)

_DENIED = "It was not made. Do not try to get the same in another way; go on without it, and say so."


@dataclass(slots=True)
class Call:
    """One tool call of a turn.

    `result` is its `ToolResult` as JSON; `entry` is how the next model call refers to that. `permit` is the key of what
    permits it, where that is used up by it.
    """

    call_id: str
    tool: str
    arguments: JSONObject
    raw: str | None = None
    once: bool = False
    writes: bool = False
    denied: bool = False
    permit: str | None = None
    original: str | None = None
    server: str | None = None
    started: float = 0.0
    key: str = ""
    result: JSONObject | None = None
    entry: JSONObject | None = None

    @property
    def signature(self) -> str:
        """The exact call, for comparing."""
        return same_call(self.tool, [self.arguments, self.raw])

    @property
    def in_doubt(self) -> bool:
        """Whether the call may have taken effect, and nobody knows: it is one that is not simply made again."""
        return self.once and self.result is not None and self.result.get("outcome_unknown") is True

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.result is not None and not self.result.get("is_error")

    @property
    def text(self) -> str:
        """What the call gave, as text."""
        content = self.result["content"] if self.result else ()
        return "\n".join(part["text"] if part["type"] == "text" else f"[{part['type']}]" for part in content)

    @property
    def value(self) -> JSON:
        """What the call gave to programs: the structured result (not a lone `{"result": x}` around it) or the text."""
        value: JSON = (self.result or {}).get("structured")
        if value is None:
            return self.text
        return value["result"] if is_object(value) and list(value) == ["result"] else value

    def answer(self, text: str, *, outcome_unknown: bool = False) -> None:
        """Give the call an error result that the runtime wrote."""
        self.result = self.entry = self.error(text, outcome_unknown=outcome_unknown)

    def error(self, text: str, *, outcome_unknown: bool = False) -> JSONObject:
        """An error result for the call."""
        content = (Text(text),)
        return to_json(ToolResult(self.call_id, self.tool, content, is_error=True, outcome_unknown=outcome_unknown))


def same_call(tool: str, arguments: JSON) -> str:
    """A text that is the same for calls that are the same once their arguments are coerced: `"5"` and 5 are."""
    return json.dumps([tool, _spelt(arguments)], sort_keys=True)


def _spelt(value: JSON) -> JSON:
    if is_object(value):
        return {name: _spelt(item) for name, item in value.items()}
    if is_list(value):
        return [_spelt(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if value is None or isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody must allow the call; `body` says what is asked."""

    body: JSONObject


@dataclass(frozen=True, slots=True)
class Instead:
    """The call is not made; `text` is its result."""

    text: str


Gate: TypeAlias = Callable[[str | None, Call], Ask | Instead | None]
"""Decides on a call of a step before it is made: None lets it through."""


def open_gate(durable: Durable, gate: Gate | None, step_id: str | None, call: Call, key: str) -> str | None:
    """Make a call, ask for it, or answer it, as the gate decides. Gives the key under which something will come."""
    call.started, call.key = durable.now(), key
    match gate(step_id, call) if gate else None:
        case Ask(body):
            durable.expect("approval", key=f"{key}/approval", body=body)
            return f"{key}/approval"
        case Instead(text):
            call.result = call.entry = to_json(ToolResult(call.call_id, call.tool, (Text(text),)))
            return None
        case None:
            start_call(durable, step_id, call, key)
            return key


def start_call(durable: Durable, step_id: str | None, call: Call, key: str) -> None:
    """Start the effect that makes a tool call."""
    call.started, call.key, call.entry = durable.now(), key, {"ref": key}
    args = {"tool": call.tool, "arguments": call.arguments, "call_id": call.call_id, "step": step_id}
    durable.start("tool", args, key=key, once=call.once)


def take_call_outcome(durable: Durable, step_id: str | None, call: Call, completion: Completion) -> str | None:
    """Give the call its result; or, where that is in doubt, ask, and say under which key the answer will come."""
    if completion.key == f"{call.key}/doubt":
        return _take_certainty(durable, step_id, call, completion)
    if completion.key == f"{call.key}/approval":
        return _take_approval(durable, step_id, call, completion)
    match completion.outcome:
        case Completed(value):
            call.result = value
        case InDoubt():
            body = {"tool": call.tool, "arguments": call.arguments, "call_id": call.call_id}
            durable.expect("in-doubt", key=f"{call.key}/doubt", body=body)
            return f"{call.key}/doubt"
        case Failed(error):
            call.answer(f"The tool failed: {error['message']}")
        case Cancelled():
            doubt = "; it may or may not have taken effect" if call.once else ""
            call.answer(f"Cancelled before it had a result{doubt}.", outcome_unknown=call.once)
    return None


def _take_approval(durable: Durable, step_id: str | None, call: Call, completion: Completion) -> str | None:
    if isinstance(completion.outcome, Cancelled):
        call.answer("Cancelled before it was allowed.")
        return None
    allowed, reason = read_approval(completion.outcome.value if isinstance(completion.outcome, Completed) else None)
    if allowed:
        start_call(durable, step_id, call, call.key)
        return call.key
    call.answer(f"Denied{': ' if reason else ''}{reason.removesuffix('.')}. {_DENIED}")
    call.denied = True
    return None


def _take_certainty(durable: Durable, step_id: str | None, call: Call, completion: Completion) -> str | None:
    """What somebody said of a call that is in doubt: that it was done, perhaps with its result, or was not."""
    match completion.outcome:
        case Completed({"outcome": "not-done"}):
            start_call(durable, step_id, call, f"{call.key}/again")
            return call.key
        case Completed({"outcome": "done", **more}):
            call.result = to_json(ToolResult(call.call_id, call.tool, (Text(str(more.get("result") or "Done.")),)))
            call.entry = call.result
        case _:
            call.answer(OUTCOME_UNKNOWN, outcome_unknown=True)
    return None


async def tell(durable: Durable, event: events.Event) -> None:
    """Emit an event."""
    await durable.emit(msgspec.to_builtins(event))


async def tell_call(durable: Durable, step_id: str | None, call: Call) -> None:
    """Say that a tool is about to be called."""
    event = events.StepToolCall(
        run_id=durable.run_id,
        step_id=step_id,
        call_id=call.call_id,
        tool=call.tool,
        name=call.original or call.tool,
        server=call.server,
        arguments=call.arguments,
    )
    await tell(durable, event)


async def tell_result(durable: Durable, step_id: str | None, call: Call, at: float) -> None:
    """Say what a tool call gave. `at` is when, in seconds since 1970."""
    assert call.result is not None
    texts = [part["text"] for part in call.result["content"] if part["type"] == "text"]
    event = events.StepToolResult(
        run_id=durable.run_id,
        step_id=step_id,
        call_id=call.call_id,
        tool=call.tool,
        ok=call.ok,
        output="\n".join(texts),
        seconds=max(0.0, at - call.started),
    )
    await tell(durable, event)
