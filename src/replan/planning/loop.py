"""The planning loop: plan, execute step by step, replan where a step did not work, and answer.

`run` is the whole algorithm. Like the tool loop it does nothing itself: every model and tool call is an effect behind
`Durable`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec

from replan import events
from replan.calls import same_call
from replan.durable import Completed, Durable
from replan.encoding import JSON, JSONObject
from replan.errors import RunFailed
from replan.limits import Excess
from replan.loop import Talk, attempt, converse, tell, tell_excess
from replan.messages import to_json, user
from replan.settings import Limits

from .plan import Plan, Step, fallback_plan
from .plan import to_json as plan_json
from .planner import planner_prompt
from .replanner import replanner_prompt
from .state import PlanningState
from .steps import run_step
from .synthesizer import synthesizer_prompt, with_substitutes
from .trace import StepResult

__all__ = ["run"]


async def run(durable: Durable, task: JSONObject, state: PlanningState) -> None:
    """The planning agent's program.

    `task` holds `agent`, `goal`, `history`, `limits`, `replan_after` and `tool_selection`.
    """
    state.task = task
    state.meter.limits = Limits(**task["limits"])
    await tell(durable, events.RunStart(run_id=durable.run_id, goal=state.goal, agent=task["agent"]))
    await _make_plan(durable, state)
    state.phase = "execute"
    while state.remaining and state.finished is None and state.status == "running":
        if await _limit_reached(durable, state):
            break
        step = state.remaining.pop(0)
        result = await run_step(durable, state, step)
        state.trace.append(result)
        state.outputs[step.id] = result.outputs
        await _decide(durable, state, result)
    if state.status == "running":
        await _answer(durable, state)
    await tell(durable, events.Final(run_id=durable.run_id, text=state.text, output=state.output))


async def _limit_reached(durable: Durable, state: PlanningState) -> bool:
    meter = state.meter
    if state.iterations >= meter.limits.max_iterations:
        meter.reach(Excess("iterations", state.iterations, meter.limits.max_iterations))
    meter.out_of_tokens()
    await tell_excess(durable, meter)
    state.finished = "; ".join(map(str, meter.reached)) or None
    return bool(meter.reached)


async def _make_plan(durable: Durable, state: PlanningState) -> None:
    talk = Talk("planner", "plan/", repairs=1, request=_plan_request(state))
    talk.say(to_json(user(planner_prompt(state.task))))
    error = await attempt(durable, talk, state.meter)
    if talk.ended in ("refusal", "content-filter", "cancelled"):
        state.status, state.stop_reason, state.text = "stopped", talk.ended, talk.text
        return
    usable = talk.ended == "answered"
    if usable:
        await _take_plan(durable, state, talk.output)
    else:
        problem = error or talk.problem or f"the reply ended with {talk.ended!r}"
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


async def _decide(durable: Durable, state: PlanningState, result: StepResult) -> None:
    """What follows a step; asks the replanner only where the settings say so, and never after the last step."""
    if not state.remaining:
        await _tell_decision(durable, "finish", "the plan is done", "last-step")
    elif await _limit_reached(durable, state):
        return
    elif not await _wants_replanner(durable, state, result):
        reason = f"it waits for step {result.needs!r}, which failed" if result.needs else "the step worked"
        await _tell_decision(durable, "continue", reason, "clean-step")
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
            return not result.ok and not result.needs


async def _replan(durable: Durable, state: PlanningState) -> None:
    assert state.plan is not None
    state.phase = "replan"
    request = _plan_request(replace(state, revisions=state.revisions + 1))
    talk = Talk("replanner", f"replan/{state.iterations}/", repairs=1, request=request)
    talk.say(to_json(user(replanner_prompt(state.goal, state.trace, state.remaining, state.plan))))
    if error := await attempt(durable, talk, state.meter):
        message = f"the replanner failed, the plan goes on: {error}"
        await tell(
            durable, events.Error(run_id=durable.run_id, phase="replan", message=message, kind="ReplannerFailed")
        )
    state.phase = "execute"
    decision: JSONObject = talk.output if talk.ended == "answered" else {"mode": "continue", "reason": "no decision"}
    if decision["mode"] == "revise":
        await _revise(durable, state, decision)
    else:
        await _tell_decision(durable, decision["mode"], decision["reason"])
        if decision["mode"] == "finish":
            state.finished = decision["reason"] or "the replanner saw no way on"


async def _revise(durable: Durable, state: PlanningState, decision: JSONObject) -> None:
    plan = _without_failed_calls(msgspec.convert(decision["plan"], Plan), state.trace)
    cap = state.meter.limits.max_revisions
    if state.revisions >= cap:
        await tell(durable, events.RevisionsExceeded(run_id=durable.run_id, cap=cap))
        state.finished = f"the plan was revised {cap} times"
    elif not plan.steps:
        state.finished = "the revised plan has no steps"
    elif _same_work(plan.steps, [state.trace[-1].step, *state.remaining]):
        state.finished = "the revised plan was no different"
    if state.finished:
        await _tell_decision(durable, "finish", state.finished)
        return
    state.revisions += 1
    await _tell_decision(durable, "revise", decision["reason"])
    await _take_plan(durable, state, {**decision, "plan": plan_json(plan)})
    await tell(durable, events.PlanRevised(run_id=durable.run_id, plan=plan_json(plan), reason=decision["reason"]))


def _without_failed_calls(plan: Plan, trace: Sequence[StepResult]) -> Plan:
    """The plan without the calls that failed already: they would fail again."""
    failed = {same_call(use.tool, use.arguments) for result in trace for use in result.calls if not use.ok}
    kept = [s for s in plan.steps if not s.call or same_call(s.call.tool, s.call.arguments) not in failed]
    return msgspec.structs.replace(plan, steps=tuple(kept))


def _same_work(new: tuple[Step, ...], old: list[Step]) -> bool:
    """Whether steps are the same but for their ids: a revision that would fail as before."""

    def work(step: Step) -> JSON:
        if step.call:
            return plan_json(step)["call"]
        return [step.description.strip().casefold(), *step.suggested_tools]

    return [work(step) for step in new] == [work(step) for step in old]


async def _answer(durable: Durable, state: PlanningState) -> None:
    state.phase = "synthesize"
    reason = state.finished or "not reached"
    not_done = [f"{step.description} ({reason})" for step in state.remaining]
    talk = Talk("synthesizer", "answer/")
    talk.say(to_json(user(synthesizer_prompt(state.task, state.trace, not_done))))
    await converse(durable, talk, state.meter)
    state.text, state.output = talk.text, talk.output
    if talk.ended == "answered" and talk.output is None:
        state.text = with_substitutes(talk.text, state.trace)
    if talk.ended == "invalid-output":
        raise RunFailed(f"the answer could not be used, repairs included: {talk.problem}")
    if talk.ended != "answered":
        state.status, state.stop_reason = "stopped", talk.ended
    elif state.meter.reached:
        state.status, state.stop_reason = "stopped", "limit"
    else:
        state.status = "complete"
