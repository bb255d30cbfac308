"""A plan that is put before a person, as rows and lines. Knows nothing of terminals."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from replan.encoding import JSON, JSONObject, encode, is_object
from replan.planning.plan import Step
from replan.planning.references import parse_path
from replan.planning.schedule import dependencies

from .text import one_line

__all__ = ["LEGEND", "Piece", "PlanRow", "call_pieces", "plan_lines", "plan_notes", "plan_rows"]

Piece: TypeAlias = tuple[str, Literal["", "open", "guess"]]
"""A text of a call: `open` for what is filled in later, `guess` for a value that nothing given accounts for."""

LEGEND = "?! marks values that neither the goal nor a result gives"
_LONGEST_VALUE = 500


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A step: its kind, what it does, what it calls or computes, the steps that it waits for."""

    id: str
    kind: str
    description: str
    action: tuple[Piece, ...] = ()
    needs: tuple[str, ...] = ()


def plan_rows(body: JSONObject) -> list[PlanRow]:
    """The steps of the plan in a `plan-review`, in order."""
    steps = [_step(raw) for raw in body["plan"].get("steps") or ()]
    needs = dependencies(steps)
    origins: JSONObject = body.get("origins") or {}
    return [
        PlanRow(
            step.id,
            _kind(step),
            one_line(step.description, 300),
            tuple(_action(step, _guesses(origins.get(step.id)))),
            needs[step.id],
        )
        for step in steps
    ]


def plan_lines(body: JSONObject) -> Iterator[str]:
    """The plan as plain lines, with what there is to say of it."""
    for row in plan_rows(body):
        needs = f"; needs {', '.join(row.needs)}" if row.needs else ""
        yield f"{row.id}  {row.kind}  {row.description}{needs}"
        if row.action:
            yield f"    {''.join(text for text, _ in row.action)}"
    yield from plan_notes(body)


def plan_notes(body: JSONObject) -> Iterator[str]:
    """What there is to say of the plan: why it was revised, what is new in it, what was found, what it costs."""
    if reason := one_line(str(body.get("reason") or ""), 600):
        yield f"why: {reason}"
    for call in body.get("outside") or ():
        made = "".join(text for text, _ in call_pieces(str(call.get("tool")), call.get("arguments")))
        yield f"not accepted so far: {made} in step {call.get('step')}: {one_line(str(call.get('why')), 300)}"
    for finding in body.get("findings") or ():
        step, text = finding.get("step"), str(finding.get("text"))
        where = f"step {step}: " if step and repr(step) not in text else ""
        mended = " (mended)" if finding.get("mended") else ""
        yield one_line(f"{finding.get('kind') or 'note'}: {where}{text}{mended}", 600)
    price: JSONObject = body.get("price") or {}
    if price:
        from replan.planning.price import price_line

        yield f"price: {price_line(price)}"
        yield from (f"price: {one_line(str(text), 300)}" for text in price.get("exceeds") or ())
    if any(style == "guess" for row in plan_rows(body) for _, style in row.action):
        yield LEGEND


def call_pieces(tool: str, arguments: JSON, guesses: Collection[str] = ()) -> Iterator[Piece]:
    """A call as one would write it, its values whole as far as a person can read them.

    `guesses` are the names of arguments that nothing given accounts for.
    """
    yield f"{one_line(tool, 100)}(", ""
    if not is_object(arguments):
        yield "...", "open"
    for number, (name, value) in enumerate(arguments.items() if is_object(arguments) else ()):
        yield f"{', ' if number else ''}{one_line(name, 60)}=", ""
        if value is None:
            yield "...", "open"
        elif name in guesses:
            yield f"{_value(value)}?!", "guess"
        else:
            yield _value(value), ""
    yield ")", ""


def _guesses(origins: JSON) -> set[str]:
    """The arguments that hold a value which is the model's own; `origins` are by path."""
    known: JSONObject = origins or {}
    return {str(parse_path(path)[0]) for path, origin in known.items() if origin == "model"}


def _action(step: Step, guesses: Collection[str]) -> Iterator[Piece]:
    if step.call is not None:
        yield from call_pieces(step.call.tool, step.call.arguments, guesses)
    elif step.compute is not None:
        yield f"compute {_value(step.compute)}", ""
    elif step.suggested_tools:
        yield f"with {one_line(', '.join(step.suggested_tools), 300)}", ""


def _value(value: JSON) -> str:
    return one_line(encode(value).decode(), _LONGEST_VALUE)


def _kind(step: Step) -> str:
    if step.call is None:
        return "open" if step.compute is None else "compute"
    arguments = step.call.arguments
    return "bound" if arguments is None or None in arguments.values() else "direct"


def _step(raw: JSON) -> Step:
    try:
        return msgspec.convert(raw, Step)
    except msgspec.ValidationError:  # it was written by a person, or by another version
        data: JSONObject = raw if is_object(raw) else {}
        return Step(id=str(data.get("id") or "?"), description=str(data.get("description") or encode(raw).decode()))
