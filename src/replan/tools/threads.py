"""Threads for sync tools: bounded, ended when idle, and never in the way of the program's end.

The threads are daemons, since a tool that hangs cannot be killed and must not keep the process alive. One pool serves
the process; a call beyond the bound waits for a thread to come free.
"""

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["MAX_THREADS", "ThreadPool", "run_in_thread"]

MAX_THREADS = 64
IDLE_SECONDS = 5.0

T = TypeVar("T")


class ThreadPool:
    """Runs jobs in at most `most` threads. A thread without work for `idle_seconds` ends."""

    def __init__(self, most: int = MAX_THREADS, idle_seconds: float = IDLE_SECONDS) -> None:
        self._most, self._idle_seconds = most, idle_seconds
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._free = 0  # threads that wait for work, less the jobs that wait for a thread

    def submit(self, job: Callable[[], None]) -> None:
        """Run the job, which must not raise, as soon as a thread is free."""
        with self._lock:
            grow = self._free <= 0 and self._threads < self._most
            if grow:
                self._threads += 1
            else:
                self._free -= 1
        self._jobs.put(job)
        if grow:
            threading.Thread(target=self._work, name="replan-tool", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                self._jobs.get(timeout=self._idle_seconds)()
            except queue.Empty:
                if self._leave():
                    return
                continue
            with self._lock:
                self._free += 1

    def _leave(self) -> bool:
        with self._lock:
            leave = self._free > 0
            if leave:
                self._free -= 1
                self._threads -= 1
            return leave


_pool = ThreadPool()


def _renew() -> None:
    global _pool  # noqa: PLW0603  # a forked child has none of its parent's threads
    _pool = ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


async def run_in_thread(function: Callable[[], T], cancelled: threading.Event, pool: ThreadPool | None = None) -> T:
    """What the function gives or raises, run in a thread with the caller's context variables.

    On cancellation `cancelled` is set and the call returns at once: what still comes from the thread is dropped, and a
    function whose turn has not come is not started.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    run = contextvars.copy_context().run

    def settle(value: T | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((value, error))

    def job() -> None:
        if done.done():
            return
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = run(function)
        except BaseException as error:  # noqa: BLE001  # it is raised again where the call was made
            failure = error
        try:
            loop.call_soon_threadsafe(settle, value, failure)
        except RuntimeError:
            return  # the loop has ended, nobody waits

    (pool or _pool).submit(job)
    try:
        value, error = await done
    except asyncio.CancelledError:
        cancelled.set()
        raise
    if error is not None:
        raise error
    return value  # pyright: ignore[reportReturnType]  # without an error the value is the function's
