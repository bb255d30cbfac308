"""A plan's picture as Mermaid text, a flow chart."""

from collections.abc import Iterator

from .picture import Node, Picture, State, figures, label, shown
from .text import one_line

__all__ = ["mermaid"]

_TEXT = 80
_ESCAPED = {ord(character): f"#{ord(character)};" for character in '"#&<>;`%{}[]|\\$~^*_'}
_STYLES: dict[State, str] = {
    "planned": "fill:#f6f8fa,stroke:#8c959f,color:#1f2328",
    "running": "fill:#ddf4ff,stroke:#0969da,color:#0a3069",
    "done": "fill:#dafbe1,stroke:#1a7f37,color:#0f3d1e",
    "failed": "fill:#ffebe9,stroke:#cf222e,color:#6e1018",
    "blocked": "fill:#fff8c5,stroke:#9a6700,color:#4d3300",
    "cancelled": "fill:#eaeef2,stroke:#57606a,color:#24292f",
    "interrupted": "fill:#fff1e5,stroke:#bc4c00,color:#5c2200",
    "not run": "fill:#f6f8fa,stroke:#8c959f,color:#1f2328",
    "replaced": "fill:#ffffff,stroke:#8c959f,color:#57606a,stroke-dasharray:4 3",
}


def mermaid(picture: Picture, title: str = "Plan") -> str:
    """The picture as a Mermaid flow chart. Thick lines are the longest chain, dotted ones lead to replaced steps."""
    return "".join(f"{line}\n" for line in _lines(picture, title))


def _lines(picture: Picture, title: str) -> Iterator[str]:
    yield "flowchart TD"
    yield f"    accTitle: {_escape(title) or 'Plan'}"
    if chain := label(picture):
        yield f"    accDescr: {_escape(chain)}"
    names = {ident: f"n{number}" for number, ident in enumerate(picture.nodes, 1)}
    for ident, node in picture.nodes.items():
        yield f"    {names[ident]}[{_text(node)}]"
    for ident, others in picture.needs.items():
        for other in others:
            yield f"    {names[other]} {_line(picture, other, ident)} {names[ident]}"
    for state, style in _STYLES.items():
        if members := [names[ident] for ident, node in picture.nodes.items() if node.state == state]:
            name = f"is_{state.replace(' ', '_')}"
            yield f"    classDef {name} {style}"
            yield f"    class {','.join(members)} {name}"
    if len(picture.critical) > 1:
        yield "    classDef is_critical stroke-width:3px"
        yield f"    class {','.join(names[ident] for ident in picture.critical)} is_critical"


def _line(picture: Picture, first: str, second: str) -> str:
    if picture.nodes[second].state == "replaced":
        return "-.->"
    return "==>" if picture.is_critical(first, second) else "-->"


def _text(node: Node) -> str:
    return f'"{_escape(node.id)}: {_escape(node.description)}<br/>{_escape(figures(node))}"'


def _escape(text: str) -> str:
    return one_line(shown(text), _TEXT).translate(_ESCAPED)
