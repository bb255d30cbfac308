"""What is known of a run that is resumed: the fold over its records.

The program is given the completions of `order` again, in that order. A *cut* ends the order early: either because the
run failed, and its last failures are to be tried again, or because a record was lost. What was recorded after the cut
keeps its outcome by key (`known`), so that nothing runs twice; only `void` keys are forgotten. `told` is how many
events count as emitted.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec import Struct, convert, to_builtins

from replan.durable import Cancelled, Completed, Failed, InDoubt, Outcome
from replan.encoding import JSON, JSONObject

from .records import InboxItem, Record

__all__ = [
    "EXPECT",
    "SLEEP",
    "CompletionRow",
    "Cut",
    "History",
    "completion_row",
    "fold",
    "outcome_of",
    "retract_failures",
]

EXPECT = "@expect:"
"""The steps of inbox items are this and the item's name."""

SLEEP = "@sleep"
"""The step of timers."""

CompletionRow: TypeAlias = tuple[str, str, JSONObject, float]
"""Key, step, outcome as JSON (`kind` and, after it, `value`, `error` or `args`) and time of a completion."""


class Cut(Struct, frozen=True, kw_only=True):
    """Keep the first `keep` completions and `told` events; forget `void` keys

    `torn` is the last position of lost records. `blind`: notes of writes that were about to begin may be among them.
    """

    keep: int
    told: int
    void: list[str] = []
    torn: int = 0
    blind: bool = True

    def record(self, at: float) -> Record:
        """The cut as it is journalled."""
        return Record("cut", body=to_builtins(self), at=at)


@dataclass(slots=True)
class History:
    """A run's past. `handed` holds, for each event that counts, how many completions the program had by then.

    `blind`: a step without any record may have begun all the same. `doubted` are the keys that came to be in doubt
    since then.
    """

    order: deque[Record] = field(default_factory=deque[Record])
    known: dict[str, Record] = field(default_factory=dict[str, Record])
    intents: dict[str, Record] = field(default_factory=dict[str, Record])
    timers: dict[str, float] = field(default_factory=dict[str, float])
    items: dict[str, Record] = field(default_factory=dict[str, Record])
    answers: dict[str, JSON] = field(default_factory=dict[str, Any])
    stops: tuple[str, ...] = ()
    handed: list[int] = field(default_factory=list[int])
    was_cut: bool = False
    blind: bool = False
    doubted: set[str] = field(default_factory=set[str])

    def add(self, record: Record) -> None:
        """Take one more record into account."""
        match record.kind:
            case "event":
                self.handed.append(record.handed)
            case "intent":
                self.intents[record.key] = record
            case "timer":
                self.timers[record.key] = record.body
            case "item":
                self.items[record.key] = record
            case "stop":
                self.stops += (record.key,)
            case "cut":
                self.cut(convert(record.body, Cut))
            case _:
                if record.kind == "in-doubt":
                    self.doubted.add(record.key)
                self.known.pop(record.key, None)
                self.order.append(record)

    def item(self, run_id: str, key: str) -> InboxItem:
        """The inbox item that was opened under that key."""
        record = self.items[key]
        name = record.step.removeprefix(EXPECT)
        return InboxItem(run_id=run_id, key=key, name=name, **record.body)

    def cut(self, cut: Cut) -> None:
        """End the order of completions early."""
        self.was_cut = True
        if cut.torn and cut.blind:
            self.blind = True
            self.doubted.clear()
        while len(self.order) > cut.keep:
            record = self.order.pop()
            self.known[record.key] = record
        for key in cut.void:
            self.known.pop(key, None)
        del self.handed[cut.told :]


def fold(records: Iterable[Record]) -> History:
    """The state that the records amount to."""
    history = History()
    for record in records:
        history.add(record)
    return history


def retract_failures(history: History, handed: int) -> Cut | None:
    """The cut that lets a failed run try its last failures again, or None where it did not end in failures.

    Looks at the `handed` completions that the program was given. A failed step that must not run twice keeps its
    outcome; a cancelled one becomes in doubt.
    """
    seen = list(history.order)[:handed]
    last = max((i for i, record in enumerate(seen) if record.kind == "completed"), default=-1)
    void = [i for i in range(last + 1, len(seen)) if _may_retry(seen[i], history)]
    if not any(seen[i].kind == "failed" for i in void):
        return None
    told = sum(1 for count in history.handed if count <= void[0])
    return Cut(keep=void[0], told=told, void=[seen[i].key for i in void])


def _may_retry(record: Record, history: History) -> bool:
    return record.kind == "cancelled" or (record.kind == "failed" and record.key not in history.intents)


def outcome_of(record: Record) -> Outcome:
    """The outcome that a completion record stands for."""
    match record.kind:
        case "completed":
            return Completed(record.body)
        case "failed":
            return Failed(record.body)
        case "in-doubt":
            return InDoubt(record.body)
        case _:
            return Cancelled()


def completion_row(record: Record) -> CompletionRow:
    """A completion record for people and tools that look at a run."""
    field = {"completed": "value", "failed": "error", "in-doubt": "args"}.get(record.kind)
    detail = {} if field is None else {field: record.body}
    return record.key, record.step, {"kind": record.kind, **detail}, record.at
