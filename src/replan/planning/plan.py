"""What a plan is, and how a planner's reply becomes one that can be run."""

import re
from collections.abc import Collection, Sequence
from typing import Any, Literal

from msgspec import Struct

from replan.encoding import JSON, JSONObject, clean_text, decode, encode, is_list, is_object
from replan.tool import ToolInfo

from .catalogue import tool_names

__all__ = ["Plan", "PlannedCall", "Step", "fallback_plan", "free_id", "make_plan"]

_ID = re.compile(r"[a-z][a-z0-9_]{0,31}")
StepKind = Literal["direct", "bound", "open"]


class PlannedCall(Struct, frozen=True):
    """The tool call that a step is: the tool's name, and as many of its arguments as are known (None: none of them)."""

    tool: str
    arguments: JSONObject | None = None


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"from_": "from"}):
    """One step of a plan.

    `id` matches `[a-z][a-z0-9_]{0,31}` and is unique in the run over all revisions. Without `call` the executor does
    the step with its tools. `suggested_tools` are hints for that; `requires_tools` says that all suggestions were
    unknown, so that all tools are offered. `depends_on`, `produces`, `compute`, `from_` and `check` are part of the
    format.
    """

    id: str
    description: str
    expected_outcome: str = ""
    suggested_tools: tuple[str, ...] = ()
    requires_tools: bool = False
    depends_on: tuple[str, ...] | None = None
    produces: dict[str, JSONObject] = {}
    call: PlannedCall | None = None
    compute: JSONObject | None = None
    from_: dict[str, str] = {}
    check: JSON = None


class Plan(Struct, frozen=True, kw_only=True):
    """An ordered list of steps. `revision` counts the replanner's revisions."""

    thought: str = ""
    steps: tuple[Step, ...] = ()
    skills: tuple[str, ...] = ()
    revision: int = 0


def to_json(value: Plan | Step) -> JSONObject:
    """The plan or step as plain JSON."""
    return decode(encode(value))


def fallback_plan(goal: str) -> Plan:
    """One open step that is the goal itself: what is run when no plan could be had."""
    return Plan(steps=(Step(id="s1", description=goal, requires_tools=True),))


def make_plan(
    data: JSON, tools: Sequence[ToolInfo], *, max_steps: int, taken: Collection[str] = (), revision: int = 0
) -> tuple[Plan, list[str]]:
    """A plan from a planner's JSON, with what was mended, one remark each. Raises `ValueError` where it is no plan at
    all.

    Missing, ill-formed and repeated ids are replaced (references follow), unknown suggested tools are dropped, a call
    of an unknown tool becomes an open step, and steps beyond `max_steps` are cut off. `taken` holds the ids of earlier
    steps of the run.
    """
    raw_steps = data.get("steps") if is_object(data) else None
    if not is_list(raw_steps):
        raise ValueError('a plan is an object with "steps", a list')  # a value of the model's, not a type error of ours
    known = tool_names(tools)
    remarks: list[str] = []
    steps: list[Step] = []
    renamed: dict[str, str] = {}
    for number, raw in enumerate(raw_steps, len(taken) + 1):
        if len(steps) == max_steps:
            remarks.append(f"the plan had {len(raw_steps)} steps; those after the first {max_steps} were left out")
            break
        if not is_object(raw):
            remarks.append(f"step {number} is not an object and was left out")
            continue
        given = str(raw.get("id") or "")
        ident = _ident(given, number, {*taken, *(step.id for step in steps)})
        steps.append(_step(raw, ident, renamed, known, remarks))
        if given != ident:
            renamed[given] = ident
    if raw_steps and not steps:
        raise ValueError('each of the "steps" is an object with a "description"')
    thought = clean_text(str(data.get("thought") or ""))
    return Plan(thought=thought, steps=tuple(steps), revision=revision), remarks


def _step(raw: JSONObject, ident: str, renamed: dict[str, str], known: dict[str, str], remarks: list[str]) -> Step:
    """One step; `renamed` are the ids of steps before it that were replaced."""
    call = _call(raw.get("call"), known, renamed, remarks, ident)
    suggested = [str(name) for name in _items(raw.get("suggested_tools"))]
    kept = tuple(dict.fromkeys(known[name] for name in suggested if name in known))
    if unknown := [name for name in suggested if name not in known]:
        remarks.append(f"step {ident!r} suggested unknown tools, which were dropped: {', '.join(map(repr, unknown))}")
    lost_call = call is None and is_object(raw.get("call"))
    description = str(raw.get("description") or (f"Call {call.tool}" if call else raw.get("id") or ident))
    depends = raw.get("depends_on")
    return Step(
        id=ident,
        description=clean_text(_rename(description, renamed)),
        expected_outcome=clean_text(str(raw.get("expected_outcome") or "")),
        suggested_tools=kept,
        requires_tools=bool(suggested and not kept) or lost_call or raw.get("requires_tools") is True,
        depends_on=tuple(renamed.get(str(d), str(d)) for d in _items(depends)) if is_list(depends) else None,
        produces={k: v for k, v in _object(raw.get("produces")).items() if is_object(v)},
        call=call,
        compute=raw["compute"] if is_object(raw.get("compute")) else None,
        from_={k: v for k, v in _object(raw.get("from")).items() if isinstance(v, str)},
        check=raw.get("check"),
    )


def _call(
    raw: JSON, known: dict[str, str], renamed: dict[str, str], remarks: list[str], ident: str
) -> PlannedCall | None:
    if not is_object(raw):
        return None
    name = str(raw.get("tool") or "")
    if name not in known:
        remarks.append(f"step {ident!r} called the unknown tool {name!r}; the executor chooses one instead")
        return None
    arguments: Any = raw.get("arguments")
    if not is_object(arguments):
        return PlannedCall(known[name])
    return PlannedCall(known[name], _rename(arguments, renamed))


def _rename(value: JSON, renamed: dict[str, str]) -> JSON:
    """The value with references to renamed steps following them."""
    if isinstance(value, str) and renamed and "${" in value:
        ids = "|".join(map(re.escape, renamed))
        return re.sub(rf"(?<!\$)\$\{{({ids})(?=[.\[}}])", lambda match: "${" + renamed[match[1]], value)
    if is_list(value):
        return [_rename(item, renamed) for item in value]
    if is_object(value):
        return {key: _rename(item, renamed) for key, item in value.items()}
    return value


def _ident(given: str, number: int, used: set[str]) -> str:
    """The step's id: the given one, if it can be one and is free."""
    return given if _ID.fullmatch(given) and given not in used else free_id(number, used)


def free_id(number: int, used: Collection[str]) -> str:
    """The first of `s<number>`, `s<number + 1>`, ... that is not used."""
    while f"s{number}" in used:
        number += 1
    return f"s{number}"


def _items(value: JSON) -> list[JSON]:
    return value if is_list(value) else []


def _object(value: JSON) -> JSONObject:
    return value if is_object(value) else {}
