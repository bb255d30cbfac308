"""Steps and journals for the tests of this folder."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from replan.durable import StepContext, durable_step
from replan.encoding import JSON
from replan.journal import Journal, MemoryJournal, Wiring
from replan.journal.sqlite import SqliteJournal


@dataclass
class Bench:
    """The services of a run: what steps did, and what they wait for."""

    ran: Counter[str] = field(default_factory=Counter)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)

    def gate(self, key: str) -> asyncio.Event:
        return self.gates.setdefault(key, asyncio.Event())

    def wiring(self, **options: Any) -> Wiring:
        return Wiring(services=self, **options)


@durable_step("test.give")
async def give(context: StepContext, args: JSON) -> JSON:
    """Give the arguments back."""
    context.services.ran[context.key] += 1
    return args


@durable_step("test.gate")
async def gate(context: StepContext, args: JSON) -> JSON:
    """Wait for the gate of this key, then give the arguments back."""
    context.services.ran[context.key] += 1
    await context.services.gate(context.key).wait()
    return args


@durable_step("test.fail")
async def fail(context: StepContext, args: JSON) -> JSON:
    """Fail as long as the gate of this key is shut."""
    context.services.ran[context.key] += 1
    if not context.services.gate(context.key).is_set():
        raise ValueError("not yet")
    return args


@durable_step("test.call")
async def call(context: StepContext, args: JSON) -> JSON:
    """Call a function of the bench with the context."""
    context.services.ran[context.key] += 1
    return await getattr(context.services, args)(context)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path / "runs.db")
    yield journal
    await journal.close()


@pytest.fixture
async def memory() -> AsyncIterator[MemoryJournal]:
    journal = MemoryJournal()
    yield journal
    await journal.close()


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, memory: MemoryJournal, sqlite: SqliteJournal) -> Journal:
    """Each of the two journals."""
    return memory if request.param == "memory" else sqlite


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """No task and no thread outlives a test."""
    threads = set(threading.enumerate())
    yield
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, left
    assert not {thread for thread in set(threading.enumerate()) - threads if thread.name == "replan journal"}


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], Any]:
    """Wait until a condition holds, for ten seconds at most."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)

    return wait
