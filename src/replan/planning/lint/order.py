"""The order of steps: what needs what, without circles, each behind what it needs, and no more than allowed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile

from msgspec import structs

from replan.planning.plan import Step
from replan.planning.references import references
from replan.planning.schedule import dependencies, in_order

from .report import Context, KnownTool, Report, kind_of, may_write, waits_for_results

__all__ = ["break_circles", "cut", "leave_out", "order", "referenced", "tidy_needs", "wait_for_results"]


def referenced(step: Step) -> Iterator[str]:
    """The ids of the steps whose results a step uses, itself left out."""
    arguments = step.call.arguments if step.call else None
    found = references([step.description, arguments, step.compute, step.check])
    return (ident for ident in found if ident != step.id)


def _stated(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """What each step says that it needs, of these steps."""
    return dependencies([structs.replace(step, depends_on=step.depends_on or ()) for step in steps])


def tidy_needs(steps: Sequence[Step], context: Context, report: Report) -> list[Step]:
    """The steps without needs of themselves and of steps that do not exist."""
    ids = {*context.earlier, *(step.id for step in steps)}
    tidied: list[Step] = []
    for step in steps:
        needs = step.depends_on or ()
        kept = tuple(ident for ident in dict.fromkeys(needs) if ident in ids and ident != step.id)
        if step.id in needs:
            report.mended(step.id, "depends-on", f"step {step.id!r} depended on itself; that was dropped")
        if unknown := [ident for ident in needs if ident not in ids]:
            text = f"step {step.id!r} depends on steps that are not there: {', '.join(map(repr, unknown))}; dropped"
            report.mended(step.id, "depends-on", text)
        tidied.append(step if kept == needs else structs.replace(step, depends_on=kept or None))
    return tidied


def break_circles(steps: Sequence[Step], report: Report) -> tuple[list[Step], dict[str, set[str]]]:
    """The steps without circles of what they say they depend on, and for each step the references that still close one.

    What goes is what points to a later step.
    """
    position = {step.id: number for number, step in enumerate(steps)}
    stated = _stated(steps)
    kept = [_without_circle(step, position, stated, report) for step in steps]
    stated = _stated(kept)
    closing: dict[str, set[str]] = {}
    for step in kept:
        later = [i for i in dict.fromkeys(referenced(step)) if position.get(i, -1) > position[step.id]]
        if found := {ident for ident in later if _reaches(stated, ident, step.id)}:
            closing[step.id] = found
            wrong = f"step {step.id!r} uses the result of {', '.join(sorted(map(repr, found)))}, which needs it itself"
            report.problem(step.id, "cycle", wrong, "a model fills it in")
    return kept, closing


def _without_circle(
    step: Step, position: Mapping[str, int], stated: Mapping[str, Collection[str]], report: Report
) -> Step:
    later = [ident for ident in step.depends_on or () if position.get(ident, -1) > position[step.id]]
    circular = [ident for ident in later if _reaches(stated, ident, step.id)]
    if not circular:
        return step
    wrong = f"step {step.id!r} and {', '.join(map(repr, circular))} wait for each other"
    report.problem(step.id, "cycle", wrong, f"{step.id!r} goes first")
    kept = tuple(ident for ident in step.depends_on or () if ident not in circular)
    return structs.replace(step, depends_on=kept or None)


def _reaches(needs: Mapping[str, Collection[str]], start: str, end: str) -> bool:
    """Whether a step needs another, directly or by others."""
    seen, waiting = set[str](), list(needs.get(start, ()))
    while waiting:
        if (ident := waiting.pop()) == end:
            return True
        if ident not in seen:
            seen.add(ident)
            waiting += needs.get(ident, ())
    return False


def order(steps: Sequence[Step], tools: Mapping[str, KnownTool], report: Report) -> list[Step]:
    """The steps, without circles, each behind those that it needs; what waits for results behind the look-ups."""
    by_id, needs = {step.id: step for step in steps}, _stated(steps)
    position = {step.id: number for number, step in enumerate(steps)}
    for step in steps:
        if later := [ident for ident in needs[step.id] if position[ident] > position[step.id]]:
            text = f"step {step.id!r} needs {', '.join(map(repr, later))} and was moved behind"
            report.mended(step.id, "order", text)
    ordered = [by_id[ident] for ident in in_order(needs)]
    waiting = list(takewhile(lambda step: _unfounded(step, tools), ordered))
    reading = takewhile(lambda step: not may_write(step, tools) or step.call is None, ordered[len(waiting) :])
    giving = [n for n, step in enumerate(reading, len(waiting)) if step.call and kind_of(step, tools) == "direct"]
    if not waiting or not giving:
        return ordered
    front, behind = ordered[len(waiting) : giving[-1] + 1], ordered[giving[-1] + 1 :]
    ids = {step.id for step in waiting}
    if any(not ids.isdisjoint(needs[step.id]) for step in front):
        return ordered
    report.mended(waiting[0].id, "order", f"step {waiting[0].id!r} needs results and was moved behind the look-ups")
    return [*front, *waiting, *behind]


def _unfounded(step: Step, tools: Mapping[str, KnownTool]) -> bool:
    """Whether nothing is known yet of what a step waits for, and it does not say from where it comes."""
    given = [value for value in ((step.call.arguments if step.call else None) or {}).values() if value is not None]
    return waits_for_results(step, tools) and not given and not step.depends_on and not any(referenced(step))


def wait_for_results(
    steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context, report: Report
) -> list[Step]:
    """The steps, where what is filled in from results waits for all results that nothing else uses.

    A step that says itself what it depends on is believed, but for one that writes.
    """
    found = list(steps)
    for number, step in enumerate(found):
        writes = may_write(step, tools)
        if not waits_for_results(step, tools) or (step.depends_on is not None and not writes):
            continue
        needs = dependencies(found, context.earlier)
        used = {ident for others in needs.values() for ident in others}
        unused = [other.id for other in found[:number] if other.id not in used and _gives(other, tools, writes)]
        if not unused:
            continue
        stated = [ident for ident in needs[step.id] if ident not in set(referenced(step))]
        before = [
            other.id for other in found[:number] if writes and step.depends_on is None and may_write(other, tools)
        ]
        found[number] = structs.replace(step, depends_on=tuple(dict.fromkeys([*stated, *before, *unused])))
        text = f"step {step.id!r} is filled in from results, and now waits for {', '.join(map(repr, unused))}"
        report.mended(step.id, "order", text)
        if writes and step.depends_on is None:
            found[number + 1 :] = [_after(later, step.id, tools) for later in found[number + 1 :]]
    return found


def _gives(step: Step, tools: Mapping[str, KnownTool], to_write: bool) -> bool:
    """Whether a step's result may be what is to be filled in: for what is written any but that of another write."""
    if to_write:
        return step.call is None or not may_write(step, tools)
    return kind_of(step, tools) in ("direct", "compute") and not may_write(step, tools)


def _after(step: Step, ident: str, tools: Mapping[str, KnownTool]) -> Step:
    """A later step that writes, kept in its order behind one that did not say what it depends on, and now does."""
    if step.depends_on is None or ident in step.depends_on or not may_write(step, tools):
        return step
    return structs.replace(step, depends_on=(*step.depends_on, ident))


def cut(
    steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context, report: Report
) -> tuple[list[Step], set[str]]:
    """As many steps as are allowed, and the ids of those that are lost."""
    if len(steps) <= context.max_steps:
        return list(steps), set()
    lost = steps[context.max_steps :]
    wrong = f"the plan has {len(steps)} steps, and at most {context.max_steps} are allowed"
    done = f"left out: {', '.join(repr(step.id) for step in lost)}"
    if any(may_write(step, tools) for step in lost):
        report.problem(None, "cut", wrong, done)
    else:
        report.mended(None, "cut", f"{wrong}; {done}")
    return list(steps[: context.max_steps]), {step.id for step in lost}


def leave_out(steps: Sequence[Step], kept: Sequence[Step]) -> list[Step]:
    """The kept ones of some steps; what depended on another depends on what that depended on."""
    ids = {step.id for step in kept}
    needs = dependencies(steps)

    def instead(ident: str, seen: frozenset[str]) -> list[str]:
        if ident in ids or ident not in needs:
            return [ident]
        return [i for other in needs[ident] if other not in seen for i in instead(other, seen | {other})]

    def follow(step: Step) -> Step:
        if not step.depends_on or ids.issuperset(step.depends_on):
            return step
        found = dict.fromkeys(i for ident in step.depends_on for i in instead(ident, frozenset({ident})))
        return structs.replace(step, depends_on=tuple(i for i in found if i != step.id) or None)

    return [follow(step) for step in kept]
