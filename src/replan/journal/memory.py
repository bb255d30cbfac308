"""A journal in memory: runs live as long as the process, and cost next to nothing."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Collection
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from replan.encoding import JSON, JSONObject
from replan.errors import JournalBusy, JournalError, RunNotFound

from ._ledger import stored
from .history import CompletionRow, completion_row, fold, retract_failures
from .local import LocalRun
from .records import InboxItem, Record, RunInfo, RunOwner, RunStatus, Wiring, check_run_id
from .tool_history import MAX_CALLS, MAX_RECORDS, RecentCalls, ToolHistory

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """Keeps runs in this process.

    The last `keep` runs that are not open can still be read, and resumed where they did not complete. Inbox items
    cannot be waited for: without an `answerer` they get their default at once.
    """

    def __init__(self, *, keep: int = 32) -> None:
        self._runs: dict[str, _MemoryLog] = {}
        self._keep = keep

    async def create(
        self, run_id: str, *, program: str, input: JSON, meta: JSONObject | None = None, wiring: Wiring | None = None
    ) -> LocalRun:
        """A new run. Raises `JournalError` where the id is taken, `ConfigError` where it cannot be one."""
        if check_run_id(run_id) in self._runs:
            raise JournalError(f"there is a run {run_id!r} in this journal already; resume it or use another id")
        now = time.time()
        info = RunInfo(
            run_id=run_id,
            program=program,
            input=stored(input),
            meta=meta or {},
            created=now,
            updated=now,
            owner=_this_process(now),
        )
        log = self._runs[run_id] = _MemoryLog(info, self._forget)
        log.session = LocalRun(info, log, wiring or Wiring())
        return log.session

    async def open(self, run_id: str, wiring: Wiring | None = None) -> LocalRun:
        """A run that did not complete, to be resumed.

        Raises `RunNotFound`, `JournalBusy`, or `JournalError` where it is complete.
        """
        log = self._find(run_id)
        if log.session is not None:
            raise JournalBusy(f"run {run_id!r} is being driven in this process; wait for it, or end it first")
        info = log.info
        if info.status == "complete":
            raise JournalError(f"run {run_id!r} is complete; its result can be read with info({run_id!r})")
        history = fold(log.records)
        if info.status == "failed" and (cut := retract_failures(history, log.handed)):
            log.append(cut.record(time.time()))
            history.cut(cut)
        history.answers = dict(log.answers)
        log.info = replace(info, status="running", result=None, error=None, owner=_this_process(time.time()))
        log.session = LocalRun(log.info, log, wiring or Wiring(), history)
        return log.session

    async def runs(self, limit: int = 50) -> list[RunInfo]:
        """The runs, newest first."""
        return sorted((log.info for log in self._runs.values()), key=lambda info: -info.created)[:limit]

    async def info(self, run_id: str) -> RunInfo:
        """What is known of the run. Raises `RunNotFound`."""
        return self._find(run_id).info

    async def events(self, run_id: str, after: int = 0) -> list[tuple[int, JSON]]:
        """The events with an offset above `after`, with their offsets. Raises `RunNotFound`."""
        records = self._find(run_id).records
        return [(i + 1, records[i].body) for i in range(max(after, 0), len(records)) if records[i].kind == "event"]

    async def completions(self, run_id: str) -> list[CompletionRow]:
        """What ended in the run, in order: key, step, outcome, time. Raises `RunNotFound`."""
        return [completion_row(record) for record in fold(self._find(run_id).records).order]

    async def answer(self, run_id: str, key: str, value: JSON) -> None:
        """Answer an open inbox item. Raises `RunNotFound`, or `JournalError` where no such item is open."""
        log = self._find(run_id)
        if not any(item.key == key for item in log.open_items()):
            raise JournalError(f"run {run_id!r} has no open inbox item {key!r}; inbox() lists what is open")
        log.answers[key] = value
        if log.session is not None:
            log.loop.call_soon_threadsafe(log.on_answer, key, value)

    async def inbox(self, run_id: str | None = None) -> list[InboxItem]:
        """The open inbox items, of one run or of all."""
        logs = list(self._runs.values()) if run_id is None else [self._find(run_id)]
        return [item for log in logs for item in log.open_items()]

    async def tool_history(self, tools: Collection[str]) -> dict[str, ToolHistory]:
        """What is known of the tools from their last calls, over all runs."""
        recent, left = RecentCalls(tools), MAX_RECORDS
        for run_id, log in reversed(self._runs.items()):
            for record in islice(reversed(log.records), left):
                left -= 1
                recent.add(run_id, record)
                if recent.count >= MAX_CALLS:
                    return recent.known()
        return recent.known()

    async def close(self) -> None:
        """Release the runs that are open. Idempotent."""
        for log in list(self._runs.values()):
            if log.session is not None:
                await log.session.release()

    def _find(self, run_id: str) -> "_MemoryLog":
        try:
            return self._runs[check_run_id(run_id)]
        except KeyError:
            raise RunNotFound(f"there is no run {run_id!r} in this journal; runs() lists what there is") from None

    def _forget(self) -> None:
        closed = [run_id for run_id, log in self._runs.items() if log.session is None]
        for run_id in closed[: len(closed) - self._keep if len(closed) > self._keep else 0]:
            del self._runs[run_id]


class _MemoryLog:
    """One run's records, and the log that its engine writes to."""

    durable = False
    artifacts: Path | None = None

    def __init__(self, info: RunInfo, closed: Callable[[], None]) -> None:
        self.info = info
        self.records: list[Record] = []
        self.answers: dict[str, JSON] = {}
        self.handed = 0
        self.session: LocalRun | None = None
        self.loop = asyncio.get_running_loop()
        self.on_failure: Callable[[Exception], None] = _unheard
        self.on_answer: Callable[[str, JSON], None] = _unheard
        self._closed = closed

    def append(self, record: Record, *, full: bool = False) -> None:
        self.records.append(record)

    def commit(self, then: Callable[[], None]) -> None:
        then()

    def held(self) -> bool:
        return True

    async def end(self, status: RunStatus | None, result: JSON, error: JSONObject | None, handed: int) -> None:
        self.info = replace(self.info, updated=time.time(), owner=None)
        if status is not None:
            self.info = replace(self.info, status=status, result=result, error=error)
        self.handed, self.session = handed, None
        self._closed()

    def open_items(self) -> list[InboxItem]:
        history = fold(self.records)
        ended = {record.key for record in history.order} | self.answers.keys()
        return [history.item(self.info.run_id, key) for key in history.items if key not in ended]


def _unheard(*_: object) -> None:
    pass


def _this_process(now: float) -> RunOwner:
    return RunOwner(host=socket.gethostname(), pid=os.getpid(), since=now)
