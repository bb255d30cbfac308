"""The replanner: what to do after a step that did not work."""

from collections.abc import Mapping, Sequence
from functools import partial

from replan.effects import Stage
from replan.encoding import JSONObject, encode, is_object
from replan.model import Model, ModelProfile, OutputSchema
from replan.output import OutputProblem, candidates
from replan.settings import ModelSettings
from replan.tool import ToolInfo

from .executor import results_section
from .plan import Step
from .planner import PlanReader, planning_view
from .prompts import instructions
from .schema import steps_schema
from .trace import StepResult

__all__ = ["replanner_prompt", "replanner_stage"]

_MODES = ("continue", "revise", "finish")
_FINDING_CHARS = 1_500


def replanner_stage(
    model: Model,
    tools: Sequence[ToolInfo],
    reader: PlanReader,
    system_prompt: str,
    settings: ModelSettings,
    results: Mapping[str, Sequence[str]] = {},
) -> Stage:
    """The stage that decides between continuing, revising and finishing; `reader` reads its plans."""
    listed, read, offered = planning_view(model, tools, reader, results)
    return Stage(
        phase="replan",
        model=model,
        instructions=instructions("replanner", *listed, system_prompt),
        schema=partial(_schema, model.profile, offered),
        read=partial(_read, read),
        settings=settings,
    )


def _schema(profile: ModelProfile, tools: Sequence[ToolInfo], args: JSONObject) -> OutputSchema:
    steps = steps_schema(profile, tools, args)
    reason: JSONObject = {"type": "string", **({"maxLength": 200} if profile.constrained else {})}
    return OutputSchema(
        "decision",
        {
            "type": "object",
            "properties": {"reason": reason, "mode": {"type": "string", "enum": list(_MODES)}, "steps": steps},
            "required": ["reason", "mode", "steps"],
            "additionalProperties": False,
        },
    )


def _read(reader: PlanReader, args: JSONObject, text: str) -> JSONObject:
    """The decision as JSON: `mode`, `reason`, and for a revision what the reader gives."""
    for candidate in candidates(text):
        if is_object(candidate) and candidate.get("mode") in _MODES:
            reason = str(candidate.get("reason") or "")
            if candidate["mode"] != "revise":
                return {"mode": candidate["mode"], "reason": reason}
            return {"mode": "revise", "reason": reason, **reader(args, text)}
    raise OutputProblem(f'Your reply is not a decision: it needs "mode", one of {", ".join(_MODES)}. Reply again.')


def replanner_prompt(
    goal: str,
    trace: Sequence[StepResult],
    about: Sequence[StepResult],
    running: Sequence[Step],
    remaining: Sequence[Step],
) -> str:
    """The user message of the replanner: what was done, how the steps that it is asked about went, what is running and
    what is still planned.
    """
    lines = [f"Goal: {goal}", "", results_section(trace, _FINDING_CHARS), "", *map(_verdict, about)]
    if running:
        lines += ["", "Running, and not to be planned again:", *map(_planned, running)]
    lines += ["", "Still planned:", *(map(_planned, remaining) if remaining else ["- nothing"])]
    return "\n".join(lines)


def _planned(step: Step) -> str:
    call = f": {step.call.tool}({encode(step.call.arguments or {}).decode()})" if step.call else ""
    needs = f" (after {', '.join(step.depends_on)})" if step.depends_on else ""
    return f"- {step.id}: {step.description}{call}{needs}"


def _verdict(result: StepResult) -> str:
    step = f"The step {result.step.id} ({result.step.description})"
    if result.ok:
        return f"{step} worked."
    failed = ", ".join(result.failed_tools)
    why = result.problem or result.summary or (f"the last call of {failed} failed" if failed else "it is blocked")
    return f"{step} did not work: {why[:_FINDING_CHARS]}"
