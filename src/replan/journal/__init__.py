"""Where runs are recorded, so that they can be resumed: in memory, or in a SQLite file.

    journal = open_journal("runs.db")
    run = await journal.create("r1", program="demo", input={"goal": "..."})
    result = await program(run, run.info.input)
    await run.finish("complete", result)

A run that was interrupted goes on with `run = await journal.open("r1")` and the same program.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from replan.encoding import JSON, JSONObject

from .history import CompletionRow
from .local import LocalRun, Paused
from .memory import MemoryJournal
from .records import InboxItem, RunInfo, RunOwner, RunStatus, Wiring, check_run_id
from .tool_history import ToolHistory

__all__ = [
    "CompletionRow",
    "InboxItem",
    "Journal",
    "LocalRun",
    "MemoryJournal",
    "Paused",
    "RunInfo",
    "RunOwner",
    "RunStatus",
    "ToolHistory",
    "Wiring",
    "check_run_id",
    "open_journal",
]


class Journal(Protocol):
    """What callers do with a journal. Everything raises `JournalError` where the store cannot be read or written."""

    async def create(
        self, run_id: str, *, program: str, input: JSON, meta: JSONObject | None = None, wiring: Wiring | None = None
    ) -> LocalRun:
        """A new run, open in this process.

        Raises `JournalError` where the id is taken, `ConfigError` where it cannot be one.
        """
        ...

    async def open(self, run_id: str, wiring: Wiring | None = None) -> LocalRun:
        """A run that did not complete, open in this process to be resumed.

        Raises `RunNotFound`; `JournalBusy` where another process (or this one) drives it; `JournalError` where it is
        complete. The last failures of a failed run are tried again.
        """
        ...

    async def runs(self, limit: int = 50) -> list[RunInfo]:
        """The runs, newest first."""
        ...

    async def info(self, run_id: str) -> RunInfo:
        """What is known of the run. Raises `RunNotFound`."""
        ...

    async def events(self, run_id: str, after: int = 0) -> list[tuple[int, JSON]]:
        """The events with an offset above `after`, each with its offset; offsets grow, with gaps.

        Raises `RunNotFound`.
        """
        ...

    async def completions(self, run_id: str) -> list[CompletionRow]:
        """What ended in the run, in order. Raises `RunNotFound`."""
        ...

    async def answer(self, run_id: str, key: str, value: JSON) -> None:
        """Answer an open inbox item; the first answer counts.

        Raises `RunNotFound`, or `JournalError` where no such item is open.
        """
        ...

    async def inbox(self, run_id: str | None = None) -> list[InboxItem]:
        """The open inbox items of one run, or of all that are running or paused."""
        ...

    async def tool_history(self, tools: Collection[str]) -> dict[str, ToolHistory]:
        """What is known of the tools (by the names that models call them) from their last calls, over all runs.

        Looks at the newest 100 tool calls at most, among the newest 1,000 records; tools without any are left out.
        Does not raise: a store that cannot be read knows nothing.
        """
        ...

    async def close(self) -> None:
        """Release the runs that are open, and end threads. Idempotent."""
        ...


def open_journal(source: str | Path | Journal | None) -> Journal:
    """The journal that is meant: a file for SQLite, a journal as it is, or a new one in memory."""
    if source is None:
        return MemoryJournal()
    if isinstance(source, (str, Path)):
        from .sqlite import SqliteJournal

        return SqliteJournal(source)
    return source
