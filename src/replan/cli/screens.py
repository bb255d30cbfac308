"""Where a run is shown while it goes on: as JSON lines, as plain lines, or live on a terminal (`terminal.py`)."""

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol

from replan import events
from replan.encoding import JSONObject, encode

from .output import is_terminal, write_bytes, write_error
from .plan_table import plan_lines
from .text import call_text, clean, duration, one_line
from .view import Note, StepView, View

__all__ = ["JsonScreen", "PlainScreen", "Screen", "logging_to", "make_screen", "shown_levels"]

_LEVELS = ("debug", "info", "warning", "error")
_LATIN_CONTROLS = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


class Screen(Protocol):
    """Shows a run. A context manager: it is live inside the block."""

    view: View

    def recall(self, past: list[events.AnyEvent]) -> None:
        """Show what the run did before it is resumed."""
        ...

    def show(self, event: events.AnyEvent) -> None:
        """Show what happens. Raises `OutputClosed` where nobody reads it."""
        ...

    def note(self, kind: str, text: str) -> None:
        """Show a line for the log."""
        ...

    def plan(self, body: JSONObject) -> None:
        """Show a plan that a person is asked about, inside `held`; `body` is that of a `plan-review`."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Leave the terminal alone inside the block, so that a person can be asked."""
        ...

    def __enter__(self) -> "Screen": ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_screen(args: Namespace) -> Screen:
    """The screen for the options and for what standard error is."""
    if args.json:
        return JsonScreen()
    if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb" and find_spec("rich"):
        from .terminal import TerminalScreen

        return TerminalScreen(shown_levels(args.log_level))
    return PlainScreen(shown_levels(args.log_level))


def shown_levels(log_level: str) -> frozenset[str]:
    """The kinds of notes that are shown. What a model said and what changes the plan is always shown."""
    return frozenset({"said", "info", *_LEVELS[_LEVELS.index(log_level) :]})


class JsonScreen:
    """Events as compact JSON, one a line, on standard output; the past of a resumed run is not repeated."""

    def __init__(self) -> None:
        self.view = View()

    def recall(self, past: list[events.AnyEvent]) -> None:
        """Take the past into account."""
        for event in past:
            self.view.take(event)

    def show(self, event: events.AnyEvent) -> None:
        """Write one line."""
        self.view.take(event)
        self.view.notes.clear()
        line = encode(events.to_json(event)).decode()
        write_bytes(
            (line.translate(_LATIN_CONTROLS) if not line.isascii() or "\x7f" in line else line).encode() + b"\n"
        )

    def note(self, kind: str, text: str) -> None:
        """Write a line to standard error."""
        write_error(_note_line(Note(kind, text)))  # pyright: ignore[reportArgumentType]  # a level of logging

    def plan(self, body: JSONObject) -> None:
        """Write lines to standard error."""
        _write_plan(body)

    def held(self) -> AbstractContextManager[None]:
        """Nothing has to stop."""
        return nullcontext()

    def __enter__(self) -> "JsonScreen":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class PlainScreen:
    """Whole lines on standard error, for files, pipes and terminals without `rich`.

    Nothing can be taken back there, so nothing is streamed.
    """

    def __init__(self, levels: frozenset[str]) -> None:
        self.view = View()
        self._levels = levels

    def recall(self, past: list[events.AnyEvent]) -> None:
        """Write the past as it was written then."""
        for event in past:
            self.show(event)

    def show(self, event: events.AnyEvent) -> None:
        """Write the lines for the event."""
        told = isinstance(event, (events.PlanCreated, events.PlanRevised)) and self.view.is_retold(event)
        self.view.take(event)
        for note in self.view.notes:
            self.note(note.kind, note.text)
        self.view.notes.clear()
        if (lines := PLAIN.get(type(event))) and not told:
            for line in lines(self.view, event):
                write_error(f"{line}\n")

    def note(self, kind: str, text: str) -> None:
        """Write a line to standard error."""
        if kind in self._levels:
            write_error(_note_line(Note(kind, text)))  # pyright: ignore[reportArgumentType]  # a level of logging

    def plan(self, body: JSONObject) -> None:
        """Write lines to standard error."""
        _write_plan(body)

    def held(self) -> AbstractContextManager[None]:
        """Nothing has to stop."""
        return nullcontext()

    def __enter__(self) -> "PlainScreen":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def _write_plan(body: JSONObject) -> None:
    write_error("".join(f"  {line}\n" for line in plan_lines(body)))


def _note_line(note: Note) -> str:
    if note.kind == "said":
        return "".join(f"  | {line}\n" for line in clean(note.text).strip().splitlines())
    return f"{note.kind}: {one_line(note.text, 600)}\n"


def _plan_lines(view: View, event: events.PlanCreated | events.PlanRevised) -> Iterator[str]:
    if thought := one_line(event.plan.get("thought") or "", 300):
        yield f"thought: {thought}"
    steps = [step for step in view.steps if step.state == "pending"]
    for number, step in enumerate(steps, len(view.steps) - len(steps) + 1):
        yield f"plan: {number}. {one_line(step.description, 200)}"
    if view.price:
        yield f"price: {view.price}"


def _step_lines(view: View, event: events.StepStart) -> Iterator[str]:
    yield f"step {_number(view, event.step_id)}: {one_line(event.description, 200)}"


def _number(view: View, step_id: str) -> int:
    """The place of a step among those that are shown: steps that run at once do not begin in that order."""
    return 1 + view.steps.index(view.step(step_id))


def _call_lines(view: View, event: events.StepToolCall) -> Iterator[str]:
    yield f"  {call_text(event.tool, event.arguments)}"


def _result_lines(view: View, event: events.StepToolResult) -> Iterator[str]:
    word = "ok" if event.ok else "failed"
    yield f"  {event.tool}: {word}, {duration(event.seconds)}: {one_line(event.output, 120)}".rstrip(": ")


def _complete_lines(view: View, event: events.StepComplete) -> Iterator[str]:
    word = "done" if event.ok else "blocked" if event.blocked else "failed"
    number, summary = _number(view, event.step_id), one_line(event.summary, 160)
    yield f"step {number}: {word}, {duration(event.seconds)}: {summary}".rstrip(": ")


PLAIN: dict[type[events.Event], Callable[[View, Any], Iterator[str]]] = {
    events.PlanCreated: _plan_lines,
    events.PlanRevised: _plan_lines,
    events.StepStart: _step_lines,
    events.StepToolCall: _call_lines,
    events.StepToolResult: _result_lines,
    events.StepComplete: _complete_lines,
}
"""Events that are lines of their own; others become notes, or are pieces of something that is not whole yet."""


def step_states(steps: list[StepView]) -> Iterator[str]:
    """The steps with their states, for a run that is looked at later."""
    marks = {"pending": "[ ]", "running": "[.]", "done": "[x]", "failed": "[!]"}
    for number, step in enumerate(steps, 1):
        took = f" ({duration(step.seconds)})" if step.state in ("done", "failed") else ""
        yield f"{marks[step.state]} {number}. {one_line(step.description, 200)}{took}"


# ---- logging


class _NoteHandler(logging.Handler):
    def __init__(self, screen: Screen, *, everything: bool) -> None:
        super().__init__()
        self._screen, self._everything = screen, everything

    def emit(self, record: logging.LogRecord) -> None:
        if self._everything or record.name.partition(".")[0] == "replan":
            kind = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
            self._screen.note(kind, record.getMessage())
            if record.exc_info and self._everything:
                write_error(logging.Formatter().formatException(record.exc_info) + "\n")


@contextmanager
def logging_to(screen: Screen, level: str) -> Generator[None]:
    """Show what is logged inside the block: of Replan from `level` on, of others with `debug` only."""
    handler = _NoteHandler(screen, everything=level == "debug")
    ours, root = logging.getLogger("replan"), logging.getLogger()
    before = ours.level
    ours.setLevel(level.upper())
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)
