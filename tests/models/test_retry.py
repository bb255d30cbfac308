import asyncio
from collections.abc import AsyncGenerator

import pytest

from replan.errors import AuthError, BadRequest, ModelError, ModelTimeout, NetworkError
from replan.messages import Assistant
from replan.model import Delta, Done, Retry, TextDelta
from replan.models.failures import Failure
from replan.models.retry import Backoff, repeat
from replan.settings import ModelSettings
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


# ---- how long all of it may take


class Clock:
    """Moves when someone sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


async def test_a_wait_that_would_end_too_late_is_not_begun():
    clock, attempts = Clock(), Attempts(broken(4.0), broken(4.0), broken(4.0))
    backoff = Backoff(max_retries=9, max_seconds=10, clock=clock, sleep=clock.sleep)
    with pytest.raises(NetworkError, match="broke"):
        _ = [delta async for delta in repeat(attempts, backoff)]
    assert clock.slept == [4.0, 4.0]
    assert attempts.made == 3


async def test_within_the_time_attempts_are_made_until_one_succeeds():
    clock, attempts = Clock(), Attempts(broken(4.0), broken(5.9))
    backoff = Backoff(max_seconds=10, clock=clock, sleep=clock.sleep)
    deltas = [delta async for delta in repeat(attempts, backoff)]
    assert deltas[-1] == DONE
    assert attempts.made == 3


async def test_an_attempt_that_takes_too_long_is_ended():
    ended: list[bool] = []

    async def endless() -> AsyncGenerator[Delta, None]:
        try:
            yield TextDelta("half")
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    stream = repeat(endless, Backoff(max_seconds=0.05), model="test:m")
    assert await anext(stream) == TextDelta("half")
    with pytest.raises(ModelTimeout, match=r"test:m: no whole answer in 0\.05 s") as caught:
        await anext(stream)
    assert (ended, caught.value.model) == ([True], "test:m")


async def test_a_second_attempt_has_only_the_time_that_is_left():
    clock = Clock()
    made = 0

    async def attempt() -> AsyncGenerator[Delta, None]:
        nonlocal made
        made += 1
        if made == 1:
            clock.now += 6
            raise broken(3.99)
        await asyncio.Event().wait()
        yield DONE

    async def collect() -> None:
        _ = [delta async for delta in repeat(attempt, Backoff(max_seconds=10, clock=clock, sleep=clock.sleep))]

    with pytest.raises(ModelTimeout, match="no whole answer in 10 s"):
        await asyncio.wait_for(collect(), 5)
    assert made == 2


async def test_a_timeout_of_the_attempts_own_is_not_taken_for_ours():
    async def attempt() -> AsyncGenerator[Delta, None]:
        raise TimeoutError("its own")
        yield DONE

    with pytest.raises(TimeoutError, match="its own"):
        _ = [delta async for delta in repeat(attempt, Backoff(max_seconds=10))]


async def test_closing_early_ends_a_timed_attempt():
    attempts = Attempts()
    stream = repeat(attempts, Backoff(max_seconds=10))
    assert await anext(stream) == TextDelta("attempt 1")
    await stream.aclose()  # type: ignore[attr-defined]
    assert attempts.ended == 1


# ---- what is repeated


async def test_what_is_wanted_is_repeated_whatever_is_known_of_the_error():
    seen: list[ModelError] = []

    def wanted(error: ModelError) -> bool:
        seen.append(error)
        return isinstance(error, BadRequest)

    attempts = Attempts(broken(repeat=False), broken(repeat=False))
    assert (await run(attempts, wanted=wanted))[0][-1] == DONE
    assert [type(error) for error in seen] == [BadRequest, BadRequest]


async def test_what_is_not_wanted_is_not_repeated_even_where_it_would_help():
    attempts = Attempts(broken())
    with pytest.raises(NetworkError):
        await run(attempts, wanted=lambda error: isinstance(error, AuthError))
    assert attempts.made == 1


async def test_wanted_repeats_end_with_the_retries():
    attempts = Attempts(*[broken(repeat=False)] * 9)
    with pytest.raises(BadRequest):
        await run(attempts, wanted=lambda error: True, max_retries=2)
    assert attempts.made == 3


def test_settings_describe_the_backoff():
    def wanted(error: ModelError) -> bool:
        return True

    backoff = Backoff.of(
        ModelSettings(max_retries=7, retry_delay=0.1, retry_max_delay=2, max_seconds=30, retry_if=wanted)
    )
    assert (backoff.max_retries, backoff.base, backoff.cap, backoff.max_seconds) == (7, 0.1, 2, 30)
    assert backoff.wanted is wanted


def test_very_many_attempts_wait_no_longer_than_the_cap():
    assert Backoff(chance=lambda: 1.0).delay(5000, None) == 8.0
