"""How one step is run: as the call that the plan wrote, as a call whose arguments are filled in, as a computation, or
by the executor.

A step whose call fails moves up: once more with what the error offers, then to the executor with the error in view, as
far as these kinds of steps are allowed. A call that just failed is not made again unchanged.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from replan import events
from replan.calls import Call, open_gate, same_call, take_call_outcome, tell, tell_call, tell_result
from replan.durable import Cancelled, Durable
from replan.encoding import JSONObject, encode, is_object
from replan.loop import SAME_FAILURES, Talk, attempt, converse
from replan.messages import to_json, user

from .binder import binder_prompt, compute_prompt, values_of
from .compute import ComputeError, compute, open_operand
from .executor import executor_prompt, strip_blocker
from .formula import is_idle
from .gate import gate_of, give_back
from .grounding import one_of
from .plan import Step
from .references import MissingReference, render, resolve
from .schedule import states_needs
from .state import PlanningState
from .trace import StepResult, ToolUse
from .verify import verified
from .words import quoted

__all__ = ["run_step"]

Kind: TypeAlias = Literal["direct", "bound", "open", "compute"]


async def run_step(durable: Durable, state: PlanningState, step: Step, index: int) -> StepResult:
    """Run one step to its end."""
    kind, started = _kind(state, step), durable.now()
    start = events.StepStart(
        run_id=durable.run_id, step_id=step.id, index=index, description=step.description, kind=kind
    )
    await tell(durable, start)
    result = _not_run(state, step, kind) or await _run(durable, state, step, kind)
    if result.ok and result.step.id not in state.described:
        result = await verified(durable, state, result)
    result = msgspec.structs.replace(result, kind=kind, seconds=max(0.0, durable.now() - started))
    complete = events.StepComplete(
        run_id=durable.run_id,
        step_id=step.id,
        summary=result.problem or result.summary,
        ok=result.ok,
        blocked=result.blocked,
        seconds=result.seconds,
    )
    await tell(durable, complete)
    return result


def _kind(state: PlanningState, step: Step) -> Kind:
    if step.compute is not None and state.allows("direct"):
        return "compute"
    tool = state.tools.get(step.call.tool) if step.call else None
    if tool is None:
        return "open"
    return "direct" if state.allows("direct") and not _open_arguments(step, tool) else "bound"


def _open_arguments(step: Step, tool: JSONObject) -> list[str]:
    """The required arguments that the plan leaves open."""
    given = (step.call.arguments if step.call else None) or {}
    return [name for name in tool["required"] if given.get(name) is None]


def _not_run(state: PlanningState, step: Step, kind: Kind) -> StepResult | None:
    """The result of a step that cannot do without a step of which nothing came.

    A step that says nothing of what it needs can, unless its arguments are to come from the step before it.
    """
    needs = state.needs.get(step.id, ()) if states_needs(step) or kind in ("bound", "compute") else ()
    if needed := next((ident for ident in needs if ident in state.fruitless), None):
        summary = f"Not run: it needs the result of step {needed}, which failed."
        return StepResult(step=step, kind=kind, summary=summary, blocked=True, needs=needed)
    if needed := next((ident for ident in needs if ident in state.described), None):
        state.described.add(step.id)
        if state.may_write(step):
            arguments = step.call.arguments if step.call else None
            state.effects.append({"step": step.id, "tool": step.call and step.call.tool, "arguments": arguments})
        summary = f"Not known before it is run: it needs the result of step {needed}, which a dry run does not make."
        return StepResult(step=step, kind=kind, summary=summary)
    return None


async def _run(durable: Durable, state: PlanningState, step: Step, kind: Kind) -> StepResult:
    if kind == "compute":
        return await _run_compute_step(durable, state, step)
    if kind == "open":
        return await _run_open_step(durable, state, step)
    assert step.call
    return await _run_call_step(durable, state, step, kind, state.tools[step.call.tool])


@dataclass(slots=True)
class _Attempts:
    """The calls that a step has made so far, and what was wrong with the last one."""

    calls: list[Call] = field(default_factory=list[Call])
    error: str | None = None


async def _run_call_step(
    durable: Durable, state: PlanningState, step: Step, kind: Kind, tool: JSONObject
) -> StepResult:
    """A direct or bound step; where its call fails, one more with what the error offers, then the executor with the
    error in view.
    """
    assert step.call is not None
    tries = _Attempts()
    planned = {name: value for name, value in (step.call.arguments or {}).items() if value is not None}
    given, missing = _resolve_each(planned, state.outputs)
    tries.error = "; ".join(missing.values()) or None
    open_arguments: list[str] = [name for name in tool["required"] if name not in given]
    if kind == "bound" and not open_arguments:  # direct steps are not allowed: a model has the last word
        given, open_arguments = {}, tool["required"]
    if not missing.keys() <= set(tool["required"]):
        return await _move_up(durable, state, step, tries)
    if open_arguments and not planned and not state.sources(step) and state.allows("open"):
        return await _run_open_step(durable, state, step)
    for _ in range(2):
        if open_arguments and (not state.allows("bound") or state.meter.out_of_tokens()):
            break
        arguments = await _bind(durable, state, step, tool, given, tries) if open_arguments else given
        if arguments is None or _was_tried(arguments, tries):
            break
        call = await _make_call(durable, state, step, tool, arguments, tries)
        if call is None or call.ok or call.denied or state.meter.reached:
            return _call_result(step, tries, call)
        text = call.text
        tries.error = f"{step.call.tool}({encode(arguments).decode()}) failed: {text}"
        if tool["once"]:
            break
        if not set(quoted(text)).difference(map(str, arguments.values())):
            other = one_of(arguments)
            if other is None or _was_tried(other, tries):
                break
            given, open_arguments = other, []
            continue
        named = [name for name in tool["required"] if str(arguments.get(name)) in quoted(text)]
        open_arguments = named or tool["required"]
        given = {name: value for name, value in arguments.items() if name not in open_arguments}
    return await _move_up(durable, state, step, tries)


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
    sources = state.sources(step)
    bind: JSONObject = {
        "tool": step.call.tool,
        "given": given,
        "goal": state.goal,
        "error": tries.error,
        "sources": [state.outputs[ident] for ident in sources],
        "refused": [call.arguments for call in tries.calls],
        "made": [use.arguments for r in state.trace for use in r.calls if use.ok and use.tool == step.call.tool],
    }
    talk = Talk("binder", f"step/{step.id}/bind{len(tries.calls)}/", step.id, repairs=1, request={"bind": bind})
    known = [result for result in state.trace if result.step.id in sources]
    talk.say(state.asked(binder_prompt(state.goal, step, tool["line"], known, tries.error)))
    tries.error = await attempt(durable, talk, state.meter) or tries.error
    return talk.output if talk.ended == "answered" else None


async def _make_call(
    durable: Durable, state: PlanningState, step: Step, tool: JSONObject, arguments: JSONObject, tries: _Attempts
) -> Call | None:
    """Make the step's call; None where it was cancelled."""
    assert step.call is not None
    key = f"step/{step.id}/call{len(tries.calls)}"
    call = Call(key.replace("/", "-"), step.call.tool, arguments, once=tool["once"], writes=tool["writes"])
    call.original, call.server = tool["original"], tool["server"]
    tries.calls.append(call)
    if not state.meter.take_tool_call():
        call.answer("Not run: the tool-call budget of this run is exhausted.")
        return call
    await tell_call(durable, step.id, call)
    at, cancelled = durable.now(), False
    waits = open_gate(durable, gate_of(state), step.id, call, key)
    while waits:
        completion = await durable.next()
        cancelled, at = isinstance(completion.outcome, Cancelled), completion.at
        waits = take_call_outcome(durable, step.id, call, completion)
    await tell_result(durable, step.id, call, at)
    give_back(state, [call])
    return None if cancelled else call


def _call_result(step: Step, tries: _Attempts, call: Call | None) -> StepResult:
    uses = tuple(map(_use, tries.calls))
    if call is None or not call.ok:
        summary = "Cancelled." if call is None else call.text
        return StepResult(step=step, kind="direct", summary=summary, calls=uses, blocked=True, cancelled=call is None)
    return StepResult(step=step, kind="direct", summary=call.text, calls=uses, outputs={"result": call.value})


async def _run_compute_step(durable: Durable, state: PlanningState, step: Step) -> StepResult:
    """A computation; where an operand is open, one model call chooses what is computed with."""
    assert step.compute is not None
    spec: JSONObject | None = step.compute
    tries = _Attempts()
    if open_operand(spec):
        spec = await _bind_compute(durable, state, step, spec, tries)
        if spec is not None and open_operand(spec):
            return StepResult(step=step, kind="compute", summary="There is nothing to work out.")
    if spec is not None:
        try:
            outputs = compute(spec, state.outputs, state.labels)
        except (ComputeError, MissingReference) as error:
            tries.error = str(error)
        else:
            return StepResult(step=step, kind="compute", summary=str(outputs.get("text", "")), outputs=outputs)
    return await _move_up(durable, state, step, tries)


async def _bind_compute(
    durable: Durable, state: PlanningState, step: Step, spec: JSONObject, tries: _Attempts
) -> JSONObject | None:
    values = values_of({ident: state.outputs[ident] for ident in state.sources(step)}, state.labels)
    if is_idle(spec, values, state.goal) or not state.allows("bound"):
        return spec if state.allows("bound") else None
    bind: JSONObject = {"compute": spec, "goal": state.goal, "values": values}
    talk = Talk("binder", f"step/{step.id}/bind0/", step.id, repairs=1, request={"bind": bind})
    talk.say(to_json(user(compute_prompt(state.goal, step, spec, values))))
    tries.error = await attempt(durable, talk, state.meter) or talk.problem
    return talk.output if talk.ended == "answered" else None


async def _move_up(durable: Durable, state: PlanningState, step: Step, tries: _Attempts) -> StepResult:
    """What becomes of a step that failed: the executor's, where that is allowed."""
    if state.allows("open"):
        return await _run_open_step(durable, state, step, tries)
    summary = tries.error or "The arguments could not be filled in."
    uses = tuple(map(_use, tries.calls))
    return StepResult(step=step, kind="bound", summary=summary, calls=uses, blocked=True)


async def _run_open_step(
    durable: Durable, state: PlanningState, step: Step, tries: _Attempts | None = None
) -> StepResult:
    """A step that the executor does with its tools."""
    assert state.plan is not None
    try:
        described = msgspec.structs.replace(step, description=render(step.description, state.outputs))
    except MissingReference as error:
        return StepResult(step=step, kind="open", summary=f"Not run: {error}", blocked=True)
    before = tries.calls if tries else []
    talk = Talk("executor", f"step/{step.id}/open/", step.id, max_turns=state.meter.limits.max_turns)
    talk.gate = gate_of(state)
    if state.task["tool_selection"] == "plan-narrowed" and not step.requires_tools:
        talk.request["tools"] = [*step.suggested_tools, *([step.call.tool] if step.call else [])]
    error = tries.error if tries else None
    talk.say(state.asked(executor_prompt(state.task, state.plan, described, state.trace, error)))
    for call in before:
        talk.failures[call.signature] = SAME_FAILURES
    talk.request["avoid"] = sorted({call.tool for call in before})
    talk.request["reads_only"] = not state.may_write(step) if tries else False
    if step.produces:
        talk.request["produces"], talk.repairs = step.produces, 1
    await converse(durable, talk, state.meter)
    give_back(state, talk.finished_calls)
    must_write = step.call is not None and state.may_write(step) and not state.task["dry_run"]
    return _open_result(step, talk, before, must_write=must_write)


def _open_result(step: Step, talk: Talk, before: list[Call], *, must_write: bool) -> StepResult:
    found: JSONObject = talk.output if is_object(talk.output) else {}
    summary, blocked = strip_blocker(str(found.get("summary", talk.text)))
    calls = [*before, *talk.finished_calls]
    values = [call.value for call in talk.finished_calls if call.ok]
    problem = f"Its result is not as planned: {talk.problem}" if talk.ended == "invalid-output" else None
    if must_write and not blocked and not any(call.ok and call.writes for call in calls):
        problem = "What it was to write or send was not written or sent."
    return StepResult(
        step=step,
        kind="open",
        summary=summary or f"The step ended without a reply: {talk.ended}.",
        calls=tuple(map(_use, calls)),
        outputs={"result": summary, **({"calls": values} if values else {}), **found},
        blocked=blocked or talk.ended not in ("answered", "invalid-output"),
        cancelled=talk.ended == "cancelled",
        problem=problem,
    )


def _use(call: Call) -> ToolUse:
    return ToolUse(call.tool, call.arguments, call.text, call.ok, call.writes)
