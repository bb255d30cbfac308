"""What a resumed run is told about the keys that it starts again."""

from collections.abc import Container

from replan.durable import InDoubt, Outcome
from replan.encoding import JSON
from replan.errors import JournalError

from .history import History, outcome_of
from .records import InboxItem, Record

__all__ = ["Replay"]


class Replay:
    """A run's past, asked by key. `digest` stands for the arguments of a step."""

    def __init__(self, run_id: str, history: History) -> None:
        self._run_id, self._history = run_id, history
        self._recorded = {record.key: record for record in history.order}

    @property
    def pending(self) -> bool:
        """Whether recorded completions are still to be given out."""
        return bool(self._history.order)

    def recorded(self, key: str, step: str, digest: object) -> bool:
        """Whether the end of this step is recorded.

        Raises `JournalError` where it was another step, or had other arguments.
        """
        record = self._recorded.get(key)
        if record is None and not self._history.was_cut:
            self._compare(self._history.intents.get(key), key, step, digest)
        else:
            self._compare(record, key, step, digest)
        return record is not None

    def _compare(self, record: Record | None, key: str, step: str, digest: object) -> None:
        if record is not None and (record.step, record.digest) != (step, digest):
            what = f"step {record.step!r}, not {step!r}" if record.step != step else "other arguments"
            raise self._misfit(f"key {key!r} is recorded with {what}")

    def take(self, started: Container[str]) -> Record:
        """The next recorded completion. Raises `JournalError` where the program has not started its step."""
        record = self._history.order[0]
        if record.key not in started:
            raise self._misfit(f"the next recorded completion is that of key {record.key!r}, which was not started")
        return self._history.order.popleft()

    def settle(self, key: str, step: str, digest: object, once: list[JSON] | None = None) -> Outcome | None:
        """The outcome of a step that must not run again, although its completion is not in the recorded order.

        `once` holds the arguments of one that must not run twice.
        """
        known = self._history.known.get(key)
        if known is not None and (known.step, known.digest) == (step, digest):
            return outcome_of(known)
        intent = self._history.intents.get(key)
        if intent is not None:
            return InDoubt(intent.body)
        if once is None or not self._history.blind or self._was_asked(key):
            return None
        self._history.doubted.add(key)
        return InDoubt(once[0])

    def _was_asked(self, key: str) -> bool:
        """Whether this is another attempt, after the loss, at what was in doubt: its key extends the first one's."""
        parts = key.split("/")
        return any("/".join(parts[:n]) in self._history.doubted for n in range(1, len(parts)))

    def due(self, key: str) -> float | None:
        """When the timer of that key was to end."""
        return self._history.timers.get(key)

    def item(self, key: str) -> InboxItem | None:
        """The inbox item of that key, if it was opened before."""
        return self._history.item(self._run_id, key) if key in self._history.items else None

    def answers(self) -> dict[str, JSON]:
        """What people answered so far, by key."""
        return self._history.answers

    def _misfit(self, what: str) -> JournalError:
        return JournalError(
            f"the journal of run {self._run_id!r} does not fit this program: {what}; "
            "resume it with the program, options and version that it was started with"
        )
