"""Inbox items that stay open in a SQLite journal until somebody answers, in this process or another."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from replan.durable import Completed, Completion
from replan.errors import JournalError
from replan.journal import InboxItem, LocalRun, Paused
from replan.journal.sqlite import SqliteJournal


async def create(journal: SqliteJournal, bench: Any) -> LocalRun:
    return await journal.create("r1", program="test", input=None, wiring=bench.wiring(unattended="wait"))


async def end(run: LocalRun) -> Completion:
    async with asyncio.timeout(10):
        return await run.next()


async def test_a_run_with_nothing_else_to_do_pauses(sqlite: SqliteJournal, bench: Any):
    run = await create(sqlite, bench)
    run.start("test.give", 1, key="a")
    run.expect("approval", key="ok", deadline=60, default={"allow": False})
    run.expect("question", key="q")
    assert (await end(run)).key == "a"
    with pytest.raises(Paused, match="waits for 'approval', 'question'") as paused:
        await end(run)
    assert [item.key for item in paused.value.items] == ["ok", "q"]
    with pytest.raises(Paused):
        await end(run)
    await run.finish("paused")
    assert (await sqlite.info("r1")).status == "paused"
    items = await sqlite.inbox()
    assert items == paused.value.items
    approval = items[0]
    assert approval == InboxItem(
        run_id="r1", key="ok", name="approval", deadline=approval.deadline, default={"allow": False}
    )
    assert approval.deadline == pytest.approx(time.time() + 60, abs=5)


async def test_answers_from_another_process_count_after_a_resume(sqlite: SqliteJournal, bench: Any):
    run = await create(sqlite, bench)
    for key in ("a", "b"):
        run.expect("approval", key=key)
    with pytest.raises(Paused):
        await end(run)
    await run.finish("paused")
    other = SqliteJournal(sqlite.path)
    await other.answer("r1", "b", {"allow": True})
    with pytest.raises(JournalError, match="no open inbox item 'b'"):
        await other.answer("r1", "b", {"allow": False})
    assert [item.key for item in await other.inbox("r1")] == ["a"]
    await other.close()
    for _ in range(2):
        run = await sqlite.open("r1", bench.wiring(unattended="wait"))
        for key in ("a", "b"):
            run.expect("approval", key=key)
        assert await end(run) == Completion("b", Completed({"allow": True}), run.now())
        with pytest.raises(Paused):
            await end(run)
        await run.finish("paused")
    assert [row[0] for row in await sqlite.completions("r1")] == ["b"]


async def test_an_answer_from_another_process_reaches_a_run_that_goes_on(tmp_path: Path, bench: Any):
    journal, other = SqliteJournal(tmp_path / "runs.db", lease=0.3), SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    run.start("test.gate", 1, key="a")
    run.expect("approval", key="ok")
    waiting = asyncio.create_task(end(run))
    async with asyncio.timeout(10):
        while not await other.inbox():
            await asyncio.sleep(0.01)
    await other.answer("r1", "ok", "yes")
    assert (await waiting).outcome == Completed("yes")
    bench.gate("a").set()
    assert (await end(run)).key == "a"
    await other.close()
    await journal.close()


async def test_an_answer_that_comes_just_before_the_pause_counts(sqlite: SqliteJournal, bench: Any):
    run = await create(sqlite, bench)
    run.start("test.give", 1, key="a")
    run.expect("approval", key="ok")
    await end(run)
    other = SqliteJournal(sqlite.path)
    with pytest.raises(Paused):
        await end(run)
    await other.answer("r1", "ok", "yes")
    await other.close()
    assert (await end(run)).outcome == Completed("yes")


async def test_a_deadline_that_passed_while_paused_gives_the_default(sqlite: SqliteJournal, bench: Any):
    run = await create(sqlite, bench)
    run.expect("approval", key="ok", deadline=0.15, default="no")
    with pytest.raises(Paused):
        await end(run)
    await run.finish("paused")
    await asyncio.sleep(0.2)
    run = await sqlite.open("r1", bench.wiring(unattended="wait"))
    run.expect("approval", key="ok", deadline=60, default="other")
    assert (await end(run)).outcome == Completed("no")
    with pytest.raises(JournalError, match="no open inbox item"):
        await sqlite.answer("r1", "ok", "yes")


async def test_an_answer_counts_that_was_stored_before_the_deadline(sqlite: SqliteJournal, bench: Any):
    run = await create(sqlite, bench)
    run.start("test.gate", 1, key="a")
    run.expect("approval", key="ok", deadline=0.2, default="no")
    await asyncio.sleep(0.02)
    await sqlite.runs()
    other = SqliteJournal(sqlite.path)
    await other.answer("r1", "ok", "yes")
    await other.close()
    assert (await end(run)).outcome == Completed("yes")


async def test_a_run_resumed_by_a_process_that_can_answer_asks_it(sqlite: SqliteJournal, bench: Any):
    run = await create(sqlite, bench)
    run.expect("approval", key="ok", body="the first process's", default="no")
    with pytest.raises(Paused):
        await end(run)
    await run.finish("paused")

    async def answerer(item: InboxItem) -> Any:
        return f"yes to {item.name}: {item.body}"

    run = await sqlite.open("r1", bench.wiring(answerer=answerer))
    run.expect("approval", key="ok", default="no")
    assert (await end(run)).outcome == Completed("yes to approval: the first process's")
    assert await sqlite.inbox() == []


async def test_items_of_ended_runs_are_not_listed(sqlite: SqliteJournal, bench: Any):
    run = await create(sqlite, bench)
    run.expect("approval", key="ok")
    with pytest.raises(Paused):
        await end(run)
    await run.finish("cancelled")
    assert await sqlite.inbox() == []
    with pytest.raises(JournalError, match="no open inbox item"):
        await sqlite.answer("r1", "ok", "yes")
