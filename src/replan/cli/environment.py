"""What the process finds around it: variables from a file, the journal and the runs in it."""

import os
import shlex
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from replan.errors import ConfigError, RunNotFound
from replan.folders import state_folder
from replan.journal import Journal, RunInfo, open_journal

__all__ = ["find_run", "journal_path", "load_env_file", "next_command", "opened_journal"]


def load_env_file(path: str | None) -> None:
    """Set the variables of a file of `NAME=VALUE` lines that are not set yet.

    Empty lines and lines that begin with `#` are skipped, `export ` is allowed, and one pair of quotes around a value
    is taken off. Raises `ConfigError` that names the line, never the value.
    """
    if path is None:
        return
    try:
        text = Path(path).expanduser().read_text("utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"the env file {path!r} cannot be read: {error}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip().removeprefix("export ").strip()
        if not words or words.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in words.partition("="))
        if not equals or not name.isidentifier() or "\0" in value:
            raise ConfigError(f"line {number} of the env file {path!r} is no NAME=VALUE")
        found[name] = _unquoted(value)
    for name, value in found.items():
        os.environ.setdefault(name, value)


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def journal_path(given: str | None) -> Path:
    """The journal that is meant: the one given, else `REPLAN_JOURNAL`, else `runs.db` in the user's state folder."""
    if named := given or os.environ.get("REPLAN_JOURNAL"):
        return Path(named).expanduser().absolute()
    return state_folder() / "runs.db"


@asynccontextmanager
async def opened_journal(args: Namespace) -> AsyncGenerator[Journal]:
    """The journal of the options, for a command that only looks at it or answers."""
    journal = open_journal(journal_path(args.journal))
    try:
        yield journal
    finally:
        await journal.close()


def next_command(name: str, run_id: str, args: Namespace, *words: str) -> str:
    """A command on the run, with the journal where that is not the default one."""
    where = ["--journal", args.journal] if args.journal else []
    return shlex.join(["replan", name, run_id, *where, *words])


async def find_run(journal: Journal, run_id: str) -> RunInfo:
    """What the journal knows of the run. Raises `RunNotFound` in the command line's words."""
    try:
        return await journal.info(run_id)
    except RunNotFound:
        raise RunNotFound(f"the journal has no run {run_id!r}; list what it has with: replan runs") from None
