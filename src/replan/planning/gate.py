"""What is decided on each call of a plan before it is made: an accepted plan permits its own, a dry run no write."""

from collections.abc import Iterable
from functools import partial

from replan.calls import Ask, Call, Gate, Instead
from replan.encoding import encode

from .grant import Grant, covers, difference, with_values
from .state import PlanningState

__all__ = ["gate_of", "give_back"]


def gate_of(state: PlanningState) -> Gate | None:
    """The gate for the calls of a run; None where everything may pass."""
    if state.task["dry_run"]:
        return partial(_describe, state)
    return partial(_permit, state) if state.task["review"] != "never" else None


def give_back(state: PlanningState, calls: Iterable[Call]) -> None:
    """Let what calls were permitted be used again, where they are known to have failed."""
    for call in calls:
        if call.permit and not call.ok and not call.in_doubt and not (call.result or {}).get("outcome_unknown"):
            state.used.remove(call.permit)
            call.permit = None


def _describe(state: PlanningState, step_id: str | None, call: Call) -> Instead | None:
    if not call.writes:
        return None
    state.effects.append({"step": step_id, "tool": call.tool, "arguments": call.arguments})
    if step_id:
        state.described.add(step_id)
    return Instead(f"Not made, this is a dry run. Planned: {call.tool}({encode(call.arguments).decode()}).")


def _permit(state: PlanningState, step_id: str | None, call: Call) -> Ask | None:
    if not call.writes:
        return None
    grant = with_values(state.grant or Grant(), state.outputs)
    if key := covers(grant, call.tool, call.arguments, state.used, step=step_id):
        if any(entry.key == key and entry.once for entry in grant.entries):
            state.used.append(key)
            call.permit = key
        return None
    why = difference(grant, call.tool, call.arguments)
    return Ask({"step": step_id, "tool": call.tool, "arguments": call.arguments, "difference": why})
