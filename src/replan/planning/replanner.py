"""The replanner: what to do after a step that did not work."""

from collections.abc import Sequence
from functools import partial

from replan.effects import Stage
from replan.encoding import JSONObject, is_object
from replan.model import Model, ModelProfile, OutputSchema
from replan.output import OutputProblem, candidates
from replan.settings import ModelSettings
from replan.tool import ToolInfo

from .catalogue import catalogue, for_planner
from .executor import results_section
from .plan import Plan, Step
from .planner import plan_reader
from .prompts import instructions
from .schema import steps_schema
from .trace import StepResult

__all__ = ["replanner_prompt", "replanner_stage"]

_MODES = ("continue", "revise", "finish")
_FINDING_CHARS = 1_500


def replanner_stage(model: Model, tools: Sequence[ToolInfo], system_prompt: str, settings: ModelSettings) -> Stage:
    """The stage that decides between continuing, revising and finishing."""
    offered = for_planner(tools)
    return Stage(
        phase="replan",
        model=model,
        instructions=instructions("replanner", "Tools:\n" + catalogue(offered), system_prompt),
        schema=partial(_schema, model.profile, offered),
        read=partial(_read, tools),
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


def _read(tools: Sequence[ToolInfo], args: JSONObject, text: str) -> JSONObject:
    """The decision as JSON: `mode`, `reason`, and for a revision `plan` and `remarks`."""
    for candidate in candidates(text):
        if is_object(candidate) and candidate.get("mode") in _MODES:
            reason = str(candidate.get("reason") or "")
            if candidate["mode"] != "revise":
                return {"mode": candidate["mode"], "reason": reason}
            return {"mode": "revise", "reason": reason, **plan_reader(tools, args, text)}
    raise OutputProblem(f'Your reply is not a decision: it needs "mode", one of {", ".join(_MODES)}. Reply again.')


def replanner_prompt(goal: str, trace: Sequence[StepResult], remaining: Sequence[Step], plan: Plan) -> str:
    """The user message of the replanner: what was done, how the last step went, what is still planned."""
    lines = [f"Goal: {goal}", "", results_section(trace, _FINDING_CHARS), ""]
    lines.append(_verdict(trace[-1]))
    left = [f"- {step.id}: {step.description}" for step in remaining]
    lines += ["", "Still planned:", *(left or ["- nothing"])]
    return "\n".join(lines)


def _verdict(last: StepResult) -> str:
    step = f"The step {last.step.id} ({last.step.description})"
    if last.ok:
        return f"{step} worked."
    failed = ", ".join(last.failed_tools)
    why = last.summary or (f"the last call of {failed} failed" if failed else "it is blocked")
    return f"{step} did not work: {why[:_FINDING_CHARS]}"
