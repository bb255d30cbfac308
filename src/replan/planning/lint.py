"""What can be mended in a plan without a model."""

from collections.abc import Collection, Sequence
from itertools import takewhile

from replan.tool import ToolInfo

from .plan import PlannedCall, Step, free_id

__all__ = ["mend"]


def mend(
    steps: Sequence[Step], uses: Collection[str], tools: Sequence[ToolInfo], taken: Collection[str], max_steps: int
) -> tuple[list[Step], list[str]]:
    """The steps, mended, and what was done, one remark each.

    Left out are steps that ask for the very call of an earlier one, with nothing between them that may change what it
    gives. Added is a call of each tool that writes, that the
    planner said it would use (`uses`), and that no step calls: a plan that only looks things up would leave the goal
    undone.
    """
    reads = {info.name for info in tools if info.read_only}
    kept: list[Step] = []
    fresh: list[Step] = []
    remarks: list[str] = []
    for step in steps:
        if any(_repeats(step, other) for other in fresh):
            remarks.append(f"step {step.id!r} repeated an earlier one and was left out")
            continue
        kept.append(step)
        fresh = [*fresh, step] if step.call and step.call.tool in reads else [step]
    kept = _look_up_first(kept, remarks)
    named = {step.call.tool for step in kept if step.call} | {name for step in kept for name in step.suggested_tools}
    if all(step.call for step in kept):
        for info in tools:
            if len(kept) < max_steps and info.name in uses and info.name not in named and not info.read_only:
                ident = free_id(len(kept) + 1, {*taken, *(step.id for step in kept)})
                kept.append(
                    Step(id=ident, description=f"Call {info.name}, as the goal asks", call=PlannedCall(info.name))
                )
                remarks.append(f"the plan uses {info.name!r} without a step for it; step {ident!r} was added")
    return kept, remarks


def _look_up_first(steps: list[Step], remarks: list[str]) -> list[Step]:
    """Calls at the start that wait for results, moved behind the calls that give some."""
    waiting = list(takewhile(_waits, steps))
    direct = [number for number, step in enumerate(steps) if step.call and not _waits(step)]
    if not waiting or not direct:
        return steps
    remarks.append(f"step {waiting[0].id!r} needs results and was moved behind the look-ups")
    return [*steps[len(waiting) : direct[-1] + 1], *waiting, *steps[direct[-1] + 1 :]]


def _waits(step: Step) -> bool:
    """Whether a step is a call of which no argument is known yet."""
    if step.call is None:
        return False
    arguments = step.call.arguments
    return arguments is None or (bool(arguments) and all(value is None for value in arguments.values()))


def _repeats(step: Step, other: Step) -> bool:
    """Whether a step asks for the call of another one; where arguments are open, in the same words."""
    if step.call is None or step.call != other.call:
        return False
    arguments = step.call.arguments
    return step.description == other.description or bool(arguments and None not in arguments.values())
