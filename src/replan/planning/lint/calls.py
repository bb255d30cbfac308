"""The arguments of planned calls: read again where there is one reading, and open where they are wrong."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import structs

from replan.encoding import JSON, JSONObject, encode, is_object
from replan.planning.plan import PlannedCall, Step
from replan.planning.references import references
from replan.tools import nearest
from replan.tools.coercion import coerce

from .names import opened
from .report import Context, KnownTool, Report, kind_of

__all__ = ["allow_kinds", "check_arguments", "open_up"]

_ENVELOPES = ("arguments", "input", "parameters", "args", "params")
_MAX_SHOWN = 80


def check_arguments(
    steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context, report: Report
) -> list[Step]:
    """The steps with arguments that fit, references apart. What is wrong is left open, for a model to fill in."""
    checked: list[Step] = []
    for step in steps:
        tool = tools.get(step.call.tool) if step.call else None
        kept = _checked(step, tool, context, report) if tool else step
        checked += [kept] if kept else []
    return checked


def _checked(step: Step, tool: KnownTool, context: Context, report: Report) -> Step | None:
    assert step.call
    given = step.call.arguments or {}
    arguments = _coerced(step, _renamed(step, given, tool, report), tool, report)
    if arguments != given:
        step = structs.replace(step, call=PlannedCall(tool.info.name, arguments))
    literal = _literal(arguments)
    wrong = {name: p for name, value in literal.items() if (p := tool.problems({name: value}))}
    called = f"step {step.id!r}, {tool.info.name}"
    for problems in wrong.values():
        text = f"{called}: {problems[0]}"
        report.problem(step.id, "arguments", text, "a model fills it in")
    if wrong:
        return open_up(step, wrong, tool, context)
    complete = len(literal) == sum(value is not None for value in arguments.values())
    if complete and kind_of(step, {tool.info.name: tool}) == "direct" and (problems := tool.all_problems(literal)):
        text = f"{called}: {problems[0]}"
        report.problem(step.id, "arguments", text, "the executor makes the call")
        return _up(step, context)
    return step


def _literal(arguments: JSONObject) -> JSONObject:
    """The arguments that are given without references."""
    return {name: v for name, v in arguments.items() if v is not None and not any(references(v))}


def _renamed(step: Step, given: JSONObject, tool: KnownTool, report: Report) -> JSONObject:
    """The arguments under names that the tool has; what it has not is dropped where it may not be given."""
    assert step.call
    root = tool.info.parameters
    others = root.get("additionalProperties")
    known = tool.properties
    if others is True or is_object(others) or "patternProperties" in root or not (known or others is False):
        return given
    if len(given) == 1 and (inner := next(iter(given.values()))) and not set(given) <= set(known):
        [envelope] = given
        if envelope in _ENVELOPES and is_object(inner):
            report.mended(step.id, "arguments", f"step {step.id!r}: the arguments stood inside {envelope!r}")
            given = inner
    arguments: JSONObject = {name: value for name, value in given.items() if name in known}
    for name, value in given.items():
        if name in known:
            continue
        free = [other for other in known if other not in arguments and other not in given]
        if meant := _meant(name, free, tool):
            arguments[meant] = value
            report.mended(step.id, "arguments", f"step {step.id!r}: the argument {name!r} was read as {meant!r}")
        elif others is not False:
            arguments[name] = value
        else:
            _say_dropped(step, name, value, tool, report)
    return arguments


def _say_dropped(step: Step, name: str, value: JSON, tool: KnownTool, report: Report) -> None:
    text = f"step {step.id!r}: {tool.info.name} has no argument {name!r}; it has {', '.join(tool.properties) or 'none'}"
    done = f"it was dropped ({encode(value).decode()[:_MAX_SHOWN]})"
    if tool.info.read_only or value is None:
        report.mended(step.id, "arguments", f"{text}; {done}")
    else:
        report.problem(step.id, "arguments", text, done)


def _meant(name: str, free: Sequence[str], tool: KnownTool) -> str | None:
    """The parameter that a name stands for, if that is clear: where something may be changed, only if it is the same
    but for case and separators.
    """
    same = [other for other in free if _fold(other) == _fold(name)]
    alike = same or (nearest(name, free) if tool.info.read_only else [])
    if len(alike) > 1:
        alike = [other for other in alike if other in tool.required]
    return alike[0] if len(alike) == 1 else None


def _fold(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


def _coerced(step: Step, arguments: JSONObject, tool: KnownTool, report: Report) -> JSONObject:
    """The arguments with values that do not fit read again, each where that makes it fit."""
    found = dict(arguments)
    for name, value in _literal(arguments).items():
        if not tool.problems({name: value}):
            continue
        read = coerce({name: value}, tool.info.parameters)
        if not is_object(read) or tool.problems(read):
            continue
        if name in read:
            found[name] = read[name]
            shown = encode(read[name]).decode()[:_MAX_SHOWN]
            report.mended(step.id, "arguments", f"step {step.id!r}: the value of {name!r} was read as {shown}")
        else:
            del found[name]
            report.mended(step.id, "arguments", f"step {step.id!r}: {name!r} was empty and was left out")
    return found


def open_up(step: Step, names: Collection[str], tool: KnownTool, context: Context) -> Step | None:
    """The step with some arguments of its call open, their values in the description.

    They are filled in by one model call where all are required, as only these are asked for; else the executor makes
    the call. None where neither kind is allowed.
    """
    assert step.call
    arguments = step.call.arguments or {}
    if "bound" in context.kinds and ("open" not in context.kinds or set(names) <= set(tool.required)):
        lost = {name: arguments[name] for name in names if name in arguments}
        said = ", ".join(f"{name} = {_shown(value)}" for name, value in lost.items())
        description = f"{step.description} (planned: {said})" if said else step.description
        kept = {name: None if name in names else value for name, value in arguments.items()}
        kept = {name: value for name, value in kept.items() if value is not None or name in tool.required}
        return structs.replace(step, description=description, call=PlannedCall(step.call.tool, kept))
    return _up(step, context)


def _shown(value: JSON) -> str:
    """A value as text in which no reference is left."""
    return encode(value).decode().replace("${", "").replace("\\", "")[:_MAX_SHOWN]


def _up(step: Step, context: Context) -> Step | None:
    return opened(step) if "open" in context.kinds else None


def allow_kinds(steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context, report: Report) -> list[Step]:
    """The steps as kinds that are allowed: direct, else bound, else open. What can be none of them is left out."""
    kept: list[Step] = []
    for step in steps:
        changed = _allowed(step, tools, context)
        if changed is None:
            kind = kind_of(step, tools)
            wrong = f"step {step.id!r} is {kind}, and only {', '.join(sorted(context.kinds))} steps are allowed"
            report.problem(step.id, "kind", wrong, "it was left out")
        elif changed is not step:
            kind = kind_of(changed, tools)
            report.mended(step.id, "kind", f"step {step.id!r} was made {kind}: its own kind is not allowed")
        kept += [changed] if changed else []
    return kept


def _allowed(step: Step, tools: Mapping[str, KnownTool], context: Context) -> Step | None:
    kind, kinds = kind_of(step, tools), context.kinds
    if kind in kinds or (kind in ("direct", "compute") and ("direct" in kinds or "bound" in kinds)):
        return step
    if kind == "open":
        fits = "bound" in kinds and len(step.suggested_tools) == 1 and not step.produces
        return structs.replace(step, call=PlannedCall(step.suggested_tools[0])) if fits else None
    return _up(step, context)
