"""What a person is shown of a run: the fold over its events. Knows nothing of terminals."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from replan import events
from replan.encoding import JSONObject
from replan.planning.price import price_line
from replan.usage import Usage

__all__ = ["TAKEN", "CallView", "Note", "StepView", "View"]

StepState: TypeAlias = Literal["pending", "running", "done", "failed"]
NoteKind: TypeAlias = Literal["said", "debug", "info", "warning", "error"]


@dataclass(slots=True)
class Note:
    """A line for the log: `said` is what the model said between tool calls, the rest are levels."""

    kind: NoteKind
    text: str


@dataclass(slots=True)
class CallView:
    """A tool call. `ok` is None while it runs."""

    call_id: str
    tool: str
    arguments: JSONObject
    server: str | None = None
    ok: bool | None = None
    output: str = ""
    seconds: float = 0.0
    progress: str = ""


@dataclass(slots=True)
class StepView:
    """A step of the plan.

    `text` and `thought` are what is streamed at the moment, `since` is when it started, in monotonic time.
    """

    id: str
    description: str
    state: StepState = "pending"
    kind: str = ""
    calls: list[CallView] = field(default_factory=list[CallView])
    text: str = ""
    thought: str = ""
    summary: str = ""
    seconds: float = 0.0
    since: float = 0.0


@dataclass(slots=True)
class View:
    """The state of a run as far as it is shown. Feed it with `take`.

    `notes` are for whoever prints them, and to be emptied then. An `error` becomes a note unless it is what the run
    fails with: that is told when the run has ended.
    """

    agent: str = ""
    goal: str = ""
    thought: str = ""
    price: str = ""
    drafted: bool = False
    draft_over: bool = False
    steps: list[StepView] = field(default_factory=list[StepView])
    calls: list[CallView] = field(default_factory=list[CallView])
    answer: str = ""
    thinking: str = ""
    final: str | None = None
    status: str | None = None
    seconds: float = 0.0
    retrying: str = ""
    error: Note | None = None
    notes: list[Note] = field(default_factory=list[Note])
    usage: dict[str, Usage] = field(default_factory=dict[str, Usage])
    plans: list[JSONObject] = field(default_factory=list[JSONObject])

    def take(self, event: events.Event) -> None:
        """Bring the view up to date."""
        if not isinstance(event, events.Retry):
            self.retrying = ""
        if self.error is not None and not (isinstance(event, events.RunComplete) and event.status == "failed"):
            self.notes.append(self.error)
        self.error = None
        if taker := TAKEN.get(type(event)):
            taker(self, event)

    def step(self, step_id: str) -> StepView:
        """The step of that id; one that no plan has named is added."""
        found = next((step for step in self.steps if step.id == step_id), None)
        if found is None:
            found = StepView(step_id, step_id)
            self.steps.append(found)
        return found

    def all_calls(self) -> list[CallView]:
        """The tool calls, step by step."""
        return [*self.calls, *(call for step in self.steps for call in step.calls)]

    def is_retold(self, event: events.PlanCreated | events.PlanRevised) -> bool:
        """Whether a plan is one that was shown already: a resume tells plans again."""
        return event.plan in self.plans

    def activity(self) -> str:
        """What goes on, where no step says it."""
        if self.retrying:
            return self.retrying
        if self.final is not None or self.status or any(step.state == "running" for step in self.steps):
            return ""
        if not self.goal:
            return "Starting"
        if self.drafted or not self.steps:
            return "Planning" if self.agent == "planning agent" else "Working"
        return "Considering what follows" if any(step.state == "pending" for step in self.steps) else "Answering"


def _run_start(view: View, event: events.RunStart) -> None:
    view.goal, view.agent = event.goal, event.agent


def _run_complete(view: View, event: events.RunComplete) -> None:
    view.status, view.seconds = event.status, event.seconds
    for step in view.steps:
        step.text = step.thought = ""
    view.thinking = ""


def _thought_delta(view: View, event: events.PlanThoughtDelta) -> None:
    _begin_draft(view)
    view.thought += event.delta


def _step_added(view: View, event: events.PlanStepAdded) -> None:
    _begin_draft(view)
    view.steps.append(StepView(event.id, event.description))


def _begin_draft(view: View) -> None:
    """A planner that is asked again begins anew."""
    if view.draft_over:
        _drop_draft(view)
    view.drafted, view.draft_over = True, False


def _drop_draft(view: View) -> None:
    view.thought = ""
    view.steps = [step for step in view.steps if step.state != "pending"]


def _plan(view: View, event: events.PlanCreated | events.PlanRevised) -> None:
    if view.is_retold(event):
        return
    view.plans.append(event.plan)
    view.drafted = view.draft_over = False
    view.thought = event.plan.get("thought") or view.thought
    begun = [step for step in view.steps if step.state != "pending"]
    view.steps = begun + [StepView(step["id"], step["description"]) for step in event.plan["steps"]]
    if isinstance(event, events.PlanRevised):
        view.notes.append(Note("info", f"plan revised: {event.reason}"))
    view.price = price_line(event.price) if event.price and event.plan["steps"] else ""


def _step_start(view: View, event: events.StepStart) -> None:
    step = view.step(event.step_id)
    step.description, step.state, step.kind, step.since = event.description, "running", event.kind, time.monotonic()


def _step_text(view: View, event: events.StepTextDelta) -> None:
    if event.step_id is not None:
        step = view.step(event.step_id)
        step.text, step.thought = step.text + event.delta, ""


def _step_reasoning(view: View, event: events.StepReasoningDelta) -> None:
    if event.step_id is not None:
        view.step(event.step_id).thought += event.delta


def _tool_call(view: View, event: events.StepToolCall) -> None:
    call = CallView(event.call_id, event.tool, event.arguments, event.server)
    if event.step_id is None:
        if view.answer.strip():
            view.notes.append(Note("said", view.answer))
        view.answer = view.thinking = ""
        view.calls.append(call)
    else:
        step = view.step(event.step_id)
        step.text = step.thought = ""
        step.calls.append(call)


def _call(view: View, step_id: str | None, call_id: str) -> CallView | None:
    calls = view.calls if step_id is None else view.step(step_id).calls
    return next((call for call in reversed(calls) if call.call_id == call_id), None)


def _tool_progress(view: View, event: events.StepToolProgress) -> None:
    if call := _call(view, event.step_id, event.call_id):
        share = f"{event.progress:g}" if event.total is None else f"{event.progress:g}/{event.total:g}"
        call.progress = f"{share} {event.message or ''}".rstrip()


def _tool_result(view: View, event: events.StepToolResult) -> None:
    if call := _call(view, event.step_id, event.call_id):
        call.ok, call.output, call.seconds = event.ok, event.output, event.seconds


def _step_complete(view: View, event: events.StepComplete) -> None:
    step = view.step(event.step_id)
    step.state = "failed" if event.blocked or not event.ok else "done"
    step.summary, step.seconds = event.summary, event.seconds
    step.text = step.thought = ""


def _decision(view: View, event: events.ReplanDecision) -> None:
    if event.cause == "llm-decision" and event.mode == "finish":
        view.notes.append(Note("info", f"no further steps: {event.reason}"))


def _revisions(view: View, event: events.RevisionsExceeded) -> None:
    view.notes.append(Note("warning", f"the plan may be revised {event.cap} times at most (--max-revisions)"))


def _budget(view: View, event: events.BudgetExceeded) -> None:
    view.notes.append(Note("warning", f"the limit of {event.kind} is reached: {event.tokens:,} of {event.cap:,}"))


def _answer_delta(view: View, event: events.FinalTextDelta) -> None:
    view.answer, view.thinking = view.answer + event.delta, ""


def _thinking_delta(view: View, event: events.FinalReasoningDelta) -> None:
    view.thinking += event.delta


def _final(view: View, event: events.Final) -> None:
    view.final, view.answer, view.thinking = event.text, "", ""


def _nothing(view: View, event: events.FinalOutputDelta) -> None:
    """Nothing: the text of it is shown."""


def _usage(view: View, event: events.UsageReported) -> None:
    view.draft_over = view.drafted
    view.usage[event.model] = view.usage.get(event.model, Usage()) + event.usage


def _retry(view: View, event: events.Retry) -> None:
    view.retrying = f"Trying again in {event.delay:.1f} s: {event.error}"
    view.notes.append(
        Note("info", f"attempt {event.attempt} failed, trying again in {event.delay:.1f} s: {event.error}")
    )
    if event.phase == "plan":
        _drop_draft(view)
    elif event.step_id is not None:
        step = view.step(event.step_id)
        step.text = step.thought = ""
    else:
        view.answer = view.thinking = ""


def _log(view: View, event: events.Log) -> None:
    view.notes.append(Note(event.level, event.message))


def _error(view: View, event: events.Error) -> None:
    view.error = Note("error", event.message)


TAKEN: dict[type[events.Event], Callable[[View, Any], None]] = {
    events.RunStart: _run_start,
    events.RunComplete: _run_complete,
    events.PlanThoughtDelta: _thought_delta,
    events.PlanStepAdded: _step_added,
    events.PlanCreated: _plan,
    events.PlanRevised: _plan,
    events.StepStart: _step_start,
    events.StepTextDelta: _step_text,
    events.StepReasoningDelta: _step_reasoning,
    events.StepToolCall: _tool_call,
    events.StepToolProgress: _tool_progress,
    events.StepToolResult: _tool_result,
    events.StepComplete: _step_complete,
    events.ReplanDecision: _decision,
    events.RevisionsExceeded: _revisions,
    events.BudgetExceeded: _budget,
    events.FinalTextDelta: _answer_delta,
    events.FinalOutputDelta: _nothing,
    events.FinalReasoningDelta: _thinking_delta,
    events.Final: _final,
    events.UsageReported: _usage,
    events.Retry: _retry,
    events.Log: _log,
    events.Error: _error,
}
"""What each event changes."""
