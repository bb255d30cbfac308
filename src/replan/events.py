"""What a run tells the outside while it runs. An event is a signal, never the state.

Each has `run_id`, and `type`, its name on the wire (`to_json` gives that form; the class is its CamelCase). Events
marked *live* are best effort: they come while a step runs, are not journalled, and are not repeated by a resume.
`step_id` is None in a plain `Agent`.
"""

from typing import ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Struct

from .encoding import JSON, JSONObject
from .usage import Usage

__all__ = [
    "AnyEvent",
    "BudgetExceeded",
    "Error",
    "Event",
    "Final",
    "FinalOutputDelta",
    "FinalReasoningDelta",
    "FinalTextDelta",
    "Level",
    "Log",
    "Phase",
    "PlanCreated",
    "PlanRevised",
    "PlanStepAdded",
    "PlanThoughtDelta",
    "ReplanDecision",
    "Retry",
    "RevisionsExceeded",
    "RunComplete",
    "RunStart",
    "StepComplete",
    "StepReasoningDelta",
    "StepStart",
    "StepTextDelta",
    "StepToolCall",
    "StepToolProgress",
    "StepToolResult",
    "UsageReported",
    "from_json",
    "to_json",
]

Phase: TypeAlias = Literal["plan", "execute", "replan", "synthesize", "compact", "subagent", "init"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]


class Event(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events."""

    live: ClassVar[bool] = False
    run_id: str

    @property
    def type(self) -> str:
        """The event's name on the wire, such as `step.tool-call`."""
        return str(self.__struct_config__.tag)


class RunStart(Event, frozen=True, kw_only=True, tag="run.start"):
    """The run begins. Not repeated by a resume."""

    goal: str
    agent: str


class RunComplete(Event, frozen=True, kw_only=True, tag="run.complete"):
    """The run has ended: `complete`, `paused`, `stopped`, `failed` or `cancelled`."""

    status: str
    stop_reason: str | None = None
    usage: Usage
    seconds: float


class PlanThoughtDelta(Event, frozen=True, kw_only=True, tag="plan.thought-delta"):
    """*Live.* A piece of the planner's thought."""

    live = True
    delta: str


class PlanStepAdded(Event, frozen=True, kw_only=True, tag="plan.step-added"):
    """*Live.* A step whose description is complete, while the plan is still being written."""

    live = True
    index: int
    id: str
    description: str


class PlanCreated(Event, frozen=True, kw_only=True, tag="plan.created"):
    """The plan, as it will be executed.

    Repeated by a resume. `fallback` is set when the planner gave none that was usable. `findings` are what was found in
    the plan and mended or left, each with `step`, `kind`, `text` and `mended`; `price` is what it may take.
    """

    plan: JSONObject
    fallback: bool = False
    findings: list[JSONObject] = []
    price: JSONObject = {}


class PlanRevised(Event, frozen=True, kw_only=True, tag="plan.revised"):
    """The plan after a revision; finished steps are not in it. `findings` and `price` as for `PlanCreated`."""

    plan: JSONObject
    reason: str
    findings: list[JSONObject] = []
    price: JSONObject = {}


class StepStart(Event, frozen=True, kw_only=True, tag="step.start"):
    """A step begins. `kind` is `open`, `bound`, `direct` or `compute`."""

    step_id: str
    index: int
    description: str
    kind: str


class StepTextDelta(Event, frozen=True, kw_only=True, tag="step.text-delta"):
    """*Live.* A piece of the executor's text."""

    live = True
    step_id: str | None
    delta: str


class StepReasoningDelta(Event, frozen=True, kw_only=True, tag="step.reasoning-delta"):
    """*Live.* A piece of the executor's thoughts."""

    live = True
    step_id: str | None
    delta: str


class StepToolCall(Event, frozen=True, kw_only=True, tag="step.tool-call"):
    """A tool is about to be called. `name` is the tool's own name, `tool` what the model calls it."""

    step_id: str | None
    call_id: str
    tool: str
    name: str
    server: str | None = None
    arguments: JSONObject


class StepToolProgress(Event, frozen=True, kw_only=True, tag="step.tool-progress"):
    """*Live.* How far a call is; `total` is None where the tool does not know."""

    live = True
    step_id: str | None
    call_id: str
    progress: float
    total: float | None = None
    message: str | None = None


class StepToolResult(Event, frozen=True, kw_only=True, tag="step.tool-result"):
    """A tool call has its result. `ok` is False for an error that the model reads."""

    step_id: str | None
    call_id: str
    tool: str
    ok: bool
    output: str
    seconds: float


class StepComplete(Event, frozen=True, kw_only=True, tag="step.complete"):
    """A step has ended. `blocked` says that it could not do what it was for."""

    step_id: str
    summary: str
    ok: bool
    blocked: bool
    seconds: float


class ReplanDecision(Event, frozen=True, kw_only=True, tag="replan.decision"):
    """What follows a step: `continue`, `revise` or `finish`."""

    mode: Literal["continue", "revise", "finish"]
    reason: str
    cause: Literal["last-step", "clean-step", "llm-decision"]


class RevisionsExceeded(Event, frozen=True, kw_only=True, tag="revisions.exceeded"):
    """The replanner asked for one more revision than `cap`."""

    cap: int


class BudgetExceeded(Event, frozen=True, kw_only=True, tag="budget.exceeded"):
    """A limit of the run is reached; `tokens` is the amount (calls for `tool-calls`), `cap` the limit."""

    kind: Literal["input", "output", "reasoning", "total", "tool-calls", "iterations"]
    tokens: int
    cap: int


class FinalTextDelta(Event, frozen=True, kw_only=True, tag="final.text-delta"):
    """*Live.* A piece of the answer."""

    live = True
    delta: str


class FinalOutputDelta(Event, frozen=True, kw_only=True, tag="final.output-delta"):
    """*Live.* The output as far as it has been written: not validated, its last text may be cut."""

    live = True
    output: JSON


class FinalReasoningDelta(Event, frozen=True, kw_only=True, tag="final.reasoning-delta"):
    """*Live.* A piece of the thoughts behind the answer."""

    live = True
    delta: str


class Final(Event, frozen=True, kw_only=True, tag="final"):
    """The answer."""

    text: str
    output: JSON = None


class UsageReported(Event, frozen=True, kw_only=True, tag="usage"):
    """What one model call used. What it cost is `replan.prices.estimated_price(event.model, event.usage)`."""

    phase: Phase
    model: str
    usage: Usage


class Retry(Event, frozen=True, kw_only=True, tag="retry"):
    """*Live.* A model call is about to be repeated; what it streamed so far is void. `delay` is in seconds."""

    live = True
    phase: Phase
    step_id: str | None = None
    attempt: int
    error: str
    delay: float


class Log(Event, frozen=True, kw_only=True, tag="log"):
    """A remark for whoever watches."""

    level: Level
    message: str


class Error(Event, frozen=True, kw_only=True, tag="error"):
    """Something failed. Whether the run goes on is told by what follows."""

    phase: Phase
    message: str
    kind: str


AnyEvent: TypeAlias = (
    RunStart
    | RunComplete
    | PlanThoughtDelta
    | PlanStepAdded
    | PlanCreated
    | PlanRevised
    | StepStart
    | StepTextDelta
    | StepReasoningDelta
    | StepToolCall
    | StepToolProgress
    | StepToolResult
    | StepComplete
    | ReplanDecision
    | RevisionsExceeded
    | BudgetExceeded
    | FinalTextDelta
    | FinalOutputDelta
    | FinalReasoningDelta
    | Final
    | UsageReported
    | Retry
    | Log
    | Error
)


def to_json(event: Event) -> JSONObject:
    """The event as plain JSON, `type` included."""
    return msgspec.to_builtins(event)


def from_json(data: JSON) -> AnyEvent:
    """The event that `to_json` described. Raises `ValueError` where it is none."""
    return msgspec.convert(data, AnyEvent)
