"""How many calls of one model may be under way, and begin within a minute, in the whole process.

limiter = limiter_for("https://api.example.com/v1", "example:large", ModelSettings(max_concurrent_calls=4))
async with limiter.slot():
    ...  # one request
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

from replan.model import Delta
from replan.settings import ModelSettings

__all__ = ["Limiter", "limiter_for"]

_WINDOW = 60.0


class _Turn:
    """Someone in the line, and how to wake it from any thread."""

    __slots__ = ("_woken", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    async def come(self) -> None:
        """Wait to be woken."""
        await self._woken.wait()
        self._woken.clear()

    def wake(self) -> bool:
        """Wake it; False where its loop is closed."""
        try:
            self.loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            return False
        return True


class Limiter:
    """Holds back calls of one model; first come, first served, across threads and event loops.

    `concurrent` calls may be under way at once, and `per_minute` may begin within any 60 seconds; None is no limit.
    Only the first in line may take a place, and whoever takes or gives back one wakes the first in line; so nothing
    polls, and nothing runs beside the calls. `clock` (seconds) and `sleep` can be replaced in tests.
    """

    def __init__(
        self,
        *,
        concurrent: int | None = None,
        per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.concurrent, self.per_minute = concurrent, per_minute
        self._clock, self._sleep = clock, sleep
        # Reentrant, because the collection of garbage may end a call in the midst of ours.
        self._lock = threading.RLock()
        self._line: deque[_Turn] = deque()
        self._begun: deque[float] = deque()
        self._under_way = 0

    def tighten(self, concurrent: int | None, per_minute: int | None) -> None:
        """Add limits; of two the strictest counts."""
        with self._lock:
            self.concurrent = _least(self.concurrent, concurrent)
            self.per_minute = _least(self.per_minute, per_minute)

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """A place for one request, given back at the end however that comes about."""
        await self._enter()
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                self._wake_first()

    async def stream(self, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
        """The deltas of one request, begun when there is a place for it."""
        async with self.slot(), aclosing(deltas):
            async for delta in deltas:
                yield delta

    async def _enter(self) -> None:
        turn = _Turn()
        self._line.append(turn)
        try:
            while (wait := self._take(turn)) != 0:
                await (turn.come() if wait is None else self._sleep(wait))
        except BaseException:
            with self._lock:
                if turn in self._line:
                    self._line.remove(turn)
                self._wake_first()
            raise

    def _take(self, turn: _Turn) -> float | None:
        """Take a place: 0 where that went well, else the seconds until it can be tried again, or None to be woken."""
        with self._lock:
            while self._line[0].loop.is_closed():
                self._line.popleft()
            if self._line[0] is not turn or (self.concurrent is not None and self._under_way >= self.concurrent):
                return None
            wait = self._window_wait()
            if wait == 0:
                self._line.popleft()
                self._under_way += 1
                self._wake_first()
            return wait

    def _window_wait(self) -> float:
        """Seconds until another call may begin; where that is now, the call counts as begun."""
        if self.per_minute is None:
            return 0
        now = self._clock()
        while self._begun and self._begun[0] <= now - _WINDOW:
            self._begun.popleft()
        if len(self._begun) >= self.per_minute:
            return max(self._begun[-self.per_minute] + _WINDOW - now, 1e-3)
        self._begun.append(now)
        return 0

    def _wake_first(self) -> None:
        while self._line and not self._line[0].wake():
            self._line.popleft()


_limiters: dict[tuple[str, str], Limiter] = {}


def limiter_for(base_url: str, name: str, settings: ModelSettings) -> Limiter | None:
    """The limiter of a model, shared in the process; None where nothing limits it.

    Of several settings the strictest counts, also for those who set nothing.
    """
    concurrent, per_minute = settings.max_concurrent_calls, settings.max_calls_per_minute
    if concurrent is None and per_minute is None:
        return _limiters.get((base_url, name))
    limiter = _limiters.setdefault((base_url, name), Limiter())
    limiter.tighten(concurrent, per_minute)
    return limiter


def _least(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)
