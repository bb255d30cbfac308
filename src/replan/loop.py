"""The tool loop: a model is called, the tools it asks for are called, until it answers.

`converse` is the whole algorithm. It does nothing itself: it starts effects behind the `Durable` seam (`effects.py` has
them), takes their completions in the journalled order, and decides. So the same code runs live, in a replay after a
crash, and inside a workflow engine. `begin` and `advance` are its two halves, for a caller that drives several
conversations at once.

Kept at every moment: each tool call has exactly one result, in order; what a model can fix goes to the model as a
result; a reply that was cut by the token limit is never executed.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from . import events
from .calls import Call, Gate, open_gate, take_call_outcome, tell, tell_call, tell_result
from .durable import Cancelled, Completed, Completion, Durable, Failed, InDoubt
from .encoding import JSON, JSONObject
from .errors import AuthError, ConfigError, JournalError, ReplanError, RunFailed
from .limits import Meter
from .messages import asked, to_json, user
from .settings import Limits

__all__ = ["AgentState", "End", "Talk", "advance", "attempt", "begin", "converse", "run", "tell_excess"]

End: TypeAlias = Literal[
    "answered",
    "refusal",
    "content-filter",
    "length",
    "invalid-output",
    "max-turns",
    "no-progress",
    "limit",
    "cancelled",
]

SAME_FAILURES = 2
"""How often an identical call may fail; after that it is refused unseen."""

REFUSED_TURNS = 3
"""How many turns with refused calls, or cut replies in a row, end a conversation: it is not getting anywhere."""


@dataclass(slots=True)
class Talk:
    """The state of one conversation with a model.

    `key` is the prefix of its effects' keys. `messages` is the whole history as JSON. `request` is merged into the
    arguments of every model effect. `repairs` is how often the model is asked again when its reply cannot be used.
    `gate` decides on each tool call before it is made. `ended` is None while it goes on; then `text`, `output` (for a
    stage with an output schema) and `problem` (why the reply is unusable) say what came of it.
    """

    stage: str
    key: str
    step_id: str | None = None
    max_turns: int = 50
    repairs: int = 2
    request: JSONObject = field(default_factory=dict[str, Any])
    gate: Gate | None = None
    messages: list[JSONObject] = field(default_factory=list[JSONObject])
    turn: int = 0
    ended: End | None = None
    text: str = ""
    output: JSON = None
    problem: str | None = None
    calls: list[Call] = field(default_factory=list[Call])
    finished_calls: list[Call] = field(default_factory=list[Call])
    waiting: dict[str, Call] = field(default_factory=dict[str, Call])
    after: str | None = None
    fresh: list[JSONObject] = field(default_factory=list[JSONObject])
    failures: dict[str, int] = field(default_factory=dict[str, int])
    refused_turns: int = 0
    cut_turns: int = 0
    stopping: End | None = None

    def say(self, *messages: JSONObject) -> None:
        """Add messages that the next model call will see."""
        self.messages += messages
        self.fresh += messages

    def go_on(self, *messages: JSONObject) -> None:
        """Take the conversation up again after its end."""
        self.say(*messages)
        self.ended = self.stopping = None

    def failed(self, call: Call) -> None:
        """Count the failure of a call."""
        times = SAME_FAILURES if call.in_doubt else self.failures.get(call.signature, 0) + 1
        self.failures[call.signature] = times

    def history(self) -> list[JSONObject]:
        """The messages, made valid where the conversation is in the middle of a turn; it may go on after this."""
        open_turn = [call.result or call.error("Interrupted before it had a result.") for call in self.calls]
        return [*self.messages, *open_turn]


async def converse(durable: Durable, talk: Talk, meter: Meter) -> None:
    """Run a conversation to its end. Raises the model's error when a model call fails for good."""
    begin(durable, talk)
    while talk.ended is None:
        await advance(durable, talk, meter, await durable.next())


async def attempt(durable: Durable, talk: Talk, meter: Meter) -> str | None:
    """Run a conversation that the run can do without: gives the error of a model call that failed for good.

    Raises what would fail every other model call as well, or the run itself.
    """
    try:
        await converse(durable, talk, meter)
    except (AuthError, ConfigError, JournalError):
        raise
    except ReplanError as error:
        return str(error)
    return None


def begin(durable: Durable, talk: Talk) -> None:
    """Start the next model call. It names the call before it and carries only what was added since."""
    args = {"stage": talk.stage, "step": talk.step_id, **talk.request, "after": talk.after, "add": talk.fresh}
    talk.after, talk.fresh = f"{talk.key}{talk.turn}", []
    durable.start("model", args, key=talk.after)


async def advance(durable: Durable, talk: Talk, meter: Meter, completion: Completion) -> None:
    """Take one completion that belongs to this conversation, and start what follows from it."""
    if call := talk.waiting.pop(completion.key, None):
        await _take_result(durable, talk, call, completion)
    else:
        await _take_reply(durable, talk, meter, completion)
    if talk.waiting or talk.ended:
        return
    _close_turn(talk)
    talk.ended = talk.stopping
    if talk.ended is None and meter.out_of_tokens():
        talk.ended = "limit"
    await tell_excess(durable, meter)
    if talk.ended is None:
        begin(durable, talk)


async def _take_reply(durable: Durable, talk: Talk, meter: Meter, completion: Completion) -> None:
    match completion.outcome:
        case Completed(reply):
            pass
        case Failed(error):
            raise ReplanError.from_json(error)
        case InDoubt() | Cancelled():
            talk.ended = "cancelled"
            return
    message: JSONObject = reply["message"]
    talk.messages.append(message)
    talk.calls = _calls(message, reply.get("calls", []))
    talk.turn += 1
    used = meter.add(reply["model"], reply["usage"])
    await tell(
        durable, events.UsageReported(run_id=durable.run_id, phase=reply["phase"], model=reply["model"], usage=used)
    )
    talk.text = "".join(part["text"] for part in message["content"] if part["type"] == "text")
    finish, refusals = reply["finish"], [part["text"] for part in message["content"] if part["type"] == "refusal"]
    if finish in ("refusal", "content_filter") or refusals:
        talk.stopping = "content-filter" if finish == "content_filter" else "refusal"
        talk.text = talk.text or "".join(refusals)
    elif talk.calls and finish == "length":
        _refuse_cut_calls(talk)
    elif talk.calls:
        await _start_calls(durable, talk, meter)
    elif finish == "length":
        talk.stopping = "length"
    else:
        _take_answer(talk, reply)


def _take_answer(talk: Talk, reply: JSONObject) -> None:
    talk.output, talk.problem = reply.get("output"), reply.get("problem")
    if talk.problem is None:
        talk.stopping = "answered"
    elif talk.repairs <= 0 or talk.turn >= talk.max_turns:
        talk.stopping = "invalid-output"
    else:
        talk.repairs -= 1
        talk.say(to_json(user(talk.problem)))


def _calls(message: JSONObject, prepared: list[JSONObject]) -> list[Call]:
    """The calls of a reply, as the model effect prepared them: with coerced arguments, or an error for the model."""
    calls: list[Call] = []
    parts = [part for part in message["content"] if part["type"] == "call"]
    for part, more in zip(parts, prepared, strict=True):
        arguments = more.get("arguments", part["arguments"])
        call = Call(part["call_id"], part["name"], arguments, part.get("raw"), once=more.get("once", False))
        call.original, call.server = more.get("original"), more.get("server")
        call.writes = more.get("writes", call.once)
        if "error" in more:
            call.answer(more["error"])
        calls.append(call)
    return calls


def _refuse_cut_calls(talk: Talk) -> None:
    talk.cut_turns += 1
    if talk.cut_turns >= REFUSED_TURNS or talk.turn >= talk.max_turns:
        talk.stopping = "length"
    for call in talk.calls:
        call.answer("Not run: the reply was cut off at the output limit. Try again with less in one reply.")


async def _start_calls(durable: Durable, talk: Talk, meter: Meter) -> None:
    """Start every call that may run; the others are answered at once."""
    talk.cut_turns = 0
    refused: End | None = None
    if talk.turn >= talk.max_turns:
        talk.stopping = "max-turns"
    for index, call in enumerate(talk.calls):
        if talk.stopping:
            call.answer("Not run: the limit of turns is reached.")
        elif talk.failures.get(call.signature, 0) >= SAME_FAILURES:
            call.answer("Not run: this exact call has failed before. Change the arguments, or go on without it.")
            refused = "no-progress"
        elif call.result is not None:
            talk.failed(call)
        elif not meter.take_tool_call():
            call.answer("Not run: the tool-call budget of this run is exhausted. Answer from what you have.")
            refused = "limit"
        else:
            await _start_call(durable, talk, call, f"{talk.after}/{index}")
    if refused:
        talk.refused_turns += 1
        talk.stopping = talk.stopping or (refused if talk.refused_turns >= REFUSED_TURNS else None)


async def _start_call(durable: Durable, talk: Talk, call: Call, key: str) -> None:
    await tell_call(durable, talk.step_id, call)
    if waits_for := open_gate(durable, talk.gate, talk.step_id, call, key):
        talk.waiting[waits_for] = call
    else:
        await tell_result(durable, talk.step_id, call, durable.now())


async def _take_result(durable: Durable, talk: Talk, call: Call, completion: Completion) -> None:
    if isinstance(completion.outcome, Cancelled):
        talk.stopping = "cancelled"
    if waits_for := take_call_outcome(durable, talk.step_id, call, completion):
        talk.waiting[waits_for] = call
        return
    if not call.ok:
        talk.failed(call)
    elif call.once:
        talk.failures.clear()  # what was just written may be what the others lacked
    await tell_result(durable, talk.step_id, call, completion.at)


def _close_turn(talk: Talk) -> None:
    """Put the results of the turn into the history, in the order of the calls."""
    for call in talk.calls:
        if call.result is None:
            call.answer("Not run: the reply was stopped.")
        assert call.result is not None
        assert call.entry is not None
        talk.messages.append(call.result)
        talk.fresh.append(call.entry)
    talk.finished_calls += talk.calls
    talk.calls = []


async def tell_excess(durable: Durable, meter: Meter) -> None:
    """Say which limits have been reached since this was said before."""
    for excess in meter.news():
        event = events.BudgetExceeded(run_id=durable.run_id, kind=excess.kind, tokens=excess.amount, cap=excess.cap)
        await tell(durable, event)


@dataclass(slots=True)
class AgentState:
    """What a plain run has come to: explicit, so that there is a valid partial result whenever the run is left.

    `value` is the output as the Python type that was asked for.
    """

    meter: Meter = field(default_factory=lambda: Meter(Limits()))
    talk: Talk | None = None
    phase: events.Phase = "execute"
    status: Literal["running", "complete", "stopped"] = "running"
    stop_reason: str | None = None
    text: str = ""
    output: JSON = None
    value: Any = None

    @property
    def messages(self) -> list[JSONObject]:
        """The history as JSON, valid also in the middle of a turn."""
        return self.talk.history() if self.talk else []


async def run(durable: Durable, task: JSONObject, state: AgentState) -> None:
    """The plain agent's program.

    `task` holds `agent`, `goal`, `history` and `limits`, and may hold `attachments`; what comes of it is in `state`.
    """
    await tell(durable, events.RunStart(run_id=durable.run_id, goal=task["goal"], agent=task["agent"]))
    state.meter.limits = Limits(**task["limits"])
    talk = state.talk = Talk("executor", "t", max_turns=state.meter.limits.max_turns)
    talk.say(*task["history"], asked(task["goal"], task.get("attachments", ())))
    await converse(durable, talk, state.meter)
    state.text, state.output = talk.text, talk.output
    if talk.ended == "invalid-output":
        raise RunFailed(f"the model's output could not be used, repairs included: {talk.problem}")
    if talk.ended != "answered":
        state.status, state.stop_reason = "stopped", talk.ended
    elif state.meter.reached:
        state.status, state.stop_reason = "stopped", "limit"
    else:
        state.status = "complete"
    await tell(durable, events.Final(run_id=durable.run_id, text=state.text, output=state.output))
