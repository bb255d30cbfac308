"""A journal in a SQLite file: runs survive the process, and can be resumed by another one on the same machine.

The file is in WAL mode, which does not work over network file systems. Records of steps that must not run twice are
synced to the disk when they are written; the others survive the end of the process, but the last of them may be lost
in a power cut.
"""

import asyncio
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from replan.encoding import JSON, JSONObject, encode
from replan.errors import JournalError

from ._database import Database
from ._ledger import stored
from ._owner import this_process
from ._tables import Holding, Pending, Tables, Taken
from ._writer import Writer, uptime
from .history import EXPECT, CompletionRow, completion_row
from .local import LocalRun
from .records import InboxItem, Record, RunInfo, RunStatus, Wiring, check_run_id
from .tool_history import ToolHistory

__all__ = ["SqliteJournal"]

_log = logging.getLogger("replan")


class SqliteJournal:
    """The journal in the file `path`; it and its folder are made on first use, for this user only.

    Artifacts are kept in `<path>.artifacts/<run_id>/`. A process that drives a run holds it for `lease` seconds,
    renewed as long as it lives. `max_bytes` limits the size of the file; a run that would exceed it ends with
    `JournalError`.
    """

    def __init__(self, path: str | Path, *, lease: float = 15.0, max_bytes: int | None = None) -> None:
        self.path = Path(path).expanduser().absolute()
        self._writer = Writer(Tables(Database(self.path, max_bytes), this_process(), lease), lease)
        self._open: set[_SqliteLog] = set()
        # an open run holds the journal, so that there is none when the thread is ended
        weakref.finalize(self, self._writer.drop).atexit = False

    async def create(
        self, run_id: str, *, program: str, input: JSON, meta: JSONObject | None = None, wiring: Wiring | None = None
    ) -> LocalRun:
        """A new run. Raises `JournalError` where the id is taken, `ConfigError` where it cannot be one."""
        now = time.time()
        info = RunInfo(
            run_id=check_run_id(run_id),
            program=program,
            input=stored(input),
            meta=meta or {},
            created=now,
            updated=now,
        )
        return self._session(await self._writer.run(lambda tables: tables.create(info), _give_up), wiring)

    async def open(self, run_id: str, wiring: Wiring | None = None) -> LocalRun:
        """A run that did not complete, to be resumed.

        Raises `RunNotFound`, `JournalBusy`, or `JournalError` where it is complete.
        """
        check_run_id(run_id)
        return self._session(await self._writer.run(lambda tables: tables.take(run_id), _give_up), wiring)

    async def runs(self, limit: int = 50) -> list[RunInfo]:
        """The runs, newest first."""
        return await self._writer.run(lambda tables: tables.runs(limit))

    async def info(self, run_id: str) -> RunInfo:
        """What is known of the run. Raises `RunNotFound`."""
        return await self._writer.run(lambda tables: tables.info(run_id))

    async def events(self, run_id: str, after: int = 0) -> list[tuple[int, JSON]]:
        """The events with an offset above `after`, with their offsets. Raises `RunNotFound`."""
        return await self._writer.run(lambda tables: tables.events(run_id, after))

    async def completions(self, run_id: str) -> list[CompletionRow]:
        """What ended in the run, in order: key, step, outcome, time. Raises `RunNotFound`."""
        return [completion_row(record) for record in await self._writer.run(lambda tables: tables.completed(run_id))]

    async def answer(self, run_id: str, key: str, value: JSON) -> None:
        """Answer an open inbox item, from any process.

        Raises `RunNotFound`, or `JournalError` where no such item is open.
        """
        row = await self._writer.run(lambda tables: tables.answer(run_id, key, value))
        for log in list(self._open):
            if log.holding.row == row:
                log.loop.call_soon_threadsafe(log.on_answer, key, value)

    async def inbox(self, run_id: str | None = None) -> list[InboxItem]:
        """The open inbox items of one run, or of all that are running or paused."""
        return await self._writer.run(lambda tables: tables.inbox(run_id))

    async def tool_history(self, tools: Collection[str]) -> dict[str, ToolHistory]:
        """What is known of the tools from their last calls, over all runs; nothing where the file cannot be read."""
        try:
            return (await self._writer.run(lambda tables: tables.recent_calls(tools))).known()
        except JournalError as error:
            _log.debug("the journal was not asked for earlier tool calls: %s", error)
            return {}

    async def close(self) -> None:
        """Release the runs that are open, close the file, end the thread. Idempotent."""
        await self._writer.settle()
        while self._open:
            log = next(iter(self._open))
            await _release(log)
            self._open.discard(log)
        await self._writer.close()

    def _session(self, taken: Taken, wiring: Wiring | None) -> LocalRun:
        folder = self.path.with_name(self.path.name + ".artifacts") / taken.info.run_id
        log = _SqliteLog(taken, self._writer, folder, self._left)
        log.session = LocalRun(taken.info, log, wiring or Wiring(), taken.history)
        self._open.add(log)
        self._writer.add(log)
        return log.session

    def _left(self, log: "_SqliteLog") -> None:
        self._open.discard(log)


class _SqliteLog:
    """What one open run writes, on its way to the thread."""

    durable = True
    session: LocalRun

    def __init__(self, taken: Taken, writer: Writer, artifacts: Path, closed: "Callable[[_SqliteLog], None]") -> None:
        self.holding: Holding = taken.holding
        self.loop = asyncio.get_running_loop()
        self.pending: deque[Pending] = deque()
        self.renewed = time.monotonic()
        self.sure = (0.0, 0.0)
        self.artifacts: Path | None = artifacts
        self.on_failure: Callable[[Exception], None] = _unheard
        self.on_answer: Callable[[str, JSON], None] = _unheard
        self._writer, self._closed = writer, closed
        self._last = taken.last
        self._items: set[str] = set()
        self._failure: Exception | None = None
        self._ended = False

    @property
    def expecting(self) -> bool:
        """Whether inbox items are open."""
        return bool(self._items)

    def append(self, record: Record, *, full: bool = False) -> None:
        """Queue a record."""
        if self._failure is not None or self._ended:
            return
        self._last += 1
        self.pending.append(Pending(self._last, record, encode(record.body), full))
        if record.step.startswith(EXPECT):
            (self._items.add if record.kind == "item" else self._items.discard)(record.key)

    def commit(self, then: Callable[[], None]) -> None:
        """Have everything written that was queued."""
        if self._failure is None and not self._ended:
            self._writer.commit(self, then)

    def held(self) -> bool:
        """Whether the lease cannot have expired, by the clock that others judge it by and by the time that passed."""
        wall, passed = self.sure
        return time.time() < wall and uptime() < passed

    def written(self, answers: list[tuple[str, JSON]], thens: list[Callable[[], None]]) -> None:
        """The thread has written."""
        for key, value in answers:
            self.on_answer(key, value)
        for then in thens:
            then()

    def failed(self, error: Exception) -> None:
        """The thread cannot write."""
        self._failure = self._failure or error
        self.on_failure(error)

    async def end(self, status: RunStatus | None, result: JSON, error: JSONObject | None, handed: int) -> None:
        """Write the rest and give up the run."""
        self._leave()
        try:
            if self._failure is not None:
                raise self._failure
            await self._writer.run(partial(self._write_end, (status, result, error, handed)))
        except JournalError:
            await self.abandon()
            raise

    def _write_end(self, end: Any, tables: Tables) -> None:
        tables.end(self.holding, list(self.pending), *end)

    def _leave(self) -> None:
        self._ended = True
        self._writer.remove(self)
        self._closed(self)

    async def abandon(self) -> None:
        """Let others have the run, without writing what is queued."""
        self._leave()
        try:
            await self._writer.run(lambda tables: tables.give_up(self.holding))
        except JournalError as error:
            _log.debug("the lease of run %r was left to expire: %s", self.holding.run_id, error)


def _give_up(tables: Tables, taken: Taken) -> None:
    tables.give_up(taken.holding)


async def _release(log: _SqliteLog) -> None:
    """Release a run in the loop that it belongs to; where that loop is gone, only give it up."""
    if log.loop is asyncio.get_running_loop():
        await log.session.release()
    elif log.loop.is_running():
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(log.session.release(), log.loop))
    else:
        await log.abandon()


def _unheard(*_: object) -> None:
    pass
