"""The state of a planning run."""

from dataclasses import dataclass, field
from typing import Any, Literal

from replan.encoding import JSON, JSONObject
from replan.events import Phase
from replan.limits import Meter
from replan.messages import Assistant, Text, to_json, user
from replan.settings import Limits

from .plan import Plan, Step
from .trace import StepResult

__all__ = ["PlanningState"]


@dataclass(slots=True)
class PlanningState:
    """What a planning run has come to; `remaining` are the steps that are still planned.

    `value` is the output as the Python type that was asked for. Valid whenever the run is left.
    """

    meter: Meter = field(default_factory=lambda: Meter(Limits()))
    task: JSONObject = field(default_factory=dict[str, Any])
    plan: Plan | None = None
    remaining: list[Step] = field(default_factory=list[Step])
    trace: list[StepResult] = field(default_factory=list[StepResult])
    outputs: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    tools: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    taken: list[str] = field(default_factory=list[str])
    iterations: int = 0
    revisions: int = 0
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

    @property
    def messages(self) -> list[JSONObject]:
        """The conversation as JSON: the history, the goal, and the answer as far as there is one."""
        if not self.task:
            return []
        answer = [to_json(Assistant((Text(self.text),)))] if self.text else []
        return [*self.task["history"], to_json(user(self.goal)), *answer]
