"""The executor: how one step is put to a model, and how its reply is read."""

from collections.abc import Sequence
from functools import partial

from replan import events
from replan.effects import Stage, text_watch
from replan.encoding import JSON, JSONObject, encode, is_object
from replan.model import Model, OutputSchema
from replan.output import OutputProblem, candidates
from replan.settings import ModelSettings
from replan.tool import ToolInfo

from .catalogue import for_planner
from .grounding import bound_arguments, quoted
from .plan import Plan, Step
from .planner import history_section
from .prompts import instructions
from .trace import StepResult

__all__ = ["binder_prompt", "binder_stage", "executor_prompt", "executor_stage", "strip_blocker"]

BLOCKER = "[BLOCKER]"
_FINDING_CHARS = 2_000


def executor_stage(model: Model, tools: tuple[ToolInfo, ...], system_prompt: str, settings: ModelSettings) -> Stage:
    """The stage that carries out open steps: a tool loop."""
    return Stage(
        phase="execute",
        model=model,
        instructions=instructions("executor", system_prompt),
        tools=tools,
        settings=settings,
        watch=text_watch(events.StepTextDelta, events.StepReasoningDelta),
    )


def binder_stage(model: Model, tools: Sequence[ToolInfo], system_prompt: str, settings: ModelSettings) -> Stage:
    """The stage that fills in the open arguments of a bound step: one call with the tool's own schema."""
    by_name = {info.name: shown for info, shown in zip(tools, for_planner(tools), strict=True)}
    return Stage(
        phase="execute",
        model=model,
        instructions=instructions("binder", system_prompt),
        schema=partial(_bind_schema, model, by_name),
        read=partial(_read_arguments, by_name),
        settings=settings,
        watch=text_watch(None, events.StepReasoningDelta),
    )


def _bind_schema(model: Model, tools: dict[str, ToolInfo], args: JSONObject) -> OutputSchema:
    info, bind = tools[args["bind"]["tool"]], args["bind"]
    if not model.profile.constrained:
        return OutputSchema("arguments", info.parameters)
    tried = [value for call in bind["refused"] for value in call.values()]
    offered = [name for name in quoted(bind["error"] or "") if name not in tried]
    schema = bound_arguments(
        info, bind["given"], bind["sources"], bind["goal"], offered=offered if tried else [], refused=bind["refused"]
    )
    return OutputSchema("arguments", schema)


def _read_arguments(tools: dict[str, ToolInfo], args: JSONObject, text: str) -> JSON:
    """The arguments in a reply, the given ones put back in. They are validated when the call is made."""
    for candidate in candidates(text):
        if is_object(candidate):
            known: JSONObject = tools[args["bind"]["tool"]].parameters.get("properties") or {}
            inner = candidate.get("arguments")
            found: JSONObject = inner if is_object(inner) and "arguments" not in known else candidate
            return {**found, **args["bind"]["given"]}
    raise OutputProblem("Your reply holds no JSON object. Reply with only the arguments as a JSON object.")


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
    return "\n".join(lines)


def binder_prompt(goal: str, step: Step, tool: str, trace: Sequence[StepResult], error: str | None) -> str:
    """The user message for a bound step; `tool` is its line of the catalogue."""
    lines = [f"Goal: {goal}", ""]
    lines += [results_section(trace, _FINDING_CHARS), ""] if trace else []
    lines += [f"Step: {step.description}", f"Tool: {tool}"]
    if error:
        lines.append(f"Tried before: {error}")
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
