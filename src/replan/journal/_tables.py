"""What is read from and written to the tables of a SQLite journal. Runs in the journal's thread.

A run is taken by raising its epoch; whoever holds an older epoch can write no more (`JournalFenced`).
"""

import logging
import time
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct, convert

from replan.encoding import JSON, decode, encode
from replan.errors import JournalBusy, JournalError, JournalFenced, RunNotFound

from ._database import Database
from ._owner import Owner, is_gone
from .history import EXPECT, Cut, History, fold, retract_failures
from .records import InboxItem, Record, RunInfo, RunStatus
from .tool_history import MAX_CALLS, MAX_RECORDS, SMALL, TOLD, RecentCalls

__all__ = ["Holding", "Pending", "Tables", "Taken", "fenced"]

_log = logging.getLogger("replan")
_INFO = (
    "SELECT run_id, program, status, input, meta, result, error, created, updated, owner, until "
    "FROM runs JOIN leases ON leases.run = runs.id "
)
_NO_INTENTS = frozenset({"completed", "failed", "cancelled", "in-doubt", "timer", "item", "stop", "event", "cut"})
_CALLS = (
    # a body is loaded only where it is small: what is larger lies in pages of its own
    "SELECT rowid, run, kind, key, at, length(body), CASE WHEN length(body) <= ?1 THEN body END FROM records "
    "WHERE rowid > ?3 AND rowid <= ?4 AND (step = 'tool' OR "
    "kind = 'event' AND CASE WHEN length(body) <= ?1 THEN substr(body, 1, length(?2)) END = ?2) ORDER BY rowid DESC"
)
_AT_ONCE = 100
_RECORDS = "SELECT seq, kind, key, step, digest, body, at, handed, sum FROM records WHERE run = ? "


class Holding(Struct, frozen=True):
    """A run that this process holds: its row, the epoch it was taken with, its name."""

    row: int
    epoch: int
    run_id: str


class Pending(Struct, frozen=True):
    """A record that is to be written at position `seq`, its `body` as JSON; `full`: it must survive a power cut."""

    seq: int
    record: Record
    body: bytes
    full: bool = False


class Taken(Struct, frozen=True):
    """A run that was taken over: what it is, what happened in it, and the last position in use."""

    holding: Holding
    info: RunInfo
    history: History | None
    last: int


class Tables:
    """The tables of one file; `lease` is how long a run stays taken without being renewed, in seconds."""

    def __init__(self, database: Database, owner: Owner, lease: float) -> None:
        self._db, self._owner, self._lease = database, owner, lease

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def create(self, info: RunInfo) -> Taken:
        """Add a run, taken. Raises `JournalError` where the id is in use."""
        with self._db.transaction() as sql:
            if sql.execute("SELECT 1 FROM runs WHERE run_id = ?", (info.run_id,)).fetchone():
                raise JournalError(
                    f"there is a run {info.run_id!r} in {str(self._db.path)!r} already; resume it, or use another id"
                )
            values = (info.run_id, info.program, info.status, encode(info.input), encode(info.meta), info.created)
            row = sql.execute(
                "INSERT INTO runs (run_id, program, status, input, meta, created) VALUES (?, ?, ?, ?, ?, ?)", values
            ).lastrowid
            assert row is not None
            sql.execute(
                "INSERT INTO leases VALUES (?, 1, ?, ?, ?)",
                (row, encode(self._owner), info.created + self._lease, info.created),
            )
        return Taken(Holding(row, 1, info.run_id), info, None, 0)

    def take(self, run_id: str) -> Taken:
        """Take a run that did not complete, to resume it. What cannot be read of it is cut off, with a warning."""
        with self._db.transaction() as sql:
            row, status, handed = self._row(run_id)
            if status == "complete":
                raise JournalError(f"run {run_id!r} is complete; its result can be read with info({run_id!r})")
            epoch = self._free_epoch(row, run_id) + 1
            now = time.time()
            sql.execute("UPDATE runs SET status = 'running', result = NULL, error = NULL WHERE id = ?", (row,))
            sql.execute(
                "UPDATE leases SET epoch = ?, owner = ?, until = ?, updated = ? WHERE run = ?",
                (epoch, encode(self._owner), now + self._lease, now, row),
            )
            history, last, cut = self._history(row, run_id)
            if cut is None and status == "failed":
                cut = retract_failures(history, handed)
            if cut is not None:
                history.cut(cut)
                last = max(last, cut.torn) + 1
                record = cut.record(now)
                _insert(sql, row, [Pending(last, record, encode(record.body))])
            answers = sql.execute("SELECT key, answer FROM inbox WHERE run = ? AND answer IS NOT NULL", (row,))
            history.answers = {key: decode(answer) for key, answer in answers}
        return Taken(Holding(row, epoch, run_id), self.info(run_id), history, last)

    def append(self, batch: Sequence[tuple[Holding, Sequence[Pending]]]) -> list[Holding]:
        """Write records of several runs in one commit and renew their leases.

        Gives those that are lost to another process.
        """
        lost: list[Holding] = []
        full = any(pending.full for _, records in batch for pending in records)
        with self._db.transaction(full=full) as sql:
            for holding, records in batch:
                if self._renew(sql, holding, time.time() + self._lease, self._owner):
                    _insert(sql, holding.row, records)
                else:
                    lost.append(holding)
        return lost

    def end(
        self,
        holding: Holding,
        records: Sequence[Pending],
        status: RunStatus | None,
        result: JSON,
        error: JSON,
        handed: int,
    ) -> None:
        """Write the last records and the end of a run, and give it up

        None keeps its status. Raises `JournalFenced`.
        """
        with self._db.transaction(full=any(pending.full for pending in records)) as sql:
            if not self._renew(sql, holding, 0.0, None):
                raise fenced(holding)
            _insert(sql, holding.row, records)
            if status is not None:
                sql.execute(
                    "UPDATE runs SET status = ?, result = ?, error = ?, handed = ? WHERE id = ?",
                    (status, encode(result), None if error is None else encode(error), handed, holding.row),
                )

    def give_up(self, holding: Holding) -> None:
        """Let others take the run at once."""
        with self._db.transaction() as sql:
            self._renew(sql, holding, 0.0, None)

    def answers(self, holding: Holding) -> list[tuple[str, JSON]]:
        """Answers to inbox items that are still open in the run's program."""
        sql = "SELECT key, answer FROM inbox WHERE run = ? AND answer IS NOT NULL AND closed IS NULL"
        return [(key, decode(answer)) for key, answer in self._db.rows(sql, holding.row)]

    def answer(self, run_id: str, key: str, value: JSON) -> int:
        """Store an answer; gives the run's row. Raises `JournalError` where no such item is open."""
        with self._db.transaction(full=True) as sql:
            row, status, _ = self._row(run_id)
            changed = sql.execute(
                "UPDATE inbox SET answer = ?, answered = ? "
                "WHERE run = ? AND key = ? AND answer IS NULL AND closed IS NULL",
                (encode(value), time.time(), row, key),
            ).rowcount
            if not changed or status in ("complete", "cancelled"):
                raise JournalError(f"run {run_id!r} has no open inbox item {key!r}; inbox() lists what is open")
        return row

    def inbox(self, run_id: str | None) -> list[InboxItem]:
        """The open inbox items of one run, or of all that are running or paused, oldest first."""
        if run_id is not None:
            self._row(run_id)
        sql = (
            "SELECT run_id, key, name, deadline, fallback, body FROM inbox JOIN runs ON runs.id = inbox.run "
            "WHERE answer IS NULL AND closed IS NULL AND status IN ('running', 'paused') "
            "AND run_id = coalesce(?, run_id) ORDER BY opened"
        )
        return [
            InboxItem(
                run_id=run,
                key=key,
                name=name,
                body=None if body is None else decode(body),
                deadline=deadline,
                default=decode(fallback),
            )
            for run, key, name, deadline, fallback, body in self._db.rows(sql, run_id)
        ]

    def runs(self, limit: int) -> list[RunInfo]:
        """The runs, newest first."""
        return [_info(row) for row in self._db.rows(_INFO + "ORDER BY created DESC, id DESC LIMIT ?", limit)]

    def info(self, run_id: str) -> RunInfo:
        """One run. Raises `RunNotFound`."""
        rows = self._db.rows(_INFO + "WHERE run_id = ?", run_id)
        return _info(rows[0]) if rows else self._missing(run_id)

    def events(self, run_id: str, after: int) -> list[tuple[int, JSON]]:
        """The readable events with a position above `after`."""
        row = self._row(run_id)[0]
        rows, _ = self._db.readable_rows(_RECORDS + "AND kind = 'event' AND seq > ? ORDER BY seq", row, after)
        return [(values[0], record.body) for values in rows if (record := _read(values)) is not None]

    def completed(self, run_id: str) -> list[Record]:
        """The completions in the order in which a replay gives them."""
        return list(self._history(self._row(run_id)[0], run_id)[0].order)

    def recent_calls(self, tools: Collection[str]) -> RecentCalls:
        """The newest calls of some tools, over all runs."""
        recent = RecentCalls(tools)
        # records are never deleted: the newest have the highest row ids, one after the other
        top = self._db.rows("SELECT coalesce(max(rowid), 0) FROM records")[0][0]
        least = max(0, top - MAX_RECORDS)
        while top > least and recent.count < MAX_CALLS:
            low = max(least, top - _AT_ONCE)
            for rowid, run, kind, key, at, length, small in self._db.rows(_CALLS, SMALL, TOLD, low, top):
                body = small
                if small is None and kind == "completed":
                    body = self._db.beginning("records", "body", rowid, length if recent.wants(length) else 500)
                recent.add_stored(run, kind, key, at, length, body)
            top = low
        return recent

    def _row(self, run_id: str) -> tuple[int, str, int]:
        rows = self._db.rows("SELECT id, status, handed FROM runs WHERE run_id = ?", run_id)
        return rows[0] if rows else self._missing(run_id)

    def _missing(self, run_id: str) -> Any:
        raise RunNotFound(f"there is no run {run_id!r} in {str(self._db.path)!r}; runs() lists what there is")

    def _free_epoch(self, row: int, run_id: str) -> int:
        """The epoch of a run that nobody holds. Raises `JournalBusy`."""
        epoch, data, until = self._db.rows("SELECT epoch, owner, until FROM leases WHERE run = ?", row)[0]
        if data is not None and until > time.time():
            owner = convert(decode(data), Owner)
            if not is_gone(owner):
                raise JournalBusy(f"run {run_id!r} is driven by {owner.described()}; wait for it, or end that process")
        return epoch

    def _renew(self, sql: Any, holding: Holding, until: float, owner: Owner | None) -> bool:
        return bool(
            sql.execute(
                "UPDATE leases SET until = ?, updated = ?, owner = ? WHERE run = ? AND epoch = ?",
                (until, time.time(), None if owner is None else encode(owner), holding.row, holding.epoch),
            ).rowcount
        )

    def _history(self, row: int, run_id: str) -> tuple[History, int, Cut | None]:
        """What happened in a run, its last position, and the cut that a lost record makes necessary."""
        rows, _ = self._db.readable_rows(_RECORDS + "ORDER BY seq", row)
        last = self._db.rows("SELECT coalesce(max(seq), 0) FROM records WHERE run = ?", row)[0][0]
        records = {values[0]: record for values in rows if (record := _read(values)) is not None}
        repaired = max((convert(r.body, Cut).torn for r in records.values() if r.kind == "cut"), default=0)
        lost = next((seq for seq in range(repaired + 1, last + 1) if seq not in records), None)
        if lost is None:
            return fold(records.values()), last, None
        before = fold(record for seq, record in records.items() if seq < lost)
        _log.warning("record %d of run %r cannot be read; the run goes on from what was before it", lost, run_id)
        kinds = {values[0]: values[1] for values in rows}
        unread = (kinds.get(seq) for seq in range(lost, last + 1) if seq not in records)
        blind = any(kind not in _NO_INTENTS for kind in unread)
        cut = Cut(keep=len(before.order), told=len(before.handed), torn=last, blind=blind)
        return fold(records.values()), last, cut


def fenced(holding: Holding) -> JournalFenced:
    """The error of a process that holds a run no more."""
    return JournalFenced(
        f"run {holding.run_id!r} was taken over by another process; this one cannot write to it any more"
    )


def _insert(sql: Any, row: int, records: Iterable[Pending]) -> None:
    records = list(records)
    sql.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [_values(row, p) for p in records])
    for pending in records:
        if pending.record.step.startswith(EXPECT):
            _note_item(sql, row, pending.record)


def _note_item(sql: Any, row: int, record: Record) -> None:
    """Keep the inbox in step with the records."""
    if record.kind == "item":
        name, default, body = record.step.removeprefix(EXPECT), record.body["default"], record.body["body"]
        sql.execute(
            "INSERT OR IGNORE INTO inbox (run, key, name, deadline, fallback, opened, body) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (row, record.key, name, record.body["deadline"], encode(default), record.at, encode(body)),
        )
    else:
        sql.execute("UPDATE inbox SET closed = ? WHERE run = ? AND key = ?", (record.at, row, record.key))


def _values(row: int, pending: Pending) -> tuple[Any, ...]:
    record = pending.record
    columns = (record.kind, record.key, record.step, record.digest, pending.body, record.at, record.handed)
    return (row, pending.seq, *columns, _checksum(pending.seq, *columns))


def _checksum(
    seq: int, kind: str, key: str, step: str, digest: bytes | None, body: bytes, at: float, handed: int
) -> int:
    head = f"{seq}\0{kind}\0{key}\0{step}\0{at!r}\0{handed}\0".encode()
    return zlib.crc32(body, zlib.crc32(digest or b"", zlib.crc32(head)))


def _read(values: tuple[Any, ...]) -> Record | None:
    """The record of a row of version 1, or None where it is damaged."""
    seq, kind, key, step, digest, body, at, handed, total = values
    try:
        if _checksum(seq, kind, key, step, digest, body, at, handed) == total:
            return Record(kind, key, step, digest, decode(body), at, handed)
    except (TypeError, ValueError):
        pass
    return None


def _info(row: tuple[Any, ...]) -> RunInfo:
    run_id, program, status, given, meta, result, error, created, updated, owner, until = row
    holder = convert(decode(owner), Owner) if owner is not None and until > time.time() else None
    return RunInfo(
        run_id=run_id,
        program=program,
        status=status,
        input=decode(given),
        meta=decode(meta),
        result=None if result is None else decode(result),
        error=None if error is None else decode(error),
        created=created,
        updated=updated,
        owner=holder.shown() if holder is not None and not is_gone(holder) else None,
    )
