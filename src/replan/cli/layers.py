"""Where the nodes of a graph stand: layer by layer downwards, with few crossings, aligned with their neighbours.

The usual four steps of layered drawing: give each node a layer of bounded width, cut edges that span several layers by
`Bend`s, order the layers by the mean place of the neighbours, give places that keep the order and are near the wished
ones (least squares, by pooling adjacent violators).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from replan.planning.schedule import in_order

__all__ = ["Bend", "Layers", "Slot", "arrange", "place"]

_MAX_BENDS = 6000
_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Bend:
    """The place at which an edge goes through a layer."""

    first: str
    second: str
    layer: int


Slot: TypeAlias = str | Bend


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers from top to bottom, each from left to right, and for each edge the slots that it goes through."""

    rows: list[list[Slot]]
    routes: dict[tuple[str, str], list[Slot]]


def arrange(needs: Mapping[str, Sequence[str]], widest: int) -> Layers:
    """The layers of an acyclic graph, with at most `widest` nodes in each.

    Where the edges would need too many bends they have none, and go straight from node to node.
    """
    layer = _layers(needs, widest)
    rows: list[list[Slot]] = [[] for _ in range(1 + max(layer.values(), default=-1))]
    for ident in needs:
        rows[layer[ident]].append(ident)
    edges = [(other, ident) for ident, others in needs.items() for other in others]
    bent = sum(layer[second] - layer[first] - 1 for first, second in edges) <= _MAX_BENDS
    routes: dict[tuple[str, str], list[Slot]] = {}
    for first, second in edges:
        between = range(layer[first] + 1, layer[second]) if bent else ()
        bends = [Bend(first, second, number) for number in between]
        routes[first, second] = [first, *bends, second]
        for bend in bends:
            rows[bend.layer].append(bend)
    _order(rows, *_neighbours(routes))
    return Layers(rows, routes)


def _layers(needs: Mapping[str, Sequence[str]], widest: int) -> dict[str, int]:
    """Each node's layer: the first below those that it needs where there is room."""
    layer: dict[str, int] = {}
    count: list[int] = []
    after: list[int] = []  # the next layer to look at, where one is full
    for ident in in_order(needs):
        at = 1 + max((layer[other] for other in needs[ident]), default=-1)
        seen: list[int] = []
        while at < len(count) and count[at] >= widest:
            seen.append(at)
            at = after[at]
        for full in seen:
            after[full] = at
        if at == len(count):
            count.append(0)
            after.append(at + 1)
        count[at] += 1
        layer[ident] = at
    return layer


def _neighbours(
    routes: Mapping[tuple[str, str], Sequence[Slot]],
) -> tuple[dict[Slot, list[Slot]], dict[Slot, list[Slot]]]:
    above: dict[Slot, list[Slot]] = {}
    below: dict[Slot, list[Slot]] = {}
    for route in routes.values():
        for first, second in pairwise(route):
            above.setdefault(second, []).append(first)
            below.setdefault(first, []).append(second)
    return above, below


def _order(rows: list[list[Slot]], above: dict[Slot, list[Slot]], below: dict[Slot, list[Slot]]) -> None:
    """Sort the layers so that few edges cross; the best of some sweeps is kept."""
    best, least = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(_SWEEPS):
        if not least:
            break
        down = sweep % 2 == 0
        places = {slot: (number + 0.5) / len(row) for row in rows for number, slot in enumerate(row)}
        for row in rows if down else reversed(rows):
            near = above if down else below
            wished = {slot: _mean([places[other] for other in near.get(slot, ())], places[slot]) for slot in row}
            row.sort(key=lambda slot: wished[slot])
            places.update((slot, (number + 0.5) / len(row)) for number, slot in enumerate(row))
        crossings = _crossings(rows, below)
        if crossings < least:
            best, least = [list(row) for row in rows], crossings
    rows[:] = best


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(rows: Iterable[Sequence[Slot]], below: Mapping[Slot, Sequence[Slot]]) -> int:
    """How many pairs of edges between neighbouring layers cross."""
    total = 0
    for row, following in pairwise(rows):
        places = {slot: number for number, slot in enumerate(following)}
        ends = [place for slot in row for place in sorted(places[to] for to in below.get(slot, ()) if to in places)]
        total += _inversions(ends, len(following))
    return total


def _inversions(values: Sequence[int], size: int) -> int:
    """How many pairs stand in the wrong order, by a binary indexed tree."""
    tree = [0] * (size + 1)
    total = 0
    for seen, value in enumerate(values):
        at, smaller = value + 1, 0
        while at:
            smaller += tree[at]
            at &= at - 1
        total += seen - smaller
        at = value + 1
        while at <= size:
            tree[at] += 1
            at += at & -at
    return total


def place(layers: Layers, width: Callable[[Slot], float], gap: float) -> dict[Slot, float]:
    """The centre of each slot across the layers; the leftmost edge of all is at 0."""
    above, below = _neighbours(layers.routes)
    centres: dict[Slot, float] = {}
    for row in layers.rows:
        wanted: list[float | None] = [None] * len(row)
        centres.update(_spread(row, wanted, width, gap))
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in layers.rows if sweep % 2 == 0 else reversed(layers.rows):
            wished = [_mean([centres[other] for other in near.get(slot, ())], centres[slot]) for slot in row]
            centres.update(_spread(row, wished, width, gap))
    left = min((at - width(slot) / 2 for slot, at in centres.items()), default=0.0)
    return {slot: at - left for slot, at in centres.items()}


def _spread(
    row: Sequence[Slot], wished: Sequence[float | None], width: Callable[[Slot], float], gap: float
) -> dict[Slot, float]:
    """Centres in the row's order, each at least its distance from the one before, as near to the wished as can be."""
    offsets: list[float] = []
    for number, slot in enumerate(row):
        before = offsets[-1] + (width(row[number - 1]) + width(slot)) / 2 + gap if number else 0.0
        offsets.append(before)
    middle = offsets[-1] / 2 if offsets else 0.0
    pools: list[tuple[float, int]] = []  # mean and size
    for offset, wish in zip(offsets, wished, strict=True):
        mean, size = (-middle if wish is None else wish - offset), 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    shifts = [mean for mean, size in pools for _ in range(size)]
    return {slot: offset + shift for slot, offset, shift in zip(row, offsets, shifts, strict=True)}
