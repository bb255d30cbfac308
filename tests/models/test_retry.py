import asyncio
from collections.abc import AsyncGenerator

import pytest

from replan.errors import BadRequest, NetworkError
from replan.messages import Assistant
from replan.model import Delta, Done, Retry, TextDelta
from replan.models.failures import Failure
from replan.models.retry import Backoff, repeat
from replan.usage import Usage

DONE = Done(Assistant(()), Usage(), "stop")


class Attempts:
    """Fails as the list says, then succeeds."""

    def __init__(self, *failures: Failure) -> None:
        self.failures, self.made, self.ended = list(failures), 0, 0

    async def __call__(self) -> AsyncGenerator[Delta, None]:
        self.made += 1
        try:
            yield TextDelta(f"attempt {self.made}")
            if self.failures:
                raise self.failures.pop(0)
            yield DONE
        finally:
            self.ended += 1


def broken(wait: float | None = None, *, repeat: bool = True) -> Failure:
    return Failure(NetworkError("broke") if repeat else BadRequest("no"), repeat=repeat, wait=wait)


async def run(attempts: Attempts, **backoff: object) -> tuple[list[Delta], list[float]]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    policy = Backoff(sleep=sleep, **backoff)  # type: ignore[arg-type]
    return [delta async for delta in repeat(attempts, policy)], slept


async def test_success_needs_no_repeat():
    assert await run(Attempts()) == ([TextDelta("attempt 1"), DONE], [])


async def test_a_retry_stands_before_each_repeat():
    deltas, slept = await run(Attempts(broken(), broken()), chance=lambda: 1.0)
    assert deltas == [
        TextDelta("attempt 1"),
        Retry(1, "broke", 0.5),
        TextDelta("attempt 2"),
        Retry(2, "broke", 1.0),
        TextDelta("attempt 3"),
        DONE,
    ]
    assert slept == [0.5, 1.0]


async def test_waits_are_jittered_and_capped():
    _, slept = await run(Attempts(*[broken()] * 7), max_retries=7, chance=lambda: 0.5)
    assert slept == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


async def test_the_providers_wait_replaces_ours():
    assert (await run(Attempts(broken(7.0), broken(0.0))))[1] == [7.0, 0.0]


async def test_what_cannot_be_helped_is_raised_at_once():
    attempts = Attempts(broken(repeat=False))
    with pytest.raises(BadRequest):
        await run(attempts)
    assert attempts.made == 1


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_the_error_comes_when_retries_are_used_up(retries: int):
    attempts = Attempts(*[broken()] * 9)
    with pytest.raises(NetworkError, match="broke"):
        await run(attempts, max_retries=retries)
    assert attempts.made == retries + 1


async def test_closing_early_ends_the_attempt():
    attempts = Attempts()
    stream = repeat(attempts, Backoff())
    assert await anext(stream) == TextDelta("attempt 1")
    await stream.aclose()  # type: ignore[attr-defined]
    assert attempts.ended == 1


async def test_cancelling_during_the_wait_is_not_swallowed():
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def consume() -> None:
        async for _ in repeat(Attempts(broken()), Backoff(sleep=sleep)):
            pass

    task = asyncio.ensure_future(consume())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
