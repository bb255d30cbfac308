"""The planning agent, put together."""

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypeVar

from .base import Answerer, BaseAgent, Parts, common_fields, typed_value
from .connections import ToolLike
from .encoding import JSON, JSONObject, normalise
from .errors import RunFailed
from .journal import InboxItem, Journal, LocalRun, RunStatus, ToolHistory
from .messages import Content, Message
from .model import Model, Stages
from .output import TypedOutput
from .planning import Plan, StepResult
from .planning import loop as planning_loop
from .planning.plan import to_json as plan_json
from .planning.stages import planning_parts
from .planning.state import PlanningState
from .run import EventHandler, Run, RunResult, StepStartHandler
from .settings import Limits, ModelSettings, Planning
from .stage_models import resolve_stages
from .tool import ToolInfo
from .usage import Usage

__all__ = ["PlanPreview", "PlanningAgent", "PlanningResult"]

_log = logging.getLogger("replan")

OutputT = TypeVar("OutputT", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningResult(RunResult[OutputT]):
    """What a planning run came to: also the last `plan`, the `trace` of executed steps, and how many there were.

    `findings`, `price` and `origins` are of the last plan, see `PlanPreview`. `effects` are the calls that a dry run
    did not make: `step`, `tool` and `arguments` of each.
    """

    plan: Plan | None = None
    trace: tuple[StepResult, ...] = ()
    iterations: int = 0
    revisions: int = 0
    findings: tuple[JSONObject, ...] = ()
    price: JSONObject = field(default_factory=dict[str, Any])
    origins: JSONObject = field(default_factory=dict[str, Any])
    effects: tuple[JSONObject, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """A plan that has not been run.

    `findings` are what was found in it, each with `step`, `kind`, `text` and `mended`. `price` holds intervals of
    `model_calls`, `tool_calls`, `input_tokens`, `output_tokens`, `seconds` and `cost` (US dollars), and what it
    `exceeds`. `origins` say of each step's arguments where they come from: `goal`, `output`, `schema`, `error` or
    `model`. `usage` is what planning has used.
    """

    goal: str
    plan: Plan
    findings: tuple[JSONObject, ...] = ()
    price: JSONObject = field(default_factory=dict[str, Any])
    origins: JSONObject = field(default_factory=dict[str, Any])
    usage: Usage = field(default_factory=Usage)


class PlanningAgent(BaseAgent[PlanningResult[OutputT]]):
    """The planning agent: plans, executes step by step, replans where a step did not work, and answers.

    Arguments as for `Agent`; besides:

    Args:
        models: other models and settings for single stages; the replanner uses the planner's model.
        planning: how a plan is followed.
        system_prompt: added to the instructions of all stages.
    """

    _program_name = "planning"

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        models: Stages = Stages(),
        tools: Iterable[ToolLike] = (),
        mcp_servers: Any = None,
        system_prompt: str = "",
        output_type: type[OutputT] | None = None,
        limits: Limits = Limits(),
        planning: Planning = Planning(),
        settings: ModelSettings = ModelSettings(),
        journal: str | Path | Journal | None = None,
        unattended: Literal["deny", "wait"] = "deny",
        answerer: Answerer | None = None,
        on_event: EventHandler | None = None,
        fail_on_no_tools: bool = False,
        name: str = "planning agent",
    ) -> None:
        tools = tuple(tools)
        self._arguments = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._stages = resolve_stages(model, models, settings)
        self._system_prompt, self._limits, self._planning = system_prompt, limits, planning
        self._typed = TypedOutput(output_type) if output_type is not None else None
        super().__init__(
            tools=tools,
            mcp_servers=mcp_servers,
            fail_on_no_tools=fail_on_no_tools,
            journal=journal,
            unattended=unattended,
            answerer=answerer,
            on_event=on_event,
            name=name,
        )

    def start(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        attachments: Sequence[Content] = (),
        deps: Any = None,
        run_id: str | None = None,
        meta: JSONObject | None = None,
        on_event: EventHandler | None = None,
        on_step_start: StepStartHandler | None = None,
        plan: Plan | JSONObject | None = None,
        dry_run: bool = False,
    ) -> Run[PlanningResult[OutputT]]:
        """Start a run and return its handle, see `Agent.start`.

        `plan` is run instead of one that the planner writes (a `Plan`, or the same as JSON); where it cannot be run as
        it is, the run fails with `ConfigError`, which says why. With `dry_run` no call that may write is made:
        `result.effects` says which would have been.
        """
        options = {"plan": _plan_json(plan), "dry_run": dry_run}
        return self._start(
            goal, history, attachments, deps, run_id, meta, on_event, on_step_start, collect=True, **options
        )

    stream = start

    async def run(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        attachments: Sequence[Content] = (),
        deps: Any = None,
        run_id: str | None = None,
        meta: JSONObject | None = None,
        on_event: EventHandler | None = None,
        on_step_start: StepStartHandler | None = None,
        plan: Plan | JSONObject | None = None,
        dry_run: bool = False,
    ) -> PlanningResult[OutputT]:
        """Run to the end and return the result. Arguments as for `start`."""
        options = {"plan": _plan_json(plan), "dry_run": dry_run}
        return await self._start(
            goal, history, attachments, deps, run_id, meta, on_event, on_step_start, collect=False, **options
        )

    async def plan(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        attachments: Sequence[Content] = (),
        plan: Plan | JSONObject | None = None,
        deps: Any = None,
    ) -> PlanPreview:
        """The plan for a goal, checked and priced, and not run. With `plan`: that one, checked and priced.

        Raises `RunFailed` where the planner refuses, and what `run` raises.
        """
        options = {"plan": _plan_json(plan), "only_plan": True}
        result = await self._start(goal, history, attachments, deps, None, None, None, None, collect=False, **options)
        if result.plan is None:
            raise RunFailed(f"there is no plan: {result.stop_reason}{': ' if result.text else ''}{result.text}")
        return PlanPreview(goal, result.plan, result.findings, result.price, result.origins, result.usage)

    def _copy(self) -> "PlanningAgent[OutputT]":
        return PlanningAgent(**self._arguments)

    def _models(self) -> Iterable[Model]:
        return {id(call.model): call.model for call in self._stages.values() if call.own}.values()

    def _task(self) -> JSONObject:
        planning, trigger = self._planning, self._planning.replan_after
        return {
            "limits": asdict(self._limits),
            "replan_after": trigger if isinstance(trigger, str) else "function",
            "tool_selection": planning.tool_selection,
            "step_kinds": sorted(planning.step_kinds),
            "max_parallel_steps": planning.max_parallel_steps,
            "review": planning.review,
            "checks": sorted(planning.checks),
            "with_cost": planning.with_cost,
        }

    def _answerers(self) -> Mapping[str, Answerer]:
        reviewer = self._planning.review_with
        return {} if reviewer is None else {"plan-review": partial(_ask, reviewer)}

    def _new_state(self) -> PlanningState:
        return PlanningState()

    async def _program(self, state: PlanningState, durable: LocalRun, task: JSON) -> None:
        await planning_loop.run(durable, task, state)
        state.value = typed_value(self._typed, state.output)

    async def _parts(self, tools: tuple[ToolInfo, ...]) -> Parts:
        history = await _tool_history(self._open_journal(), [info.name for info in tools])
        return planning_parts(
            {name: call.model for name, call in self._stages.items()},
            tools,
            self._system_prompt,
            {name: call.settings for name, call in self._stages.items()},
            self._planning,
            self._limits,
            output=self._typed,
            remarks=self._connections.remarks(),
            history=history,
        )

    def _result(self, run_id: str, state: PlanningState, status: RunStatus) -> PlanningResult[OutputT]:
        return PlanningResult(
            **common_fields(run_id, state, status, self._arguments["settings"]),
            plan=state.plan,
            trace=tuple(state.trace),
            iterations=state.iterations,
            revisions=state.revisions,
            findings=tuple(state.findings),
            price=state.price,
            origins=state.origins,
            effects=tuple(state.effects),
        )


async def _tool_history(journal: Journal, tools: list[str]) -> dict[str, ToolHistory]:
    """What a journal knows of tools; one that somebody else wrote may not know how to tell."""
    try:
        return await journal.tool_history(tools)
    except Exception:  # noqa: BLE001  # a run does not depend on it
        _log.debug("the journal was not asked for earlier tool calls", exc_info=True)
        return {}


async def _ask(function: Callable[[InboxItem], Any], item: InboxItem) -> JSON:
    answer = function(item)
    return await answer if inspect.isawaitable(answer) else answer


def _plan_json(plan: Plan | JSONObject | None) -> JSON:
    return plan_json(plan) if isinstance(plan, Plan) else normalise(plan)
