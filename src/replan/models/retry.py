"""Repeating a model call that failed for a passing reason; the same for every wire."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from replan.errors import ModelError, ModelTimeout
from replan.model import Delta, Retry
from replan.settings import ModelSettings

from .failures import Failure

__all__ = ["Backoff", "repeat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often and how long after one another attempts follow.

    The wait before repeat n is random between 0 and `base * 2**(n-1)` seconds, at most `cap` ("full jitter"); a wait
    that the provider asks for replaces it. `max_seconds` is what all of it may take; a wait that would end later is not
    begun. `wanted` says of an error whether to repeat, in place of what is known of it. `sleep`, `chance` (a number in
    [0, 1)) and `clock` can be replaced in tests.
    """

    max_retries: int = 3
    base: float = 0.5
    cap: float = 8.0
    max_seconds: float | None = None
    wanted: Callable[[ModelError], bool] | None = None
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic

    @staticmethod
    def of(settings: ModelSettings) -> "Backoff":
        """The backoff that settings describe."""
        return Backoff(
            max_retries=settings.max_retries,
            base=settings.retry_delay,
            cap=settings.retry_max_delay,
            max_seconds=settings.max_seconds,
            wanted=settings.retry_if,
        )

    def delay(self, attempt: int, asked: float | None) -> float:
        """Seconds to wait after the failed attempt of that number, counted from 1."""
        return self.chance() * min(self.cap, self.base * 2.0 ** min(attempt - 1, 64)) if asked is None else asked

    def helps(self, failure: Failure) -> bool:
        """Whether another attempt can help."""
        return failure.repeat if self.wanted is None else self.wanted(failure.error)


async def repeat(
    attempt: Callable[[], AsyncGenerator[Delta, None]], backoff: Backoff, *, model: str = "the model"
) -> AsyncIterator[Delta]:
    """The deltas of the first attempt that succeeds, with a `Retry` between attempts that makes void what came
    before it.

    Raises the `ModelError` of the last `Failure` when it cannot be helped by repeating or the retries are used up, and
    `ModelTimeout` when `max_seconds` are over.
    """
    until = None if backoff.max_seconds is None else backoff.clock() + backoff.max_seconds
    number = 0
    while True:
        number += 1
        left = None if until is None else max(0.0, until - backoff.clock())
        try:
            async with aclosing(attempt()) as deltas, aclosing(_within(deltas, left, model, backoff)) as timed:
                async for delta in timed:
                    yield delta
        except Failure as failure:
            if number > backoff.max_retries or not backoff.helps(failure):
                raise failure.error from None
            retry = Retry(number, str(failure.error), backoff.delay(number, failure.wait))
            if until is not None and backoff.clock() + retry.delay >= until:
                raise failure.error from None
        else:
            return
        yield retry
        await backoff.sleep(retry.delay)


async def _within(
    deltas: AsyncGenerator[Delta, None], seconds: float | None, model: str, backoff: Backoff
) -> AsyncGenerator[Delta, None]:
    """The deltas, with at most so many seconds for all of them."""
    if seconds is None:
        async for delta in deltas:
            yield delta
        return
    until = backoff.clock() + seconds
    while True:
        limit = asyncio.timeout(max(0.0, until - backoff.clock()))
        try:
            async with limit:
                delta = await anext(deltas)
        except StopAsyncIteration:
            return
        except TimeoutError:
            if not limit.expired():
                raise
            raise ModelTimeout(f"{model}: no whole answer in {backoff.max_seconds:g} s", model=model) from None
        yield delta
