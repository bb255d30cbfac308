"""A run live on a terminal: the plan with its states, tool calls, and what is being streamed.

The only module that imports `rich`.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from replan import events
from replan.encoding import JSONObject

from .plan_table import LEGEND, plan_notes, plan_rows
from .text import call_text, clean, duration, one_line
from .view import CallView, Note, StepView, View

__all__ = ["TerminalScreen"]

_REFRESH = 0.1
"""Seconds between two pictures."""

_TAIL = 4000
"""Characters of streamed text that are looked at: what does not fit the screen is not shown anyway."""

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_MARKS = {"pending": "○", "running": "●", "done": "✓", "failed": "✗"}
_ASCII_SPINNER = "|/-\\"
_ASCII_MARKS = {"pending": "o", "running": "*", "done": "+", "failed": "x"}
_STYLES = {"pending": "dim", "running": "bold", "done": "green", "failed": "red"}
_PIECE_STYLES = {"": "", "open": "dim", "guess": "bold yellow"}
_NOTE_STYLES = {"said": "dim", "debug": "dim", "info": "dim", "warning": "yellow", "error": "red"}


class TerminalScreen:
    """Draws the lower part of the terminal anew while the run goes on, and leaves the plan there when it ends.

    The answer is part of the picture while it is streamed; printing it for good is not this screen's business.
    """

    def __init__(self, levels: frozenset[str]) -> None:
        self.view = View()
        self._levels = levels
        self._console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
        plain = self._console.options.ascii_only
        self._spinner = _ASCII_SPINNER if plain else _SPINNER
        self._marks = _ASCII_MARKS if plain else _MARKS
        self._live: Live | None = None
        self._timer: asyncio.TimerHandle | None = None

    def recall(self, past: list[events.AnyEvent]) -> None:
        """Take the past into account: it is part of the picture from now on."""
        for event in past:
            self.view.take(event)
        self._draw()

    def show(self, event: events.AnyEvent) -> None:
        """Take the event into account; what it notes is printed for good."""
        self.view.take(event)
        for note in self.view.notes:
            self.note(note.kind, note.text)
        self.view.notes.clear()

    def note(self, kind: str, text: str) -> None:
        """Print a line above the picture."""
        if kind in self._levels:
            self._print(_note(Note(kind, text)))  # pyright: ignore[reportArgumentType]  # a level of logging

    def plan(self, body: JSONObject) -> None:
        """Print the plan as a table, and below it what there is to say of it."""
        table = Table(box=None if self._console.options.ascii_only else box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("step", "kind", "what it does", "call", "needs"):
            table.add_column(heading, overflow="fold")
        for row in plan_rows(body):
            action = Text.assemble(*((text, _PIECE_STYLES[style]) for text, style in row.action))
            table.add_row(row.id, row.kind, Text(row.description), action, ", ".join(row.needs))
        self._guarded(lambda: self._console.print(table))
        for line in plan_notes(body):
            self._print(Text(line, "yellow" if line == LEGEND else ""))

    @contextmanager
    def held(self) -> Generator[None]:
        """Take the picture away inside the block."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def __enter__(self) -> "TerminalScreen":
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        for line in self._lines():
            self._print(line)

    def _start(self) -> None:
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._guarded(self._live.start)
        self._tick()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._live is not None:
            self._guarded(self._live.stop)
            self._live = None

    def _tick(self) -> None:
        self._draw()
        self._timer = asyncio.get_running_loop().call_later(_REFRESH, self._tick)

    def _draw(self) -> None:
        if self._live is not None:
            live, picture = self._live, self._picture()
            self._guarded(lambda: live.update(picture, refresh=True))

    def _print(self, line: Text) -> None:
        self._guarded(lambda: self._console.print(line, soft_wrap=True))

    def _guarded(self, write: Callable[[], object]) -> None:
        """A terminal that is gone is no reason for a run to fail."""
        try:
            write()
        except OSError:
            self._live = None

    # ---- the picture

    def _picture(self) -> Text:
        """What fits the screen: its end is what matters."""
        width, height = self._console.size
        lines = [*self._lines(), *self._streamed(width)]
        for line in lines:
            line.truncate(width - 1, overflow="ellipsis")
        return Text("\n").join(lines[-max(1, height - 2) :])

    def _lines(self) -> Iterator[Text]:
        """The run so far: thought, steps with their calls, calls without a step."""
        view = self.view
        if view.thought:
            yield Text(one_line(view.thought, 400), "dim italic")
        if view.price:
            yield Text(f"price: {view.price}", "dim")
        for step in view.steps:
            yield from self._step(step)
        for call in view.calls:
            yield self._call(call, "")

    def _step(self, step: StepView) -> Iterator[Text]:
        running = step.state == "running" and self._live is not None
        mark = self._frame() if running else self._marks[step.state]
        line = Text.assemble(
            (f"{mark} ", _STYLES[step.state]),
            (one_line(step.description, 300), _STYLES[step.state] if step.state != "done" else ""),
        )
        seconds = time.monotonic() - step.since if running else step.seconds
        if step.state in ("done", "failed") or running:
            line.append(f"  {duration(seconds)}", "dim")
        yield line
        for call in step.calls:
            yield self._call(call, "  ")
        if step.state == "failed" and step.summary:
            yield Text(f"    {one_line(step.summary, 200)}", "red dim")

    def _call(self, call: CallView, indent: str) -> Text:
        line = Text(f"{indent}  {call_text(call.tool, call.arguments)}", "cyan dim")
        if call.ok is None:
            return line.append(f"  {one_line(call.progress, 40) or '…'}", "dim")
        style = "dim" if call.ok else "red"
        mark = self._marks["done" if call.ok else "failed"]
        return line.append(f"  {mark} {duration(call.seconds)}  {one_line(call.output, 60)}", style)

    def _streamed(self, width: int) -> Iterator[Text]:
        """What a model is saying at the moment."""
        view = self.view
        for step in view.steps:
            if step.state == "running":
                yield from self._tail(step.thought or step.text, "dim", width)
        yield from self._tail(view.thinking, "dim italic", width)
        yield from self._tail(view.answer, "", width)
        if activity := view.activity():
            yield Text.assemble((f"{self._frame()} ", "bold"), (one_line(activity, 300), "dim"))

    def _tail(self, text: str, style: str, width: int) -> Iterator[Text]:
        if text.strip():
            shown = Text(clean(text[-_TAIL:]).strip(), style, tab_size=4)
            yield from shown.wrap(self._console, max(20, width - 1))

    def _frame(self) -> str:
        return self._spinner[int(time.monotonic() / _REFRESH) % len(self._spinner)]


def _note(note: Note) -> Text:
    text = clean(note.text).strip() if note.kind == "said" else f"{note.kind}: {one_line(note.text, 600)}"
    return Text(text, _NOTE_STYLES[note.kind])
