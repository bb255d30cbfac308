"""Options, grouped by what they are about. All frozen; every one has a default that is right for most."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .encoding import JSONObject
from .errors import ConfigError

__all__ = ["Limits", "ModelSettings", "Planning", "ReplanTrigger", "Review", "StepKind", "ToolSelection"]

ToolSelection: TypeAlias = Literal["all", "plan-narrowed"]
StepKind: TypeAlias = Literal["direct", "bound", "open"]
Review: TypeAlias = Literal["never", "writes", "always"]
ReplanTrigger: TypeAlias = Literal["failure", "always"] | Callable[[Any], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use. None means no limit.

    `max_turns` is the number of model calls in one conversation (a plain run, or one step of a plan). `max_iterations`
    counts executed steps, `max_plan_steps` the steps of a plan or revision, `max_revisions` the replanner's revisions.
    Tokens and tool calls are counted over the run.
    """

    max_turns: int = 50
    max_iterations: int = 25
    max_plan_steps: int = 8
    max_revisions: int = 2
    max_tool_calls: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_reasoning_tokens: int | None = None
    max_total_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            least = 0 if name in ("max_revisions", "max_tool_calls") else 1
            if value is not None and (not isinstance(value, int) or value < least):
                raise ConfigError(
                    f"limit {name!r} is {value!r}; give a whole number of at least {least}, or leave it out"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How models are called.

    `timeout` is the seconds that a call may go without any sign of life; `options` go into the request body last.
    """

    max_output_tokens: int | None = None
    temperature: float | None = None
    timeout: float = 120.0
    max_retries: int = 3
    options: JSONObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """How a plan is made, looked at and followed.

    `replan_after` says after which steps the replanner is asked: `failure` (the step is blocked, or its last tool call
    failed), `always`, or a function of the `StepResult`; one that raises or takes longer than the model timeout counts
    as `failure`. `tool_selection` gives a step all tools, or only those that the plan suggests for it. `step_kinds` are
    the kinds of steps that a plan may have and a failing step may become: `direct` (run without a model), `bound` (one
    model call fills in the arguments), `open` (a model with tools). Up to `max_parallel_steps` run at once.

    `review` puts the plan before a person: `never`, `writes` (where a step may write), `always`. The review is the
    inbox item `plan-review`; `review_with`, a function of it, answers here. `checks` are functions that a step's
    `check` may name; each is given the step's outputs and says whether they are as wanted (True or None), or why not
    (False or a text). `with_cost` puts money into a plan's price wherever it is told; without it only where a person
    looks at the plan (the table of prices takes 0.2 seconds to load).
    """

    replan_after: ReplanTrigger = "failure"
    tool_selection: ToolSelection = "all"
    step_kinds: Collection[StepKind] = ("direct", "bound", "open")
    max_parallel_steps: int = 8
    review: Review = "never"
    review_with: Callable[[Any], Any] | None = None
    checks: Mapping[str, Callable[[JSONObject], Any]] = field(default_factory=dict[str, Callable[[JSONObject], Any]])
    with_cost: bool = False

    def __post_init__(self) -> None:
        if self.replan_after not in ("failure", "always") and not callable(self.replan_after):
            raise ConfigError(f"replan_after is {self.replan_after!r}; give 'failure', 'always' or a function")
        if self.tool_selection not in ("all", "plan-narrowed"):
            raise ConfigError(f"tool_selection is {self.tool_selection!r}; give 'all' or 'plan-narrowed'")
        if isinstance(self.step_kinds, str) or not self.step_kinds or not set(self.step_kinds) <= _STEP_KINDS:
            raise ConfigError(f"step_kinds is {self.step_kinds!r}; give some of 'direct', 'bound' and 'open'")
        if self.max_parallel_steps < 1:
            raise ConfigError(f"max_parallel_steps is {self.max_parallel_steps!r}; give a whole number of at least 1")
        if self.review not in ("never", "writes", "always"):
            raise ConfigError(f"review is {self.review!r}; give 'never', 'writes' or 'always'")
        for name, function in (("review_with", self.review_with), *self.checks.items()):
            if function is not None and not callable(function):
                raise ConfigError(f"{name!r} is {function!r}; give a function")


_STEP_KINDS = frozenset(["direct", "bound", "open"])
