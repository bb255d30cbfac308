"""One open run: what it does beyond what every engine must do."""

import asyncio
import logging
import time
from datetime import date
from typing import Any

import pytest

from replan.durable import Cancelled, Completed, Completion, Failed, InDoubt
from replan.errors import ConfigError, JournalBusy, JournalError, RunNotFound
from replan.journal import Journal, LocalRun, MemoryJournal
from replan.journal.sqlite import SqliteJournal


async def create(journal: Journal, bench: Any, **options: Any) -> LocalRun:
    return await journal.create("r1", program="test", input={"n": 1}, meta={"by": "me"}, wiring=bench.wiring(**options))


async def end(run: LocalRun) -> Completion:
    async with asyncio.timeout(10):
        return await run.next()


async def test_a_cancelled_next_loses_nothing(journal: Journal, bench: Any):
    run = await create(journal, bench)
    run.start("test.gate", 1, key="a")
    waiting = asyncio.create_task(run.next())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    bench.gate("a").set()
    assert await end(run) == Completion("a", Completed(1), run.now())


async def test_a_next_that_is_cancelled_with_its_completion_at_the_door_loses_nothing(journal: Journal, bench: Any):
    run = await create(journal, bench)
    for n in range(20):
        run.start("test.give", n, key=f"k{n}")
    got = []
    while len(got) < 20:
        waiting = asyncio.create_task(run.next())
        await asyncio.sleep(0)
        if len(got) % 2:
            waiting.cancel()
        await asyncio.wait([waiting])
        if not waiting.cancelled():
            got.append(waiting.result().outcome.value)
        else:
            got.append((await end(run)).outcome.value)
    assert got == list(range(20))


class Fatal(BaseException):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("error", [GeneratorExit("g"), BaseExceptionGroup("g", [GeneratorExit()]), Fatal()])
async def test_whatever_a_step_raises_ends_it_as_failed(journal: Journal, bench: Any, error: BaseException):
    async def crash(context: Any) -> None:
        raise error

    bench.crash = crash
    run = await create(journal, bench)
    run.start("test.call", "crash", key="a")
    outcome = (await end(run)).outcome
    assert isinstance(outcome, Failed)
    text = "its message cannot be shown" if isinstance(error, Fatal) else str(error)
    assert outcome.error == {"type": type(error).__name__, "message": text}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_step_ends_the_step_and_the_loop(bench: Any, error: type[BaseException]):
    async def crash(context: Any) -> None:
        raise error

    async def main() -> None:
        run = await create(journal, bench)
        run.start("test.call", "crash", key="a")
        await run.next()

    bench.crash, journal = crash, MemoryJournal()
    with pytest.raises(error):
        asyncio.run(main())
    [(key, _, outcome, _)] = asyncio.run(journal.completions("r1"))
    assert (key, outcome["kind"], outcome["error"]["type"]) == ("a", "failed", error.__name__)


async def test_two_callers_of_next_are_told_so(journal: Journal, bench: Any):
    run = await create(journal, bench)
    run.start("test.gate", 1, key="a")
    first = asyncio.create_task(run.next())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="one program drives a run"):
        await run.next()
    bench.gate("a").set()
    assert (await first).key == "a"


async def test_finish_stores_the_end(journal: Journal, bench: Any):
    run = await create(journal, bench)
    info = await journal.info("r1")
    assert (info.status, info.program, info.input, info.meta) == ("running", "test", {"n": 1}, {"by": "me"})
    assert info.owner is not None
    await run.finish("complete", {"text": "done"})
    await run.finish("complete", {"text": "again"})
    await run.release()
    info = await journal.info("r1")
    assert (info.status, info.result, info.error, info.owner) == ("complete", {"text": "done"}, None, None)
    assert info.created <= info.updated <= time.time()
    with pytest.raises(ValueError, match="'done' is no status"):
        await run.finish("done")  # pyright: ignore[reportArgumentType]


async def test_a_released_run_cannot_be_finished(journal: Journal, bench: Any):
    run = await create(journal, bench)
    await run.release()
    await run.release()
    with pytest.raises(JournalError, match="was released"):
        await run.finish("complete")
    assert (await journal.info("r1")).status == "running"


async def test_a_closed_run_says_so(journal: Journal, bench: Any):
    run = await create(journal, bench)
    run.start("test.gate", 1, key="a")
    waiting = asyncio.create_task(run.next())
    await asyncio.sleep(0)
    await run.release()
    with pytest.raises(JournalError, match="is closed in this process"):
        await waiting
    with pytest.raises(JournalError, match="is closed in this process"):
        await run.emit({"type": "late"})


async def test_closing_records_what_really_ended_and_nothing_else(journal: Journal, bench: Any):
    async def save(context: Any) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            return "saved"  # noqa: B012  # a step may finish its work when it is told to stop

    async def tidy(context: Any) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("broken off")

    bench.save, bench.tidy = save, tidy
    run = await create(journal, bench)
    for name in ("save", "tidy"):
        run.start("test.call", name, key=name)
    run.start("test.gate", None, key="gate")
    await asyncio.sleep(0.01)
    await run.release()
    assert [row[:3] for row in await journal.completions("r1")] == [
        ("save", "test.call", {"kind": "completed", "value": "saved"})
    ]


async def test_a_step_that_ignores_being_cancelled_is_named(journal: Journal, bench: Any, caplog: Any):
    stop = asyncio.Event()

    async def stubborn(context: Any) -> None:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue

    bench.stubborn = stubborn
    run = await create(journal, bench, grace=0.05)
    run.start("test.call", "stubborn", key="s")
    await asyncio.sleep(0.01)
    began = time.monotonic()
    await run.finish("cancelled")
    assert time.monotonic() - began < 2
    assert "step 's' of run 'r1' does not end" in caplog.text
    assert (await journal.info("r1")).status == "cancelled"
    stop.set()
    await asyncio.sleep(0.01)


async def test_a_finish_whose_caller_is_cancelled_is_carried_out(journal: Journal, bench: Any):
    run = await create(journal, bench)
    finishing = asyncio.create_task(run.finish("stopped", "half"))
    await asyncio.sleep(0)
    finishing.cancel()
    await asyncio.wait([finishing])
    await run.finish("stopped", "half")
    assert (await journal.info("r1")).result == "half"


@pytest.mark.parametrize("status", ["paused", "stopped", "cancelled", "failed"])
async def test_runs_that_did_not_complete_can_be_resumed(journal: Journal, bench: Any, status: Any):
    run = await create(journal, bench)
    run.start("test.give", 7, key="a")
    await end(run)
    await run.finish(status, "half", {"type": "E", "message": "m"})
    run = await journal.open("r1", bench.wiring())
    assert (run.info.status, run.info.result, run.info.input) == ("running", None, {"n": 1})
    run.start("test.give", 7, key="a")
    assert (await end(run)).outcome == Completed(7)
    await run.finish("complete")
    assert bench.ran == {"a": 1}


async def test_what_cannot_be_opened_says_why(journal: Journal, bench: Any):
    with pytest.raises(RunNotFound, match="'nothing'"):
        await journal.open("nothing")
    with pytest.raises(RunNotFound, match="'nothing'"):
        await journal.events("nothing")
    for bad in ("", "a b", "a/../b", "x" * 129, "né"):
        with pytest.raises(ConfigError, match="cannot be a run id"):
            await journal.create(bad, program="test", input=None)
        with pytest.raises(ConfigError, match="cannot be a run id"):
            await journal.open(bad)
    run = await create(journal, bench)
    with pytest.raises(JournalError, match=r"a run .r1.*already"):
        await create(journal, bench)
    with pytest.raises(JournalBusy, match="'r1' is "):
        await journal.open("r1")
    await run.finish("complete", 42)
    with pytest.raises(JournalError, match="is complete; its result can be read"):
        await journal.open("r1")


async def test_two_resumes_at_once_have_one_winner(journal: Journal, bench: Any):
    await (await create(journal, bench)).release()
    results = await asyncio.gather(*(journal.open("r1") for _ in range(5)), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["JournalBusy"] * 4 + ["LocalRun"]


async def test_a_failed_run_tries_its_last_failures_again(journal: Journal, bench: Any):
    events: list[str] = []

    async def program(run: LocalRun) -> Any:
        run.start("test.give", "handled", key="a")
        run.start("test.fail", None, key="early")
        got = [await end(run), await end(run)]
        await run.emit({"type": "begun"})
        run.start("test.give", 1, key="b")
        got.append(await end(run))
        run.start("test.fail", 2, key="last")
        got.append(await end(run))
        failed = isinstance(got[-1].outcome, Failed)
        await run.emit({"type": "failed" if failed else "fine"})
        if failed:
            raise RuntimeError(got[-1].outcome)
        return [type(c.outcome).__name__ for c in got]

    run = await create(journal, bench, on_event=lambda event: events.append(event["type"]))
    with pytest.raises(RuntimeError, match="not yet"):
        await program(run)
    await run.finish("failed", error={"type": "RuntimeError", "message": "not yet"})
    bench.gate("last").set()
    run = await journal.open("r1", bench.wiring(on_event=lambda event: events.append(event["type"])))
    assert sorted(await program(run)) == ["Completed", "Completed", "Completed", "Failed"]
    assert events == ["begun", "failed", "fine"]
    assert bench.ran == {"a": 1, "early": 1, "b": 1, "last": 2}
    await run.release()
    run = await journal.open("r1", bench.wiring())
    assert sorted(await program(run)) == ["Completed", "Completed", "Completed", "Failed"]
    assert bench.ran["last"] == 2
    assert [event["type"] for _, event in await journal.events("r1")] == ["begun", "failed", "fine"]


async def test_a_retry_keeps_failed_writes_and_what_ended_beside_the_failure(journal: Journal, bench: Any):
    async def slow(context: Any) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            return "late"  # noqa: B012

    bench.slow = slow

    def begin(run: LocalRun) -> None:
        run.start("test.call", "slow", key="slow")
        run.start("test.fail", None, key="write", once=True)

    run = await create(journal, bench)
    begin(run)
    assert isinstance((await end(run)).outcome, Failed)
    run.start("test.fail", None, key="model")
    assert isinstance((await end(run)).outcome, Failed)
    await run.finish("failed")
    bench.gate("write").set()
    bench.gate("model").set()
    run = await journal.open("r1", bench.wiring())
    begin(run)
    assert isinstance((await end(run)).outcome, Failed)
    run.start("test.fail", None, key="model")
    ended = {c.key: c.outcome for c in [await end(run), await end(run)]}
    assert ended == {"slow": Completed("late"), "model": Completed(None)}
    assert bench.ran == {"slow": 1, "write": 1, "model": 2}


async def test_a_once_step_that_was_cancelled_with_the_failure_is_in_doubt(journal: Journal, bench: Any):
    run = await create(journal, bench)
    run.start("test.gate", {"sum": 5}, key="pay", once=True)
    run.start("test.fail", None, key="model")
    assert (await end(run)).key == "model"
    run.cancel("pay")
    assert await end(run) == Completion("pay", Cancelled(), run.now())
    await run.finish("failed")
    bench.gate("model").set()
    run = await journal.open("r1", bench.wiring())
    run.start("test.gate", {"sum": 5}, key="pay", once=True)
    run.start("test.fail", None, key="model")
    ended = {c.key: c.outcome for c in [await end(run), await end(run)]}
    assert ended == {"pay": InDoubt({"sum": 5}), "model": Completed(None)}


async def test_an_interrupted_run_keeps_its_failures(journal: Journal, bench: Any):
    run = await create(journal, bench)
    run.start("test.fail", None, key="a")
    await end(run)
    await run.release()
    run = await journal.open("r1", bench.wiring())
    run.start("test.fail", None, key="a")
    assert isinstance((await end(run)).outcome, Failed)
    assert bench.ran == {"a": 1}


async def test_plans_are_told_again_but_stored_once(journal: Journal, bench: Any):
    async def program(run: LocalRun) -> None:
        for kind in ("run.start", "plan.created", "step.start", "plan.revised"):
            await run.emit({"type": kind})
        run.start("test.give", 1, key="a")
        await end(run)
        await run.emit({"type": "final"})

    told: list[list[str]] = [[], [], []]
    run = await create(journal, bench, on_event=lambda event: told[0].append(event["type"]))
    await program(run)
    await run.release()
    for hearing in told[1:]:
        run = await journal.open("r1", bench.wiring(on_event=lambda event, to=hearing: to.append(event["type"])))
        await program(run)
        await run.release()
    stored = ["run.start", "plan.created", "step.start", "plan.revised", "final"]
    assert told == [stored, ["plan.created", "plan.revised"], ["plan.created", "plan.revised"]]
    events = await journal.events("r1")
    assert [event["type"] for _, event in events] == stored
    offsets = [offset for offset, _ in events]
    assert offsets == sorted(set(offsets))
    assert await journal.events("r1", after=offsets[2]) == events[3:]


async def test_a_listener_that_fails_changes_nothing(journal: Journal, bench: Any, caplog: Any):
    def listener(event: Any) -> None:
        raise KeyError("no such window")

    async def chatter(context: Any) -> bool:
        context.live({"delta": "x"})
        return context.listening

    bench.chatter = chatter
    caplog.set_level(logging.DEBUG, "replan")
    run = await create(journal, bench, on_event=listener, on_live=listener)
    await run.emit({"type": "x"})
    run.start("test.call", "chatter", key="a")
    assert (await end(run)).outcome == Completed(True)
    assert caplog.text.count("a listener of events failed") == 2


async def test_live_events_are_heard_and_not_stored(journal: Journal, bench: Any):
    async def chatter(context: Any) -> bool:
        context.live({"delta": "x"})
        return context.listening

    heard: list[Any] = []
    bench.chatter = chatter
    run = await create(journal, bench, on_live=heard.append)
    run.start("test.call", "chatter", key="a")
    assert (await end(run)).outcome == Completed(True)
    assert heard == [{"delta": "x"}]
    assert await journal.events("r1") == []
    await run.release()
    run = await journal.open("r1", bench.wiring())
    run.start("test.call", "chatter", key="a")
    run.start("test.call", "chatter", key="b")
    await end(run)
    assert (await end(run)).outcome == Completed(False)


async def test_errors_of_steps_are_logged(journal: Journal, bench: Any, caplog: Any):
    run = await create(journal, bench)
    run.start("test.fail", None, key="a")
    assert (await end(run)).outcome == Failed({"type": "ValueError", "message": "not yet"})
    record = next(record for record in caplog.records if record.name == "replan")
    assert (record.levelno, record.exc_info is not None) == (logging.ERROR, True)
    assert "step 'test.fail' of run 'r1' failed under the key 'a'" in record.getMessage()


async def test_a_task_that_somebody_else_cancels_has_failed(journal: Journal, bench: Any):
    async def meddle(context: Any) -> None:
        asyncio.current_task().cancel()  # pyright: ignore[reportOptionalMemberAccess]
        await asyncio.sleep(0)

    bench.meddle = meddle
    run = await create(journal, bench)
    run.start("test.call", "meddle", key="a")
    outcome = (await end(run)).outcome
    assert isinstance(outcome, Failed)
    assert "cancelled from outside" in outcome.error["message"]
    run.start("test.give", 1, key="b")
    assert (await end(run)).outcome == Completed(1)


async def test_an_answerer_settles_items(journal: Journal, bench: Any):
    async def answerer(item: Any) -> Any:
        if item.name == "bad":
            raise ValueError("nobody there")
        return [item.run_id, item.key, item.name, item.body, item.default, item.deadline is not None]

    run = await create(journal, bench, answerer=answerer)
    run.expect("approval", key="a", body={"tool": "send"}, deadline=60, default="no")
    assert (await end(run)).outcome == Completed(["r1", "a", "approval", {"tool": "send"}, "no", True])
    run.expect("bad", key="b")
    assert (await end(run)).outcome == Failed({"type": "ValueError", "message": "nobody there"})
    assert await journal.inbox() == []


async def test_an_answerer_that_is_too_slow_is_stopped(journal: Journal, bench: Any):
    stopped = asyncio.Event()

    async def answerer(item: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    run = await create(journal, bench, answerer=answerer)
    run.expect("approval", key="a", deadline=0.02, default="no")
    assert (await end(run)).outcome == Completed("no")
    async with asyncio.timeout(5):
        await stopped.wait()


async def test_an_open_item_can_be_answered_while_the_answerer_thinks(journal: Journal, bench: Any):
    async def answerer(item: Any) -> Any:
        await asyncio.Event().wait()

    run = await create(journal, bench, answerer=answerer)
    run.expect("approval", key="a", body=["asked"], default="no")
    waiting = asyncio.create_task(run.next())
    await asyncio.sleep(0.01)
    assert [(item.key, item.body) for item in await journal.inbox("r1")] == [("a", ["asked"])]
    await journal.answer("r1", "a", "yes")
    assert (await waiting).outcome == Completed("yes")
    with pytest.raises(JournalError, match="no open inbox item 'a'"):
        await journal.answer("r1", "a", "no")
    with pytest.raises(JournalError, match="no open inbox item 'b'"):
        await journal.answer("r1", "b", "no")
    with pytest.raises(RunNotFound):
        await journal.answer("r2", "a", "no")


async def test_timers_and_items_can_be_cancelled(journal: Journal, bench: Any):
    async def answerer(item: Any) -> Any:
        await asyncio.Event().wait()

    run = await create(journal, bench, answerer=answerer)
    run.sleep(60, key="nap")
    run.expect("approval", key="ask", deadline=60)
    await asyncio.sleep(0)
    run.cancel("nap")
    run.cancel("ask")
    assert {c.key: c.outcome for c in [await end(run), await end(run)]} == {"nap": Cancelled(), "ask": Cancelled()}


async def test_a_resumed_timer_waits_for_what_is_left(journal: Journal, bench: Any):
    run = await create(journal, bench)
    run.sleep(0.1, key="short")
    run.sleep(60, key="long")
    await run.release()
    await asyncio.sleep(0.12)
    began = time.monotonic()
    run = await journal.open("r1", bench.wiring())
    run.sleep(0.1, key="short")
    run.sleep(60, key="long")
    assert (await end(run)).key == "short"
    assert time.monotonic() - began < 0.09


async def test_the_clock_never_goes_back(journal: Journal, bench: Any, monkeypatch: Any):
    run = await create(journal, bench)
    assert run.now() == run.info.created
    run.start("test.give", 1, key="a")
    first = await end(run)
    monkeypatch.setattr(time, "time", lambda: first.at - 1000)
    run.start("test.give", 2, key="b")
    assert (await end(run)).at == first.at
    monkeypatch.undo()


async def test_artifacts_are_named_by_their_content(journal: Journal, bench: Any, tmp_path: Any):
    run = await create(journal, bench, artifacts=tmp_path / "kept")
    path = run.keep(b"\x89PNG", "image/png")
    assert path == run.keep(b"\x89PNG", "image/png")
    assert path.parent == tmp_path / "kept"
    assert path.name == "0f4636c78f65d3639ece5a064b5ae753e3408614a14fb18ab4d7540d2c248543.png"
    assert run.keep(b"x", "application/x-odd; charset=y").suffix == ".bin"
    assert run.keep(b"x", "text/plain; charset=utf-8").suffix == ".txt"
    assert [p.stat().st_mode & 0o777 for p in (path, path.parent)] == [0o600, 0o700]
    await run.finish("complete")
    assert path.read_bytes() == b"\x89PNG"
    assert len(list(path.parent.iterdir())) == 3


async def test_artifacts_in_memory_go_with_the_run(memory: MemoryJournal, bench: Any):
    run = await create(memory, bench)
    path = run.keep(b"x", "text/plain")
    assert path.read_bytes() == b"x"
    await run.release()
    assert not path.parent.exists()
    with pytest.raises(JournalError, match="can keep no more artifacts"):
        run.keep(b"x", "text/plain")


async def test_artifacts_of_sqlite_lie_beside_the_journal(sqlite: SqliteJournal, bench: Any):
    run = await create(sqlite, bench)
    path = run.keep(b"x", "text/plain")
    assert path.parent == sqlite.path.with_name("runs.db.artifacts") / "r1"
    await run.finish("complete")
    assert path.read_bytes() == b"x"


async def test_an_artifact_that_cannot_be_written_is_an_error_of_ours(journal: Journal, bench: Any, tmp_path: Any):
    (tmp_path / "file").write_text("in the way")
    run = await create(journal, bench, artifacts=tmp_path / "file" / "folder")
    with pytest.raises(JournalError, match=r"the artifact .* cannot be written"):
        run.keep(b"x", "text/plain")


async def test_values_that_json_cannot_hold_do_not_break_the_journal(sqlite: SqliteJournal, bench: Any):
    async def odd(context: Any) -> Any:
        return {"day": date(2026, 1, 2), "bytes": b"\x00", "set": {1}, "text": "a\ud800b", "big": 2**70, 1: "one"}

    bench.odd = odd
    run = await create(sqlite, bench)
    run.start("test.call", "odd", key="a")
    await end(run)
    await run.release()
    run = await sqlite.open("r1", bench.wiring())
    run.start("test.call", "odd", key="a")
    value = (await end(run)).outcome.value  # pyright: ignore[reportAttributeAccessIssue]
    assert (value["day"], value["text"], value["1"]) == ("2026-01-02", "a�b", "one")


async def test_a_key_that_cannot_be_stored_is_refused(journal: Journal, bench: Any):
    run = await create(journal, bench)
    with pytest.raises(ValueError, match="lone surrogate"):
        run.start("test.give", 1, key="a\ud800")
    run.expect("na\ud800me", key="né")
    assert (await end(run)).key == "né"


async def test_memory_forgets_old_runs(bench: Any):
    journal = MemoryJournal(keep=2)
    for n in range(4):
        run = await journal.create(f"r{n}", program="test", input=n)
        if n:
            await run.finish("complete")
    assert [info.run_id for info in await journal.runs()] == ["r3", "r2", "r0"]
    assert [info.run_id for info in await journal.runs(limit=1)] == ["r3"]
    await journal.close()


async def test_closing_a_journal_releases_its_runs(journal: Journal, bench: Any):
    run = await create(journal, bench)
    run.start("test.gate", 1, key="a")
    waiting = asyncio.create_task(run.next())
    await asyncio.sleep(0)
    await journal.close()
    await journal.close()
    with pytest.raises(JournalError, match="is closed"):
        await waiting
