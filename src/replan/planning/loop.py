"""The planning loop: plan, execute what is ready, replan where a step did not work, and answer.

`run` is the whole algorithm. Like the tool loop it does nothing itself: every model and tool call is an effect behind
`Durable`. Steps that may run at the same time are strands; they go on in the journalled order of completions.
"""

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec

from replan import events
from replan.calls import tell
from replan.durable import Completed, Durable
from replan.encoding import JSONObject
from replan.errors import RunFailed
from replan.limits import Excess
from replan.loop import Talk, converse, tell_excess
from replan.settings import Limits

from .drafting import draft, schedule
from .followup import follow_up
from .plan import Plan, Step
from .plan import to_json as plan_json
from .replanning import Decision, replan, tell_decision
from .state import PlanningState
from .steps import run_step
from .strands import Strands
from .synthesizer import synthesizer_prompt, with_substitutes
from .trace import StepResult

__all__ = ["TASK", "run"]

TASK: JSONObject = {
    "replan_after": "failure",
    "tool_selection": "all",
    "step_kinds": ["bound", "direct", "open"],
    "max_parallel_steps": 8,
    "review": "never",
    "checks": [],
    "with_cost": False,
    "plan": None,
    "only_plan": False,
    "dry_run": False,
    "attachments": [],
}
"""What a planning run is told besides its goal: `plan` is one that is given, `only_plan` leaves it at the plan."""


async def run(durable: Durable, task: JSONObject, state: PlanningState) -> None:
    """The planning agent's program.

    `task` holds `agent`, `goal`, `history` and `limits`, and what is not as in `TASK`.
    """
    state.task = task = {**TASK, **task}
    state.meter.limits = Limits(**task["limits"])
    await tell(durable, events.RunStart(run_id=durable.run_id, goal=state.goal, agent=task["agent"]))
    await draft(durable, state)
    if state.status == "running" and task["only_plan"]:
        state.status = "complete"
    elif state.status == "running":
        await _Execution(durable, state).run()
        await _answer(durable, state)
    await tell(durable, events.Final(run_id=durable.run_id, text=state.text, output=state.output))


@dataclass(frozen=True, slots=True)
class _Ended:
    """A step has ended; `wanted` says that the replanner is to be asked about it."""

    result: StepResult
    wanted: bool


_Outcome: TypeAlias = _Ended | Decision


class _Execution:
    """The steps of a plan being run.

    About steps that are `unsettled` the replanner has not spoken: what waits for them waits on, and nothing is begun
    that may change something, as the revision may plan it again. What only reads goes on meanwhile.
    """

    def __init__(self, durable: Durable, state: PlanningState) -> None:
        self._durable, self._state = durable, state
        self._strands: Strands[_Outcome] = Strands(durable)
        self._asking = False

    async def run(self) -> None:
        """Run steps until nothing is left that may run."""
        self._state.phase = "execute"
        try:
            await self._start_ready()
            while self._strands or await self._follow_up():
                match await self._strands.next():
                    case _Ended(result, wanted):
                        await self._take_result(result, wanted=wanted)
                    case Decision() as decision:
                        self._take_decision(decision)
                await self._start_ready()
        finally:
            self._strands.close()

    async def _follow_up(self) -> bool:
        """Go on with a link of a chain that a short plan forgot."""
        state = self._state
        if not state.assisted or state.schedule or state.finished is not None:
            return False
        step = follow_up(state.goal, state.trace, state.tools, state.taken)
        if step is None or await _limit_reached(self._durable, state):
            return False
        assert state.plan is not None
        state.plan = msgspec.structs.replace(state.plan, steps=(*state.plan.steps, step))
        added = plan_json(Plan(steps=(step,), revision=state.plan.revision))
        reason = "the goal asks for what a result only names"
        await tell(self._durable, events.PlanRevised(run_id=self._durable.run_id, plan=added, reason=reason))
        schedule(state, [step])
        await self._start_ready()
        return bool(self._strands)

    async def _start_ready(self) -> None:
        state = self._state
        assert state.schedule is not None
        await self._ask_replanner()
        hold = bool(state.unsettled)
        while state.finished is None and len(state.running) < state.task["max_parallel_steps"] and state.schedule:
            if await _limit_reached(self._durable, state):
                return
            if (step := state.schedule.start_next(hold_writes=hold)) is None:
                return
            state.running[step.id] = step
            state.iterations += 1
            await self._strands.start(partial(self._run_step, step, state.iterations - 1))

    async def _run_step(self, step: Step, index: int, durable: Durable) -> _Ended:
        result = await run_step(durable, self._state, step, index)
        return _Ended(result, await _wants_replanner(durable, self._state, result))

    async def _take_result(self, result: StepResult, *, wanted: bool) -> None:
        state, ident = self._state, result.step.id
        assert state.schedule is not None
        del state.running[ident]
        state.trace.append(result)
        state.outputs[ident], state.labels[ident] = result.outputs, result.label
        if result.fruitless:
            state.fruitless.add(ident)
        if not state.schedule and not state.running and not self._asking:
            await tell_decision(self._durable, "finish", "the plan is done", "last-step")
        elif wanted and state.finished is None:
            state.unsettled[ident] = result
            return
        else:
            failed = f"it waits for step {result.needs!r}, which failed" if result.needs else "nobody is asked about it"
            reason = "the step worked" if result.ok else failed
            await tell_decision(self._durable, "continue", reason, "clean-step")
        state.schedule.finish(ident)

    async def _ask_replanner(self) -> None:
        """Ask about all steps that are unsettled, one question at a time."""
        state = self._state
        if self._asking or not state.unsettled or state.finished is not None:
            return
        if await _limit_reached(self._durable, state):
            return
        self._asking = True
        await self._strands.start(partial(replan, state=state, about=list(state.unsettled.values())))

    def _take_decision(self, decision: Decision) -> None:
        """What the replanner said of some steps; a revision has put another schedule in place by now."""
        state = self._state
        assert state.schedule is not None
        self._asking = False
        for result in decision.about:
            state.unsettled.pop(result.step.id, None)
            state.schedule.finish(result.step.id)
        if decision.finish:
            state.finished = decision.reason or "the replanner saw no way on"


async def _limit_reached(durable: Durable, state: PlanningState) -> bool:
    meter = state.meter
    if state.iterations >= meter.limits.max_iterations:
        meter.reach(Excess("iterations", state.iterations, meter.limits.max_iterations))
    meter.out_of_tokens()
    await tell_excess(durable, meter)
    state.finished = state.finished or "; ".join(map(str, meter.reached)) or None
    return bool(meter.reached)


async def _wants_replanner(durable: Durable, state: PlanningState, result: StepResult) -> bool:
    match state.task["replan_after"]:
        case "always":
            return True
        case "function":
            durable.start("replan-after", result.to_json(), key=f"replan-after/{result.step.id}")
            outcome = (await durable.next()).outcome
            return bool(outcome.value) if isinstance(outcome, Completed) else not result.ok
        case _:
            return not result.ok and not result.needs


async def _answer(durable: Durable, state: PlanningState) -> None:
    state.phase = "synthesize"
    reason = state.finished or "not reached"
    not_done = [f"{step.description} ({reason})" for step in state.remaining]
    talk = Talk("synthesizer", "answer/")
    talk.say(state.asked(synthesizer_prompt(state.task, state.trace, not_done)))
    await converse(durable, talk, state.meter)
    state.text, state.output = talk.text, talk.output
    if talk.ended == "answered" and talk.output is None:
        state.text = with_substitutes(talk.text, state.trace, correct=state.assisted)
    if talk.ended == "invalid-output":
        raise RunFailed(f"the answer could not be used, repairs included: {talk.problem}")
    if talk.ended != "answered":
        state.status, state.stop_reason = "stopped", talk.ended
    elif state.meter.reached:
        state.status, state.stop_reason = "stopped", "limit"
    else:
        state.status = "complete"
