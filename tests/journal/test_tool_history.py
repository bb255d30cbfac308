"""What a journal knows of tools from the runs in it."""

import asyncio
import logging
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from replan import Agent, Limits, tool
from replan.encoding import JSONObject
from replan.journal import Journal, MemoryJournal, ToolHistory
from replan.journal.sqlite import SqliteJournal
from replan.testing import ScriptedModel, call


@tool(read_only=True)
async def look(key: str) -> dict[str, Any]:
    """Look something up."""
    if key == "missing":
        raise LookupError("there is no such key")
    return {"key": key, "value": len(key)}


@tool
async def store(text: str) -> str:
    """Store a text."""
    return f"stored {text}"


async def play(journal: Journal | Path, *calls: Any, tools: Any = (look, store)) -> None:
    """One run that makes the calls, one after the other."""
    model = ScriptedModel(*calls, "Done.")
    async with Agent(model, tools=tools, journal=journal, limits=Limits(max_turns=len(calls) + 1)) as agent:
        await agent.run("Call them.")


async def test_calls_failures_and_sizes_are_counted_by_tool(journal: Journal):
    await play(journal, call("look", key="a"), call("look", key="missing"), call("store", text="hello"))
    await play(journal, call("look", key="bcd"), call("look", key="ef"))
    known = await journal.tool_history(["look", "store", "never"])
    assert set(known) == {"look", "store"}
    assert (known["look"].calls, known["look"].failed) == (4, 1)
    assert known["look"].samples == ({"key": "ef", "value": 2}, {"key": "bcd", "value": 3}, {"key": "a", "value": 1})
    assert known["look"].chars == (len('{"key":"ef","value":2}'), len('{"key":"bcd","value":3}'))
    assert (known["store"].calls, known["store"].failed) == (1, 0)
    assert known["store"].samples == ("stored hello",)
    assert known["store"].chars == (12, 12)


async def test_only_the_tools_that_are_asked_for_are_told(journal: Journal):
    await play(journal, call("look", key="a"), call("store", text="b"))
    assert set(await journal.tool_history({"store"})) == {"store"}
    assert await journal.tool_history([]) == {}


async def test_a_journal_without_runs_knows_nothing(journal: Journal):
    assert await journal.tool_history(["look"]) == {}


async def test_times_are_those_of_the_calls(journal: Journal):
    @tool(read_only=True)
    async def slow(seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "done"

    @tool
    async def slow_write(seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "done"

    model = ScriptedModel(
        [call("slow", seconds=0.01), call("slow", seconds=0.02), call("slow", seconds=0.2)],
        call("slow_write", seconds=0.1),
        "Done.",
    )
    async with Agent(model, tools=[slow, slow_write], journal=journal) as agent:
        await agent.run("Wait.")
    known = await journal.tool_history(["slow", "slow_write"])
    median, most = known["slow"].seconds
    assert 0.02 <= median < 0.15 <= most < 2
    assert 0.1 <= known["slow_write"].seconds[0] == known["slow_write"].seconds[1] < 2


async def test_the_last_three_good_results_are_samples_and_large_ones_are_left_out(journal: Journal):
    @tool(read_only=True)
    async def page(size: int) -> str:
        """A page of text."""
        return "x" * size

    await play(journal, *(call("page", size=size) for size in (5, 4, 30_000, 2)), tools=[page])
    known = (await journal.tool_history(["page"]))["page"]
    assert known.samples == ("xx", "xxxx")
    assert (known.calls, known.chars) == (4, (4, 30_000))


async def test_results_too_large_to_be_read_count_with_the_size_of_their_record(sqlite: SqliteJournal):
    @tool(read_only=True)
    async def page(size: int) -> str:
        """A page of text."""
        return "x" * size

    await play(sqlite, call("page", size=150_000), call("page", size=3), tools=[page])
    known = (await sqlite.tool_history(["page"]))["page"]
    assert (known.calls, known.failed, known.samples) == (2, 0, ("xxx",))
    assert known.chars[0] == 3
    assert 150_000 < known.chars[1] < 150_500


async def test_a_call_that_could_not_be_made_counts_as_failed(journal: Journal, bench: Any):
    run = await journal.create("r1", program="test", input=None, wiring=bench.wiring())
    run.start("tool", {"tool": "store", "arguments": {}, "call_id": "c", "step": None}, key="k", once=True)
    await run.next()  # the services of this run have no tools at all
    await run.finish("stopped")
    known = (await journal.tool_history(["store"]))["store"]
    assert (known.calls, known.failed, known.samples) == (1, 1, ())


async def test_only_the_newest_calls_are_looked_at(journal: Journal):
    await play(journal, *(call("store", text=str(n)) for n in range(150)))
    await play(journal, *(call("look", key=str(n)) for n in range(90)))
    known = await journal.tool_history(["look", "store"])
    assert known["look"].calls == 90
    assert 5 <= known["store"].calls <= 40
    assert known["store"].samples == ("stored 149", "stored 148", "stored 147")


async def test_old_calls_behind_many_other_records_are_not_searched_for(journal: Journal, bench: Any):
    await play(journal, call("store", text="old"))
    run = await journal.create("r1", program="test", input=None, wiring=bench.wiring())
    for n in range(1_000):
        await run.emit({"type": "x", "n": n})
    run.start("test.give", 1, key="k")
    await run.next()
    assert await journal.tool_history(["store"]) == {}
    await run.finish("complete")


@pytest.mark.parametrize("what", ["events that tell of odd calls", "results that are none"])
async def test_what_was_recorded_otherwise_is_passed_over(journal: Journal, bench: Any, what: str):
    await play(journal, call("store", text="good"))
    run = await journal.create("r1", program="test", input=None, wiring=bench.wiring())
    if what.startswith("events"):
        for event in ({"type": "step.tool-call"}, {"type": "step.tool-call", "call_id": 7, "tool": None}):
            await run.emit(event)
    bench.tool = lambda context: asyncio.sleep(0, ["not", "a", "result"])
    run.start("test.call", "tool", key="k")
    await run.next()
    await run.finish("complete")
    assert (await journal.tool_history(["store"]))["store"].samples == ("stored good",)


async def test_damaged_records_are_passed_over(sqlite: SqliteJournal):
    await play(sqlite, *(call("look", key=str(n)) for n in range(6)))
    database = sqlite3.connect(sqlite.path)
    rows = database.execute("SELECT rowid FROM records WHERE step = 'tool' ORDER BY rowid").fetchall()
    for (rowid,), body in zip(rows, [b"{", b'{"name":"look"}', b"\xff\xfe", "text", 7], strict=False):
        database.execute("UPDATE records SET body = ? WHERE rowid = ?", (body, rowid))
    database.commit()
    database.close()
    assert (await sqlite.tool_history(["look"]))["look"] == ToolHistory(
        calls=1,
        failed=0,
        seconds=(await sqlite.tool_history(["look"]))["look"].seconds,
        chars=(21, 21),
        samples=({"key": "5", "value": 1},),
    )


async def test_a_file_that_cannot_be_read_knows_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "runs.db").write_bytes(b"# notes\n")
    journal = SqliteJournal(tmp_path / "runs.db")
    with caplog.at_level(logging.DEBUG, logger="replan"):
        assert await journal.tool_history(["look"]) == {}
    assert "was not asked for earlier tool calls" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]
    await journal.close()
    assert await journal.tool_history(["look"]) == {}


_WRITE = """
import asyncio, sys
from replan import Agent, Limits, tool
from replan.testing import ScriptedModel, call

@tool
async def store(text: str) -> str:
    return f"stored {text}"

async def main():
    for run in range(3):
        model = ScriptedModel(*(call("store", text=f"{run}-{n}") for n in range(20)), "Done.")
        async with Agent(model, tools=[store], journal=sys.argv[1], limits=Limits(max_turns=21)) as agent:
            await agent.run("go")

asyncio.run(main())
"""


async def test_what_other_processes_write_is_known_at_once_and_whole(sqlite: SqliteJournal):
    await play(sqlite, call("store", text="first"))
    process = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", _WRITE, str(sqlite.path)])
    seen = 1
    while process.poll() is None:
        known = (await sqlite.tool_history(["store"]))["store"]
        assert seen <= known.calls <= 61
        assert known.failed == 0
        seen = known.calls
        await asyncio.sleep(0.01)
    assert process.returncode == 0
    known = (await sqlite.tool_history(["store"]))["store"]
    assert (known.calls, known.samples[0]) == (61, "stored 2-19")


async def test_asking_a_large_journal_is_quick(sqlite: SqliteJournal):
    await play(sqlite, *(call("look", key=str(n)) for n in range(60)))
    database = sqlite3.connect(sqlite.path)
    columns = "seq, kind, key, step, digest, body, at, handed, sum"
    rows: int = database.execute("SELECT count(*) FROM records").fetchone()[0]
    for copy in range(100_000 // rows):
        database.execute(f"INSERT INTO records SELECT {1000 + copy}, {columns} FROM records WHERE run = 1")
    database.commit()
    database.close()
    best = 1.0
    for _ in range(20):
        started = time.perf_counter()
        assert (await sqlite.tool_history(["look"]))["look"].calls >= 100
        best = min(best, time.perf_counter() - started)
    assert best < 0.02  # a scan takes ten times as long


async def test_a_memory_journal_looks_at_its_newest_runs_first(memory: MemoryJournal):
    for run in range(4):
        await play(memory, *(call("store", text=f"{run}-{n}") for n in range(40)))
    known: JSONObject = {tool: history.calls for tool, history in (await memory.tool_history(["store"])).items()}
    assert known == {"store": 100}
    assert (await memory.tool_history(["store"]))["store"].samples == ("stored 3-39", "stored 3-38", "stored 3-37")
