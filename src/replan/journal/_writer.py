"""The thread of a SQLite journal: everything that touches the file happens here, one thing after another.

What runs ask for while a commit is going on shares the next one. Between requests the thread renews leases, writes
the records that nobody waits for, and looks for answers.
"""

import asyncio
import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from replan.encoding import JSON
from replan.errors import JournalError

from ._tables import Holding, Pending, Tables, fenced

__all__ = ["Client", "Writer", "uptime"]

_log = logging.getLogger("replan")
T = TypeVar("T")
_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Client(Protocol):
    """An open run, as the thread sees it.

    Its event loop fills `pending`; `expecting` says that it has open inbox items.
    """

    holding: Holding
    loop: asyncio.AbstractEventLoop
    pending: deque[Pending]
    renewed: float
    sure: tuple[float, float]
    """Until when the lease surely holds, by `time.time` and by `uptime`."""

    @property
    def expecting(self) -> bool:
        """Whether answers are to be looked for."""
        ...

    def written(self, answers: list[tuple[str, JSON]], thens: list[Callable[[], None]]) -> None:
        """Called in `loop` after a commit."""
        ...

    def failed(self, error: Exception) -> None:
        """Called in `loop` when the run can be written no more."""
        ...


@dataclass(frozen=True, slots=True)
class _Request:
    client: Client
    then: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[Tables], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    undo: Callable[[Tables, Any], object] | None = None
    last: bool = False


class _Drop:
    """Asks the thread to end."""


class Writer:
    """Runs jobs and commits for one file. The thread starts with the first job, and ends with `close`."""

    def __init__(self, tables: Tables, lease: float) -> None:
        self._tables = tables
        self._renewal = lease / 3
        self._sure = lease * 0.75  # what is left of a lease must suffice for a step to begin
        self._tick = min(1.0, lease / 3)
        self._queue: queue.SimpleQueue[_Request | _Job | _Drop | None] = queue.SimpleQueue()
        self._clients: dict[int, Client] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pid: int | None = None

    async def run(self, work: Callable[[Tables], T], undo: Callable[[Tables, T], object] | None = None) -> T:
        """Run a job in the thread, after what was asked for before.

        `undo` follows where the caller was cancelled meanwhile.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._check_process()
        with self._lock:
            if self._closed:
                raise JournalError("the journal is closed in this process; make a new one")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="replan journal", daemon=True)
                self._thread.start()
                self._pid = os.getpid()
            self._queue.put(_Job(work, loop, future, undo))
        try:
            return await future
        except asyncio.CancelledError:
            if undo is not None and future.done() and not future.cancelled() and future.exception() is None:
                self._undo(loop, undo, future.result())
            raise

    def add(self, client: Client) -> None:
        """Look after an open run from now on."""
        self._clients[id(client)] = client
        self._queue.put(None)

    def remove(self, client: Client) -> None:
        """Forget a run."""
        self._clients.pop(id(client), None)

    def commit(self, client: Client, then: Callable[[], None]) -> None:
        """Write what the run has pending, then call `then` in its loop."""
        self._queue.put(_Request(client, then))

    async def close(self) -> None:
        """Write what is pending, close the file, end the thread. Idempotent."""
        if self._forked():
            return
        await self.settle()
        with self._lock:
            thread, closed, self._closed = self._thread, self._closed, True
        if thread is None or closed:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._queue.put(_Job(Tables.close, loop, future, last=True))
        try:
            await future
        finally:
            if future.done():
                thread.join()

    async def settle(self) -> None:
        """Wait for what this loop asked for so far; jobs whose callers were cancelled are being undone then."""
        if self._thread is not None and not self._closed and not self._forked():
            with contextlib.suppress(JournalError):  # another thread closes the journal at the same time
                await self.run(lambda _: None)

    def drop(self) -> None:
        """End the thread without waiting: nobody can use the journal any more. Callable from a finaliser."""
        if self._thread is not None and not self._closed and not self._forked():
            self._closed = True
            self._queue.put(_Drop())

    def _forked(self) -> bool:
        return self._pid is not None and self._pid != os.getpid()

    def _check_process(self) -> None:
        if self._forked():
            raise JournalError(
                f"the journal was opened by process {self._pid}, and this is a fork of it; make a new journal here"
            )

    def _undo(self, loop: asyncio.AbstractEventLoop, undo: Callable[[Tables, T], object], value: T) -> None:
        self._queue.put(_Job(lambda tables: undo(tables, value), loop, loop.create_future()))

    def _work(self) -> None:
        while self._go_on():
            pass

    def _go_on(self) -> bool:
        """Do what has come in; false at the last of it. A frame of its own: while waiting, nothing done is kept."""
        requests: list[_Request] = []
        for item in self._collect():
            if isinstance(item, _Request):
                requests.append(item)
            elif isinstance(item, _Drop):
                self._tables.close()
                return False
            elif item is not None:
                self._commit(requests, (client for client in self._all() if client.pending))
                requests = []
                self._do(item)
                if item.last:
                    return False
        self._commit(requests, self._due())
        return True

    def _collect(self) -> list[_Request | _Job | _Drop | None]:
        items: list[_Request | _Job | _Drop | None] = []
        try:
            items.append(self._queue.get(timeout=self._tick if self._clients else None))
            while True:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            return items

    def _all(self) -> list[Client]:
        """The open runs; one whose event loop was closed under it is given up."""
        clients = list(self._clients.values())
        for client in clients:
            if client.loop.is_closed():
                self.remove(client)
                self._give_up(client)
        return [client for client in clients if not client.loop.is_closed()]

    def _give_up(self, client: Client) -> None:
        try:
            self._tables.give_up(client.holding)
        except Exception as error:  # noqa: BLE001  # one run must not end the thread of all
            _log.warning("run %r stays taken until its lease expires: %s", client.holding.run_id, error)

    def _due(self) -> list[Client]:
        """Runs that want something although they did not ask: once in a while, at most."""
        now = time.monotonic()
        return [c for c in self._all() if now - c.renewed > (self._tick if c.pending or c.expecting else self._renewal)]

    def _do(self, job: _Job) -> None:
        try:
            value = job.work(self._tables)
        except Exception as error:  # noqa: BLE001  # it is the caller's
            _post(job.loop, _settle, job.future, error)
        else:
            if not _post(job.loop, self._hand_over, job, value) and job.undo is not None:
                job.undo(self._tables, value)

    def _hand_over(self, job: _Job, value: Any) -> None:
        if not job.future.cancelled():
            job.future.set_result(value)
        elif (undo := job.undo) is not None:
            self._undo(job.loop, undo, value)

    def _commit(self, requests: Iterable[_Request], others: Iterable[Client]) -> None:
        asked: dict[int, list[Callable[[], None]]] = {}
        clients = {id(client): client for client in others}
        for request in requests:
            clients[id(request.client)] = request.client
            asked.setdefault(id(request.client), []).append(request.then)
        batch = {key: (client.holding, _drain(client.pending)) for key, client in clients.items()}
        if not batch:
            return
        sure = (time.time() + self._sure, uptime() + self._sure)
        try:
            lost = self._tables.append(list(batch.values()))
            for key, client in clients.items():
                self._tell(client, client.holding in lost, asked.get(key, []), sure)
        except Exception as error:  # noqa: BLE001  # every run must hear of it, whatever it is
            for key, client in clients.items():
                if batch[key][1] or key in asked:
                    self._drop(client, error)
                else:
                    _log.warning("the lease of run %r could not be renewed: %s", client.holding.run_id, error)

    def _tell(self, client: Client, lost: bool, thens: list[Callable[[], None]], sure: tuple[float, float]) -> None:
        client.renewed, client.sure = time.monotonic(), (0.0, 0.0) if lost else sure
        if lost:
            self._drop(client, fenced(client.holding))
            return
        answers = self._tables.answers(client.holding) if client.expecting else []
        if (answers or thens) and not _post(client.loop, client.written, answers, thens):
            self.remove(client)

    def _drop(self, client: Client, error: Exception) -> None:
        self.remove(client)
        _post(client.loop, client.failed, error)


def uptime() -> float:
    """Seconds that passed, those of a suspended machine included where the system counts them."""
    return time.clock_gettime(_BOOT_CLOCK) if _BOOT_CLOCK is not None else time.monotonic()


def _drain(pending: deque[Pending]) -> list[Pending]:
    drained: list[Pending] = []
    while pending:
        drained.append(pending.popleft())
    return drained


def _post(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: Any) -> bool:
    """Call a function in a loop; False where the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


def _settle(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
