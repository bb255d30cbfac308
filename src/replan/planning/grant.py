"""What an accepted plan permits: its calls need no further question, and everything else that may write does.

The arguments of a planned call are a pattern. Literal values are fixed, at every depth. A null argument, and a required
one that the plan leaves out, may be anything or be absent; a reference may be anything, but must be there; a text with
references in it keeps the text around them. Arguments that the plan does not name are outside of it.
"""

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct, structs

from replan.calls import same_call
from replan.encoding import JSON, JSONObject, encode, is_list, is_object

from .plan import Plan, Step
from .references import MissingReference, references, replace_references, resolve

__all__ = ["Grant", "GrantEntry", "covers", "difference", "extended", "grant_of", "outside", "with_values"]

_LONGEST_VALUE = 80


class GrantEntry(Struct, frozen=True, omit_defaults=True):
    """One call that is permitted.

    `key` is unique among the entries that are used up. `arguments` are the pattern; None: any arguments. `once`: one
    success uses it up. `within`: only calls that are made in `step` are meant.
    """

    key: str
    step: str
    tool: str
    arguments: JSONObject | None = None
    once: bool = False
    within: bool = False


class Grant(Struct, frozen=True):
    """What is permitted, by the steps of the plan that was accepted. It can be kept as JSON."""

    entries: tuple[GrantEntry, ...] = ()


def grant_of(plan: Plan, facts: Mapping[str, JSONObject]) -> Grant:
    """The grant that accepting the plan amounts to.

    A call that writes may succeed once; calls that only read, and in an open step its suggested tools, are not counted.
    `facts` say of each tool whether it `writes` and which arguments are `required`; a tool without facts writes.
    """
    return Grant(tuple(entry for step in plan.steps for entry in _entries(step, facts)))


def with_values(grant: Grant, outputs: Mapping[str, JSONObject]) -> Grant:
    """The grant with what its references stand for in their place: a call of a step may have that value and no other.

    Where a reference leads nowhere there is no such value.
    """
    return Grant(tuple(structs.replace(e, arguments=_with_values(e.arguments, outputs)) for e in grant.entries))


def _with_values(arguments: JSONObject | None, outputs: Mapping[str, JSONObject]) -> JSONObject | None:
    if arguments is None or next(references(arguments), None) is None:
        return arguments
    found: JSONObject = {}
    for name, value in arguments.items():
        try:
            found[name] = value if next(references(value), None) is None else _literal(resolve(value, outputs))
        except MissingReference:
            found[name] = {"nothing": name, "is": "there"}
    return found


def _literal(value: JSON) -> JSON:
    """A value in which nothing is a reference."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if is_list(value):
        return [_literal(item) for item in value]
    return {name: _literal(item) for name, item in value.items()} if is_object(value) else value


def covers(
    grant: Grant, tool: str, arguments: JSONObject, used: Collection[str] = (), *, step: str | None = None
) -> str | None:
    """The key of the entry that permits the call, or None.

    `used` holds the keys of calls that succeeded, that are running, and of which nobody knows what came of them. `step`
    is where the call is made: its own entry is taken first, and what is permitted within other steps is not; None: not
    known, everything counts.
    """
    call = GrantEntry("", step or "", tool, arguments, once=True)
    entry = _best(grant.entries, call, used, planned=False)
    return entry.key if entry else None


def difference(grant: Grant, tool: str, arguments: JSONObject) -> str:
    """A sentence that says in what a call that is not covered differs from the plan."""
    return _difference(grant, GrantEntry("", "", tool, arguments), planned=False)


def outside(plan: Plan, grant: Grant, facts: Mapping[str, JSONObject], used: Collection[str] = ()) -> list[JSONObject]:
    """The calls of a revised plan that may write and are not covered, each as `step`, `tool`, `arguments` and `why`.

    `arguments` is None where an open step may use the tool as it likes. `used` are the keys that are used up.
    """
    return [
        {
            "step": entry.step,
            "tool": entry.tool,
            "arguments": entry.arguments,
            "why": _difference(grant, entry, planned=True),
        }
        for entry, known in _compared(plan, grant, facts, used)
        if known is None and _writes(entry.tool, facts)
    ]


def extended(grant: Grant, plan: Plan, facts: Mapping[str, JSONObject], used: Collection[str] = ()) -> Grant:
    """The grant with what a revised plan adds, once that has been accepted too.

    A step that does what another one was permitted to do takes over its entry: there are not two then.
    """
    compared = _compared(plan, grant, facts, used)
    kept = {known.key for _, known in compared if known} | set(used)
    changed = {entry.step for entry, known in compared if known is None}
    entries = [entry for entry in grant.entries if entry.step not in changed or entry.key in kept]
    for entry, known in compared:
        if known is None:
            entries.append(structs.replace(entry, key=_free_key(entry.step, entries)))
    return Grant(tuple(entries))


def _free_key(step: str, entries: Collection[GrantEntry]) -> str:
    taken = {entry.key for entry in entries}
    return next(key for key in (step, *(f"{step}~{n}" for n in range(2, len(taken) + 3))) if key not in taken)


def _entries(step: Step, facts: Mapping[str, JSONObject]) -> Iterator[GrantEntry]:
    if step.call is None:
        for tool in step.suggested_tools if step.compute is None else ():
            yield GrantEntry(step.id, step.id, tool, within=True)
        return
    arguments = step.call.arguments
    if arguments is not None:
        required = facts.get(step.call.tool, {}).get("required", ())
        arguments = {**arguments, **{name: None for name in required if name not in arguments}}
    yield GrantEntry(step.id, step.id, step.call.tool, arguments, once=_writes(step.call.tool, facts))


def _writes(tool: str, facts: Mapping[str, JSONObject]) -> bool:
    return facts.get(tool, {}).get("writes") is not False


def _compared(
    plan: Plan, grant: Grant, facts: Mapping[str, JSONObject], used: Collection[str]
) -> list[tuple[GrantEntry, GrantEntry | None]]:
    """What the plan needs, each with the entry that permits it. No entry is used up by two."""
    taken = set(used)
    compared: list[tuple[GrantEntry, GrantEntry | None]] = []
    for step in plan.steps:
        for entry in _entries(step, facts):
            known = _best(grant.entries, entry, taken, planned=True)
            compared.append((entry, known))
            if known and known.once:
                taken.add(known.key)
    return compared


def _best(
    entries: Collection[GrantEntry], call: GrantEntry, used: Collection[str], *, planned: bool
) -> GrantEntry | None:
    """The entry that permits a call: that of its step, else one that is not counted, else the one that fixes most."""
    fits = [
        entry
        for entry in entries
        if entry.tool == call.tool
        and not (entry.within and call.step not in ("", entry.step))
        and not (entry.once and (entry.key in used or not call.once))
        and not any(_mismatches(entry.arguments, call.arguments, planned=planned))
    ]
    return min(fits, key=lambda entry: (entry.step != call.step, entry.once, -_fixed(entry)), default=None)


def _fixed(entry: GrantEntry) -> int:
    return sum(value is not None for value in (entry.arguments or {}).values())


def _difference(grant: Grant, call: GrantEntry, *, planned: bool) -> str:
    entries = [entry for entry in grant.entries if entry.tool == call.tool]
    found = [(list(_mismatches(entry.arguments, call.arguments, planned=planned)), entry) for entry in entries]
    if not found:
        return f"{call.tool!r} is not in the plan"
    mismatches, entry = min(found, key=lambda pair: (len(pair[0]), not pair[1].once))
    if mismatches:
        return "; ".join(mismatches)
    if entry.within:
        return f"the plan leaves {call.tool!r} to the step {entry.step!r} only"
    return f"the plan makes this call of {call.tool!r} once"


def _mismatches(pattern: JSONObject | None, given: JSONObject | None, *, planned: bool) -> Iterator[str]:
    """Where arguments leave a pattern. With `planned` they are a pattern themselves, and may allow nothing more."""
    if pattern is None:
        return
    if given is None:
        yield "the arguments are left open, and the plan has some"
        return
    for name, value in pattern.items():
        if value is not None and name not in given:
            yield f"`{name}` is missing, the plan has {_shown(value)}"
        elif value is not None and not _agree(value, given[name], planned):
            found = "left open" if planned and given[name] is None else _shown(given[name])
            yield f"`{name}` is {found}, the plan has {_shown(value)}"
    for name, value in given.items():
        if name not in pattern:
            yield f"`{name}` is {_shown(value)}, the plan does not have it"


def _agree(pattern: JSON, given: JSON, planned: bool) -> bool:
    if is_object(pattern):
        return (
            is_object(given)
            and pattern.keys() == given.keys()
            and all(_agree(value, given[name], planned) for name, value in pattern.items())
        )
    if is_list(pattern):
        return (
            is_list(given)
            and len(pattern) == len(given)
            and all(_agree(value, item, planned) for value, item in zip(pattern, given, strict=True))
        )
    if isinstance(pattern, str):
        return _text_agrees(_pieces(pattern), given, planned)
    return _equal(pattern, given)


def _text_agrees(pieces: list[str], given: JSON, planned: bool) -> bool:
    if pieces == ["", ""]:
        return True
    other = _pieces(given) if planned and isinstance(given, str) else [given]
    if len(other) > 1 or len(pieces) == 1:
        return len(other) == len(pieces) and all(map(_equal, pieces, other))
    return isinstance(other[0], str) and _is_around(pieces, other[0])


def _is_around(pieces: list[str], text: str) -> bool:
    """Whether a text is the pieces, in order, with anything in between."""
    first, *inner, last = pieces
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in inner:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _pieces(text: str) -> list[str]:
    """The parts of a text that stand between references, as they are rendered; one part where there are none."""
    mark = next(mark for mark in map(chr, range(0xE000, 0x10FFFF)) if mark not in text)
    return [part.replace("$${", "${") for part in replace_references(text, lambda ident, path: mark).split(mark)]


def _equal(one: JSON, other: JSON) -> bool:
    """Whether two values are the same once a tool has coerced them: `"5"` and 5 are."""
    return same_call("", one) == same_call("", other)


def _shown(value: JSON) -> str:
    text = repr(value) if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
