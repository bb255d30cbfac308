"""The stages of a planning agent, put together."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from replan.durable import StepContext, durable_step
from replan.effects import Services, Stage
from replan.encoding import JSON, JSONObject
from replan.journal import ToolHistory
from replan.model import Model
from replan.output import TypedOutput
from replan.settings import Limits, ModelSettings, Planning
from replan.tool import ToolInfo

from .binder import binder_stage
from .catalogue import result_fields
from .executor import executor_stage
from .plan import Plan
from .planner import plan_reader, planner_stage, read_plan
from .price import Pricer
from .replanner import replanner_stage
from .synthesizer import synthesizer_stage
from .trace import StepResult

__all__ = ["planning_parts"]


def planning_parts(
    models: Mapping[str, Model],
    tools: tuple[ToolInfo, ...],
    system_prompt: str,
    settings: Mapping[str, ModelSettings],
    planning: Planning,
    limits: Limits,
    *,
    output: TypedOutput | None = None,
    remarks: Sequence[str] = (),
    history: Mapping[str, ToolHistory] = {},
) -> tuple[dict[str, Stage], dict[str, Callable[..., Any]]]:
    """The five ways in which a planning agent calls a model, by name, and the functions that its steps call.

    `models` and `settings` have `planner`, `executor`, `replanner` and `synthesizer`. `history` is what is known of
    the tools from earlier runs.
    """

    def price(plan: Plan, facts: JSONObject, args: JSONObject) -> JSONObject:
        return pricer.price(plan, facts, args)

    results = {t.name: result_fields(t, history[t.name].samples if t.name in history else ()) for t in tools}
    read_text = partial(plan_reader, tools, history=history, pricer=price)
    stages = {
        "planner": planner_stage(
            models["planner"], tools, read_text, system_prompt, settings["planner"], remarks, results
        ),
        "executor": executor_stage(models["executor"], tools, system_prompt, settings["executor"]),
        "binder": binder_stage(models["executor"], tools, system_prompt, settings["executor"]),
        "replanner": replanner_stage(
            models["replanner"], tools, read_text, system_prompt, settings["replanner"], results
        ),
        "synthesizer": synthesizer_stage(models["synthesizer"], output, system_prompt, settings["synthesizer"]),
    }
    pricer = Pricer(
        **Pricer.sizes(stages),
        history=history,
        limits=limits,
        narrowed=planning.tool_selection == "plan-narrowed",
        kinds=planning.step_kinds,
        replan_after=planning.replan_after,
        max_parallel_steps=planning.max_parallel_steps,
    )
    functions: dict[str, Callable[..., Any]] = {f"check:{name}": check for name, check in planning.checks.items()}
    functions["read_plan"] = partial(read_plan, tools, history=history, pricer=price)
    if callable(planning.replan_after):
        functions["replan_after"] = planning.replan_after
    return stages, functions


@durable_step("read-plan")
async def read_given_plan(ctx: StepContext, args: JSONObject) -> JSON:
    """A plan that somebody gave or edited, read and checked as the planner's are: `args` are those of the planner's
    model effect, and `plan`.
    """
    services: Services = ctx.services
    try:
        return services.functions["read_plan"](args, args["plan"])
    except ValueError as error:
        return {"plan": args["plan"], "findings": [], "problems": [str(error)]}


@durable_step("read-revision")
async def read_revision_again(ctx: StepContext, args: JSONObject) -> JSON:
    """A replanner's reply, the `text`, read anew: `args` are those of its model effect as they would be now."""
    services: Services = ctx.services
    read = services.stages["replanner"].read
    assert read is not None
    return read(args, args["text"])


@durable_step("replan-after")
async def ask_trigger(ctx: StepContext, args: JSONObject) -> JSON:
    """Whether the replanner is wanted after a step, by the user's own function.

    Fails where that raises or takes too long.
    """
    services: Services = ctx.services
    answer = services.functions["replan_after"](msgspec.convert(args, StepResult))
    if inspect.isawaitable(answer):
        answer = await asyncio.wait_for(answer, services.stages["planner"].settings.timeout)
    return bool(answer)
