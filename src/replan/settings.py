"""Options, grouped by what they are about. All frozen; every one has a default that is right for most."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias, cast, get_args

from .encoding import JSONObject
from .errors import ConfigError, ModelError
from .usage import Usage

__all__ = [
    "Limits",
    "ModelSettings",
    "Planning",
    "PromptCaching",
    "ReplanTrigger",
    "Review",
    "StepKind",
    "Thinking",
    "ThinkingLevel",
    "ThinkingSetting",
    "ToolSelection",
]

ToolSelection: TypeAlias = Literal["all", "plan-narrowed"]
StepKind: TypeAlias = Literal["direct", "bound", "open"]
Review: TypeAlias = Literal["never", "writes", "always"]
ThinkingLevel: TypeAlias = Literal["provider-default", "none", "minimal", "low", "medium", "high", "xhigh"]
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
class Thinking:
    """How much a model is to think before it answers.

    `level` is turned into what the model takes (an effort, a budget); `provider-default` leaves that to the provider,
    `none` asks for no thinking. `budget_tokens` is an exact budget where the model takes one, and then counts instead
    of the level. `include_thoughts` asks for the thoughts, or their summary, in the reply.
    """

    level: ThinkingLevel = "medium"
    budget_tokens: int | None = None
    include_thoughts: bool = True

    def __post_init__(self) -> None:
        if self.level not in get_args(ThinkingLevel):
            known = ", ".join(map(repr, get_args(ThinkingLevel)))
            raise ConfigError(f"thinking level {self.level!r} is unknown; give one of {known}")
        budget: Any = self.budget_tokens
        if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 0):
            raise ConfigError(f"budget_tokens is {budget!r}; give a whole number of tokens, or leave it out")

    @property
    def wanted(self) -> bool:
        """Whether thinking is asked for, and not to be without it."""
        return self.level != "none" if self.budget_tokens is None else self.budget_tokens > 0

    @staticmethod
    def of(setting: Any) -> "Thinking | None":
        """The value that a setting means: True is `medium`, False and None are None, nothing is asked for.

        Raises `ConfigError` for anything that is no setting.
        """
        if setting is None or setting is False:
            return None
        if isinstance(setting, Thinking):
            return setting
        if setting is not True and not isinstance(setting, str):
            raise ConfigError(f"thinking is {setting!r}; give True, False, a level such as 'high', or Thinking(...)")
        return Thinking() if setting is True else Thinking(level=cast("ThinkingLevel", setting))


ThinkingSetting: TypeAlias = bool | ThinkingLevel | Thinking | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCaching:
    """How the beginning of a request, which stays the same from turn to turn, is kept by the provider.

    `ttl` is how long, where the provider lets one choose. `key` groups requests with the same beginning where the
    provider takes one; without it, it is made of the agent's name and the stage.
    """

    ttl: Literal["5m", "1h"] = "5m"
    key: str | None = None

    def __post_init__(self) -> None:
        if self.ttl not in ("5m", "1h"):
            raise ConfigError(f"ttl is {self.ttl!r}; give '5m' or '1h'")

    @staticmethod
    def of(setting: Any) -> "PromptCaching | None":
        """The value that a setting means: True is the default, False none. Raises `ConfigError` for anything else."""
        if isinstance(setting, PromptCaching):
            return setting
        if not isinstance(setting, bool):
            raise ConfigError(f"prompt_caching is {setting!r}; give True, False or PromptCaching(...)")
        return PromptCaching() if setting else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How models are called. None leaves a thing to the provider.

    `max_output_tokens` caps a reply, thoughts included; a budget that Claude is given for thoughts comes on top of it.
    `stop` are texts at which a reply ends. `options` go into the
    request body last, over everything else.

    `timeout` is the seconds that a call may go without any sign of life, `max_seconds` what it may take altogether,
    retries included. A failed call is repeated up to `max_retries` times where that can help (or `retry_if` says so of
    the error), after a random wait of up to `retry_delay * 2**n` and at most `retry_max_delay` seconds, or what the
    provider asks for.

    `max_concurrent_calls` and `max_calls_per_minute` hold for a model in the whole process, whichever agents use it;
    of several settings the strictest counts.

    `cost_estimator` gives the US dollars for the tokens of a model (`provider:name`), or None to leave it to the table
    of prices.
    """

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    thinking: ThinkingSetting = None
    prompt_caching: bool | PromptCaching = True
    timeout: float = 120.0
    max_seconds: float | None = None
    max_retries: int = 3
    retry_delay: float = 0.5
    retry_max_delay: float = 8.0
    retry_if: Callable[[ModelError], bool] | None = None
    max_concurrent_calls: int | None = None
    max_calls_per_minute: int | None = None
    cost_estimator: Callable[[str, Usage], Decimal | float | None] | None = None
    options: JSONObject = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        Thinking.of(self.thinking)
        PromptCaching.of(self.prompt_caching)
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | float) or value < least):
                raise ConfigError(f"model setting {name!r} is {value!r}; give a number of at least {least}")


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
_LEAST = {
    "max_output_tokens": 1,
    "timeout": 0,
    "max_seconds": 0,
    "max_retries": 0,
    "retry_delay": 0,
    "retry_max_delay": 0,
    "max_concurrent_calls": 1,
    "max_calls_per_minute": 1,
}
