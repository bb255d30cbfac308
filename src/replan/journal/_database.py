"""The SQLite file of a journal: opening, versions, transactions, and what its errors mean. Used by one thread only.

Versions of the schema (`user_version`; `application_id` is 0x5265706E):

    1   runs, leases, records, inbox. A record is one row; `sum` is the CRC-32 of its other columns; positions (`seq`)
    have no gaps.
    2   inbox has `body`: what is asked.
"""

import os
import sqlite3
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from replan.errors import JournalError, JournalVersion

from ._artifacts import make_private_folder

__all__ = ["Database"]

VERSION = 2
_APPLICATION_ID = 0x5265706E
_HEADER = b"SQLite format 3\0"
_BUSY_SECONDS = 20.0

_SCHEMA = """
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
    NOT NULL, answer BLOB, answered REAL, closed REAL, body BLOB, PRIMARY KEY (run, key)) WITHOUT ROWID;
"""

_UPGRADES = {1: "ALTER TABLE inbox ADD COLUMN body BLOB"}
"""What turns a file of that version into one of the next."""

_REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process holds it locked for too long; end that process, then try again",
    sqlite3.SQLITE_LOCKED: "another process holds it locked for too long; end that process, then try again",
    sqlite3.SQLITE_FULL: "there is no room left on its disk, or within its size limit; make room, then resume the run",
    sqlite3.SQLITE_READONLY: "it cannot be written; make the file and its folder writable, or use another path",
    sqlite3.SQLITE_PERM: "it cannot be written; make the file and its folder writable, or use another path",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; make the file and its folder writable, or use another path",
    sqlite3.SQLITE_NOTADB: "it is not a journal; use another path, or move the file away",
    sqlite3.SQLITE_CORRUPT: "it is damaged; copy it to a safe place, try sqlite3's '.recover', or use another path",
    sqlite3.SQLITE_IOERR: "its disk reports an error; check the disk, then resume the run",
}


class Database:
    """One connection. `open` before use; everything raises `JournalError`, naming the file and what to do."""

    def __init__(self, path: Path, max_bytes: int | None) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._full = False

    def open(self) -> None:
        """Open the file, creating it and its folder where they are missing.

        Nothing is written to a file that is no journal.
        """
        if self._connection is not None:
            return
        with self._explained():
            self._make_file()
            connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                connection.text_factory = _lenient_text
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self._identity = _identity(self.path)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with self._explained():
                connection.close()

    @contextmanager
    def transaction(self, *, full: bool = False) -> Generator[sqlite3.Connection, None, None]:
        """A write transaction; `full` makes it survive a power cut."""
        self.open()
        connection = self._connection
        assert connection is not None
        if _identity(self.path) != self._identity:
            raise JournalError(f"the journal {str(self.path)!r} was removed or replaced while in use; put it back")
        with self._explained():
            if full != self._full:
                connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
                self._full = full
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What a query gives."""
        self.open()
        assert self._connection is not None
        with self._explained():
            return self._connection.execute(sql, parameters).fetchall()

    def readable_rows(self, sql: str, *parameters: Any) -> tuple[list[tuple[Any, ...]], bool]:
        """What can be read of a query's rows, and whether that was all."""
        assert self._connection is not None
        rows: list[tuple[Any, ...]] = []
        try:
            for row in self._connection.execute(sql, parameters):
                rows.append(row)
        except sqlite3.DatabaseError:
            return rows, False
        return rows, True

    def beginning(self, table: str, column: str, rowid: int, size: int) -> bytes:
        """The first bytes of a value, without reading the rest of it."""
        assert self._connection is not None
        with self._explained(), self._connection.blobopen(table, column, rowid, readonly=True) as blob:
            return blob.read(size)

    def _make_file(self) -> None:
        make_private_folder(self.path.parent)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise JournalError(
                    f"{str(self.path)!r} is no regular file and cannot be a journal; use another path"
                ) from None
            with self.path.open("rb") as file:
                header = file.read(len(_HEADER))
            if header not in (b"", _HEADER):
                raise JournalError(
                    f"the file {str(self.path)!r} is not a journal; use another path, or move the file away"
                ) from None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._is_new(connection)
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        if self._max_bytes is not None:
            page = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {max(1, self._max_bytes // page)}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            # asked again: another process may have made the tables since
            if self._is_new(connection):
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
            self._upgrade(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        for known in range(max(1, version), VERSION):
            connection.execute(_UPGRADES[known])
            connection.execute(f"PRAGMA user_version = {known + 1}")

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is empty. Raises where it is no journal, or one of a newer version."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == 0 and version == 0 and tables == 0:
            return True
        if application != _APPLICATION_ID:
            raise JournalError(f"the file {str(self.path)!r} is the database of another program; use another path")
        if version > VERSION:
            raise JournalVersion(
                f"the journal {str(self.path)!r} has version {version}, and this Replan reads up to {VERSION}; "
                "upgrade Replan, or use another path"
            )
        return False

    @contextmanager
    def _explained(self) -> Generator[None, None, None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            remedy = _REMEDIES.get(code, "check the file, or use another path")
            raise JournalError(f"the journal {str(self.path)!r} cannot be used ({error}): {remedy}") from error
        except OSError as error:
            reason = error.strerror or error
            raise JournalError(
                f"the journal {str(self.path)!r} cannot be used ({reason}); "
                "make the file and its folder writable, or use another path"
            ) from error


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite does not wait for other processes here by itself."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            if mode != "wal":
                raise JournalError(f"SQLite cannot keep a write-ahead log here (it uses {mode!r}); use a local disk")
            return


def _lenient_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
