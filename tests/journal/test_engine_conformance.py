"""The engines of the two journals do what every engine must do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from replan.journal import MemoryJournal
from replan.journal.sqlite import SqliteJournal
from replan.testing.engines import CHECKS, Check, Engine, JournalEngine

checks = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@checks
async def test_memory_engine(check: Check):
    @asynccontextmanager
    async def make_engine() -> AsyncIterator[Engine]:
        journal = MemoryJournal()
        yield JournalEngine(journal, can_wait=False)
        await journal.close()

    await check(make_engine)


@checks
async def test_sqlite_engine(check: Check, tmp_path: Path):
    @asynccontextmanager
    async def make_engine() -> AsyncIterator[Engine]:
        journal = SqliteJournal(tmp_path / "runs.db")
        yield JournalEngine(journal, can_wait=True)
        await journal.close()

    await check(make_engine)
