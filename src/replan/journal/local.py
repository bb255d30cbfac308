"""The in-process engine: `Durable` over asyncio tasks, writing to the log of a memory or SQLite journal.

How a step goes: `start` makes a task (with `once`, after the intent is written), its end is journalled in finish
order, and `next` gives it out once it is written. A resumed run first gives out what is recorded, in the recorded
order; what was started and has no recorded end waits until then, and runs.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from replan.durable import Cancelled, Completed, Completion, Failed, Outcome, Step, StepContext, find_step
from replan.encoding import JSON, JSONObject, clean_text
from replan.errors import JournalError, ReplanError

from ._artifacts import ArtifactFolder
from ._ledger import Entry, Ledger, digest, failure, tell
from ._replay import Replay
from .history import EXPECT, SLEEP, History, outcome_of
from .records import STATUSES, InboxItem, Record, RunInfo, RunLog, RunStatus, Wiring, item_body

__all__ = ["LocalRun", "Paused"]

_log = logging.getLogger("replan")
_RETOLD = frozenset({"plan.created", "plan.revised"})


class Paused(Exception):
    """Nothing can go on until somebody answers: a signal for whoever drives the run, not an error.

    `items` are what it waits for. They are stored: finish the run as `paused`, have them answered from any process,
    resume it.
    """

    def __init__(self, items: list[InboxItem]) -> None:
        super().__init__(f"the run waits for {', '.join(repr(item.name) for item in items)}")
        self.items = items


class LocalRun:
    """One open run, as a journal's `create` and `open` make it.

    Drive it with `await program(run, run.info.input)`, then `finish` or `release` it. It belongs to the event loop in
    which it was made. Arguments and results are not copied: do not change them after they were given.
    """

    def __init__(self, info: RunInfo, log: RunLog, wiring: Wiring, history: History | None = None) -> None:
        self.run_id, self.info = info.run_id, info
        self._log, self._wiring = log, wiring
        self._ledger = Ledger(info, log, wiring.max_result_bytes)
        self._loop = asyncio.get_running_loop()
        self._past = None if history is None else Replay(info.run_id, history)
        self._replaying, self._closing = history is not None, False
        self._stops: tuple[str, ...] = history.stops if history else ()
        self._told = len(history.handed) if history else 0
        self._position = self._handed = 0
        self._now = info.created
        self._entries: dict[str, Entry] = {}
        self._live: dict[str, Entry] = {}
        self._waiting: dict[str, InboxItem] = {}
        self._deferred: list[Entry] = []
        self._strays: list[Entry] = []
        self._loose: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._end_status: RunStatus | None = None
        self._artifacts = ArtifactFolder(wiring.artifacts or log.artifacts, synced=log.durable)
        log.on_failure, log.on_answer = self._ledger.fail, self._answer

    def start(self, step: str, args: JSON, *, key: str, once: bool = False) -> None:
        """See `Durable.start`.

        Raises `ValueError` for a used key, `LookupError` for an unknown step, `JournalError` where another one is
        recorded.
        """
        find_step(step)
        self._enter(Entry(key, step, args, once, self._begin_step))

    def sleep(self, seconds: float, *, key: str) -> None:
        """See `Durable.sleep`. A resumed run waits for what is left of the time."""
        self._enter(Entry(key, SLEEP, None, False, partial(self._begin_timer, seconds)))

    def expect(
        self, name: str, *, key: str, body: JSON = None, deadline: float | None = None, default: JSON = None
    ) -> None:
        """See `Durable.expect`. Without an answer, `answerer` or a way to wait: `default` at once."""
        due = None if deadline is None else time.time() + deadline
        item = InboxItem(run_id=self.run_id, key=key, name=clean_text(name), body=body, deadline=due, default=default)
        self._enter(Entry(key, EXPECT + item.name, None, False, partial(self._begin_item, item)))

    async def next(self) -> Completion:
        """See `Durable.next`.

        Raises `Paused` where only inbox items are open, `JournalError` when the run cannot be written any more.
        """
        ledger = self._ledger
        while True:
            if ledger.failure is not None:
                raise ledger.failure
            if self._replaying and (recorded := self._replay()):
                return recorded
            if self._strays:
                self._land_strays()
            if ledger.ready:
                return self._give(ledger.ready.popleft().completion)
            if ledger.writing or len(self._live) > len(self._waiting) or self._overdue():
                await ledger.wait()
            elif self._waiting:
                await self._pause()
            else:
                raise RuntimeError(
                    f"run {self.run_id!r} awaits a completion, but nothing that could complete was started"
                )

    def cancel(self, key: str) -> None:
        """See `Durable.cancel`."""
        entry = self._entries.get(key)
        if entry is None or entry.asked or entry.completion is not None:
            return
        entry.asked = True
        if entry.task is not None:
            entry.task.cancel()
            # a task that is cancelled before its first turn ends without running any of our code
            entry.task.add_done_callback(lambda _: self._land(entry, Cancelled()))
        elif entry.timer is not None or key in self._waiting:
            self._land(entry, Cancelled())

    def cancel_prefix(self, prefix: str) -> None:
        """Stop everything whose key begins with `prefix`, now and later in this run. Journalled."""
        self._stops += (prefix,)
        self._log.append(Record("stop", key=prefix, at=time.time()))
        for key in [key for key in self._live if key.startswith(prefix)]:
            self.cancel(key)
        self._log.commit(lambda: None)

    def now(self) -> float:
        """See `Durable.now`. Before the first completion: when the run was created."""
        return self._now

    async def emit(self, event: JSON) -> None:
        """See `Durable.emit`; events are objects with a `type`. A replay drops what was told, but tells plans again."""
        if self._ledger.failure is not None:
            raise self._ledger.failure
        self._position += 1
        if self._position > self._told:
            self._log.append(Record("event", body=event, at=time.time(), handed=self._handed))
        elif event.get("type") not in _RETOLD:
            return
        if self._wiring.on_event is not None:
            tell(self._wiring.on_event, event)

    async def read(self, key: str) -> tuple[JSON, JSON]:
        """The arguments and the result of what was started under `key`. Raises `LookupError` where nothing was."""
        entry = self._entries.get(key)
        if entry is None:
            raise LookupError(f"run {self.run_id!r} has started nothing under the key {key!r}")
        outcome = entry.completion.outcome if entry.completion is not None else None
        return entry.args, outcome.value if isinstance(outcome, Completed) else None

    def live(self, event: Any) -> None:
        """Hand an event to `on_live`, outside the journal; it is dropped where nobody listens."""
        if self._wiring.on_live is not None:
            tell(self._wiring.on_live, event)

    def keep(self, data: bytes, mime: str) -> Path:
        """Store bytes as an artifact, named by their hash. Raises `JournalError`."""
        return self._artifacts.keep(data, mime)

    async def finish(self, status: RunStatus, result: JSON = None, error: JSONObject | None = None) -> None:
        """End the run: stop what still runs, store status, result and error, give up the lease. Idempotent.

        Raises `JournalError` where that cannot be written, or where the run was released before.
        """
        if status not in STATUSES:
            raise ValueError(f"{status!r} is no status that a run can end with; use one of {', '.join(STATUSES)}")
        await self._end(status, result, error)

    async def release(self) -> None:
        """Leave the run to be resumed: stop what still runs, keep the status, give up the lease.

        Idempotent, does not raise.
        """
        try:
            await self._end(None, None, None)
        except JournalError as error:
            _log.warning("run %r was released without its last records: %s", self.run_id, error)

    def _enter(self, entry: Entry) -> None:
        if entry.key in self._entries:
            raise ValueError(f"key {entry.key!r} was used already in run {self.run_id!r}; a key can be started once")
        if not entry.key.isascii() and clean_text(entry.key) != entry.key:
            raise ValueError(
                f"key {entry.key!r} holds a lone surrogate and cannot be stored; derive it from other text"
            )
        if self._log.durable:
            entry.digest = digest(entry.args)
        recorded = self._past is not None and self._past.recorded(entry.key, entry.step, entry.digest)
        self._entries[entry.key] = entry
        if not self._replaying:
            self._launch(entry)
        elif not recorded:
            self._deferred.append(entry)

    def _replay(self) -> Completion | None:
        """The next recorded completion. After the last one what was started and has no recorded end is launched."""
        assert self._past is not None
        if self._past.pending:
            record = self._past.take(self._entries)
            entry = self._entries[record.key]
            entry.completion = Completion(record.key, outcome_of(record), record.at)
            return self._give(entry.completion)
        self._replaying = False
        for entry in self._deferred:
            self._launch(entry)
        self._deferred.clear()
        return None

    def _give(self, completion: Completion | None) -> Completion:
        assert completion is not None
        self._handed += 1
        self._now = completion.at
        return completion

    def _launch(self, entry: Entry) -> None:
        once = [entry.args] if entry.once else None
        settled = self._past and self._past.settle(entry.key, entry.step, entry.digest, once)
        if settled is not None:
            self._land(entry, settled)
        elif entry.asked or (self._stops and entry.key.startswith(self._stops)):
            self._land(entry, Cancelled())
        elif self._ledger.failure is None:
            self._live[entry.key] = entry
            entry.begin(entry)

    def _begin_step(self, entry: Entry) -> None:
        if entry.once:
            self._ledger.intend(entry, partial(self._run_step, entry))
        else:
            self._run_step(entry)

    def _run_step(self, entry: Entry) -> None:
        if self._closing:
            return
        if entry.asked:
            self._land(entry, Cancelled())
            return
        services, listening = self._wiring.services, self._wiring.on_live is not None
        context = StepContext(self.run_id, entry.key, services, self.read, self.live, self.keep, listening)
        function = partial(self._run_held, find_step(entry.step)) if entry.once else find_step(entry.step)
        entry.task = self._loop.create_task(self._run(entry, function, context, entry.args))

    async def _run_held(self, step: Step, context: StepContext, args: JSON) -> JSON:
        """Run a step that must not run twice, if the run is still ours: this process may have been suspended."""
        while not self._log.held():
            await self._ledger.sync()
            if self._ledger.failure is not None:
                raise self._ledger.failure
        return await step(context, args)

    def _begin_timer(self, seconds: float, entry: Entry) -> None:
        due = self._past and self._past.due(entry.key)
        if due is None:
            due = time.time() + max(0.0, seconds)
            self._log.append(Record("timer", entry.key, entry.step, body=due, at=time.time()))
        self._set_timer(entry, due, self._land, entry, Completed(None))

    def _begin_item(self, item: InboxItem, entry: Entry) -> None:
        past = self._past and self._past.item(entry.key)
        item = past or item
        answers = self._past.answers() if self._past else {}
        answerer = self._wiring.answerers.get(item.name, self._wiring.answerer)
        if entry.key in answers:
            self._land(entry, Completed(answers[entry.key]))
        elif answerer is None and not (self._log.durable and self._wiring.unattended == "wait"):
            self._land(entry, Completed(item.default))
        else:
            if past is None:
                self._log.append(Record("item", entry.key, entry.step, body=item_body(item), at=time.time()))
            self._open_item(item, entry, answerer)

    def _open_item(
        self, item: InboxItem, entry: Entry, answerer: Callable[[InboxItem], Awaitable[JSON]] | None
    ) -> None:
        if answerer is None:
            self._waiting[entry.key] = item
        else:
            entry.task = self._loop.create_task(self._run(entry, answerer, item))
        if item.deadline is not None:
            # an answer that is stored by then still counts: it is looked for with the commit
            expired = partial(self._override, entry, Completed(item.default))
            self._set_timer(entry, item.deadline, self._log.commit, expired)

    def _set_timer(self, entry: Entry, due: float, callback: Callable[..., object], *args: Any) -> None:
        entry.timer = self._loop.call_later(max(0.0, due - time.time()), callback, *args)

    async def _run(self, entry: Entry, function: Callable[..., Awaitable[JSON]], *args: Any) -> None:
        try:
            outcome: Outcome = Completed(await function(*args))
        except asyncio.CancelledError:
            outcome = self._stopped(entry)
        except ReplanError as error:
            outcome = Failed(error.to_json())
        except BaseException as error:  # whatever a step raises is its outcome
            if isinstance(error, GeneratorExit) and asyncio.current_task(self._loop) is not entry.task:
                raise  # the coroutine is being discarded with its event loop
            _log.exception("step %r of run %r failed under the key %r", entry.step, self.run_id, entry.key)
            outcome = Failed(failure(error))
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                self._land(entry, outcome)
                raise
        self._land(entry, outcome)

    def _stopped(self, entry: Entry) -> Outcome:
        """What a cancelled task comes to.

        One that somebody else cancels is landed by a program that still asks for completions.
        """
        task = asyncio.current_task()
        if entry.asked:
            return Cancelled()
        if self._closing or entry.completion is not None:
            raise asyncio.CancelledError
        if task is not None and task.cancelling():
            self._strays.append(entry)
            self._ledger.wake()
            raise asyncio.CancelledError
        return Failed({"type": "CancelledError", "message": f"step {entry.step!r} ended itself as cancelled"})

    def _land_strays(self) -> None:
        for entry in self._strays:
            message = f"the task of step {entry.step!r} was cancelled from outside"
            self._land(entry, Failed({"type": "CancelledError", "message": message}))
        self._strays.clear()

    def _land(self, entry: Entry, outcome: Outcome) -> None:
        if entry.completion is not None or (self._closing and not isinstance(outcome, Completed)):
            return
        if entry.timer is not None:
            entry.timer.cancel()
        self._live.pop(entry.key, None)
        self._waiting.pop(entry.key, None)
        if entry.task is asyncio.current_task():
            entry.task = None  # a finished task would hold its whole context as long as the run lives
        self._ledger.complete(entry, outcome)

    def _answer(self, key: str, value: JSON) -> None:
        entry = self._live.get(key)
        if entry is not None and entry.step.startswith(EXPECT):
            self._override(entry, Completed(value))

    def _override(self, entry: Entry, outcome: Outcome) -> None:
        """Settle an inbox item, whatever its answerer is doing."""
        self._land(entry, outcome)
        if entry.task is not None and not entry.task.done():
            self._loose.add(entry.task)
            entry.task.add_done_callback(self._loose.discard)
            entry.task.cancel()

    def _overdue(self) -> bool:
        return any(item.deadline is not None and item.deadline <= time.time() for item in self._waiting.values())

    async def _pause(self) -> None:
        await self._ledger.sync()
        idle = not (self._ledger.ready or self._ledger.writing or self._ledger.failure)
        if idle and self._waiting and not self._overdue():
            raise Paused(list(self._waiting.values()))

    async def _end(self, status: RunStatus | None, result: JSON, error: JSONObject | None) -> None:
        if self._ending is None:
            self._end_status = status
            self._ending = self._loop.create_task(self._close(status, result, error))
            self._ending.add_done_callback(lambda task: task.cancelled() or task.exception())
        elif status is not None and self._end_status is None:
            raise JournalError(f"run {self.run_id!r} was released and cannot be finished as {status!r}; open it again")
        await asyncio.shield(self._ending)

    async def _close(self, status: RunStatus | None, result: JSON, error: JSONObject | None) -> None:
        self._closing = True
        self._ledger.fail(JournalError(f"run {self.run_id!r} is closed in this process; open it again to go on"))
        tasks = {entry.task: entry.key for entry in self._live.values() if entry.task is not None}
        tasks |= dict.fromkeys(self._loose, "an answerer")
        for entry in self._live.values():
            if entry.timer is not None:
                entry.timer.cancel()
        try:
            await self._stop(tasks)
            await self._log.end(status, result, error, self._handed)
        finally:
            self._artifacts.close()

    async def _stop(self, tasks: dict[asyncio.Task[None], str]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, hanging = await asyncio.wait(tasks, timeout=self._wiring.grace)
            for task in hanging:
                _log.warning("step %r of run %r does not end although it was cancelled", tasks[task], self.run_id)
