"""The planning loop: plan, execute step by step, replan where a step did not work, and answer.

`run` is the whole algorithm. Like the tool loop it does nothing itself: every model and tool call is an effect behind `Durable`.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from .. import events
from ..durable import Cancelled, Completed, Durable
from ..encoding import JSON, JSONObject, encode
from ..errors import AuthError, ReplanError, RunFailed
from ..limits import Excess, Meter
from ..loop import Call, Talk, converse, start_call, take_call_outcome, tell, tell_call, tell_excess, tell_result
from ..messages import Assistant, Text, to_json, user
from ..settings import Limits
from .executor import binder_prompt, executor_prompt, strip_blocker
from .grounding import quoted
from .plan import Plan, Step, fallback_plan
from .plan import to_json as plan_json
from .planner import planner_prompt
from .references import MissingReference, resolve
from .replanner import replanner_prompt
from .synthesizer import synthesizer_prompt
from .trace import StepResult, ToolUse

__all__ = ["PlanningState", "run"]


@dataclass(slots=True)
class PlanningState:
    """What a planning run has come to; `remaining` are the steps that are still planned. Valid whenever the run is left."""

    meter: Meter = field(default_factory=lambda: Meter(Limits()))
    task: JSONObject = field(default_factory=dict[str, Any])
    plan: Plan | None = None
    remaining: list[Step] = field(default_factory=list[Step])
    trace: list[StepResult] = field(default_factory=list[StepResult])
    outputs: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    tools: dict[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    taken: list[str] = field(default_factory=list[str])
    iterations: int = 0
    revisions: int = 0
    finished: str | None = None
    status: str = "running"
    stop_reason: str | None = None
    text: str = ""
    output: JSON = None

    @property
    def goal(self) -> str:
        """The goal of the run."""
        return self.task["goal"]

    @property
    def messages(self) -> list[JSONObject]:
        """The conversation as JSON: the history, the goal, and the answer as far as there is one."""
        if not self.task:
            return []
        answer = [to_json(Assistant((Text(self.text),)))] if self.text else []
        return [*self.task["history"], to_json(user(self.goal)), *answer]


async def run(durable: Durable, task: JSONObject, state: PlanningState) -> None:
    """The planning agent's program. `task` holds `agent`, `goal`, `history`, `limits`, `replan_after` and `tool_selection`."""
    state.task = task
    state.meter.limits = Limits(**task["limits"])
    await tell(durable, events.RunStart(run_id=durable.run_id, goal=state.goal, agent=task["agent"]))
    await _make_plan(durable, state)
    while state.remaining and state.finished is None and state.status == "running":
        if await _limit_reached(durable, state):
            break
        step = state.remaining.pop(0)
        result = await _run_step(durable, state, step)
        state.trace.append(result)
        state.outputs[step.id] = result.outputs
        await _decide(durable, state, result)
    if state.status == "running":
        await _answer(durable, state)
    await tell(durable, events.Final(run_id=durable.run_id, text=state.text, output=state.output))


async def _limit_reached(durable: Durable, state: PlanningState) -> bool:
    cap = state.meter.limits.max_iterations
    if state.iterations >= cap:
        state.meter.excess = state.meter.excess or Excess("iterations", state.iterations, cap)
    if state.meter.check() is None:
        return False
    await tell_excess(durable, state.meter)
    state.finished = f"the limit of {state.meter.excess.kind} was reached" if state.meter.excess else None
    return True


async def _make_plan(durable: Durable, state: PlanningState) -> None:
    talk = Talk("planner", "plan/", repairs=1, request=_plan_request(state))
    talk.say(to_json(user(planner_prompt(state.task))))
    try:
        await converse(durable, talk, state.meter)
    except AuthError:
        raise
    except ReplanError as error:
        talk.ended, talk.problem = "invalid-output", str(error)
    if talk.ended in ("refusal", "content-filter", "cancelled"):
        state.status, state.stop_reason, state.text = "stopped", talk.ended, talk.text
        return
    usable = talk.ended == "answered"
    if usable:
        await _take_plan(durable, state, talk.output)
    else:
        problem = talk.problem or f"the reply ended with {talk.ended!r}"
        message = f"no usable plan: {problem}"
        await tell(durable, events.Error(run_id=durable.run_id, phase="plan", message=message, kind="PlannerFailed"))
        _set_plan(state, fallback_plan(state.goal))
    assert state.plan is not None
    await tell(durable, events.PlanCreated(run_id=durable.run_id, plan=plan_json(state.plan), fallback=not usable))


def _plan_request(state: PlanningState) -> JSONObject:
    return {
        "goal": state.goal,
        "max_steps": state.meter.limits.max_plan_steps,
        "taken": list(state.taken),
        "revision": state.revisions,
    }


async def _take_plan(durable: Durable, state: PlanningState, output: JSONObject) -> None:
    for remark in output["remarks"]:
        await tell(durable, events.Log(run_id=durable.run_id, level="warning", message=remark))
    state.tools |= output["tools"]
    _set_plan(state, msgspec.convert(output["plan"], Plan))


def _set_plan(state: PlanningState, plan: Plan) -> None:
    state.plan, state.remaining = plan, list(plan.steps)
    state.taken += [step.id for step in plan.steps]


# ---- one step


async def _run_step(durable: Durable, state: PlanningState, step: Step) -> StepResult:
    state.iterations += 1
    tool = state.tools.get(step.call.tool) if step.call else None
    kind = "open" if step.call is None or tool is None else "direct" if not _open_arguments(step, tool) else "bound"
    started = durable.now()
    start = events.StepStart(
        run_id=durable.run_id, step_id=step.id, index=state.iterations - 1, description=step.description, kind=kind
    )
    await tell(durable, start)
    result = await _run_call_step(durable, state, step, tool) if tool else await _run_open_step(durable, state, step)
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
    """A direct or bound step; where its call fails, one more with what the error offers, then the executor with the error in view."""
    assert step.call is not None
    tries = _Attempts()
    planned = {name: value for name, value in (step.call.arguments or {}).items() if value is not None}
    try:
        given: JSONObject = resolve(planned, state.outputs)
    except MissingReference as error:
        given, tries.error = {}, str(error)
    open_arguments = [name for name in tool["required"] if name not in given]
    if open_arguments and not state.trace and not tries.error and not planned:
        return await _run_open_step(durable, state, step)
    for _ in range(2):
        arguments = await _bind(durable, state, step, tool, given, tries) if open_arguments else given
        if arguments is None or _was_tried(arguments, tries):
            break
        call = await _make_call(durable, state, step, tool, arguments, tries)
        if call is None or call.ok:
            return _call_result(step, tries, call)
        text = _text(call)
        tries.error = f"{step.call.tool}({encode(arguments).decode()}) failed: {text}"
        if tool["once"] or not set(quoted(text)).difference(map(str, arguments.values())):
            break
        given, open_arguments = {}, tool["required"]
    return await _run_open_step(durable, state, step, tries)


def _was_tried(arguments: JSONObject, tries: _Attempts) -> bool:
    return any(call.arguments == arguments for call in tries.calls)


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
    try:
        await converse(durable, talk, state.meter)
    except AuthError:
        raise
    except ReplanError as error:
        tries.error = str(error)
        return None
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
    waiting: str | None = key
    completion = await durable.next()
    cancelled = isinstance(completion.outcome, Cancelled)
    while waiting := take_call_outcome(durable, step.id, call, completion):
        completion = await durable.next()
    await tell_result(durable, step.id, call, completion.at)
    return None if cancelled else call


def _call_result(step: Step, tries: _Attempts, call: Call | None) -> StepResult:
    uses = tuple(map(_use, tries.calls))
    if call is None:
        return StepResult(step=step, kind="direct", summary="Cancelled.", calls=uses, blocked=True, cancelled=True)
    return StepResult(
        step=step, kind="direct", summary=_text(call), calls=uses, outputs={"result": _value(call)}, blocked=False
    )


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
    talk.say(to_json(user(executor_prompt(state.goal, state.plan, step, state.trace, error))))
    for call in before:
        talk.failures[call.signature] = 2
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
    return ToolUse(call.tool, call.arguments, _text(call), call.ok)


def _text(call: Call) -> str:
    content = call.result["content"] if call.result else ()
    return "\n".join(part["text"] if part["type"] == "text" else f"[{part['type']}]" for part in content)


def _value(call: Call) -> JSON:
    """What later steps refer to: the structured result, a lone `{"result": x}` wrapper taken off, or the text."""
    value: JSON = (call.result or {}).get("structured")
    if value is None:
        return _text(call)
    return value["result"] if isinstance(value, dict) and list(value) == ["result"] else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # JSON


# ---- after a step


async def _decide(durable: Durable, state: PlanningState, result: StepResult) -> None:
    """What follows a step; asks the replanner only where the settings say so, and never after the last step."""
    if not state.remaining:
        await _tell_decision(durable, "finish", "the plan is done", "last-step")
    elif not await _wants_replanner(durable, state, result):
        await _tell_decision(durable, "continue", "the step worked", "clean-step")
    else:
        await _replan(durable, state)


async def _tell_decision(
    durable: Durable,
    mode: Literal["continue", "revise", "finish"],
    reason: str,
    cause: Literal["last-step", "clean-step", "llm-decision"] = "llm-decision",
) -> None:
    await tell(durable, events.ReplanDecision(run_id=durable.run_id, mode=mode, reason=reason, cause=cause))


async def _wants_replanner(durable: Durable, state: PlanningState, result: StepResult) -> bool:
    match state.task["replan_after"]:
        case "always":
            return True
        case "function":
            durable.start("replan-after", result.to_json(), key=f"replan-after/{state.iterations}")
            outcome = (await durable.next()).outcome
            return bool(outcome.value) if isinstance(outcome, Completed) else not result.ok
        case _:
            return not result.ok


async def _replan(durable: Durable, state: PlanningState) -> None:
    assert state.plan is not None
    request = _plan_request(replace(state, revisions=state.revisions + 1))
    talk = Talk("replanner", f"replan/{state.iterations}/", repairs=1, request=request)
    talk.say(to_json(user(replanner_prompt(state.goal, state.trace, state.remaining, state.plan))))
    try:
        await converse(durable, talk, state.meter)
    except AuthError:
        raise
    except ReplanError as error:
        message = f"the replanner failed, the plan goes on: {error}"
        await tell(durable, events.Error(run_id=durable.run_id, phase="replan", message=message, kind="ReplannerFailed"))
    decision: JSONObject = talk.output if talk.ended == "answered" else {"mode": "continue", "reason": "no decision"}
    if decision["mode"] == "revise":
        await _revise(durable, state, decision)
    else:
        await _tell_decision(durable, decision["mode"], decision["reason"])
        if decision["mode"] == "finish":
            state.finished = decision["reason"] or "the replanner saw no way on"


async def _revise(durable: Durable, state: PlanningState, decision: JSONObject) -> None:
    plan = msgspec.convert(decision["plan"], Plan)
    cap = state.meter.limits.max_revisions
    if state.revisions >= cap:
        await tell(durable, events.RevisionsExceeded(run_id=durable.run_id, cap=cap))
        state.finished = f"the plan was revised {cap} times"
    elif not plan.steps or _same_work(plan.steps, [state.trace[-1].step, *state.remaining]):
        state.finished = "the revised plan was no different"
    if state.finished:
        await _tell_decision(durable, "finish", state.finished)
        return
    state.revisions += 1
    await _tell_decision(durable, "revise", decision["reason"])
    await _take_plan(durable, state, decision)
    await tell(durable, events.PlanRevised(run_id=durable.run_id, plan=decision["plan"], reason=decision["reason"]))


def _same_work(new: tuple[Step, ...], old: list[Step]) -> bool:
    """Whether steps are the same but for their ids: a revision that would fail as before."""

    def work(step: Step) -> JSON:
        return plan_json(step)["call"] if step.call else step.description.strip().casefold()

    return [work(step) for step in new] == [work(step) for step in old]


# ---- the answer


async def _answer(durable: Durable, state: PlanningState) -> None:
    reason = state.finished or "not reached"
    not_done = [f"{step.description} ({reason})" for step in state.remaining]
    talk = Talk("synthesizer", "answer/")
    talk.say(to_json(user(synthesizer_prompt(state.task, state.trace, not_done))))
    await converse(durable, talk, state.meter)
    state.text, state.output = talk.text, talk.output
    if talk.ended == "invalid-output":
        raise RunFailed(f"the answer could not be used, repairs included: {talk.problem}")
    if talk.ended != "answered":
        state.status, state.stop_reason = "stopped", talk.ended
    elif state.meter.excess and state.remaining:
        state.status, state.stop_reason = "stopped", "limit"
    else:
        state.status = "complete"
