"""From the short plans that a model writes whose output is constrained to plans in full: what follows from the goal and
the order of the steps is worked out here, not asked of the model.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from replan.encoding import JSON, JSONObject, encode, is_list, is_object
from replan.output import candidates
from replan.tool import ToolInfo

from .grounding import asks_for, converts, takes_ids
from .words import is_stop, spans

__all__ = ["wire", "wired"]

_JOINED = re.compile(
    r"(?:\s*[,/]\s*(?:and |or )?|\s+(?:and|or|vs\.?|versus|than)\s+)(?:(?:in|at|of|for)\s+)?(?:the\s+)?(?:\d+\s+)?"
)
_WORD = re.compile(r"[^\s,;:.!?()\"]+")
_NAME = re.compile(r"[A-Z\d]")


def wired(
    read: Callable[[JSONObject, str], JSONObject], tools: Sequence[ToolInfo]
) -> Callable[[JSONObject, str], JSONObject]:
    """The reader, for replies with short plans over these tools."""

    def read_wired(args: JSONObject, text: str) -> JSONObject:
        for candidate in candidates(text):
            if is_object(candidate) and is_list(candidate.get("steps")):
                return read(args, encode(wire(candidate, tools, args["goal"], args.get("taken", ()))).decode())
        return read(args, text)

    return read_wired


def wire(data: JSONObject, tools: Sequence[ToolInfo], goal: str, taken: Sequence[str] = ()) -> JSONObject:
    """The plan in full: with the calls that it lacks by its own words, ids, and what each step depends on.

    A call of which all values are known waits for nothing; one that is filled in later, a computation and a write wait
    for everything before them.
    """
    known = {info.name: info for info in tools}
    steps = [step for step in data["steps"] if is_object(step)]
    steps = [_consistent(step, known, goal) for step in steps]
    steps = [step for step in steps if not _unasked(step, known, goal)]
    steps = _used(_joined(steps, known, goal), data.get("uses"), known, goal)
    steps = _in_stages(_computed(steps, known), known)
    full: list[JSONObject] = []
    reads: list[str] = []
    for number, step in enumerate(steps, len(taken) + 1):
        ident = f"s{number}"
        needs = [] if _direct(step, known) else list(reads)
        full.append({"id": ident, **step, "depends_on": needs})
        reads.append(ident)
    return {**data, "steps": full}


def _call(step: JSONObject) -> tuple[str, JSONObject] | None:
    """The tool and the arguments of a step that is a call."""
    call = step.get("call")
    if not is_object(call) or not isinstance(call.get("tool"), str):
        return None
    arguments = call.get("arguments")
    return call["tool"], arguments if is_object(arguments) else {}


def _direct(step: JSONObject, tools: dict[str, ToolInfo]) -> bool:
    call = _call(step)
    info = tools.get(call[0]) if call else None
    if call is None or info is None or not info.read_only:
        return False
    return all(call[1].get(name) is not None for name in info.parameters.get("required", ()))


def _subject(step: JSONObject, tools: dict[str, ToolInfo]) -> tuple[str, str] | None:
    """The one text that a look-up is about: its parameter and value."""
    call = _call(step)
    info = tools.get(call[0]) if call else None
    if call is None or info is None or not info.read_only:
        return None
    texts = [(name, value) for name, value in call[1].items() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 and list(info.parameters.get("required", ())) == [texts[0][0]] else None


def _with_subject(step: JSONObject, name: str, value: str, **more: JSON) -> JSONObject:
    call = step["call"]
    return {**step, **more, "call": {**call, "arguments": {**call["arguments"], name: value}}}


def _consistent(step: JSONObject, tools: dict[str, ToolInfo], goal: str) -> JSONObject:
    """The step with the name that its description has, where the call has another one."""
    found = _subject(step, tools)
    description = str(step.get("description") or "")
    if found is None or (_NAME.match(found[1]) and found[1].casefold() in description.casefold()):
        return step
    names = [span for span in spans(goal) if _NAME.match(span) and span in description]
    longest = [span for span in names if not any(span != other and span in other for other in names)]
    return _with_subject(step, found[0], longest[0]) if len(longest) == 1 else step


def _joined(steps: list[JSONObject], tools: dict[str, ToolInfo], goal: str) -> list[JSONObject]:
    """The steps, with the look-ups of what the goal names in one breath with what is looked up ("A, B or C")."""
    done = [value.casefold() for step in steps for value in _texts(step)]
    full: list[JSONObject] = []
    for step in steps:
        full.append(step)
        found = _subject(step, tools)
        for other in _neighbours(goal, found[1]) if found else ():
            low = other.casefold()
            if found and not any(low in value or value in low for value in done):
                done.append(low)
                words = str(step.get("description") or "").replace(found[1], other)
                full.append(_with_subject(step, found[0], other, description=words))
    return full


def _texts(step: JSONObject) -> Iterator[str]:
    call = _call(step)
    yield from (value for value in (call[1].values() if call else ()) if isinstance(value, str))


def _neighbours(goal: str, name: str) -> list[str]:
    """What a goal lists together with a name, on both sides."""
    at = goal.casefold().find(name.casefold())
    if at < 0 or not _NAME.match(goal[at:]):
        return []
    found: list[str] = []
    end = at + len(name)
    while (joint := _JOINED.match(goal, end)) and (other := _name_at(goal, joint.end(), name)):
        found.append(other)
        end = joint.end() + len(other)
    return found


def _name_at(goal: str, start: int, like: str) -> str | None:
    """The name at a place of the goal: its capitalised words, or more, up to as many as the other name has."""
    words: list[re.Match[str]] = []
    at = start
    while (match := _WORD.match(goal, at)) and not is_stop(match[0].lower() if words else match[0]):
        words.append(match)
        at = match.end() + 1
        if goal[match.end() : at] != " ":
            break
    if not words or not _NAME.match(words[0][0]):
        return None
    count = next((n for n, word in enumerate(words) if not _NAME.match(word[0])), len(words))
    count = min(len(words), max(count, len(like.split())))
    return goal[start : words[count - 1].end()]


def _unasked(step: JSONObject, tools: dict[str, ToolInfo], goal: str) -> bool:
    """Whether a step turns a result into units of which the goal has none: a model likes to convert."""
    call = _call(step)
    info = tools.get(call[0]) if call else None
    if call is None or info is None or any(isinstance(value, (int, float)) for value in call[1].values()):
        return False
    units = converts(info)
    return bool(units) and not asks_for(goal, units, surely=False)


def _used(steps: list[JSONObject], uses: JSON, tools: dict[str, ToolInfo], goal: str) -> list[JSONObject]:
    """The steps, with look-ups of the tools that the plan says it uses and does not call.

    One that takes what another takes is asked the same: it may be where that is found. Others are called where they can
    only be asked what results tell: for ids, for rates, and with a number for a unit that the goal has. A model says of
    more tools than it needs that it uses them.
    """
    called = {call[0] for step in steps if (call := _call(step))}
    named = [name for name, used in uses.items() if used is True] if is_object(uses) else []
    added: list[JSONObject] = []
    for name in named:
        info = tools.get(name)
        if info is None or name in called or not info.read_only or not steps or not info.parameters.get("required"):
            continue
        text = info.description.split("\n")[0].split(". ")[0].rstrip(".")
        arguments: JSONObject = dict.fromkeys(info.parameters["required"])
        same = [found[1] for step in steps if (found := _subject(step, tools)) and [found[0]] == list(arguments)]
        rate = _takes_texts(info) and len(arguments) == 2
        if not (same or rate or takes_ids(info) or asks_for(goal, converts(info), surely=True)):
            continue
        planned: JSONObject = {"tool": name, "arguments": dict.fromkeys(arguments, same[0]) if same else arguments}
        added.append({"description": text[:100], "call": planned})
    return [*steps, *added]


def _takes_texts(info: ToolInfo) -> bool:
    properties: JSONObject = info.parameters.get("properties") or {}
    required = info.parameters.get("required", ())
    return bool(required) and all(properties[name].get("type") == "string" for name in required)


def _computed(steps: list[JSONObject], tools: dict[str, ToolInfo]) -> list[JSONObject]:
    """The steps, with a computation where several things are looked up: a model forgets to compare what it has found.

    Where the goal asks for no computation the binder says so.
    """
    calls = [call for step in steps if (call := _call(step))]
    looked_up = [call[0] for step in steps if _direct(step, tools) and (call := _call(step))]
    several = len(set(looked_up)) < len(looked_up)
    infos = [tools[name] for name, _ in calls if name in tools]
    rated = len(infos) > 1 and any(_takes_texts(info) and len(info.parameters["required"]) == 2 for info in infos)
    final = any(not info.read_only or converts(info) for info in infos)
    if any(is_object(step.get("compute")) for step in steps) or not (several or rated) or (final and not several):
        return steps
    return [*steps, {"description": "Work out what the goal asks for", "compute": {"value": None}}]


def _in_stages(steps: list[JSONObject], tools: dict[str, ToolInfo]) -> list[JSONObject]:
    """Look-ups, then computations, then writes, each in the order given.

    Of several computations the first is kept: it sees all results. Nothing is written twice.
    """

    def stage(step: JSONObject) -> int:
        call = _call(step)
        if call and call[0] in tools and not tools[call[0]].read_only:
            return 2
        return 1 if is_object(step.get("compute")) else 0

    kept: list[JSONObject] = []
    for step in sorted(steps, key=stage):
        again = any(is_object(other.get("compute")) for other in kept) if is_object(step.get("compute")) else False
        if not again and not (stage(step) == 2 and any(step["call"] == other.get("call") for other in kept)):
            kept.append(step)
    return kept
