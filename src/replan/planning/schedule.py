"""Which steps of a plan wait for which, and which may start."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from .plan import Step
from .references import references

__all__ = ["Schedule", "dependencies", "in_order", "states_needs"]


def dependencies(steps: Sequence[Step], others: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """For each step the ids of those whose results it waits for.

    A step that says nothing depends on the one before it; one that has references or `depends_on`, on exactly these.
    Ids that are neither of these steps nor of the `others` (steps of the run that were planned before) are left out.
    """
    known = {*others, *(step.id for step in steps)}
    found: dict[str, tuple[str, ...]] = {}
    before: tuple[str, ...] = ()
    for step in steps:
        stated = [*(step.depends_on or ()), *_referenced(step)]
        if step.depends_on is None and not any(ident in known for ident in stated):
            found[step.id] = before
        else:
            found[step.id] = tuple(ident for ident in dict.fromkeys(stated) if ident in known and ident != step.id)
        before = (step.id,)
    return found


def states_needs(step: Step) -> bool:
    """Whether a step says what it needs, by `depends_on` or by references."""
    return step.depends_on is not None or next(_referenced(step), None) is not None


def _referenced(step: Step) -> Iterator[str]:
    for value in (step.description, step.call and step.call.arguments, step.compute, step.check):
        yield from references(value)


def in_order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """The ids so that each comes after those that it needs, as near to the given order as can be.

    Ids on a cycle, and what needs them, are left out.
    """
    position = {ident: number for number, ident in enumerate(needs)}
    waiting = {ident: sum(other in position for other in others) for ident, others in needs.items()}
    dependents = _reversed(needs)
    ready = [position[ident] for ident, count in waiting.items() if not count]
    names, ordered = list(needs), list[str]()
    while ready:
        ident = names[heapq.heappop(ready)]
        ordered.append(ident)
        for other in dependents.get(ident, ()):
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, position[other])
    return ordered


def _reversed(needs: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    dependents: dict[str, list[str]] = {}
    for ident, others in needs.items():
        for other in others:
            dependents.setdefault(other, []).append(ident)
    return dependents


class Schedule:
    """The steps of a plan that have not been started, and what they wait for.

    `finished` are ids of steps that have ended, `running` are steps that have not: new ones may need them. `writes`
    says of a step whether it may change something. Steps that do keep the plan's order among themselves, unless both
    state what they depend on. Starting and finishing a step costs the number of its dependents, whatever the size of
    the plan.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        finished: Collection[str] = (),
        running: Sequence[Step] = (),
        writes: Callable[[Step], bool],
    ) -> None:
        open_ids = [step.id for step in running]
        self._steps = {step.id: step for step in steps}
        self._names = list(self._steps)
        self._position = {ident: number for number, ident in enumerate(self._names)}
        self.needs = dependencies(steps, {*finished, *open_ids})
        self._writes = {step.id for step in steps if writes(step)}
        waits = {ident: set(needs).difference(finished) for ident, needs in self.needs.items()}
        ordered = in_order({**dict[str, Collection[str]].fromkeys(open_ids, ()), **self.needs})
        by_id = {**self._steps, **{step.id: step for step in running}}
        writing = self._writes | {step.id for step in running if writes(step)}
        _keep_order([by_id[ident] for ident in ordered if ident in writing], waits)
        self._count = {ident: len(others) for ident, others in waits.items()}
        self._dependents = _reversed(waits)
        self._ready: dict[bool, list[int]] = {False: [], True: []}
        for ident, count in self._count.items():
            if not count:
                self._offer(ident)

    def start_next(self, *, hold_writes: bool = False) -> Step | None:
        """The first step that may start, taken out; with `hold_writes` none that may change something."""
        heaps = [heap for writes, heap in self._ready.items() if heap and not (writes and hold_writes)]
        if not heaps:
            return None
        ident = self._names[heapq.heappop(min(heaps, key=lambda heap: heap[0]))]
        return self._steps.pop(ident)

    def finish(self, ident: str) -> None:
        """Take it that a step has ended; those that waited for it last may start."""
        for other in self._dependents.pop(ident, ()):
            self._count[other] -= 1
            if not self._count[other]:
                self._offer(other)

    @property
    def remaining(self) -> list[Step]:
        """The steps that have not been started, in the plan's order."""
        return list(self._steps.values())

    def __bool__(self) -> bool:
        return bool(self._steps)

    def _offer(self, ident: str) -> None:
        if ident in self._position:
            heapq.heappush(self._ready[ident in self._writes], self._position[ident])


def _keep_order(writing: Sequence[Step], waits: dict[str, set[str]]) -> None:
    """Let each step that writes wait for those before it, but for pairs that both state what they depend on.

    It waits for the last that states nothing; one that states nothing also waits for all since that one.
    """
    silent: str | None = None
    stated: list[str] = []
    for step in writing:
        before = [silent] if silent else []
        if step.depends_on is None:
            before += stated
            silent, stated = step.id, []
        else:
            stated.append(step.id)
        if step.id in waits:
            waits[step.id].update(before)
