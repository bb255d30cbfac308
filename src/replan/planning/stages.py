"""The stages of a planning agent, put together."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence

import msgspec

from replan.durable import StepContext, durable_step
from replan.effects import Services, Stage
from replan.encoding import JSON, JSONObject
from replan.model import Model
from replan.output import TypedOutput
from replan.settings import ModelSettings
from replan.tool import ToolInfo

from .binder import binder_stage
from .executor import executor_stage
from .planner import PlanReader, planner_stage
from .replanner import replanner_stage
from .synthesizer import synthesizer_stage
from .trace import StepResult

__all__ = ["planning_stages"]


def planning_stages(
    models: Mapping[str, Model],
    tools: tuple[ToolInfo, ...],
    system_prompt: str,
    settings: ModelSettings,
    *,
    reader: PlanReader,
    output: TypedOutput | None = None,
    remarks: Sequence[str] = (),
) -> dict[str, Stage]:
    """The five ways in which a planning agent calls a model, by name.

    `models` has `planner`, `executor` and `synthesizer`; `reader` reads what planner and replanner write.
    """
    return {
        "planner": planner_stage(models["planner"], tools, reader, system_prompt, settings, remarks),
        "executor": executor_stage(models["executor"], tools, system_prompt, settings),
        "binder": binder_stage(models["executor"], tools, system_prompt, settings),
        "replanner": replanner_stage(models["planner"], tools, reader, system_prompt, settings),
        "synthesizer": synthesizer_stage(models["synthesizer"], output, system_prompt, settings),
    }


@durable_step("read-plan")
async def read_given_plan(ctx: StepContext, args: JSONObject) -> JSON:
    """A plan that somebody gave or edited, read and checked as the planner's are: `args` are those of the planner's
    model effect, and `plan`.
    """
    services: Services = ctx.services
    return services.functions["read_plan"](args, args["plan"])


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
