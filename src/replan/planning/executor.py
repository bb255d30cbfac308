"""The executor: how one step is put to a model, and how its reply is read."""

from collections.abc import Sequence

from replan import events
from replan.effects import Stage
from replan.encoding import JSON, JSONObject, encode, is_object
from replan.live import text_watch
from replan.model import Model, OutputSchema
from replan.output import OutputProblem, candidates
from replan.settings import ModelSettings
from replan.tool import ToolInfo

from .checks import mismatch
from .plan import Plan, Step
from .planner import history_section
from .prompts import instructions
from .trace import StepResult

__all__ = ["executor_prompt", "executor_stage", "results_section", "strip_blocker"]

BLOCKER = "[BLOCKER]"
_FINDING_CHARS = 2_000


def executor_stage(model: Model, tools: tuple[ToolInfo, ...], system_prompt: str, settings: ModelSettings) -> Stage:
    """The stage that carries out open steps: a tool loop."""
    return Stage(
        phase="execute",
        model=model,
        instructions=instructions("executor", system_prompt),
        tools=tools,
        schema=_result_schema,
        read=_read_result,
        settings=settings,
        watch=text_watch(events.StepTextDelta, events.StepReasoningDelta),
    )


def _result_schema(args: JSONObject) -> OutputSchema | None:
    """What the reply to a step that declares outputs looks like."""
    produces: JSONObject | None = args.get("produces")
    if not produces:
        return None
    properties: JSONObject = {"summary": {"type": "string"}, **produces}
    return OutputSchema(
        "result",
        {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False},
    )


def _read_result(args: JSONObject, text: str) -> JSON:
    """The outputs that a step declares; None for a step that declares none, or that says that it cannot be done."""
    schema = _result_schema(args)
    if schema is None or strip_blocker(text)[1]:
        return None
    problem = "it holds no JSON object"
    for candidate in candidates(text):
        if is_object(candidate):
            problem = mismatch(schema.schema, candidate)
            if problem is None:
                return candidate
    raise OutputProblem(f"Your reply is not as the step wants it: {problem}. Reply again with only the corrected JSON.")


def executor_prompt(task: JSONObject, plan: Plan, step: Step, trace: Sequence[StepResult], error: str | None) -> str:
    """The user message for an open step: the conversation so far, the goal, the plan, what is known, the step."""
    lines = [f"{history_section(task['history'])}Goal: {task['goal']}", "", "Plan:"]
    lines += [f"{number}. {planned.description}" for number, planned in enumerate(plan.steps, 1)]
    lines += ["", results_section(trace, _FINDING_CHARS)] if trace else []
    lines += ["", f"Your step: {step.description}"]
    if step.expected_outcome:
        lines.append(f"Expected outcome: {step.expected_outcome}")
    if step.suggested_tools:
        lines.append(f"Suggested tools: {', '.join(step.suggested_tools)}")
    if step.call:
        lines.append(f"Planned call: {_call_text(step)}")
    if error:
        lines.append(f"That failed: {error}")
    if step.produces:
        lines.append(f"Reply with a JSON object that has summary, {', '.join(step.produces)}.")
    return "\n".join(lines)


def results_section(trace: Sequence[StepResult], max_chars: int) -> str:
    """What the steps so far have given, findings clipped."""
    return "Results so far:\n" + "\n".join(_result_text(result, max_chars) for result in trace)


def _result_text(result: StepResult, max_chars: int) -> str:
    state = " [FAILED]" if result.fruitless else ""
    lines = [f"- {result.step.id}: {result.step.description}{state}"]
    for call in result.calls:
        outcome = call.output if len(call.output) <= max_chars else f"{call.output[:max_chars]} ... [clipped]"
        arguments = encode(call.arguments).decode()
        lines.append(f"  {call.tool}({arguments}) {'->' if call.ok else 'FAILED:'} {outcome}")
    if result.summary and (not result.calls or result.summary.strip() != result.calls[-1].output.strip()):
        lines.append(f"  {result.summary[:max_chars]}")
    return "\n".join(lines)


def _call_text(step: Step) -> str:
    assert step.call
    return f"{step.call.tool}({encode(step.call.arguments or {}).decode()})"


def strip_blocker(text: str) -> tuple[str, bool]:
    """The reply without the sentinel at its end, and whether it was there."""
    stripped = text.rstrip().rstrip(".!*_`").rstrip()
    if stripped.upper().endswith(BLOCKER):
        return stripped[: -len(BLOCKER)].rstrip().rstrip("*_`").rstrip(), True
    return text.strip(), False
