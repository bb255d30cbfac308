"""Runs whose process is killed, stopped or raced, with real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import killed_program
import pytest

from replan.durable import Completed
from replan.errors import JournalBusy, JournalError
from replan.journal import Wiring
from replan.journal.sqlite import SqliteJournal

HERE = Path(__file__).parent
POINTS = ["read:1", "before:1", "after:1", "event:1", "event:2", "read:2", "before:2", "after:2", "event:4", "after:3"]


@pytest.mark.parametrize("point", [*POINTS, "event:6"])
async def test_a_killed_run_is_resumed_without_repeating_writes(point: str, tmp_path: Path):
    path, effects = tmp_path / "runs.db", tmp_path / "effects"
    command = [sys.executable, HERE / "killed_program.py", path, effects, point]
    killed = await asyncio.to_thread(subprocess.run, command, timeout=25)
    assert killed.returncode == -signal.SIGKILL
    before = effects.read_text().splitlines() if effects.exists() else []
    journal = SqliteJournal(path)
    done = {row[0]: row[2]["value"] for row in await journal.completions("killed")}
    desk = killed_program.Desk(effects, "never")
    run = await journal.open("killed", Wiring(services=desk))
    seen = await killed_program.program(run, run.info.input)
    await run.finish("complete", seen)
    assert [event["key"] for _, event in await journal.events("killed")] == [key for key, _ in seen]
    await journal.close()

    counts = Counter(effects.read_text().splitlines())
    results = dict(seen)
    assert sorted(results) == sorted(f"{n}/{kind}" for n in (1, 2, 3) for kind in ("read", "write"))
    assert {key: results[key] for key in done} == done
    for number in (1, 2, 3):
        wrote = counts[f"write {number}"]
        in_doubt = results[f"{number}/write"] == "doubt"
        assert wrote == 1 or (wrote == 0 and in_doubt), (number, wrote)
        finished_reads = [line for line in before if line == f"read {number}"] if f"{number}/read" in done else []
        assert not finished_reads or counts[f"read {number}"] == 1
    where, _, number = point.partition(":")
    if where in ("before", "after"):
        assert results[f"{number}/write"] == "doubt"


async def test_a_run_killed_at_any_time_is_resumed(tmp_path: Path):
    for delay in (0.0, 0.002, 0.005, 0.01):
        path, effects = tmp_path / f"runs-{delay}.db", tmp_path / f"effects-{delay}"
        process = await asyncio.create_subprocess_exec(
            sys.executable, HERE / "killed_program.py", path, effects, "never"
        )
        async with asyncio.timeout(20):
            while not effects.exists():
                await asyncio.sleep(0.001)
        await asyncio.sleep(delay)
        if process.returncode is None:
            process.kill()
        await process.wait()
        journal = SqliteJournal(path)
        if (await journal.info("killed")).status != "complete":
            run = await journal.open("killed", Wiring(services=killed_program.Desk(effects, "never")))
            await run.finish("complete", await killed_program.program(run, run.info.input))
        seen = (await journal.info("killed")).result
        await journal.close()
        counts = Counter(effects.read_text().splitlines())
        for number in (1, 2, 3):
            wrote = counts[f"write {number}"]
            assert wrote == 1 or (wrote == 0 and [f"{number}/write", "doubt"] in seen)


@asynccontextmanager
async def holder(how: str, path: Path, lease: float) -> AsyncIterator[Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        HERE / "held_run.py",
        how,
        path,
        str(lease),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: Any) -> str:
    async with asyncio.timeout(20):
        return (await process.stdout.readline()).decode().strip()


async def test_a_dead_owner_is_replaced_at_once_and_a_living_one_is_not(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db", lease=60)
    async with holder("create", journal.path, 60) as process:
        assert await line(process) == "held"
        with pytest.raises(JournalBusy, match=rf"process {process.pid} on host .* \(since \d{{4}}-"):
            await journal.open("r1")
        info = await journal.info("r1")
        assert info.owner is not None
        assert info.owner.pid == process.pid
        process.kill()
        await process.wait()
        assert (await journal.info("r1")).owner is None
        run = await journal.open("r1")
        assert (await journal.info("r1")).owner.pid == os.getpid()  # pyright: ignore[reportOptionalMemberAccess]
        await run.finish("stopped")
    await journal.close()


async def test_a_stalled_owner_loses_the_run_and_can_write_no_more(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db", lease=0.6)
    async with holder("create", journal.path, 0.6) as process:
        assert await line(process) == "held"
        process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(10):
            while (run := await open_or_none(journal, bench)) is None:
                await asyncio.sleep(0.05)
        run.start("test.give", "ours", key="a")
        assert (await run.next()).outcome == Completed("ours")
        process.stdin.write(b"go\n")
        process.send_signal(signal.SIGCONT)
        assert (await line(process)).startswith("JournalFenced run 'r1' was taken over by another process")
        await run.finish("complete", "ours")
        assert [row[2] for row in await journal.completions("r1")] == [{"kind": "completed", "value": "ours"}]
        assert (await journal.info("r1")).result == "ours"
    await journal.close()


async def test_a_stalled_owner_does_not_begin_the_write_that_it_noted(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db", lease=0.6)
    async with holder("stall", journal.path, 0.6) as process:
        assert await line(process) == "held"
        async with asyncio.timeout(10):
            while (run := await open_or_none(journal, bench)) is None:
                await asyncio.sleep(0.05)
        written = f"{journal.path}.written"
        run.start("test.give", written, key="s")
        with pytest.raises(JournalError, match=r"recorded with step 'held\.write'"):
            run.start("test.give", written, key="w", once=True)
        process.send_signal(signal.SIGCONT)
        assert (await line(process)).startswith("JournalFenced run 'r1' was taken over by another process")
        assert not Path(written).exists()
        await run.finish("stopped")
    await journal.close()


async def test_a_write_begins_where_a_late_look_finds_the_run_still_ours(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db", lease=0.01)  # never sure for long

    async def busy(context: Any) -> str:
        time.sleep(0.05)
        return "busy"

    bench.busy = busy
    run = await journal.create("r1", program="test", input=None, wiring=bench.wiring())
    run.start("test.give", 1, key="w", once=True)
    run.start("test.call", "busy", key="b")
    async with asyncio.timeout(10):
        got = {(await run.next()).key for _ in range(2)}
    assert got == {"w", "b"}
    assert bench.ran["w"] == 1
    await journal.close()


async def open_or_none(journal: SqliteJournal, bench: Any) -> Any:
    try:
        return await journal.open("r1", bench.wiring())
    except JournalBusy:
        return None


async def test_two_processes_that_resume_at_once_have_one_winner(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db")
    await (await journal.create("r1", program="held", input=None)).release()
    await journal.close()
    async with holder("open", journal.path, 60) as first, holder("open", journal.path, 60) as second:
        for process in (first, second):
            assert await line(process) == "ready"
        for process in (first, second):
            process.stdin.write(b"go\n")
        said = sorted([(await line(process)).split()[0] for process in (first, second)])
        assert said == ["JournalBusy", "held"]


async def test_two_journals_of_one_process_do_not_drive_one_run(tmp_path: Path):
    journals = [SqliteJournal(tmp_path / "runs.db") for _ in range(3)]
    await (await journals[0].create("r1", program="test", input=None)).release()
    results = await asyncio.gather(*(journal.open("r1") for journal in journals), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["JournalBusy", "JournalBusy", "LocalRun"]
    for journal in journals:
        await journal.close()


async def test_a_lease_is_renewed_while_a_step_takes_long(tmp_path: Path, bench: Any):
    journal, other = (SqliteJournal(tmp_path / "runs.db", lease=0.3) for _ in range(2))
    run = await journal.create("r1", program="test", input=None, wiring=bench.wiring())
    run.start("test.gate", 1, key="a")
    await asyncio.sleep(0.7)
    with pytest.raises(JournalBusy):
        await other.open("r1")
    bench.gate("a").set()
    assert (await run.next()).outcome == Completed(1)
    await journal.close()
    await other.close()


def test_a_run_whose_event_loop_ended_records_no_cancellations(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")

    async def interrupted() -> None:
        run = await journal.create("r1", program="test", input=None, wiring=bench.wiring())
        run.start("test.gate", 1, key="a")
        run.start("test.gate", 2, key="b", once=True)
        await asyncio.sleep(0.05)
        await asyncio.wait_for(run.next(), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(interrupted())

    async def resumed() -> list[Any]:
        async with asyncio.timeout(10):
            while (await journal.info("r1")).owner is not None:
                await asyncio.sleep(0.05)
        assert await journal.completions("r1") == []
        bench.gates.clear()
        bench.gate("a").set()
        run = await journal.open("r1", bench.wiring())
        run.start("test.gate", 1, key="a")
        run.start("test.gate", 2, key="b", once=True)
        got = [type((await run.next()).outcome).__name__ for _ in range(2)]
        await journal.close()
        return sorted(got)

    assert asyncio.run(resumed()) == ["Completed", "InDoubt"]


async def test_a_journal_is_used_from_several_event_loops(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")

    async def whole(run_id: str) -> Any:
        run = await journal.create(run_id, program="test", input=None, wiring=bench.wiring())
        run.start("test.give", run_id, key=run_id)
        value = (await run.next()).outcome
        await run.finish("complete", run_id)
        return value

    values = await asyncio.gather(whole("here"), asyncio.to_thread(lambda: asyncio.run(whole("there"))))
    assert values == [Completed("here"), Completed("there")]
    await journal.close()
    with pytest.raises(JournalError, match="is closed in this process"):
        await journal.info("here")
