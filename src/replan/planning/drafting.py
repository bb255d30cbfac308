"""How a run comes by its plan: written by the planner or given, checked, and looked at by people."""

from collections.abc import Sequence

import msgspec

from replan import events
from replan.calls import tell
from replan.durable import Completed, Durable, Failed
from replan.encoding import JSON, JSONObject, encode
from replan.errors import ConfigError
from replan.loop import Talk, attempt
from replan.messages import to_json, user

from .grant import extended, grant_of
from .plan import Plan, Step, fallback_plan
from .plan import to_json as plan_json
from .planner import history_section, planner_prompt
from .review import Edit, Reject, ReviewAnswer, read_review, review_body, wants_review
from .schedule import Schedule
from .shapes import learn
from .state import PlanningState

__all__ = ["adopt", "ask_again_about", "draft", "plan_request", "reviewed", "schedule"]

MAX_REVIEWS = 10
"""How often a plan is put before people; after that nobody can want it any more."""


async def draft(durable: Durable, state: PlanningState) -> None:
    """Get a plan that may be run; where there is to be none, the run's status is no longer `running`."""
    talk = Talk("planner", "plan/", repairs=1, request=plan_request(state))
    output = await _given(durable, state) if state.task["plan"] is not None else await _written(durable, state, talk)
    for _ in range(MAX_REVIEWS):
        if output is None:
            return
        if not _review_wanted(state, output):
            await _adopt_first(durable, state, output)
            return
        answer = await reviewed(durable, state, output)
        if not isinstance(answer, Reject):
            await _adopt_first(durable, state, answer, granted=True)
            return
        if not answer.reason:
            break
        _note_rejection(state, talk, output, answer.reason)
        output = await _asked(durable, state, talk)
    state.status, state.stop_reason, state.text = "stopped", "plan-rejected", "The plan was not accepted."


def plan_request(state: PlanningState, revision: int = 0) -> JSONObject:
    """What a plan is read and checked with, beside the tools."""
    limits, meter = state.meter.limits, state.meter
    left = {
        "steps": (limits.max_iterations, state.iterations),
        "tool_calls": (limits.max_tool_calls, meter.tool_calls),
        "input_tokens": (limits.max_input_tokens, meter.usage.input_tokens),
        "output_tokens": (limits.max_output_tokens, meter.usage.output_tokens),
        "total_tokens": (limits.max_total_tokens, meter.usage.total_tokens),
    }
    return {
        "goal": state.goal,
        "max_steps": limits.max_plan_steps,
        "taken": list(state.taken),
        "revision": revision,
        "kinds": state.task["step_kinds"],
        "known": _known(state),
        "checks": state.task["checks"],
        "with_cost": state.task["with_cost"] or state.task["only_plan"] or state.task["review"] != "never",
        "conversation": len(history_section(state.task["history"])),
        "left": {name: max(0, cap - used) for name, (cap, used) in left.items() if cap is not None},
    }


def _known(state: PlanningState) -> JSONObject:
    """The steps that have been run or are running: what they called, whether that worked, and what it looks like."""
    ended: JSONObject = {
        result.step.id: {
            "call": plan_json(result.step).get("call"),
            "ok": not result.fruitless,
            "shape": None if result.fruitless else learn([result.outputs]),
        }
        for result in state.trace
    }
    running = {
        step.id: {"call": plan_json(step).get("call"), "ok": True, "shape": None} for step in state.running.values()
    }
    return ended | running


async def _written(durable: Durable, state: PlanningState, talk: Talk) -> JSONObject | None:
    talk.say(state.asked(planner_prompt(state.task)))
    return await _asked(durable, state, talk)


async def _asked(durable: Durable, state: PlanningState, talk: Talk) -> JSONObject | None:
    """The planner's plan, asked for again where it has problems; None where the planner refuses or is cancelled."""
    error = await attempt(durable, talk, state.meter)
    if talk.ended in ("refusal", "content-filter", "cancelled"):
        state.status, state.stop_reason, state.text = "stopped", talk.ended, talk.text
        return None
    if talk.ended == "answered":
        return await ask_again_about(durable, state, talk, talk.output)
    problem = error or talk.problem or f"the reply ended with {talk.ended!r}"
    message = f"no usable plan: {problem}"
    await tell(durable, events.Error(run_id=durable.run_id, phase="plan", message=message, kind="PlannerFailed"))
    return {"plan": plan_json(fallback_plan(state.goal)), "fallback": True}


async def ask_again_about(durable: Durable, state: PlanningState, talk: Talk, output: JSONObject) -> JSONObject:
    """The reply to a plan's problems, once; the plan itself, as it was mended, where that is no better."""
    if not output.get("problems") or state.meter.out_of_tokens():
        return output
    talk.go_on(to_json(user(_problems_text(output["problems"]))))
    await attempt(durable, talk, state.meter)
    better: JSON = talk.output if talk.ended == "answered" else None
    return output if better is None or better.get("plan", {}).get("steps") == [] else better


def _problems_text(problems: Sequence[str]) -> str:
    listed = "\n".join(f"- {problem}" for problem in problems)
    return f"The plan cannot be run as it is:\n{listed}\nReply with the whole corrected JSON."


async def _given(durable: Durable, state: PlanningState) -> JSONObject:
    """The plan that the caller gave, checked. Raises `ConfigError` where it cannot be run as it is."""
    output = await _read(durable, state, state.task["plan"], "plan/given", plan_request(state))
    changed = [f["text"] for f in output["findings"] if f["mended"] and f["kind"] in ("repeat", "cut", "added")]
    if problems := [*output["problems"], *changed]:
        raise ConfigError("the plan cannot be run: " + "; ".join(problems))
    return output


async def _read(durable: Durable, state: PlanningState, plan: JSON, key: str, request: JSONObject) -> JSONObject:
    durable.start("read-plan", {**request, "plan": plan}, key=key)
    match (await durable.next()).outcome:
        case Completed(output):
            return output
        case Failed(error):
            return {"plan": plan, "problems": [error["message"]], "findings": []}
        case _:
            return {"plan": plan, "problems": ["reading the plan was cancelled"], "findings": []}


def _note_rejection(state: PlanningState, talk: Talk, output: JSONObject, reason: str) -> None:
    plan = "" if talk.messages else f"A plan that was given:\n{encode(output['plan']).decode()}\n"
    first = () if talk.messages else (state.asked(planner_prompt(state.task)),)
    talk.go_on(
        *first, to_json(user(f"{plan}A person looked at the plan and rejected it: {reason}\nMake another plan."))
    )


def _review_wanted(state: PlanningState, output: JSONObject) -> bool:
    plan, narrowed = msgspec.convert(output["plan"], Plan), state.task["tool_selection"] == "plan-narrowed"
    facts, writes = output.get("tools", {}), output.get("writes", True)
    if state.task["only_plan"] or state.task["dry_run"]:
        return False
    return wants_review(state.task["review"], plan, facts, writes, narrowed=narrowed)


async def reviewed(
    durable: Durable, state: PlanningState, output: JSONObject, *, outside: Sequence[JSONObject] = (), reason: str = ""
) -> JSONObject | Reject:
    """The plan as people accept it, perhaps edited, or their rejection.

    An edited plan is checked as any other; where it has problems or was changed by that, it is put before them again.
    """
    for _ in range(MAX_REVIEWS):
        answer = await _ask_people(durable, state, output, outside, reason)
        if isinstance(answer, Reject):
            return answer
        if not isinstance(answer, Edit):
            return output
        request = plan_request(state, msgspec.convert(output["plan"], Plan).revision)
        edited = await _read(durable, state, answer.plan, f"review/{state.reviews}/read", request)
        mended = [finding["text"] for finding in edited.get("findings", []) if finding["mended"]]
        if not edited["problems"] and not mended:
            return edited
        if edited["problems"]:
            reason = "The edited plan cannot be run: " + "; ".join(edited["problems"])
            findings = [{"step": None, "kind": "problem", "text": text, "mended": False} for text in edited["problems"]]
            output = {**output, "findings": [*findings, *output.get("findings", [])]}
        else:
            reason, output = "The edited plan was changed so that it can be run: " + "; ".join(mended), edited
    return Reject()


async def _ask_people(
    durable: Durable, state: PlanningState, output: JSONObject, outside: Sequence[JSONObject], reason: str
) -> ReviewAnswer:
    state.reviews += 1
    body = review_body(
        state.goal,
        msgspec.convert(output["plan"], Plan),
        findings=output.get("findings", []),
        price=output.get("price"),
        outside=outside,
        reason=reason,
        origins=output.get("origins"),
    )
    key = f"review/{state.reviews}"
    durable.expect("plan-review", key=key, body=body)
    outcome = (await durable.next()).outcome
    return read_review(outcome.value) if isinstance(outcome, Completed) else Reject()


async def _adopt_first(durable: Durable, state: PlanningState, output: JSONObject, *, granted: bool = False) -> None:
    await adopt(durable, state, output, granted=granted)
    assert state.plan is not None
    event = events.PlanCreated(
        run_id=durable.run_id,
        plan=plan_json(state.plan),
        fallback=output.get("fallback", False),
        findings=state.findings,
        price=state.price,
    )
    await tell(durable, event)


async def adopt(durable: Durable, state: PlanningState, output: JSONObject, *, granted: bool = False) -> None:
    """Make a plan the one that is followed; `granted` says that people have accepted it."""
    state.plan = msgspec.convert(output["plan"], Plan)
    state.findings, state.price = output.get("findings", []), output.get("price", {})
    state.origins, state.any_writes = output.get("origins", {}), output.get("writes", state.any_writes)
    state.tools |= output.get("tools", {})
    state.assisted = output.get("assisted", False)
    for finding in state.findings:
        level = "info" if finding["kind"] in ("unchecked", "unused") else "warning"
        await tell(durable, events.Log(run_id=durable.run_id, level=level, message=finding["text"]))
    for text in state.price.get("exceeds", []):
        await tell(durable, events.Log(run_id=durable.run_id, level="warning", message=f"price: {text}"))
    if granted and state.grant:
        state.grant = extended(state.grant, state.plan, state.tools, state.used)
    elif granted:
        state.grant = grant_of(state.plan, state.tools)
    schedule(state, state.plan.steps)


def schedule(state: PlanningState, steps: Sequence[Step]) -> None:
    """Make these the steps that are still to be run."""
    waiting = [*state.running.values(), *(result.step for result in state.unsettled.values())]
    finished = [ident for ident in state.outputs if ident not in state.unsettled]
    state.schedule = Schedule(steps, finished=finished, running=waiting, writes=state.may_write)
    state.needs |= state.schedule.needs
    state.taken += [step.id for step in steps]
