"""The state of a planning run."""

from dataclasses import dataclass, field
from typing import Any, Literal

from replan.encoding import JSON, JSONObject
from replan.events import Phase
from replan.limits import Meter
from replan.messages import Assistant, Text, asked, to_json
from replan.settings import Limits, StepKind

from .grant import Grant
from .plan import Plan, Step
from .schedule import Schedule
from .trace import StepResult

__all__ = ["PlanningState"]


@dataclass(slots=True)
class PlanningState:
    """What a planning run has come to. Valid whenever the run is left.

    `schedule` has the steps that have not been started, `running` those that have and have not ended, `unsettled` those
    that have ended and about which the replanner is to be asked. `outputs` are what ended steps gave, by id and name;
    `labels` has a word for each, `needs` what each waited for; `fruitless` are those of which nothing came, `described`
    those that a dry run did not make. `tools` is what is known of the tools that the plan names. `grant` is what people
    have allowed by accepting a plan, and `used` what of it has been used up. `assisted` says that links of chains which
    the plan forgot are added, and an answer corrected that says something else than what was computed. `effects` are
    the calls that a dry run did not make. `value` is the output as the Python type that was asked for.
    """

    meter: Meter = field(default_factory=lambda: Meter(Limits()))
    task: JSONObject = field(default_factory=dict[str, Any])
    plan: Plan | None = None
    findings: list[JSONObject] = field(default_factory=list[JSONObject])
    price: JSONObject = field(default_factory=dict[str, Any])
    origins: JSONObject = field(default_factory=dict[str, Any])
    schedule: Schedule | None = None
    unsettled: dict[str, StepResult] = field(default_factory=dict[str, StepResult])
    running: dict[str, Step] = field(default_factory=dict[str, Step])
    trace: list[StepResult] = field(default_factory=list[StepResult])
    outputs: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    fruitless: set[str] = field(default_factory=set[str])
    described: set[str] = field(default_factory=set[str])
    tools: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    any_writes: bool = True
    assisted: bool = False
    taken: list[str] = field(default_factory=list[str])
    iterations: int = 0
    revisions: int = 0
    replans: int = 0
    reviews: int = 0
    grant: Grant | None = None
    used: list[str] = field(default_factory=list[str])
    effects: list[JSONObject] = field(default_factory=list[JSONObject])
    finished: str | None = None
    phase: Phase = "plan"
    status: Literal["running", "complete", "stopped"] = "running"
    stop_reason: str | None = None
    text: str = ""
    output: JSON = None
    value: Any = None

    @property
    def goal(self) -> str:
        """The goal of the run."""
        return self.task["goal"]

    def asked(self, prompt: str) -> JSONObject:
        """A user message with what was attached to the goal."""
        return asked(prompt, self.task.get("attachments", ()))

    @property
    def remaining(self) -> list[Step]:
        """The steps that have not been started."""
        return self.schedule.remaining if self.schedule is not None else []

    def sources(self, step: Step) -> list[str]:
        """The steps whose results a step waits for, and those that these waited for, in the order they ended in."""
        found: set[str] = set()
        waiting = list(self.needs.get(step.id, ()))
        while waiting:
            if (ident := waiting.pop()) not in found:
                found.add(ident)
                waiting += self.needs.get(ident, ())
        return [ident for ident in self.outputs if ident in found]

    def may_write(self, step: Step) -> bool:
        """Whether a step may change something."""
        if step.compute is not None:
            return False
        if step.call:
            return self.tools[step.call.tool]["writes"] if step.call.tool in self.tools else self.any_writes
        if self.task["tool_selection"] == "plan-narrowed" and step.suggested_tools and not step.requires_tools:
            return any(self.tools[name]["writes"] for name in step.suggested_tools if name in self.tools)
        return self.any_writes

    def allows(self, kind: StepKind) -> bool:
        """Whether steps of a kind are allowed."""
        return kind in self.task["step_kinds"]

    @property
    def messages(self) -> list[JSONObject]:
        """The conversation as JSON: the history, the goal, and the answer as far as there is one."""
        if not self.task:
            return []
        answer = [to_json(Assistant((Text(self.text),)))] if self.text else []
        return [*self.task["history"], self.asked(self.goal), *answer]
