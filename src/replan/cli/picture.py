"""A plan as a graph: its steps over all revisions, what became of them, the longest chain. Knows no way to draw it.

The faces are `picture_text.py`, `picture_mermaid.py` and `picture_svg.py`; `layers.py` says what stands where.
"""

import statistics
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import msgspec

from replan import events
from replan.encoding import JSON, JSONObject
from replan.planning.plan import Step
from replan.planning.schedule import dependencies, in_order

from .text import clean, duration, one_line

__all__ = [
    "MARKS",
    "Node",
    "Picture",
    "State",
    "cells",
    "clipped",
    "draw",
    "figures",
    "label",
    "picture_json",
    "shown",
    "wrapped",
]

State: TypeAlias = Literal[
    "planned", "running", "done", "failed", "blocked", "cancelled", "interrupted", "not run", "replaced"
]
MARKS: dict[State, str] = {
    "planned": " ",
    "running": ".",
    "done": "x",
    "failed": "!",
    "blocked": "-",
    "cancelled": "/",
    "interrupted": "/",
    "not run": " ",
    "replaced": "~",
}
"""A character for each state, as in `[x]`."""
_GUESSED = {"direct": 1.0, "bound": 4.0, "open": 15.0, "compute": 0.0}
_LIKENESS = dict.fromkeys(map(ord, "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"))


@dataclass(frozen=True, slots=True)
class Node:
    """A step. `start` and `seconds` are in seconds, from the start of the first step; None where it has not begun or
    not ended. `revision` is that of the plan which it is in.
    """

    id: str
    description: str
    kind: str
    state: State = "planned"
    start: float | None = None
    seconds: float | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """The graph. `needs` gives for each node those that it waits for, without cycles; the nodes of `critical` are the
    chain that takes longest, `joints` the edges between them, `seconds` how long it takes; `estimated` where some of
    that is a guess.
    """

    nodes: dict[str, Node]
    needs: dict[str, tuple[str, ...]]
    critical: tuple[str, ...] = ()
    joints: frozenset[tuple[str, str]] = frozenset()
    seconds: float = 0.0
    estimated: bool = False

    def is_critical(self, first: str, second: str) -> bool:
        """Whether an edge is part of the longest chain."""
        return (first, second) in self.joints


@dataclass(slots=True)
class _Draft:
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    plans: list[JSONObject] = field(default_factory=list[JSONObject])
    clock: float = 0.0


def draw(told: Iterable[events.Event], status: str = "running") -> Picture:
    """The picture of a run, from its events and its status (`interrupted` for one that nobody drives any more).

    Events tell no times: a step begins where the last one that had ended by then did.
    """
    draft = _Draft()
    for event in told:
        if isinstance(event, (events.PlanCreated, events.PlanRevised)):
            _take_plan(draft, event.plan)
        elif isinstance(event, events.StepStart):
            _take_start(draft, event)
        elif isinstance(event, events.StepComplete):
            _take_end(draft, event)
    last = {str(step.get("id")) for step in draft.plans[-1].get("steps", ())} if draft.plans else set[str]()
    nodes = {ident: replace(node, state=_state(node, ident in last, status)) for ident, node in draft.nodes.items()}
    return _with_longest_chain(Picture(nodes, _without_cycles({ident: draft.needs.get(ident, ()) for ident in nodes})))


def _take_plan(draft: _Draft, plan: JSONObject) -> None:
    if plan in draft.plans:  # a resume tells plans again
        return
    draft.plans.append(plan)
    steps = [_step(raw) for raw in plan.get("steps", ())]
    for ident, needs in dependencies(steps, draft.nodes.keys()).items():
        if _is_new(draft, ident):
            draft.needs[ident] = needs
    for step in steps:
        if _is_new(draft, step.id):
            draft.nodes[step.id] = Node(step.id, step.description, _kind(step), revision=int(plan.get("revision", 0)))


def _is_new(draft: _Draft, ident: str) -> bool:
    """Whether the plan's word on a step counts: it has not begun."""
    return ident not in draft.nodes or draft.nodes[ident].start is None


def _step(raw: JSONObject) -> Step:
    try:
        return msgspec.convert(raw, Step)
    except msgspec.ValidationError:  # of another version
        return Step(id=str(raw.get("id")), description=str(raw.get("description")))


def _kind(step: Step) -> str:
    if step.call is None:
        return "open" if step.compute is None else "compute"
    arguments = step.call.arguments
    return "bound" if arguments is None or None in arguments.values() else "direct"


def _take_start(draft: _Draft, event: events.StepStart) -> None:
    before = draft.nodes.get(event.step_id, Node(event.step_id, event.description, event.kind))
    draft.nodes[event.step_id] = replace(before, kind=event.kind, state="running", start=draft.clock)


def _take_end(draft: _Draft, event: events.StepComplete) -> None:
    before = draft.nodes.get(event.step_id, Node(event.step_id, event.step_id, "open"))
    state: State = "blocked" if event.blocked else "done" if event.ok else "failed"
    start = draft.clock if before.start is None else before.start
    draft.nodes[event.step_id] = replace(before, state=state, start=start, seconds=event.seconds)
    draft.clock = max(draft.clock, start + event.seconds)


def _state(node: Node, in_last_plan: bool, status: str) -> State:
    if node.state == "running" and status not in ("running", "paused"):
        return "interrupted" if status == "interrupted" else "cancelled"
    if node.state != "planned":
        return node.state
    if not in_last_plan:
        return "replaced"
    return "planned" if status in ("running", "paused", "interrupted") else "not run"


def _without_cycles(needs: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The needs without those that go back on a cycle."""
    sound = set(in_order(needs))
    position = {ident: number for number, ident in enumerate(needs)}
    return {
        ident: tuple(
            other for other in others if other in position and (ident in sound or position[other] < position[ident])
        )
        for ident, others in needs.items()
    }


def _with_longest_chain(picture: Picture) -> Picture:
    weights = _weights(picture.nodes)
    ends: dict[str, tuple[float, int]] = {}  # when, and how many steps it takes until then
    before: dict[str, str] = {}
    for ident in in_order(picture.needs):
        counted = [other for other in picture.needs[ident] if other in ends]
        if counted:
            before[ident] = max(counted, key=lambda other: ends[other])
        if ident in weights:
            time, length = ends[before[ident]] if ident in before else (0.0, 0)
            ends[ident] = (time + weights[ident], length + 1)
    if not ends:
        return picture
    chain = [max(ends, key=lambda ident: ends[ident])]
    while chain[-1] in before:
        chain.append(before[chain[-1]])
    estimated = any(picture.nodes[ident].seconds is None for ident in chain)
    critical = tuple(reversed(chain))
    joints = frozenset(pairwise(critical))
    return replace(picture, critical=critical, joints=joints, seconds=ends[chain[0]][0], estimated=estimated)


def _weights(nodes: Mapping[str, Node]) -> dict[str, float]:
    """How long each step took; one that has not run: as long as others of its kind, or a guess."""
    counted = [node for node in nodes.values() if node.state != "replaced"]
    taken: dict[str, list[float]] = {}
    for node in counted:
        if node.seconds is not None:
            taken.setdefault(node.kind, []).append(node.seconds)
    usual = {kind: statistics.median(values) for kind, values in taken.items()}
    return {
        node.id: usual.get(node.kind, _GUESSED.get(node.kind, 1.0)) if node.seconds is None else node.seconds
        for node in counted
    }


# ---- words


def shown(text: str) -> str:
    """A text for a picture: without control characters, also those that turn the direction of writing."""
    return clean(text).translate(_LIKENESS)


def cells(text: str) -> int:
    """How many columns a text takes on a terminal, as far as one can know."""
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clipped(text: str, width: int) -> str:
    """The text in at most so many columns."""
    if cells(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _cells(character)
        if used > width - 1:
            break
        kept += character
    return f"{kept.rstrip()}…"


def wrapped(text: str, width: int) -> list[str]:
    """The text on two lines of so many columns, clipped."""
    lines = [""]
    for word in one_line(shown(text), 12 * width).split(" "):
        joined = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and cells(joined) > width:
            if len(lines) == 2:
                return [lines[0], clipped(joined, width)]
            lines.append(word)
        else:
            lines[-1] = joined
    return [clipped(line, width) for line in lines]


def figures(node: Node) -> str:
    """`done, 1.2 s, direct`."""
    took = "" if node.seconds is None else f", {duration(node.seconds)}"
    return f"{node.state}{took}, {node.kind}"


def label(picture: Picture) -> str:
    """The longest chain in words."""
    if len(picture.critical) < 2:
        return ""
    ids: Sequence[str] = picture.critical
    if len(ids) > 12:
        ids = [*ids[:6], "...", *ids[-5:]]
    guess = ", estimated where not run" if picture.estimated else ""
    return f"longest chain: {', '.join(ids)} ({duration(picture.seconds)}{guess})"


def picture_json(picture: Picture) -> JSON:
    """The picture as JSON."""
    nodes: list[Any] = [msgspec.to_builtins(node) for node in picture.nodes.values()]
    edges = [[other, ident] for ident, others in picture.needs.items() for other in others]
    return {
        "nodes": nodes,
        "edges": edges,
        "critical": list(picture.critical),
        "critical_seconds": picture.seconds,
        "critical_estimated": picture.estimated,
    }
