"""Replanning: asking the replanner about steps that did not work, and putting its revision in place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from replan import events
from replan.calls import same_call, tell
from replan.durable import Completed, Durable
from replan.encoding import JSON, JSONObject
from replan.loop import Talk, attempt
from replan.messages import to_json, user

from .drafting import adopt, ask_again_about, plan_request, reviewed
from .grant import Grant, outside
from .plan import Plan, Step
from .plan import to_json as plan_json
from .replanner import replanner_prompt
from .review import Reject
from .state import PlanningState
from .trace import StepResult

__all__ = ["Decision", "replan", "tell_decision"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the replanner said about some steps; a revision is in place already."""

    about: Sequence[StepResult]
    finish: bool = False
    reason: str = ""


async def tell_decision(
    durable: Durable,
    mode: Literal["continue", "revise", "finish"],
    reason: str,
    cause: Literal["last-step", "clean-step", "llm-decision"] = "llm-decision",
) -> None:
    """Say how the run goes on."""
    await tell(durable, events.ReplanDecision(run_id=durable.run_id, mode=mode, reason=reason, cause=cause))


async def replan(durable: Durable, state: PlanningState, about: Sequence[StepResult]) -> Decision:
    """Ask the replanner how to go on after steps, and do so."""
    assert state.plan is not None
    key = f"replan/{state.replans}/"
    state.replans += 1
    talk = Talk("replanner", key, repairs=1, request=plan_request(state, state.revisions + 1))
    running = list(state.running.values())
    talk.say(to_json(user(replanner_prompt(state.goal, state.trace, about, running, state.remaining))))
    state.phase, begun = "replan", state.iterations
    decision = await _asked(durable, state, talk, about)
    state.phase = "execute"
    if decision["mode"] == "revise" and state.iterations > begun:
        decision = await _read_again(durable, state, talk, decision)
    if decision["mode"] == "revise":
        return await _revise(durable, state, talk, decision, about)
    await tell_decision(durable, decision["mode"], decision["reason"])
    return Decision(about, decision["mode"] == "finish", decision["reason"])


async def _asked(durable: Durable, state: PlanningState, talk: Talk, about: Sequence[StepResult]) -> JSONObject:
    """The decision; a revision that has problems, or is what just failed, is sent back once."""
    error = await attempt(durable, talk, state.meter)
    if error:
        message = f"the replanner failed, the plan goes on: {error}"
        await tell(
            durable, events.Error(run_id=durable.run_id, phase="replan", message=message, kind="ReplannerFailed")
        )
    decision: JSONObject = talk.output if talk.ended == "answered" else {"mode": "continue", "reason": "no decision"}
    if decision["mode"] != "revise":
        return decision
    if _failed_before(state, decision, about):
        text = "That is what has just failed. Plan other calls or other steps, or finish."
        return await ask_again_about(durable, state, talk, {**decision, "problems": [text]})
    return await ask_again_about(durable, state, talk, decision)


async def _read_again(durable: Durable, state: PlanningState, talk: Talk, decision: JSONObject) -> JSONObject:
    """The revision, set against the steps that have begun since it was asked for."""
    args = {**plan_request(state, state.revisions + 1), "text": talk.text}
    durable.start("read-revision", args, key=f"{talk.key}read")
    outcome = (await durable.next()).outcome
    found: JSONObject = outcome.value if isinstance(outcome, Completed) else decision
    return found if found["mode"] == "revise" and found["plan"]["steps"] else decision


async def _revise(
    durable: Durable, state: PlanningState, talk: Talk, decision: JSONObject, about: Sequence[StepResult]
) -> Decision:
    plan = _without_failed_calls(msgspec.convert(decision["plan"], Plan), state.trace)
    decision = {**decision, "plan": plan_json(plan)}
    cap, refused = state.meter.limits.max_revisions, ""
    if state.revisions >= cap:
        await tell(durable, events.RevisionsExceeded(run_id=durable.run_id, cap=cap))
        refused = f"the plan was revised {cap} times"
    elif not plan.steps:
        refused = "the revised plan has no steps"
    elif _failed_before(state, decision, about):
        refused = "the revised plan was no different"
    else:
        accepted, granted = await _accepted(durable, state, decision)
        if isinstance(accepted, Reject):
            refused = f"the revised plan was rejected{': ' if accepted.reason else ''}{accepted.reason}"
        else:
            decision = {**decision, **accepted}
            await _adopt_revision(durable, state, decision, about, granted=granted)
    if refused:
        await tell_decision(durable, "finish", refused)
    return Decision(about, bool(refused), refused or decision["reason"])


async def _adopt_revision(
    durable: Durable, state: PlanningState, decision: JSONObject, about: Sequence[StepResult], *, granted: bool
) -> None:
    state.revisions += 1
    await tell_decision(durable, "revise", decision["reason"])
    for result in about:
        state.unsettled.pop(result.step.id, None)
    await adopt(durable, state, decision, granted=granted)
    event = events.PlanRevised(
        run_id=durable.run_id,
        plan=decision["plan"],
        reason=decision["reason"],
        findings=state.findings,
        price=state.price,
    )
    await tell(durable, event)


async def _accepted(durable: Durable, state: PlanningState, decision: JSONObject) -> tuple[JSONObject | Reject, bool]:
    """The revision, put before people where it asks for more than they have accepted, and whether they were asked."""
    if state.task["review"] == "never" or state.task["dry_run"]:
        return decision, False
    shown: list[JSONObject] = []
    asked = False
    while more := [call for call in _outside(state, decision) if call not in shown]:
        shown += more  # what was permitted may be used up while people think
        accepted = await reviewed(durable, state, decision, outside=shown, reason=decision["reason"])
        if isinstance(accepted, Reject):
            return accepted, True
        decision, asked = {**decision, **accepted}, True
    return decision, asked


def _outside(state: PlanningState, decision: JSONObject) -> list[JSONObject]:
    """The calls of a revision that people have not accepted."""
    plan, facts = msgspec.convert(decision["plan"], Plan), {**state.tools, **decision.get("tools", {})}
    return outside(plan, state.grant or Grant(), facts, state.used)


def _without_failed_calls(plan: Plan, trace: Sequence[StepResult]) -> Plan:
    """The plan without the calls that failed already: they would fail again."""
    failed = {same_call(use.tool, use.arguments) for result in trace for use in result.calls if not use.ok}
    kept = [s for s in plan.steps if not s.call or same_call(s.call.tool, s.call.arguments) not in failed]
    return msgspec.structs.replace(plan, steps=tuple(kept))


def _failed_before(state: PlanningState, decision: JSONObject, about: Sequence[StepResult]) -> bool:
    """Whether a revision is the failed steps and the rest of the plan again, but for ids: it would fail as before."""
    new = msgspec.convert(decision["plan"], Plan).steps
    return bool(new) and list(map(_work, new)) == list(map(_work, [*(r.step for r in about), *state.remaining]))


def _work(step: Step) -> JSON:
    if step.call:
        return plan_json(step)["call"]
    return [step.description.strip().casefold(), step.compute, *step.suggested_tools]
