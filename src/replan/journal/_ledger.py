"""The order of a run's completions: each is written before it is given out, in the order in which the steps ended."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

from msgspec import Raw
from msgspec.json import Encoder

from replan.durable import Cancelled, Completed, Completion, Failed, InDoubt, Outcome
from replan.encoding import JSON, JSONObject, clean_text, decode, encode

from .records import Kind, Record, RunInfo, RunLog

__all__ = ["Entry", "Ledger", "digest", "failure", "stored", "tell"]

_log = logging.getLogger("replan")
_LONGEST_MESSAGE = 100_000
_encoder = Encoder()
_KINDS: dict[type[Any], Kind] = {Failed: "failed", InDoubt: "in-doubt", Cancelled: "cancelled"}


class Entry:
    """What was started under one key: a step, a timer or an inbox item."""

    __slots__ = ("args", "asked", "begin", "completion", "digest", "key", "once", "step", "task", "timer")

    def __init__(self, key: str, step: str, args: JSON, once: bool, begin: "Callable[[Entry], None]") -> None:
        self.key, self.step, self.args, self.once, self.begin = key, step, args, once, begin
        self.digest: Any = args
        self.asked = False
        self.completion: Completion | None = None
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Ledger:
    """Writes what happens to entries; `ready` holds those whose completion is written and not yet given out.

    `failure` is why nothing can be written any more.
    """

    def __init__(self, info: RunInfo, log: RunLog, max_result_bytes: int) -> None:
        self._log, self._max_bytes = log, max_result_bytes
        self._loop = asyncio.get_running_loop()
        self._latest = info.created
        self._unsaved: deque[Callable[[], None]] = deque()
        self._requested = 0
        self._flushing = False
        self._waiter: asyncio.Future[None] | None = None
        self._syncs: set[asyncio.Future[None]] = set()
        self.ready: deque[Entry] = deque()
        self.failure: Exception | None = None

    @property
    def writing(self) -> bool:
        """Whether something is on its way to the store."""
        return bool(self._unsaved)

    def intend(self, entry: Entry, then: Callable[[], None]) -> None:
        """Write that the step is about to start, then call `then`, in the context of this call."""
        self._log.append(Record("intent", entry.key, entry.step, entry.digest, entry.args, time.time()), full=True)
        self._after_write(partial(copy_context().run, then))

    def complete(self, entry: Entry, outcome: Outcome) -> None:
        """Write what became of the entry, then make it ready. A result that is too large becomes a failure."""
        kind, body = "completed", None
        if isinstance(outcome, Completed):
            data = encode(outcome.value)
            if len(data) > self._max_bytes:
                outcome = Failed(_too_large(entry.step, len(data), self._max_bytes))
            else:
                body = Raw(data) if self._log.durable else outcome.value
        if not isinstance(outcome, Completed):
            kind = _KINDS[type(outcome)]
            body = getattr(outcome, "error", None) or getattr(outcome, "args", None)
        self._latest = at = max(time.time(), self._latest)
        entry.completion = Completion(entry.key, outcome, at)
        self._log.append(Record(kind, entry.key, entry.step, entry.digest, body, at), full=entry.once)
        if self._log.durable:
            self._after_write(partial(self._publish, entry))
        else:
            self._publish(entry)

    async def wait(self) -> None:
        """Wait until something became ready or failed. Only one caller may wait at a time."""
        if self._waiter is not None:
            raise RuntimeError("next() is being awaited already; one program drives a run")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Let `wait` return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def sync(self) -> None:
        """Have everything written and answers looked for, or a failure."""
        if self.failure is not None:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._syncs.add(future)
        self._log.commit(partial(_settle, future))
        try:
            await future
        finally:
            self._syncs.discard(future)

    def fail(self, error: Exception) -> None:
        """Nothing can be written from here on; the first reason stays."""
        self.failure = self.failure or error
        self.wake()
        for future in self._syncs:
            _settle(future)

    def _publish(self, entry: Entry) -> None:
        self.ready.append(entry)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _after_write(self, then: Callable[[], None]) -> None:
        if not self._log.durable:
            then()
            return
        self._unsaved.append(then)
        if not self._flushing:
            # what ends in the same turn of the event loop shares one commit
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        count = len(self._unsaved) - self._requested
        self._requested += count
        self._log.commit(partial(self._saved, count))

    def _saved(self, count: int) -> None:
        self._requested -= count
        for _ in range(count):
            self._unsaved.popleft()()


def digest(args: JSON) -> bytes:
    """What stands for the arguments of a step in a store."""
    import hashlib

    try:
        data = _encoder.encode(args)
    except (ValueError, TypeError, OverflowError, RecursionError):
        data = encode(stored(args))
    return hashlib.blake2b(data, digest_size=16).digest()


def stored(value: JSON) -> JSON:
    """The value as it is after it was stored and read again."""
    return decode(encode(value))


def failure(error: BaseException) -> JSONObject:
    """What is recorded of an error that is none of ours."""
    try:
        message = clean_text(str(error))[:_LONGEST_MESSAGE]
    except Exception:  # noqa: BLE001  # an error whose own text cannot be made is still an outcome
        message = "its message cannot be shown"
    return {"type": type(error).__name__, "message": message}


def tell(listener: Callable[[Any], None], event: Any) -> None:
    """Call a listener; its failure is none of the run's."""
    try:
        listener(event)
    except Exception:  # noqa: BLE001  # whatever it raises
        _log.debug("a listener of events failed", exc_info=True)


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _too_large(step: str, size: int, limit: int) -> dict[str, str]:
    message = f"step {step!r} gave a result of {size:,} bytes; the limit is {limit:,}: keep large data as an artifact"
    return {"type": "ResultTooLarge", "message": message}
