"""Options, grouped by what they are about. All frozen; every one has a default that is right for most."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .encoding import JSONObject
from .errors import ConfigError

__all__ = ["Limits", "ModelSettings", "Planning", "ReplanTrigger", "ToolSelection"]

ToolSelection: TypeAlias = Literal["all", "plan-narrowed"]
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
    """How a plan is followed.

    `replan_after` says after which steps the replanner is asked: `failure` (the step is blocked, or its last tool call
    failed), `always`, or a function of the `StepResult`; one that raises or takes longer than the model timeout counts
    as `failure`. `tool_selection` gives a step all tools, or only those that the plan suggests for it.
    """

    replan_after: ReplanTrigger = "failure"
    tool_selection: ToolSelection = "all"

    def __post_init__(self) -> None:
        if self.replan_after not in ("failure", "always") and not callable(self.replan_after):
            raise ConfigError(f"replan_after is {self.replan_after!r}; give 'failure', 'always' or a function")
        if self.tool_selection not in ("all", "plan-narrowed"):
            raise ConfigError(f"tool_selection is {self.tool_selection!r}; give 'all' or 'plan-narrowed'")
