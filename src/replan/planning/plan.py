"""What a plan is, and how a planner's reply becomes one that can be run."""

import re
from collections.abc import Collection, Sequence
from typing import Literal, TypeGuard

from msgspec import Struct

from replan.encoding import JSON, JSONObject, clean_text, decode, encode, is_list, is_object

from .references import read_text

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


def make_plan(data: JSON, *, max_steps: int, taken: Collection[str] = (), revision: int = 0) -> tuple[Plan, list[str]]:
    """A plan from a planner's JSON, with what was mended, one remark each. Raises `ValueError` where it is no plan at
    all.

    Missing, ill-formed and repeated ids are replaced (references follow), and steps beyond `max_steps` are cut off.
    `taken` holds the ids of earlier steps of the run. Whether its tools and references are there is not looked at.
    """
    raw_steps = data.get("steps") if is_object(data) else None
    if not is_list(raw_steps):
        raise ValueError('a plan is an object with "steps", a list')  # a value of the model's, not a type error of ours
    remarks: list[str] = []
    rows = [(number, raw) for number, raw in enumerate(raw_steps, 1) if is_object(raw)]
    if raw_steps and not rows:
        raise ValueError('each of the "steps" is an object with a "description"')
    remarks += [
        f"step {n} is not an object and was left out" for n, raw in enumerate(raw_steps, 1) if not is_object(raw)
    ]
    if len(rows) > max_steps:
        remarks.append(f"the plan had {len(raw_steps)} steps; those after the first {max_steps} were left out")
    rows = rows[:max_steps]
    given = [str(raw.get("id") or "") for _, raw in rows]
    idents = _idents(given, [number + len(taken) for number, _ in rows], taken, remarks)
    first = {name: ident for name, ident in reversed([*zip(given, idents, strict=True)]) if name not in taken}
    renamed = {name: ident for name, ident in first.items() if name and name != ident}
    steps: list[Step] = []
    for (_, raw), name, ident in zip(rows, given, idents, strict=True):
        steps.append(_step(raw, ident, renamed, remarks))
        if name and name != ident:
            renamed[name] = ident  # what comes later means the last of this name
        elif name in renamed:
            del renamed[name]
    thought = clean_text(str(data.get("thought") or ""))
    return Plan(thought=thought, steps=tuple(steps), revision=revision), remarks


def _step(raw: JSONObject, ident: str, renamed: dict[str, str], remarks: list[str]) -> Step:
    """One step; `renamed` are the ids that were replaced."""
    call = _call(raw.get("call"), renamed)
    suggested = tuple(dict.fromkeys(str(name) for name in _items(raw.get("suggested_tools"))))
    description = str(raw.get("description") or (f"Call {call.tool}" if call else raw.get("id") or ident))
    depends, compute = raw.get("depends_on"), raw.get("compute")
    if isinstance(compute, str) and compute.strip():
        compute = {"value": compute}
    depends_given = is_list(depends) or bool(_items(depends))
    produces, from_ = _object(raw.get("produces")), _object(raw.get("from"))
    odd = [*(k for k, v in produces.items() if not is_object(v)), *(k for k, v in from_.items() if not _is_text(v))]
    if odd:
        remarks.append(f"step {ident!r} names outputs without a schema or path: {', '.join(map(repr, odd))}")
    return Step(
        id=ident,
        description=clean_text(_rename(description, renamed)),
        expected_outcome=clean_text(str(raw.get("expected_outcome") or "")),
        suggested_tools=suggested,
        requires_tools=raw.get("requires_tools") is True,
        depends_on=tuple(renamed.get(str(d), str(d)) for d in _items(depends)) if depends_given else None,
        produces={k: v for k, v in produces.items() if is_object(v)},
        call=call,
        compute=_rename(compute, renamed) if is_object(compute) else None,
        from_={k: v for k, v in from_.items() if _is_text(v)},
        check=_rename(raw.get("check"), renamed),
    )


def _call(raw: JSON, renamed: dict[str, str]) -> PlannedCall | None:
    if not is_object(raw):
        return None
    name, arguments = str(raw.get("tool") or ""), raw.get("arguments")
    if isinstance(arguments, str):
        arguments = read_text(arguments)
    return PlannedCall(name, _rename(arguments, renamed) if is_object(arguments) else None)


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


def _idents(given: Sequence[str], numbers: Sequence[int], taken: Collection[str], remarks: list[str]) -> list[str]:
    """The ids of the steps: the given ones, where they can be ids and are free."""
    used = {*taken, *(name for name in given if _ID.fullmatch(name))}
    seen, idents = set(taken), list[str]()
    for name, number in zip(given, numbers, strict=True):
        ident = name if name in used and name not in seen else free_id(number, used)
        if name and name in seen and name not in taken:
            remarks.append(f"there are two steps {name!r}; the later one is now {ident!r}")
        used.add(ident)
        seen.add(name)
        idents.append(ident)
    return idents


def free_id(number: int, used: Collection[str]) -> str:
    """The first of `s<number>`, `s<number + 1>`, ... that is not used."""
    while f"s{number}" in used:
        number += 1
    return f"s{number}"


def _items(value: JSON) -> list[JSON]:
    return value if is_list(value) else [value] if isinstance(value, str) and value else []


def _is_text(value: JSON) -> TypeGuard[str]:
    return isinstance(value, str)


def _object(value: JSON) -> JSONObject:
    return value if is_object(value) else {}
