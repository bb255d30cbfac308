import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from replan.tools.threads import MAX_THREADS, ThreadPool, run_in_thread


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def test_idle_threads_end_and_come_back():
    pool = ThreadPool(most=3, idle_seconds=0.05)
    before = threading.active_count()
    for _ in range(2):
        results = await asyncio.gather(
            *(run_in_thread(threading.get_ident, threading.Event(), pool) for _ in range(20))
        )
        assert 1 <= len(set(results)) <= 3
        await until(lambda: threading.active_count() <= before)


async def test_one_thread_serves_calls_that_follow_one_another():
    pool = ThreadPool(most=3, idle_seconds=5)
    seen: set[int] = set()
    for _ in range(50):
        seen.add(await run_in_thread(threading.get_ident, threading.Event(), pool))
        await asyncio.sleep(0.001)
    assert len(seen) <= 2


async def test_calls_end_while_threads_come_and_go():
    pool = ThreadPool(most=2, idle_seconds=0.002)
    for n in range(200):
        assert await asyncio.wait_for(run_in_thread(lambda n=n: n, threading.Event(), pool), 5) == n
        if n % 3 == 0:
            await asyncio.sleep(0.002)


async def test_a_call_that_was_cancelled_while_it_waited_is_not_started():
    pool = ThreadPool(most=1, idle_seconds=1)
    go, started, ran = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        go.wait(10)

    first = asyncio.create_task(run_in_thread(hold, threading.Event(), pool))
    await until(started.is_set)
    cancelled = threading.Event()
    second = asyncio.create_task(run_in_thread(ran.set, cancelled, pool))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go.set()
    await first
    assert await run_in_thread(lambda: "next", threading.Event(), pool) == "next"
    assert cancelled.is_set()
    assert not ran.is_set()


def test_a_thread_outlives_its_loop_without_harm():
    pool = ThreadPool(most=1, idle_seconds=0.05)
    go, ended = threading.Event(), threading.Event()

    def late() -> None:
        go.wait(10)
        ended.set()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await run_in_thread(late, threading.Event(), pool)

    asyncio.run(leave())
    go.set()
    assert ended.wait(10)
    assert asyncio.run(run_in_thread(lambda: 5, threading.Event(), pool)) == 5


def test_the_bound_is_the_documented_one():
    assert MAX_THREADS == 64


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_threads_of_its_own():
    script = (
        "import asyncio, os, threading, warnings\nwarnings.simplefilter('ignore')\n"
        "from replan.tools.threads import run_in_thread\n"
        "call = lambda: asyncio.run(run_in_thread(lambda: 'ok', threading.Event()))\n"
        "call()\n"
        "child = os.fork()\n"
        "if child == 0:\n    os._exit(0 if call() == 'ok' else 1)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.strip() == "0"
