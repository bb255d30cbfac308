"""A plan in a person's editor. What was typed is kept until it has been used."""

import asyncio
import os
import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from replan.encoding import JSONObject
from replan.errors import ConfigError
from replan.planning.files import dump_plan

from .answers import read_plan
from .output import write_error
from .text import clean

__all__ = ["Draft"]

_HEAD = """\
# Change the plan, save it and leave the editor. Nothing is answered before you say so.
# `null` is filled in when the step runs; ${id.result...} stands for what another step gave.
"""


class Draft:
    """A plan as a file that is edited. `remove` it when it is not needed any more."""

    def __init__(self, plan: JSONObject) -> None:
        self.path: Path | None = None
        self._original = self._text = _HEAD + dump_plan(plan)

    @property
    def is_changed(self) -> bool:
        """Whether a person has changed the text."""
        return self._text != self._original

    async def edit(self) -> JSONObject | None:
        """Have the person edit the text, and give the plan; None where it is as it was.

        Raises `ConfigError` where there is no editor, it fails, or the text is no plan; the text stays for another try.
        """
        words = _editor()
        path = self._file()
        code = await _run(words, path)
        self._read(path)
        if code:
            raise ConfigError(f"the editor {words[0]!r} ended with the code {code}")
        return read_plan(self._text) if self.is_changed else None

    def keep(self) -> None:
        """Leave the file, and say where, because the person cannot be asked any more."""
        if self.path is None:
            return
        with suppress(ConfigError):
            self._read(self.path)
        if self.is_changed:
            write_error(f"the edited plan is kept in {self.path}\n")
        else:
            self.remove()

    def remove(self) -> None:
        """Take the file away."""
        if self.path is not None:
            shutil.rmtree(self.path.parent, ignore_errors=True)
            self.path = None

    def _read(self, path: Path) -> None:
        try:
            self._text = path.read_text("utf-8-sig")
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"the edited plan {str(path)!r} cannot be read: {error}") from error

    def _file(self) -> Path:
        if self.path is None:
            import tempfile

            self.path = Path(tempfile.mkdtemp(prefix="replan-plan-")) / "plan.yaml"
            self.path.write_text(self._text, "utf-8")
        return self.path


def _editor() -> list[str]:
    """The words that start the person's editor. Raises `ConfigError` where there is none."""
    for name in ("VISUAL", "EDITOR"):
        if given := os.environ.get(name, "").strip():
            return _words(name, given)
    for name in ("vi", "nano"):
        if shutil.which(name):
            return [name]
    raise ConfigError("there is no editor; set EDITOR to one, or answer with `replan answer RUN_ID edit --plan FILE`")


def _words(name: str, given: str) -> list[str]:
    try:
        return shlex.split(given)
    except ValueError as error:
        raise ConfigError(f"{name} is {given!r}, which is no command: {error}") from error


async def _run(words: list[str], path: Path) -> int:
    """Run the editor on the terminal, whatever standard output is."""
    try:
        process = await asyncio.create_subprocess_exec(*words, str(path), stdout=sys.stderr.fileno())
    except OSError as error:
        raise ConfigError(f"the editor {clean(words[0])!r} cannot be started: {error}; set EDITOR to one") from error
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
