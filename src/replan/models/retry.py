"""Repeating a model call that failed for a passing reason; the same for every wire."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from replan.model import Delta, Retry

from .failures import Failure

__all__ = ["Backoff", "repeat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often and how long after one another attempts follow.

    The wait before repeat n is random between 0 and `base * 2**(n-1)` seconds, at most `cap`; a wait that the provider
    asks for replaces it. `sleep` and `chance` (a number in [0, 1)) can be replaced in tests.
    """

    max_retries: int = 3
    base: float = 0.5
    cap: float = 8.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def delay(self, attempt: int, asked: float | None) -> float:
        """Seconds to wait after the failed attempt of that number, counted from 1."""
        return self.chance() * min(self.cap, self.base * 2 ** (attempt - 1)) if asked is None else asked


async def repeat(attempt: Callable[[], AsyncGenerator[Delta, None]], backoff: Backoff) -> AsyncIterator[Delta]:
    """The deltas of the first attempt that succeeds, with a `Retry` between attempts that makes void what came
    before it.

    Raises the `ModelError` of the last `Failure` when it cannot be helped by repeating or the retries are used up.
    """
    number = 0
    while True:
        number += 1
        try:
            async with aclosing(attempt()) as deltas:
                async for delta in deltas:
                    yield delta
        except Failure as failure:
            if not failure.repeat or number > backoff.max_retries:
                raise failure.error from None
            retry = Retry(number, str(failure.error), backoff.delay(number, failure.wait))
        else:
            return
        yield retry
        await backoff.sleep(retry.delay)
