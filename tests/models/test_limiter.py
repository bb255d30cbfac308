import asyncio
import selectors
import threading
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.messages import user
from replan.model import Conversation, Delta, Done, Model, ModelRequest, TextDelta
from replan.models.chat import ChatWire
from replan.models.limiter import Limiter, limiter_for
from replan.models.retry import Backoff
from replan.models.wire import Endpoint, HttpModel
from replan.settings import ModelSettings
from replan.testing import HttpReply, ScriptedServer, error_reply


class Clock:
    """A clock that moves when someone sleeps, to the earliest end of all sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, until)


def settings(concurrent: int | None = None, per_minute: int | None = None) -> ModelSettings:
    return ModelSettings(max_concurrent_calls=concurrent, max_calls_per_minute=per_minute)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_no_limit_is_no_limiter():
    assert limiter_for("http://none", "p:m", settings()) is None


def test_one_limiter_for_a_model_and_the_strictest_limits_count():
    first = limiter_for("http://one", "p:m", settings(concurrent=4))
    assert first is limiter_for("http://one", "p:m", settings(concurrent=2, per_minute=60))
    assert first is limiter_for("http://one", "p:m", settings(concurrent=9, per_minute=90))
    assert first is limiter_for("http://one", "p:m", settings())
    assert first is not None
    assert (first.concurrent, first.per_minute) == (2, 60)
    assert limiter_for("http://other", "p:m", settings(concurrent=4)) is not first
    assert limiter_for("http://one", "p:n", settings(concurrent=4)) is not first


async def test_a_call_waits_until_another_ends():
    limiter = Limiter(concurrent=1)
    seen: list[str] = []

    async def second() -> None:
        async with limiter.slot():
            seen.append("second")

    async with limiter.slot():
        task = asyncio.ensure_future(second())
        await turns()
        seen.append("first")
    await task
    assert seen == ["first", "second"]


async def test_first_come_first_served():
    limiter = Limiter(concurrent=1)
    order: list[int] = []

    async def one(number: int) -> None:
        async with limiter.slot():
            order.append(number)
            await turns(number % 3)

    await asyncio.gather(*(one(number) for number in range(20)))
    assert order == list(range(20))


async def test_two_places_that_come_free_at_once_go_to_two():
    limiter = Limiter(concurrent=2)
    hold, both = asyncio.Event(), asyncio.Barrier(2)

    async def holder() -> None:
        async with limiter.slot():
            await hold.wait()

    async def waiter() -> None:
        async with limiter.slot():
            await both.wait()

    holders = [asyncio.ensure_future(holder()) for _ in range(2)]
    await turns()
    waiters = [asyncio.ensure_future(waiter()) for _ in range(2)]
    await turns()
    hold.set()
    async with asyncio.timeout(1):
        await asyncio.gather(*holders, *waiters)


async def test_a_repeat_goes_to_the_end_of_the_line():
    limiter = Limiter(concurrent=1)
    order: list[str] = []

    async def one(name: str, times: int) -> None:
        for _ in range(times):
            async with limiter.slot():
                order.append(name)
                await asyncio.sleep(0)

    await asyncio.gather(one("a", 2), one("b", 1))
    assert order == ["a", "b", "a"]


async def test_a_call_that_raises_gives_its_place_back():
    limiter = Limiter(concurrent=1)
    with pytest.raises(ZeroDivisionError):
        async with limiter.slot():
            raise ZeroDivisionError
    async with asyncio.timeout(1), limiter.slot():
        pass


async def test_a_stream_that_is_closed_early_gives_its_place_back():
    limiter = Limiter(concurrent=1)
    closed: list[bool] = []

    async def deltas() -> AsyncGenerator[Delta, None]:
        try:
            yield TextDelta("a")
            yield TextDelta("b")
        finally:
            closed.append(True)

    stream = limiter.stream(deltas())
    assert await anext(stream) == TextDelta("a")
    await stream.aclose()
    assert closed == [True]
    async with asyncio.timeout(1):
        assert [delta async for delta in limiter.stream(deltas())] == [TextDelta("a"), TextDelta("b")]


async def test_a_stream_is_not_begun_before_its_turn():
    limiter = Limiter(concurrent=1)
    begun: list[bool] = []

    async def deltas() -> AsyncGenerator[Delta, None]:
        begun.append(True)
        yield TextDelta("a")

    async with limiter.slot():
        task = asyncio.ensure_future(anext(limiter.stream(deltas())))
        await turns()
        assert begun == []
    assert await task == TextDelta("a")


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_cancelling_someone_in_the_line_moves_the_others_up(place: int):
    limiter = Limiter(concurrent=1)
    order: list[int] = []

    async def one(number: int) -> None:
        async with limiter.slot():
            order.append(number)

    async with limiter.slot():
        tasks = [asyncio.ensure_future(one(number)) for number in range(3)]
        await turns()
        tasks[place].cancel()
        await turns()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [number for number in range(3) if number != place]


async def test_cancelling_at_the_moment_of_being_woken_loses_no_place():
    limiter = Limiter(concurrent=1)

    async def one() -> None:
        async with limiter.slot():
            pass

    async with limiter.slot():
        woken, next_one = asyncio.ensure_future(one()), asyncio.ensure_future(one())
        await turns()
    woken.cancel()
    async with asyncio.timeout(1):
        await next_one
    with pytest.raises(asyncio.CancelledError):
        await woken


async def test_the_window_holds_calls_back_until_the_oldest_is_a_minute_old():
    clock = Clock()
    limiter = Limiter(per_minute=2, clock=clock, sleep=clock.sleep)
    begun: list[float] = []
    for step in (0.0, 10.0, 0.0, 0.0, 0.0):
        clock.now += step
        async with limiter.slot():
            begun.append(clock.now - 1000)
    assert begun == [0.0, 10.0, 60.0, 70.0, 120.0]
    assert clock.slept == [50.0, 10.0, 50.0]


async def test_cancelling_the_wait_for_the_window_lets_the_next_try():
    clock = Clock()
    slept = 0

    async def sleep(seconds: float) -> None:
        nonlocal slept
        slept += 1
        if slept == 1:
            await asyncio.Event().wait()
        await clock.sleep(seconds)

    limiter = Limiter(per_minute=1, clock=clock, sleep=sleep)

    async def one() -> float:
        async with limiter.slot():
            return clock.now

    await one()
    first, second = asyncio.ensure_future(one()), asyncio.ensure_future(one())
    await turns()
    first.cancel()
    assert await second == 1060.0
    assert slept == 2


def test_limits_hold_across_threads_and_loops():
    limiter = Limiter(concurrent=3)
    lock, under_way, most, ended = threading.Lock(), 0, 0, 0

    async def one() -> None:
        nonlocal under_way, most, ended
        async with limiter.slot():
            with lock:
                under_way += 1
                most = max(most, under_way)
            await turns(3)
            with lock:
                under_way -= 1
                ended += 1

    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(50)))

    threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert (ended, under_way) == (300, 0)
    assert 1 <= most <= 3


class Idle(selectors.DefaultSelector):
    """Tells when the loop has nothing left to do but wait for others."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = threading.Event()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            self.idle.set()
        return super().select(timeout)


async def test_a_loop_that_sleeps_in_another_thread_is_woken():
    limiter = Limiter(concurrent=1)
    selector = Idle()

    async def wait() -> None:
        async with limiter.slot():
            pass

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(wait())

    thread = threading.Thread(target=run, daemon=True)
    async with limiter.slot():
        thread.start()
        assert await asyncio.to_thread(selector.idle.wait, 10)
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


def test_who_waited_in_a_loop_that_was_closed_holds_up_nobody():
    limiter = Limiter(concurrent=1)
    gone = asyncio.new_event_loop()
    holder = limiter.slot()

    async def wait() -> None:
        async with limiter.slot():
            pass

    async def start() -> asyncio.Task[None]:
        await holder.__aenter__()
        task = asyncio.ensure_future(wait())
        await turns()
        return task

    task = gone.run_until_complete(start())
    gone.close()

    async def after() -> None:
        await holder.__aexit__(None, None, None)
        async with asyncio.timeout(1):
            await wait()

    asyncio.run(after())
    drop(task)
    asyncio.run(wait())


def test_who_waited_for_the_window_in_a_loop_that_was_closed_holds_up_nobody():
    clock = Clock()

    async def sleep(seconds: float) -> None:
        if asyncio.get_running_loop() is gone:
            await asyncio.Event().wait()
        await clock.sleep(seconds)

    limiter = Limiter(per_minute=1, clock=clock, sleep=sleep)

    async def wait() -> None:
        async with limiter.slot():
            pass

    async def start() -> asyncio.Task[None]:
        await wait()
        task = asyncio.ensure_future(wait())
        await turns()
        return task

    gone = asyncio.new_event_loop()
    task = gone.run_until_complete(start())
    gone.close()

    async def after() -> None:
        async with asyncio.timeout(1):
            await wait()

    asyncio.run(after())
    drop(task)


def drop(task: asyncio.Task[None]) -> None:
    """Let go of a task whose loop is closed, without the warning that it is pending."""
    task.get_coro().close()  # type: ignore[union-attr]
    task._log_destroy_pending = False  # type: ignore[attr-defined]


async def text_of(model: Model) -> str:
    *_, done = [delta async for delta in model.stream(ModelRequest(conversation=Conversation([user("hello")])))]
    assert isinstance(done, Done)
    return done.message.text


def http_model(server: ScriptedServer, backoff: Backoff | None = None) -> HttpModel:
    endpoint = Endpoint(provider="test", model="m", base_url=server.base_url, settings=settings(concurrent=1))
    return HttpModel(endpoint, ChatWire(endpoint), backoff=backoff)


async def test_calls_of_two_models_of_one_name_wait_for_one_another():
    async with ScriptedServer(HttpReply(then="hang"), otherwise="fine") as server:
        first = asyncio.ensure_future(text_of(http_model(server)))
        while not server.requests:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(text_of(http_model(server)))
        await turns(50)
        assert len(server.requests) == 1
        first.cancel()
        assert await second == "fine"
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_call_that_waits_for_its_repeat_holds_no_place():
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await go_on.wait()

    async with ScriptedServer(error_reply(503), "second", "first") as server:
        first = asyncio.ensure_future(text_of(http_model(server, Backoff(sleep=sleep))))
        await waiting.wait()
        assert await text_of(http_model(server)) == "second"
        go_on.set()
        assert await first == "first"


@given(
    concurrent=st.none() | st.integers(1, 3),
    per_minute=st.none() | st.integers(1, 4),
    calls=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4), st.booleans()), max_size=12),
    cancelled=st.sets(st.integers(0, 11), max_size=4),
)
def test_never_too_many_in_order_and_everyone_gets_a_turn(
    concurrent: int | None, per_minute: int | None, calls: list[tuple[int, int, bool]], cancelled: set[int]
):
    clock = Clock()
    limiter = Limiter(concurrent=concurrent, per_minute=per_minute, clock=clock, sleep=clock.sleep)
    under_way = 0
    begun: list[tuple[int, float]] = []

    async def one(number: int, length: int, fails: bool) -> None:
        nonlocal under_way
        async with limiter.slot():
            begun.append((number, clock.now))
            under_way += 1
            assert concurrent is None or under_way <= concurrent
            try:
                await turns(length)
                if fails:
                    raise ZeroDivisionError
            finally:
                under_way -= 1

    async def run() -> list[BaseException | None]:
        tasks: list[asyncio.Task[None]] = []
        for number, (pause, length, fails) in enumerate(calls):
            clock.now += pause
            tasks.append(asyncio.ensure_future(one(number, length, fails)))
            await asyncio.sleep(0)
        for number in cancelled:
            if number < len(tasks):
                tasks[number].cancel()
        async with asyncio.timeout(10):
            return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(run())
    for number, outcome in enumerate(outcomes):
        if number not in cancelled:
            assert isinstance(outcome, ZeroDivisionError) == calls[number][2]
    numbers = [number for number, _ in begun]
    assert numbers == sorted(numbers)
    assert set(range(len(calls))) - cancelled <= set(numbers)
    times = [time for _, time in begun]
    if per_minute is not None:
        assert all(later - earlier >= 60 for earlier, later in zip(times, times[per_minute:], strict=False))
    assert under_way == 0
