"""Programs interrupted at random points: a resumed run decides the same, and repeats what was in flight only."""

import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replan.durable import Cancelled, Completed, Durable, Failed, InDoubt, StepContext, durable_step
from replan.encoding import JSON
from replan.journal import Journal, MemoryJournal, Wiring
from replan.journal.sqlite import SqliteJournal

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["read", "write", "fail", "nap", "cancel", "emit"]), st.integers(0, 3)),
    min_size=1,
    max_size=4,
)


@dataclass
class World:
    """What really happened, over all processes. `budget` turns of steps are left until the process ends."""

    budget: int = 0
    begun: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def turn(self) -> None:
        self.budget -= 1
        if self.budget <= 0:
            self.over.set()


@durable_step("random.step")
async def step(context: StepContext, args: JSON) -> JSON:
    world: World = context.services
    world.begun[context.key] += 1
    for _ in range(args["turns"]):
        await asyncio.sleep(0)
        world.turn()
    world.ended[context.key] += 1
    if args["fails"]:
        raise ValueError(f"fails after {args['turns']}")
    return {"turns": args["turns"]}


async def program(durable: Durable, script: JSON) -> list[Any]:
    """Start the actions of each round; how many completions are taken before the next depends on what came so far."""
    log: list[Any] = []
    open_keys: list[str] = []
    for number, actions in enumerate(script):
        for index, (kind, turns) in enumerate(actions):
            key = f"{number}/{index}"
            if kind in ("read", "write", "fail"):
                args = {"turns": turns, "fails": kind == "fail"}
                durable.start("random.step", args, key=key, once=kind == "write")
                open_keys.append(key)
            elif kind == "nap":
                durable.sleep(turns / 1000, key=key)
                open_keys.append(key)
            elif kind == "cancel" and open_keys:
                durable.cancel(open_keys[turns % len(open_keys)])
            else:
                await durable.emit({"at": key})
        take = 1 + len(log) % 2
        while open_keys and take:
            log.append(await taken(durable, open_keys))
            take -= 1
    while open_keys:
        log.append(await taken(durable, open_keys))
    return log


async def taken(durable: Durable, open_keys: list[str]) -> Any:
    completion = await durable.next()
    open_keys.remove(completion.key)
    await durable.emit({"seen": completion.key})
    match completion.outcome:
        case Completed(value):
            return [completion.key, "completed", value]
        case Failed(error):
            return [completion.key, "failed", error["message"]]
        case InDoubt():
            return [completion.key, "in doubt", None]
        case Cancelled():
            return [completion.key, "cancelled", None]


async def drive(journal: Journal, script: Any, budgets: list[int]) -> None:
    """Run with an interruption after each budget, and check what the run says against what happened."""
    world = World()
    wiring = Wiring(services=world)
    run = await journal.create("r1", program="random", input=script, wiring=wiring)
    known: list[Any] = []
    told: list[Any] = []
    for budget in budgets:
        world.budget = budget
        world.over.clear()
        task = asyncio.ensure_future(program(run, run.info.input))
        over = asyncio.ensure_future(world.over.wait())
        await asyncio.wait([task, over], return_when=asyncio.FIRST_COMPLETED)
        for future in (task, over):
            future.cancel()
        await asyncio.wait([task, over])
        await run.release()
        rows = [row[0] for row in await journal.completions("r1")]
        assert rows[: len(known)] == known
        known = rows
        events = [event for _, event in await journal.events("r1")]
        assert events[: len(told)] == told
        told = events
        run = await journal.open("r1", wiring=wiring)
    before = Counter(world.begun)
    log = await program(run, run.info.input)
    await run.finish("complete", log)

    assert [row[0] for row in await journal.completions("r1")] == [entry[0] for entry in log]
    assert [entry[0] for entry in log][: len(known)] == known
    assert len({entry[0] for entry in log}) == len(log)
    seen = [event["seen"] for _, event in await journal.events("r1") if "seen" in event]
    assert seen == [entry[0] for entry in log]
    for key, times in world.begun.items():
        number, index = map(int, key.split("/"))
        kind = script[number][index][0]
        outcome = next(entry[1] for entry in log if entry[0] == key)
        assert kind != "write" or times == 1, (key, times)
        assert key not in known or times == before[key], "a recorded step was run again"
        assert outcome != "in doubt" or kind == "write"
        assert outcome not in ("completed", "failed") or world.ended[key] >= 1
        assert times <= 1 + len(budgets)


scripts = st.lists(ACTIONS, min_size=1, max_size=4)
budgets = st.lists(st.integers(0, 12), max_size=3)


@given(scripts, budgets)
@settings(max_examples=60, deadline=None)
def test_random_programs_in_memory(script: Any, budgets: list[int]):
    asyncio.run(drive(MemoryJournal(keep=1), script, budgets))


@given(scripts, budgets)
@settings(max_examples=25, deadline=None)
def test_random_programs_in_sqlite(script: Any, budgets: list[int]):
    async def whole() -> None:
        with tempfile.TemporaryDirectory() as folder:
            journal = SqliteJournal(Path(folder) / "runs.db")
            try:
                await drive(journal, [[list(action) for action in actions] for actions in script], budgets)
            finally:
                await journal.close()

    asyncio.run(whole())


@pytest.mark.parametrize("budgets", [[0], [0, 0], [1, 2, 3]])
def test_a_write_that_ends_just_when_the_process_does(budgets: list[int]):
    script = [[["write", 2], ["write", 0]], [["read", 1], ["write", 1]]]
    asyncio.run(drive(MemoryJournal(), script, budgets))
