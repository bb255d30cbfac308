"""A plan's picture as SVG: a file of its own, without fonts, scripts or links, for readers in light and dark mode."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias
from xml.sax.saxutils import escape

from .layers import Bend, Layers, Slot, arrange, place
from .picture import Node, Picture, figures, label, shown, wrapped
from .text import one_line

__all__ = ["svg"]

_WIDTH, _HEIGHT, _BEND, _GAP, _STRIDE, _MARGIN, _TOP = 230.0, 78.0, 14.0, 26.0, 132.0, 24.0, 76.0
_WIDEST = 6
_CHARACTERS = 30  # of the description, on a line of a box
_NO_CHARACTERS = {0xFFFE: None, 0xFFFF: None}  # that XML does not allow
_STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; }
.paper { fill: #ffffff; }
text { fill: #1f2328; font-size: 12.5px; unicode-bidi: plaintext; }
.title { font-size: 15px; font-weight: 600; }
.id { font-weight: 600; }
.note { fill: #57606a; }
.edge { fill: none; stroke: #8c959f; stroke-width: 1.4; }
.edge.critical { stroke: #1f2328; stroke-width: 3; }
.edge.replaced, .replaced .box { stroke-dasharray: 5 4; }
.tip { fill: #8c959f; }
.tip.critical { fill: #1f2328; }
.box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.4; }
.critical .box { stroke-width: 3.4; }
.running .box { fill: #ddf4ff; stroke: #0969da; }
.done .box { fill: #dafbe1; stroke: #1a7f37; }
.failed .box { fill: #ffebe9; stroke: #cf222e; }
.blocked .box { fill: #fff8c5; stroke: #9a6700; }
.interrupted .box { fill: #fff1e5; stroke: #bc4c00; }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117; }
text { fill: #e6edf3; }
.note { fill: #9198a1; }
.edge { stroke: #767e88; }
.tip { fill: #767e88; }
.edge.critical { stroke: #e6edf3; }
.tip.critical { fill: #e6edf3; }
.box { fill: #161b22; stroke: #767e88; }
.running .box { fill: #0c2d4d; stroke: #4493f8; }
.done .box { fill: #0f2a18; stroke: #3fb950; }
.failed .box { fill: #3c1214; stroke: #f85149; }
.blocked .box { fill: #332708; stroke: #d29922; }
.interrupted .box { fill: #3a1f0b; stroke: #db6d28; }
}
"""


Port: TypeAlias = tuple[Slot, Slot]
"""Where a piece of an edge begins (below the first slot) and ends (above the second)."""


@dataclass(slots=True)
class _Drawing:
    """The picture with the place of everything; `leaves` and `enters` say where on a box an edge is joined."""

    picture: Picture
    layers: Layers
    centres: dict[Slot, float]
    rows: dict[Slot, int]
    leaves: dict[Port, float]
    enters: dict[Port, float]


def svg(picture: Picture, title: str = "Plan") -> str:
    """The picture as an SVG document."""
    layers = arrange(picture.needs, _WIDEST)
    centres = place(layers, lambda slot: _BEND if isinstance(slot, Bend) else _WIDTH, _GAP)
    centres = {slot: at + _MARGIN for slot, at in centres.items()}
    rows = {slot: number for number, row in enumerate(layers.rows) for slot in row}
    pieces = [piece for route in layers.routes.values() for piece in pairwise(route)]
    leaves = _ports(pieces, centres, lambda piece: (piece[0], piece[1]))
    enters = _ports(pieces, centres, lambda piece: (piece[1], piece[0]))
    return "\n".join(_document(_Drawing(picture, layers, centres, rows, leaves, enters), title)) + "\n"


def _ports(
    pieces: Sequence[Port], centres: Mapping[Slot, float], ends: Callable[[Port], tuple[Slot, Slot]]
) -> dict[Port, float]:
    """For each piece its place along the slot at one of its ends, in the order of the slots at the other end."""
    joined: dict[Slot, list[Port]] = {}
    for piece in pieces:
        joined.setdefault(ends(piece)[0], []).append(piece)
    found: dict[Port, float] = {}
    for slot, those in joined.items():
        those.sort(key=lambda piece: centres[ends(piece)[1]])
        step = min(22.0, (_WIDTH - 40) / len(those))
        for number, piece in enumerate(those):
            found[piece] = centres[slot] + (number - (len(those) - 1) / 2) * step
    return found


def _document(drawing: _Drawing, title: str) -> Iterator[str]:
    picture = drawing.picture
    chain = label(picture)
    right = max((at + (0 if isinstance(slot, Bend) else _WIDTH / 2) for slot, at in drawing.centres.items()), default=0)
    width = max(right, 6.5 * len(chain), 420.0) + _MARGIN
    height = _TOP + max(0, len(drawing.layers.rows) - 1) * _STRIDE + _HEIGHT + _MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-labelledby="title desc">'
    )
    yield f'<title id="title">{_text(title, 200)}</title>'
    yield f'<desc id="desc">{_described(picture)}</desc>'
    yield f"<style>{_STYLE}</style>"
    yield f'<clipPath id="inside"><rect width="{_WIDTH - 8:.0f}" height="{_HEIGHT:.0f}"/></clipPath>'
    yield '<rect class="paper" width="100%" height="100%"/>'
    yield f'<text class="title" x="{_MARGIN:.0f}" y="30">{_text(title, 100)}</text>'
    if chain:
        yield f'<text class="note" x="{_MARGIN:.0f}" y="52">Thick: {_text(chain, 400)}</text>'
    for first, second in drawing.layers.routes:
        yield from _edge(drawing, first, second)
    for node in picture.nodes.values():
        yield from _box(drawing, node)
    yield "</svg>"


def _described(picture: Picture) -> str:
    """The plan in words, for those who do not see it."""
    parts = [f"{len(picture.nodes)} steps."]
    for node in list(picture.nodes.values())[:200]:
        needs = picture.needs[node.id]
        after = f", after {', '.join(needs[:20])}" if needs else ""
        parts.append(f"{node.id}: {one_line(shown(node.description), 200)} ({figures(node)}{after}).")
    return _text(" ".join([*parts, label(picture)]), 100_000)


def _edge(drawing: _Drawing, first: str, second: str) -> Iterator[str]:
    picture, route = drawing.picture, drawing.layers.routes[first, second]
    kind = " critical" if picture.is_critical(first, second) else ""
    if picture.nodes[second].state == "replaced":
        kind = " replaced"
    path, x = "", 0.0
    for piece in pairwise(route):
        (above, below), start, x = piece, drawing.leaves[piece], drawing.enters[piece]
        top, bottom = _top(drawing, above) + _HEIGHT, _top(drawing, below) - (9 if below == second else 0)
        middle = (top + bottom) / 2
        path += f"{'L' if path else 'M'}{start:.1f} {top:.1f}"
        path += f"C{start:.1f} {middle:.1f} {x:.1f} {middle:.1f} {x:.1f} {bottom:.1f}"
    yield f'<path class="edge{kind}" d="{path}"/>'
    yield f'<path class="tip{kind}" d="M{x:.1f} {_top(drawing, second):.1f}l-5 -10h10z"/>'


def _top(drawing: _Drawing, slot: Slot) -> float:
    return _TOP + drawing.rows[slot] * _STRIDE


def _box(drawing: _Drawing, node: Node) -> Iterator[str]:
    left, top = drawing.centres[node.id] - _WIDTH / 2, _top(drawing, node.id)
    critical = " critical" if node.id in drawing.picture.critical and len(drawing.picture.critical) > 1 else ""
    yield f'<g class="{node.state.replace(" ", "-")}{critical}" transform="translate({left:.1f} {top:.1f})">'
    yield f"<title>{_text(f'{node.id}: {node.description}', 2000)}</title>"
    yield f'<rect class="box" width="{_WIDTH:.0f}" height="{_HEIGHT:.0f}" rx="8"/>'
    yield '<g clip-path="url(#inside)">'
    yield f'<text class="id" x="12" y="20">{_text(node.id, 32)}</text>'
    for number, line in enumerate(wrapped(node.description, _CHARACTERS)):
        yield f'<text x="12" y="{37 + 15 * number}">{_text(line, 100)}</text>'
    yield f'<text class="note" x="12" y="69">{_text(figures(node), 60)}</text>'
    yield "</g>"
    yield "</g>"


def _text(text: str, width: int) -> str:
    return escape(one_line(shown(text), width).translate(_NO_CHARACTERS))
