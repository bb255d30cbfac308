"""A plan's picture for a terminal: boxes and lines where they fit, else a list with indents."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TypeAlias

from replan.planning.schedule import in_order

from .layers import Bend, Layers, Slot, arrange, place
from .picture import MARKS, Node, Picture, State, cells, clipped, figures, label, shown, wrapped
from .text import one_line

__all__ = ["Cell", "diagram", "listing", "painted"]

_MOST_NODES = 60
_NARROWEST, _BROADEST, _GAP = 22, 38, 2
_INSIDE = 4  # lines of a box
_DEEPEST = 12
_STYLES: dict[State, str] = {
    "planned": "dim",
    "running": "bold cyan",
    "done": "green",
    "failed": "bold red",
    "blocked": "yellow",
    "cancelled": "magenta",
    "interrupted": "magenta",
    "not run": "dim",
    "replaced": "dim",
}
_LINES = {  # by the sides that they lead to: up, down, left, right
    "ud": "│",
    "lr": "─",
    "ul": "┘",
    "ur": "└",
    "dl": "┐",
    "dr": "┌",
    "udlr": "┼",
}
_HEAVY = dict(zip("│─┘└┐┌┼", "┃━┛┗┓┏╋", strict=True))

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}

Cell: TypeAlias = tuple[str, str]
"""A character (empty: the right half of a wide one) and its style, words of `_CODES`."""


def painted(lines: Iterable[Sequence[Cell]], *, colours: bool) -> str:
    """The lines as they are written to a terminal."""
    written: list[str] = []
    for line in lines:
        for style, cells_of in groupby(line, key=lambda cell: cell[1]):
            text = "".join(character for character, _ in cells_of)
            codes = ";".join(_CODES[word] for word in style.split())
            written.append(f"\x1b[{codes}m{text}\x1b[0m" if codes and colours else text)
        written.append("\n")
    return "".join(written)


# ---- list


def listing(picture: Picture) -> Iterator[str]:
    """The steps, a line each, indented by how many others come before them; for screens and files of any kind."""
    depth: dict[str, int] = {}
    for row, slots in enumerate(arrange(picture.needs, len(picture.nodes) or 1).rows):
        depth.update((slot, row) for slot in slots if isinstance(slot, str))
    critical = set(picture.critical) if len(picture.critical) > 1 else set[str]()
    for node in sorted(picture.nodes.values(), key=lambda node: depth[node.id]):
        needs = picture.needs[node.id]
        after = f"  <- {', '.join(needs[:20])}{', ...' if len(needs) > 20 else ''}" if needs else ""
        indent = "  " * min(depth[node.id], _DEEPEST)
        thick = "*" if node.id in critical else " "
        text = one_line(shown(node.description), 120)
        yield f"{thick} {indent}[{MARKS[node.state]}] {node.id}: {text} ({figures(node)}){after}"
    if critical:
        yield f"* {label(picture)}"


# ---- diagram


def diagram(picture: Picture, width: int) -> list[list[Cell]] | None:
    """The drawing in lines of cells, at most `width` wide; None where it does not fit or has too many steps."""
    if not picture.nodes or len(picture.nodes) > _MOST_NODES:
        return None
    for widest in range(max(1, min((width + _GAP) // (_NARROWEST + _GAP), len(picture.nodes))), 0, -1):
        layers = arrange(picture.needs, widest)
        most = max(len(row) for row in layers.rows)
        for box in range(_BROADEST, _NARROWEST - 1, -4):
            if min(most, widest) * (box + _GAP) - _GAP <= width:
                drawn = _draw(picture, layers, box, width)
                if drawn is not None:
                    return drawn
    return None


def _draw(picture: Picture, layers: Layers, box: int, width: int) -> list[list[Cell]] | None:
    sizes = {slot: 1 if isinstance(slot, Bend) else box for row in layers.rows for slot in row}
    places = place(layers, lambda slot: sizes[slot], _GAP)
    left = _whole_places(layers, places, sizes)
    if any(at + sizes[slot] > width for slot, at in left.items()):
        return None
    canvas = _Canvas()
    top = 0
    for number, row in enumerate(layers.rows):
        gap = _gap(picture, layers, row, left, sizes) if number + 1 < len(layers.rows) else []
        if gap is None:
            return None
        for slot in row:
            if isinstance(slot, Bend):
                heavy = picture.is_critical(slot.first, slot.second)
                for line in range(_INSIDE + 2):
                    canvas.line(left[slot], top + line, "ud", heavy=heavy)
            else:
                _box(canvas, picture, picture.nodes[slot], left[slot], top, box)
        top += _INSIDE + 2
        top += _connect(canvas, gap, top)
    return canvas.lines()


def _whole_places(layers: Layers, places: Mapping[Slot, float], sizes: Mapping[Slot, int]) -> dict[Slot, int]:
    """The left edge of each slot as a whole number, none nearer to the one before it than the gap."""
    left: dict[Slot, int] = {}
    for row in layers.rows:
        least = 0
        for slot in row:
            left[slot] = max(least, round(places[slot] - sizes[slot] / 2))
            least = left[slot] + sizes[slot] + _GAP
    return left


@dataclass(slots=True)
class _Wire:
    """A piece of an edge between two layers: from a column above to a column below, across on a track."""

    start: int
    end: int
    heavy: bool
    tip: bool
    track: int = 0


def _gap(
    picture: Picture, layers: Layers, row: Sequence[Slot], left: Mapping[Slot, int], sizes: Mapping[Slot, int]
) -> list[_Wire] | None:
    """The wires below a row, on tracks so that none lies on another; None where that cannot be."""
    inside = set(row)
    pieces = [
        (first, second, picture.is_critical(*edge))
        for edge, route in layers.routes.items()
        for first, second in pairwise(route)
        if first in inside
    ]
    aims = {(first, second): left[second] for first, second, _ in pieces if sizes[second] == 1}
    starts = _columns([(first, second) for first, second, _ in pieces], left, sizes, aims)
    ends = starts and _columns(
        [(second, first) for first, second, _ in pieces],
        left,
        sizes,
        {(second, first): at for (first, second), at in starts.items()},
    )
    if starts is None or ends is None:
        return None
    wires = [
        _Wire(starts[first, second], ends[second, first], heavy, tip=not isinstance(second, Bend))
        for first, second, heavy in pieces
    ]
    return wires if _lay(wires) else None


def _columns(
    joints: Sequence[tuple[Slot, Slot]],
    left: Mapping[Slot, int],
    sizes: Mapping[Slot, int],
    opposite: Mapping[tuple[Slot, Slot], int],
) -> dict[tuple[Slot, Slot], int] | None:
    """A column of its own on the first slot for each joint with a second, in the order of the seconds.

    `opposite` are the columns at the other ends, as far as they are known: its own is good, those of others are not.
    """
    joined: dict[Slot, list[Slot]] = {}
    for slot, other in joints:
        joined.setdefault(slot, []).append(other)
    others_at = set(opposite.values())
    found: dict[tuple[Slot, Slot], int] = {}
    for slot, others in joined.items():
        others.sort(key=lambda other: left[other] + sizes[other] / 2)
        edge = sizes[slot] > 1
        free = set(range(left[slot] + edge, left[slot] + sizes[slot] - edge))
        for number, other in enumerate(others):
            wished = left[slot] + (sizes[slot] * (2 * number + 1)) // (2 * len(others))
            mine = opposite.get((slot, other))
            if mine in free and (len(others) == 1 or abs(mine - wished) <= 1):
                wished = mine
            if not free:
                return None
            at = min(free, key=lambda at: (at in others_at and at != mine, abs(at - wished), at))
            found[slot, other] = at
            free.discard(at)
    return found


def _lay(wires: Sequence[_Wire]) -> bool:
    """Give a track to each wire that is not straight, so that those on one track do not touch.

    A wire that begins in the column where another ends is above it; False where that goes round in a circle. Those
    that go the same way are laid so that they need not cross.
    """
    sloped = [wire for wire in wires if wire.start != wire.end]
    sloped.sort(key=lambda wire: -wire.start if wire.end > wire.start else wire.start)
    bent = dict(enumerate(sloped))
    begins = {wire.start: number for number, wire in bent.items()}
    above = {str(number): [str(begins[wire.end])] if wire.end in begins else [] for number, wire in bent.items()}
    ordered = in_order(above)
    taken: list[list[tuple[int, int]]] = []
    for name in ordered:
        wire = bent[int(name)]
        low, high = sorted((wire.start, wire.end))
        wire.track = 1 + max((bent[int(other)].track for other in above[name]), default=-1)
        while wire.track < len(taken) and any(low <= end and start <= high for start, end in taken[wire.track]):
            wire.track += 1
        taken += [[] for _ in range(wire.track + 1 - len(taken))]
        taken[wire.track].append((low, high))
    return len(ordered) == len(bent)


def _connect(canvas: "_Canvas", wires: Sequence[_Wire], top: int) -> int:
    """Draw the wires below a row, with tips; gives the number of lines that they take."""
    if not wires:
        return 0
    tracks = 1 + max(wire.track for wire in wires)
    for wire in sorted(wires, key=lambda wire: wire.heavy):
        across = wire.start != wire.end
        for line in range(tracks):
            column = wire.start if line < wire.track or not across else wire.end
            if line != wire.track or not across:
                canvas.line(column, top + line, "ud", heavy=wire.heavy)
        if across:
            low, high = sorted((wire.start, wire.end))
            for column in range(low + 1, high):
                canvas.line(column, top + wire.track, "lr", heavy=wire.heavy)
            right = wire.end > wire.start
            canvas.line(wire.start, top + wire.track, "ur" if right else "ul", heavy=wire.heavy)
            canvas.line(wire.end, top + wire.track, "dl" if right else "dr", heavy=wire.heavy)
        if wire.tip:
            canvas.put(wire.end, top + tracks, "▼", "bold" if wire.heavy else "dim")
        else:
            canvas.line(wire.end, top + tracks, "ud", heavy=wire.heavy)
    return tracks + 1


def _box(canvas: "_Canvas", picture: Picture, node: Node, left: int, top: int, width: int) -> None:
    heavy = node.id in picture.critical and len(picture.critical) > 1
    style = _STYLES[node.state]
    edge = "┏━┓┃┗┛" if heavy else "┌─┐│└┘"
    texts: list[tuple[str, str]] = [
        (f"[{MARKS[node.state]}] {node.id}", f"bold {style}"),
        *((line, "") for line in wrapped(node.description, width - 4)),
        (figures(node), style),
    ]
    canvas.text(left, top, edge[0] + edge[1] * (width - 2) + edge[2], style)
    for number in range(1, _INSIDE + 1):
        canvas.text(left, top + number, edge[3] + " " * (width - 2) + edge[3], style)
    for number, (text, text_style) in enumerate([*texts[:-1], *[("", "")] * (_INSIDE - len(texts)), texts[-1]], 1):
        canvas.text(left + 2, top + number, text, text_style, width - 4)
    canvas.text(left, top + _INSIDE + 1, edge[4] + edge[1] * (width - 2) + edge[5], style)


@dataclass(slots=True)
class _Canvas:
    """Cells by line and column."""

    cells: dict[tuple[int, int], Cell] = field(default_factory=dict[tuple[int, int], Cell])

    def put(self, column: int, line: int, character: str, style: str) -> None:
        """Set a cell."""
        self.cells[line, column] = (character, style)

    def line(self, column: int, line: int, sides: str, *, heavy: bool) -> None:
        """A piece of a line, crossing what is there."""
        there = self.cells.get((line, column), ("", ""))[0]
        crossed = {"│", "┃"} if sides == "lr" else {"─", "━"} if sides == "ud" else set[str]()
        plain = "┼" if there in crossed else _LINES[sides]
        self.put(column, line, _HEAVY[plain] if heavy else plain, "bold" if heavy else "dim")

    def text(self, column: int, line: int, text: str, style: str, width: int | None = None) -> None:
        """A text, clipped to so many cells; wide characters take two."""
        for character in text if width is None else clipped(text, width):
            size = cells(character)
            if size:
                self.put(column, line, character, style)
                if size == 2:
                    self.put(column + 1, line, "", style)
                column += size
            else:  # belongs to the character before
                before, kept = self.cells.get((line, column - 1), ("", style))
                self.put(column - 1, line, before + character, kept)

    def lines(self) -> list[list[Cell]]:
        """The cells, line by line, with blanks where nothing is."""
        ends: dict[int, int] = {}
        for line, column in self.cells:
            ends[line] = max(ends.get(line, 0), column + 1)
        return [
            [self.cells.get((line, column), (" ", "")) for column in range(ends.get(line, 0))]
            for line in range(1 + max(ends, default=-1))
        ]
