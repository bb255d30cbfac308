"""How one step is run: as the call that the plan wrote, as a call whose arguments are filled in, or by the executor.

A step whose call fails moves up: once more with what the error offers, then to the executor with the error in view.
A call that just failed is not made again unchanged.
"""

from dataclasses import dataclass, field

import msgspec

from replan import events
from replan.calls import Call, same_call, start_call, take_call_outcome, tell, tell_call, tell_result
from replan.durable import Cancelled, Durable
from replan.encoding import JSON, JSONObject, encode, is_object
from replan.loop import SAME_FAILURES, Talk, attempt, converse
from replan.messages import to_json, user

from .executor import binder_prompt, executor_prompt, strip_blocker
from .grounding import quoted
from .plan import Step
from .references import MissingReference, references, resolve
from .state import PlanningState
from .trace import StepResult, ToolUse

__all__ = ["run_step"]


async def run_step(durable: Durable, state: PlanningState, step: Step) -> StepResult:
    """Run one step to its end."""
    state.iterations += 1
    tool = state.tools.get(step.call.tool) if step.call else None
    kind = "open" if step.call is None or tool is None else "direct" if not _open_arguments(step, tool) else "bound"
    started = durable.now()
    start = events.StepStart(
        run_id=durable.run_id, step_id=step.id, index=state.iterations - 1, description=step.description, kind=kind
    )
    await tell(durable, start)
    if kind != "open" and (needed := _failed_need(state, step, kind)):
        summary = f"Not run: it needs the result of step {needed}, which failed."
        result = StepResult(step=step, kind=kind, summary=summary, blocked=True, needs=needed)
    elif tool:
        result = await _run_call_step(durable, state, step, tool)
    else:
        result = await _run_open_step(durable, state, step)
    result = msgspec.structs.replace(result, kind=kind, seconds=max(0.0, durable.now() - started))
    complete = events.StepComplete(
        run_id=durable.run_id,
        step_id=step.id,
        summary=result.summary,
        ok=result.ok,
        blocked=result.blocked,
        seconds=result.seconds,
    )
    await tell(durable, complete)
    return result


def _failed_need(state: PlanningState, step: Step, kind: str) -> str | None:
    """The failed step that a call cannot do without: one it refers to, or for open arguments the one before it."""
    assert state.plan is not None
    failed = {result.step.id for result in state.trace if result.fruitless}
    needed = list(references(step.call.arguments if step.call else None))
    if not needed and kind == "bound" and step in state.plan.steps:
        needed = [planned.id for planned in state.plan.steps[: state.plan.steps.index(step)][-1:]]
    return next((ident for ident in needed if ident in failed), None)


def _open_arguments(step: Step, tool: JSONObject) -> list[str]:
    """The required arguments that the plan leaves open."""
    given = (step.call.arguments if step.call else None) or {}
    return [name for name in tool["required"] if given.get(name) is None]


@dataclass(slots=True)
class _Attempts:
    """The calls that a step has made so far, and what was wrong with the last one."""

    calls: list[Call] = field(default_factory=list[Call])
    error: str | None = None


async def _run_call_step(durable: Durable, state: PlanningState, step: Step, tool: JSONObject) -> StepResult:
    """A direct or bound step; where its call fails, one more with what the error offers, then the executor with the
    error in view.
    """
    assert step.call is not None
    tries = _Attempts()
    planned = {name: value for name, value in (step.call.arguments or {}).items() if value is not None}
    given, missing = _resolve_each(planned, state.outputs)
    tries.error = "; ".join(missing.values()) or None
    open_arguments = [name for name in tool["required"] if name not in given]
    if not missing.keys() <= set(tool["required"]):
        return await _run_open_step(durable, state, step, tries)
    if open_arguments and not state.trace and not planned:
        return await _run_open_step(durable, state, step)
    for _ in range(2):
        arguments = await _bind(durable, state, step, tool, given, tries) if open_arguments else given
        if arguments is None or _was_tried(arguments, tries):
            break
        call = await _make_call(durable, state, step, tool, arguments, tries)
        if call is None or call.ok or state.meter.reached:
            return _call_result(step, tries, call)
        text = _text(call)
        tries.error = f"{step.call.tool}({encode(arguments).decode()}) failed: {text}"
        if tool["once"] or not set(quoted(text)).difference(map(str, arguments.values())):
            break
        named = [name for name in tool["required"] if str(arguments.get(name)) in quoted(text)]
        open_arguments = named or tool["required"]
        given = {name: value for name, value in arguments.items() if name not in open_arguments}
    return await _run_open_step(durable, state, step, tries)


def _resolve_each(arguments: JSONObject, outputs: dict[str, JSONObject]) -> tuple[JSONObject, dict[str, str]]:
    """The arguments with their references replaced, and for each that leads nowhere why."""
    given: JSONObject = {}
    missing: dict[str, str] = {}
    for name, value in arguments.items():
        try:
            given[name] = resolve(value, outputs)
        except MissingReference as error:
            missing[name] = str(error)
    return given, missing


def _was_tried(arguments: JSONObject, tries: _Attempts) -> bool:
    return any(call.signature == same_call(call.tool, [arguments, None]) for call in tries.calls)


async def _bind(
    durable: Durable, state: PlanningState, step: Step, tool: JSONObject, given: JSONObject, tries: _Attempts
) -> JSONObject | None:
    """The arguments of a bound call, filled in by one model call; None where the model gives none."""
    assert step.call is not None
    bind: JSONObject = {
        "tool": step.call.tool,
        "given": given,
        "goal": state.goal,
        "error": tries.error,
        "sources": list(state.outputs.values()),
        "refused": [call.arguments for call in tries.calls],
    }
    talk = Talk("binder", f"step/{step.id}/bind{len(tries.calls)}/", step.id, repairs=1, request={"bind": bind})
    talk.say(to_json(user(binder_prompt(state.goal, step, tool["line"], state.trace, tries.error))))
    tries.error = await attempt(durable, talk, state.meter) or tries.error
    return talk.output if talk.ended == "answered" else None


async def _make_call(
    durable: Durable, state: PlanningState, step: Step, tool: JSONObject, arguments: JSONObject, tries: _Attempts
) -> Call | None:
    """Make the step's call; None where it was cancelled."""
    assert step.call is not None
    key = f"step/{step.id}/call{len(tries.calls)}"
    call = Call(key.replace("/", "-"), step.call.tool, arguments, once=tool["once"])
    call.original, call.server = tool["original"], tool["server"]
    tries.calls.append(call)
    if not state.meter.take_tool_call():
        call.answer("Not run: the tool-call budget of this run is exhausted.")
        return call
    await tell_call(durable, step.id, call)
    start_call(durable, step.id, call, key)
    completion = await durable.next()
    cancelled = isinstance(completion.outcome, Cancelled)
    while take_call_outcome(durable, step.id, call, completion):
        completion = await durable.next()
    await tell_result(durable, step.id, call, completion.at)
    return None if cancelled else call


def _call_result(step: Step, tries: _Attempts, call: Call | None) -> StepResult:
    uses = tuple(map(_use, tries.calls))
    if call is None or not call.ok:
        summary = "Cancelled." if call is None else _text(call)
        return StepResult(step=step, kind="direct", summary=summary, calls=uses, blocked=True, cancelled=call is None)
    return StepResult(step=step, kind="direct", summary=_text(call), calls=uses, outputs={"result": _value(call)})


async def _run_open_step(
    durable: Durable, state: PlanningState, step: Step, tries: _Attempts | None = None
) -> StepResult:
    """A step that the executor does with its tools."""
    assert state.plan is not None
    before = tries.calls if tries else []
    talk = Talk("executor", f"step/{step.id}/open/", step.id, max_turns=state.meter.limits.max_turns)
    if state.task["tool_selection"] == "plan-narrowed" and not step.requires_tools:
        talk.request["tools"] = [*step.suggested_tools, *([step.call.tool] if step.call else [])]
    error = tries.error if tries else None
    talk.say(to_json(user(executor_prompt(state.task, state.plan, step, state.trace, error))))
    for call in before:
        talk.failures[call.signature] = SAME_FAILURES
    talk.request["avoid"] = sorted({call.tool for call in before})
    talk.request["reads_only"] = bool(before) and not any(call.once for call in before)
    await converse(durable, talk, state.meter)
    summary, blocked = strip_blocker(talk.text)
    calls = [*before, *talk.finished_calls]
    found = [_value(call) for call in talk.finished_calls if call.ok]
    return StepResult(
        step=step,
        kind="open",
        summary=summary or f"The step ended without a reply: {talk.ended}.",
        calls=tuple(map(_use, calls)),
        outputs={"result": summary, **({"calls": found} if found else {})},
        blocked=blocked or talk.ended != "answered",
        cancelled=talk.ended == "cancelled",
    )


def _use(call: Call) -> ToolUse:
    return ToolUse(call.tool, call.arguments, _text(call), call.ok, call.once)


def _text(call: Call) -> str:
    content = call.result["content"] if call.result else ()
    return "\n".join(part["text"] if part["type"] == "text" else f"[{part['type']}]" for part in content)


def _value(call: Call) -> JSON:
    """What later steps refer to: the structured result, a lone `{"result": x}` wrapper taken off, or the text."""
    value: JSON = (call.result or {}).get("structured")
    if value is None:
        return _text(call)
    return value["result"] if is_object(value) and list(value) == ["result"] else value
