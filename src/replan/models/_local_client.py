"""The parent's side of the embedded model: one worker process, shared by every thread and event loop.

A worker is started on the first request and stopped when the last model that used it is closed, at the interpreter's
exit, or when it does not obey. Three threads serve it, so that no event loop ever waits for a pipe.
"""

import asyncio
import atexit
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from replan.encoding import JSONObject, decode

__all__ = ["Exchange", "Worker", "release", "worker_for"]

CANCEL_GRACE = 15.0
"""Seconds that a worker has to end a cancelled request before it is killed."""

_STOP_GRACE = 1.0
_SCRIPT = Path(__file__).with_name("_local_worker.py")
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}  # busy waiting makes it up to ten times slower beside other programs
_ids = itertools.count(1)


class Exchange:
    """One request on its way: `receive` gives the worker's messages about it, in order.

    Besides the worker's own there is `{"lost": reason, "blame": bool, "closed": bool}` when the process ended: `blame`
    when this request was running then, or the model never got loaded, `closed` when it was stopped on purpose.
    """

    def __init__(self, body: JSONObject) -> None:
        self.id = next(_ids)
        self.body = body
        self.started = False
        self.over = False
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[JSONObject] = asyncio.Queue()

    async def receive(self, timeout: float) -> JSONObject:
        """The next message. Raises `TimeoutError` when a request that runs is silent for `timeout` seconds."""
        if not self.started:
            return await self._messages.get()
        async with asyncio.timeout(timeout):
            return await self._messages.get()

    def put(self, message: JSONObject) -> None:
        """Hand a message over, from any thread. A closed event loop hears nothing any more."""
        self.started = self.started or "started" in message
        self.over = self.over or not message.keys().isdisjoint(("done", "error", "cancelled", "lost", "fatal"))
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._messages.put_nowait, message)
            except RuntimeError:
                return


class Worker:
    """A worker process and the threads that talk to it. Its users are the models that hold it."""

    def __init__(self, model: Path, n_ctx: int) -> None:
        self.users: WeakSet[Any] = WeakSet()
        self.pid: int | None = None
        self._options = {
            "model": str(model),
            "n_ctx": n_ctx,
            "threads": max(1, min(_cores(), 8)),
            "parent": os.getpid(),
        }
        self._lock = threading.Lock()
        self._exchanges: dict[int, Exchange] = {}
        self._deadlines: dict[int, float] = {}
        self._outbox: queue.SimpleQueue[JSONObject | None] = queue.SimpleQueue()
        self._errors: deque[str] = deque(maxlen=12)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self.ended = False
        self._closing = False
        self._threads = [threading.Thread(target=self._drive, name="replan-local", daemon=True)]
        self._threads[0].start()

    def submit(self, exchange: Exchange) -> bool:
        """Send a request. False when the process has ended, so that a new one is needed."""
        with self._lock:
            if self.ended or self._closing:
                return False
            self._exchanges[exchange.id] = exchange
            self._outbox.put({"id": exchange.id, "body": exchange.body})
        return True

    def cancel(self, exchange: Exchange) -> None:
        """Give a request up. A worker that does not let go of it in time is killed."""
        with self._lock:
            if exchange.id in self._exchanges and not exchange.over:
                self._deadlines[exchange.id] = time.monotonic() + CANCEL_GRACE
                self._outbox.put({"cancel": exchange.id})

    def stop(self) -> None:
        """End the process and the threads; at most a few seconds. May be called twice, from any thread."""
        self._closing = True
        self._outbox.put(None)
        for thread in tuple(self._threads):
            thread.join(4 * _STOP_GRACE)

    def abandon(self) -> None:
        """Close the pipes in a forked child: the process belongs to its parent."""
        self.ended = True
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr) if self._process else ():
            if pipe is not None:
                os.close(pipe.fileno())

    def _drive(self) -> None:
        # The process dies with the thread that started it (on Linux), so this thread lives as long as the process.
        try:
            process = self._start()
        except OSError as error:
            self._lose(f"the worker could not be started: {error}")
            return
        while (message := self._next_message()) is not None:
            if not _write(process, message):
                break
        _end(process)

    def _start(self) -> subprocess.Popen[bytes]:
        # A terminal's interrupt is for the parent: the worker is in a session, or on Windows a group, of its own.
        flags = subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0
        self._process = process = subprocess.Popen(  # noqa: S603  # our own command
            [sys.executable, "-P", "-u", str(_SCRIPT), json.dumps(self._options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_ENVIRONMENT | os.environ,
            start_new_session=True,
            creationflags=flags,
        )
        self.pid = process.pid
        errors = threading.Thread(target=self._read_errors, args=(process,), name="replan-local-err", daemon=True)
        reader = threading.Thread(target=self._read, args=(process, errors), name="replan-local-out", daemon=True)
        self._threads += [reader, errors]
        errors.start()
        reader.start()
        return process

    def _next_message(self) -> JSONObject | None:
        while True:
            with self._lock:
                first = min(self._deadlines.values(), default=None)
            left = None if first is None else first - time.monotonic()
            if left is not None and left <= 0:
                return None
            try:
                return self._outbox.get(timeout=left)
            except queue.Empty:
                continue

    def _read(self, process: subprocess.Popen[bytes], errors: threading.Thread) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._dispatch(decode(line))
        code = process.wait()
        errors.join(_STOP_GRACE)
        process.stdout.close()
        self._lose("\n".join([f"the worker process ended with code {code}", *self._errors]))
        self._outbox.put(None)

    def _dispatch(self, message: JSONObject) -> None:
        if "id" not in message:
            self._ready = "ready" in message
            if "fatal" in message:
                self._finish(message)
            return
        with self._lock:
            exchange = self._exchanges.get(message["id"])
        if exchange is None:
            return
        exchange.put(message)
        if exchange.over:
            with self._lock:
                self._exchanges.pop(exchange.id, None)
                self._deadlines.pop(exchange.id, None)

    def _lose(self, reason: str) -> None:
        self._finish({"lost": "it was closed" if self._closing else reason})

    def _finish(self, message: JSONObject) -> None:
        with self._lock:
            self.ended = True
            exchanges, self._exchanges = list(self._exchanges.values()), {}
            self._deadlines.clear()
        for exchange in exchanges:
            exchange.put({**message, "blame": exchange.started or not self._ready, "closed": self._closing})

    def _read_errors(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._errors.append(line.decode(errors="replace").rstrip()[:500])


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _write(process: subprocess.Popen[bytes], message: JSONObject) -> bool:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
    except (OSError, ValueError):
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_STOP_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Workers:
    """The workers of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_model: dict[Path, Worker] = {}

    def after_fork(self) -> None:
        """A forked child starts with none: its parent's pipes are not its own."""
        for worker in self.by_model.values():
            worker.abandon()
        self.__init__()

    def stop_all(self) -> None:
        """For the interpreter's exit."""
        for worker in self.by_model.values():
            worker.stop()


_workers = _Workers()
atexit.register(_workers.stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.after_fork)


def worker_for(model: Path, n_ctx: int, user: object) -> Worker:
    """The worker of these weights, started if none is alive; `user` keeps it until `release`."""
    with _workers.lock:
        worker = _workers.by_model.get(model)
        if worker is None or worker.ended:
            users = worker.users if worker else ()
            worker = _workers.by_model[model] = Worker(model, n_ctx)
            worker.users.update(users)
        worker.users.add(user)
        return worker


def release(user: object) -> None:
    """Give up a user's hold and stop the workers that nobody holds any more; waits for their end, a few seconds."""
    with _workers.lock:
        for worker in _workers.by_model.values():
            worker.users.discard(user)
        idle = [model for model, worker in _workers.by_model.items() if not worker.users]
        stopping = [_workers.by_model.pop(model) for model in idle]
    for worker in stopping:
        worker.stop()
