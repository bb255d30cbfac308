"""The file of a SQLite journal: what it holds, how it grows, and what is said when it cannot be used."""

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from replan.durable import Completed, Failed, InDoubt
from replan.errors import JournalError, JournalVersion, RunNotFound
from replan.journal import InboxItem, LocalRun
from replan.journal.sqlite import SqliteJournal


async def steps(run: LocalRun, numbers: range, *, text: str = "", once: bool = False) -> list[Any]:
    """One step after the other."""
    got: list[Any] = []
    for n in numbers:
        run.start("test.give", {"n": n, "text": text}, key=f"k{n}", once=once)
        got.append((await run.next()).outcome)
    return got


async def create(journal: SqliteJournal, bench: Any, run_id: str = "r1") -> LocalRun:
    return await journal.create(run_id, program="test", input={"goal": "g"}, wiring=bench.wiring())


async def refusal(path: Path, kind: type[JournalError] = JournalError) -> str:
    """What is said when the journal cannot be used."""
    journal = SqliteJournal(path)
    with pytest.raises(kind) as caught:
        await journal.create("r1", program="test", input=None)
    await journal.close()
    assert str(path) in str(caught.value)
    return str(caught.value)


async def test_missing_folders_are_made_for_this_user_only(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "state" / "deep" / "runs.db")
    await steps(await create(journal, bench), range(3))
    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "state").rglob("*")}
    assert modes == {"deep": 0o700, "runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}
    await journal.close()
    assert [p.name for p in journal.path.parent.iterdir()] == ["runs.db"]


async def test_an_empty_file_becomes_a_journal(tmp_path: Path, bench: Any):
    (tmp_path / "runs.db").touch()
    journal = SqliteJournal(str(tmp_path / "runs.db"))
    await (await create(journal, bench)).finish("complete")
    assert [info.run_id for info in await journal.runs()] == ["r1"]
    await journal.close()


@pytest.mark.parametrize("content", [b"# notes\n", b"x" * 10_000, b"\0", b"SQLite format 2\0" + b"x" * 5000])
async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert "is not a journal; use another path" in await refusal(path)
    assert path.read_bytes() == content


async def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull), tmp_path):
        assert "is no regular file and cannot be a journal; use another path" in await refusal(path)


async def test_a_journal_that_is_dropped_ends_its_thread(tmp_path: Path, bench: Any, eventually: Any):
    def threads() -> int:
        return sum(thread.name == "replan journal" for thread in threading.enumerate())

    journal = SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    del journal
    gc.collect()
    assert await steps(run, range(1)) == [Completed({"n": 0, "text": ""})]  # an open run keeps its journal
    await run.finish("complete")
    assert threads() == 1
    del run
    gc.collect()
    await eventually(lambda: not threads())
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]


_FORK = """
import asyncio, os, sys
from replan.errors import JournalError
from replan.journal.sqlite import SqliteJournal

journal = SqliteJournal(sys.argv[1])
asyncio.run(journal.runs())
if os.fork() == 0:
    try:
        asyncio.run(journal.runs())
    except JournalError as error:
        print(error, flush=True)
    asyncio.run(journal.close())
    os._exit(0)
os.wait()
print(asyncio.run(journal.runs()))
asyncio.run(journal.close())
"""


async def test_a_forked_process_is_told_that_the_journal_is_not_its_own(tmp_path: Path):
    command = [sys.executable, "-W", "ignore", "-c", _FORK, str(tmp_path / "runs.db")]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=20)
    child, parent = done.stdout.splitlines()
    assert child.endswith("and this is a fork of it; make a new journal here")
    assert parent == "[]"


@pytest.mark.parametrize("turns", range(8))
async def test_a_run_whose_creation_was_cancelled_is_free_after_close(tmp_path: Path, turns: int):
    for attempt in range(4):
        path = tmp_path / f"runs-{attempt}.db"
        journal, other = SqliteJournal(path), SqliteJournal(path)
        if attempt % 2:
            await journal.runs()
        creating = asyncio.create_task(journal.create("r1", program="test", input=None))
        for _ in range(turns):
            await asyncio.sleep(0.0005 * (attempt // 2))
        creating.cancel()
        await asyncio.wait([creating])
        await journal.close()
        with contextlib.suppress(RunNotFound):
            await (await other.open("r1")).finish("stopped")
        await other.close()


async def test_a_damaged_database_is_left_alone(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    await steps(await create(journal, bench), range(200), text="x" * 500)
    await journal.close()
    whole = journal.path.read_bytes()
    for content in (whole[:100] + b"\xff" * 4000 + whole[4100:], whole[:5000], whole[:40]):
        journal.path.write_bytes(content)
        damaged = SqliteJournal(journal.path)
        with pytest.raises(JournalError, match=r"runs\.db' cannot be used|runs\.db' is not a journal"):
            await damaged.open("r1")
        await damaged.close()
        assert journal.path.read_bytes() == content


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path):
    for name, sql in (("table.db", "CREATE TABLE t (x)"), ("id.db", "PRAGMA application_id = 77")):
        path = tmp_path / name
        database = sqlite3.connect(path)
        database.execute(sql)
        database.close()
        before = path.read_bytes()
        assert "the database of another program" in await refusal(path)
        assert path.read_bytes() == before


async def test_a_newer_version_is_left_alone(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    await create(journal, bench)
    await journal.close()
    database = sqlite3.connect(journal.path)
    assert database.execute("PRAGMA user_version").fetchone() == (2,)
    assert database.execute("PRAGMA application_id").fetchone() == (0x5265706E,)
    database.execute("PRAGMA user_version = 99")
    database.close()
    assert "has version 99" in await refusal(journal.path, JournalVersion)


_VERSION_1 = """
PRAGMA application_id = 0x5265706E;
PRAGMA user_version = 1;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, program TEXT NOT NULL, status TEXT NOT NULL, input BLOB NOT
    NULL, meta BLOB NOT NULL, result BLOB, error BLOB, created REAL NOT NULL, handed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE leases (
    run INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, owner BLOB, until REAL NOT NULL, updated REAL NOT NULL);
CREATE TABLE records (
    run INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, step TEXT NOT NULL, digest BLOB,
    body BLOB, at REAL NOT NULL, handed INTEGER NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (run, seq));
CREATE TABLE inbox (
    run INTEGER NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL, deadline REAL, fallback BLOB NOT NULL, opened REAL
    NOT NULL, answer BLOB, answered REAL, closed REAL, PRIMARY KEY (run, key)) WITHOUT ROWID;
INSERT INTO runs VALUES (1, 'r1', 'test', 'paused', x'6E756C6C', x'7B7D', x'6E756C6C', NULL, 1000.0, 0);
INSERT INTO leases VALUES (1, 1, NULL, 0.0, 1000.0);
INSERT INTO inbox VALUES (1, 'ok', 'approval', NULL, x'6E756C6C', 1000.0, NULL, NULL, NULL);
"""


def _record_of_version_1() -> tuple[Any, ...]:
    """The record of the item in the file, which holds no body."""
    columns = ("item", "ok", "@expect:approval", None, b'{"deadline":null,"default":null}', 1000.0, 0)
    head = "\0".join(("1", *columns[:3], repr(columns[5]), "0", "")).encode()
    return (1, 1, *columns, zlib.crc32(columns[4], zlib.crc32(head)))


async def test_a_file_of_version_1_goes_on(tmp_path: Path, bench: Any):
    database = sqlite3.connect(tmp_path / "runs.db")
    database.executescript(_VERSION_1)
    database.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _record_of_version_1())
    database.commit()
    database.close()
    journal, other = SqliteJournal(tmp_path / "runs.db"), SqliteJournal(tmp_path / "runs.db")
    [old], _ = await asyncio.gather(journal.inbox(), other.inbox())
    assert old == InboxItem(run_id="r1", key="ok", name="approval")
    run = await journal.open("r1", bench.wiring(unattended="wait"))
    run.expect("approval", key="ok", body={"tool": "send"})
    run.expect("approval", key="new", body={"tool": "pay"})
    await other.answer("r1", "ok", "yes")
    assert (await run.next()).outcome == Completed("yes")
    assert [item.body for item in await other.inbox()] == [{"tool": "pay"}]
    await run.release()
    await other.close()
    await journal.close()
    database = sqlite3.connect(journal.path)
    assert database.execute("PRAGMA user_version").fetchone() == (2,)
    database.close()


async def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    assert "is no regular file" in await refusal(tmp_path / "folder")
    assert "make the file and its folder writable" in await refusal(tmp_path / "file" / "runs.db")


READ_ONLY = """
import asyncio, os, sys
from replan.errors import JournalError
from replan.journal.sqlite import SqliteJournal

async def main():
    journal = SqliteJournal(sys.argv[1])
    try:
        await journal.create("r2", program="test", input=None)
    except JournalError as error:
        print(error)
    await journal.close()

if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
asyncio.run(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")
@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_file_or_folder_that_cannot_be_written_is_named(tmp_path: Path, bench: Any, what: str):
    folder = tmp_path / "shared"
    folder.mkdir()
    journal = SqliteJournal(folder / "runs.db")
    await (await create(journal, bench)).release()
    await journal.close()
    for place in (tmp_path, *tmp_path.parents):
        if place.owner() == tmp_path.owner() and place.stat().st_mode & 0o777 == 0o700:
            place.chmod(0o755)
    journal.path.chmod(0o444 if what == "file" else 0o666)
    folder.chmod(0o777 if what == "file" and os.getuid() == 0 else 0o555)
    command = [sys.executable, "-c", READ_ONLY, journal.path]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    folder.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{str(journal.path)!r} cannot be used" in done.stdout
    assert "make the file and its folder writable, or use another path" in done.stdout


async def test_a_full_disk_ends_the_run_and_not_what_was_written(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db", max_bytes=200_000)
    run = await create(journal, bench)
    with pytest.raises(JournalError, match="no room left on its disk, or within its size limit"):
        await steps(run, range(1000), text="x" * 5000)
    ended = bench.ran.total() - 1
    assert ended > 10
    with pytest.raises(JournalError, match="no room left"):
        await run.emit({"type": "x"})
    with pytest.raises(JournalError, match="no room left"):
        await run.finish("complete")
    await run.release()
    await journal.close()
    assert journal.path.stat().st_size <= 200_000
    roomy = SqliteJournal(journal.path)
    run = await roomy.open("r1", bench.wiring())
    assert len(await steps(run, range(ended + 5), text="x" * 5000)) == ended + 5
    assert bench.ran["k0"] == 1
    await roomy.close()


async def test_a_journal_that_is_removed_meanwhile_is_noticed(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    await steps(run, range(2))
    shutil.move(journal.path, tmp_path / "moved.db")
    with pytest.raises(JournalError, match="was removed or replaced while in use"):
        await steps(run, range(2, 3))
    await journal.close()


async def test_a_lost_record_costs_what_came_after_it_in_its_run_only(tmp_path: Path, bench: Any, caplog: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    for run_id in ("r1", "r2"):
        await steps(await create(journal, bench, run_id), range(6))
    await journal.close()
    bench.ran.clear()
    database = sqlite3.connect(journal.path)
    rows = database.execute("SELECT rowid FROM records WHERE run = 1 AND key = 'k2'").fetchall()
    database.execute("UPDATE records SET body = x'7b22' WHERE rowid = ?", rows[0])
    database.commit()
    database.close()
    expected = [Completed({"n": n, "text": ""}) for n in range(6)]
    for _ in range(2):
        journal = SqliteJournal(journal.path)
        run = await journal.open("r1", bench.wiring())
        assert await steps(run, range(6)) == expected
        await run.release()
        assert bench.ran == {"k2": 1}
        run = await journal.open("r2", bench.wiring())
        assert await steps(run, range(6)) == expected
        await journal.close()
        assert bench.ran == {"k2": 1}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["record 3 of run 'r1' cannot be read; the run goes on from what was before it"]


async def test_a_lost_write_is_in_doubt(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    await steps(await create(journal, bench), range(3), once=True)
    await journal.close()
    database = sqlite3.connect(journal.path)
    database.execute("DELETE FROM records WHERE kind = 'completed' AND key = 'k1'")
    database.commit()
    database.close()
    journal = SqliteJournal(journal.path)
    run = await journal.open("r1", bench.wiring())
    first, second, third = await steps(run, range(3), once=True)
    assert isinstance(first, Completed)
    assert second == InDoubt({"n": 1, "text": ""})
    assert isinstance(third, Completed)
    assert bench.ran == {"k0": 1, "k1": 1, "k2": 1}
    await journal.close()


async def test_after_a_loss_the_program_may_decide_otherwise(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    await steps(run, range(2))
    await run.emit({"type": "told"})
    await journal.close()
    database = sqlite3.connect(journal.path)
    database.execute("UPDATE records SET sum = sum + 1 WHERE key = 'k0'")
    database.commit()
    database.close()
    journal = SqliteJournal(journal.path)
    run = await journal.open("r1", bench.wiring())
    await run.emit({"type": "other"})
    run.start("test.fail", None, key="k1")
    assert isinstance((await run.next()).outcome, Failed)
    assert [event["type"] for _, event in await journal.events("r1")] == ["told", "other"]
    await journal.close()


async def test_bytes_that_changed_in_the_file_are_noticed(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    await steps(run, range(1), text="needle")
    await steps(run, range(1, 3))
    await journal.close()
    content = journal.path.read_bytes()
    journal.path.write_bytes(content.replace(b'"needle"', b'"nEEdle"'))
    journal = SqliteJournal(journal.path)
    run = await journal.open("r1", bench.wiring())
    assert await steps(run, range(1), text="needle") == [Completed({"n": 0, "text": "needle"})]
    assert bench.ran["k0"] == 2
    await journal.close()


async def test_the_file_grows_with_the_run_and_not_faster(tmp_path: Path, bench: Any):
    sizes: list[int] = []
    for count in (50, 200):
        journal = SqliteJournal(tmp_path / f"runs-{count}.db")
        await steps(await create(journal, bench), range(count), text="x" * 10_000)
        await journal.close()
        sizes.append(journal.path.stat().st_size)
    assert 200 * 10_000 < sizes[1] < 200 * 10_000 * 1.4
    assert sizes[1] < sizes[0] * 4


async def test_completions_at_the_same_time_share_a_commit(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    wal = journal.path.with_name("runs.db-wal")
    before = wal.stat().st_size
    for n in range(100):
        run.start("test.gate", n, key=f"k{n}")
    await asyncio.sleep(0)
    for n in range(100):
        bench.gate(f"k{n}").set()
    assert [(await run.next()).key for _ in range(100)] == [f"k{n}" for n in range(100)]
    # a commit writes three pages of 4 kB at least
    assert wal.stat().st_size - before < 100 * 3 * 4096 / 4
    await journal.close()


async def test_large_inputs_are_not_written_with_every_step(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await journal.create("r1", program="test", input={"history": "x" * 1_000_000}, wiring=bench.wiring())
    wal = journal.path.with_name("runs.db-wal")
    before = wal.stat().st_size
    await steps(run, range(5))
    assert wal.stat().st_size - before < 200_000
    await journal.close()


async def test_events_that_nobody_waits_for_are_written_soon(tmp_path: Path, bench: Any):
    journal, other = SqliteJournal(tmp_path / "runs.db", lease=0.3), SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    await run.emit({"type": "x"})
    async with asyncio.timeout(10):
        while not await other.events("r1"):
            await asyncio.sleep(0.02)
    await other.close()
    await journal.close()


async def test_nothing_stays_open(tmp_path: Path, bench: Any):
    def descriptors() -> set[str]:
        names: set[str] = set()
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                names.add(str(link.readlink()))
        return {name for name in names if str(tmp_path) in name}

    if not Path("/proc/self/fd").exists():
        pytest.skip("open files are counted in /proc")
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    run.keep(b"x", "text/plain")
    await steps(run, range(3))
    assert descriptors()
    await journal.close()
    assert not descriptors()


@pytest.mark.parametrize("damage", ["sum = sum + 1", "kind = 'x', key = 'y', sum = 0", "kind = NULL"])
async def test_a_write_whose_note_was_lost_is_in_doubt(tmp_path: Path, bench: Any, damage: str):
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    run.start("test.gate", {"sum": 5}, key="pay", once=True)
    async with asyncio.timeout(10):
        while not bench.ran["pay"]:
            await asyncio.sleep(0.002)
    await journal.close()
    with contextlib.closing(sqlite3.connect(journal.path)) as database, database:
        statement = "DELETE FROM records" if damage == "kind = NULL" else f"UPDATE records SET {damage}"
        if damage == "kind = NULL":
            # what comes after the lost record shows that it was there
            database.execute(
                "INSERT INTO records SELECT run, 2, 'event', '', '', NULL, 'x', at, 0, 0 FROM records WHERE seq = 1"
            )
        database.execute(f"{statement} WHERE kind = 'intent'")
    for _ in range(2):  # the doubt outlives another interruption
        journal = SqliteJournal(tmp_path / "runs.db")
        run = await journal.open("r1", bench.wiring())
        run.start("test.gate", {"sum": 5}, key="pay", once=True)
        assert (await run.next()).outcome == InDoubt({"sum": 5})
        if _:
            # another attempt is made by decision, and runs
            run.start("test.give", 1, key="pay/again", once=True)
            assert (await run.next()).outcome == Completed(1)
            run.start("test.give", 2, key="other", once=True)
            assert (await run.next()).outcome == InDoubt(2)
            run.start("test.give", 3, key="read")
            assert (await run.next()).outcome == Completed(3)
        await journal.close()
    assert bench.ran["pay"] == 1


async def test_a_lost_event_leaves_no_write_in_doubt(tmp_path: Path, bench: Any):
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await create(journal, bench)
    await run.emit({"type": "told"})
    await steps(run, range(1))
    await journal.close()
    with contextlib.closing(sqlite3.connect(journal.path)) as database, database:
        database.execute("UPDATE records SET sum = sum + 1 WHERE kind = 'event'")
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await journal.open("r1", bench.wiring())
    run.start("test.give", 1, key="pay", once=True)
    assert (await run.next()).outcome == Completed(1)
    await journal.close()


async def test_what_is_stored_in_another_form_fits_when_it_is_read_again(tmp_path: Path, bench: Any):
    odd = {"text": "cut \ud83d", "big": 10**30, "float": 1e22, "nan": float("nan"), "é": ("é",)}
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await journal.create("r1", program="test", input=odd, wiring=bench.wiring())
    given = run.info.input
    assert given == {"text": "cut \ufffd", "big": str(10**30), "float": 1e22, "nan": None, "é": ["é"]}
    run.start("test.gate", odd, key="a", once=True)
    run.start("test.give", odd, key="b")
    assert (await run.next()).key == "b"
    await journal.close()
    journal = SqliteJournal(tmp_path / "runs.db")
    run = await journal.open("r1", bench.wiring())
    assert run.info.input == given
    run.start("test.gate", run.info.input, key="a", once=True)
    run.start("test.give", run.info.input, key="b")
    assert [(await run.next()).outcome for _ in range(2)] == [Completed(given), InDoubt(given)]
    await journal.close()
