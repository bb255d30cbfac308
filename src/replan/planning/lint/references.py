"""What steps refer to: whether it is there, and whether it fits where it is used."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from replan.encoding import JSON, JSONObject, is_list, is_object
from replan.planning import shapes
from replan.planning.compute import OPERATORS
from replan.planning.plan import PlannedCall, Step
from replan.planning.references import (
    malformed_references,
    parse_path,
    reference_paths,
    references,
    replace_references,
    whole_reference,
    write_path,
)
from replan.planning.shapes import Shape

from .calls import open_up
from .names import opened
from .report import Context, KnownTool, Report

__all__ = ["Outputs", "check_references", "without_references"]

_SPACED = re.compile(r"\$\{\s*([a-z][a-z0-9_]{0,31}[^{}]*?)\s*\}")
_SINGLE = re.compile(r"\['([^'\"\]\\]*)'\]")
_COMPUTED = frozenset(["result", "text", "label", "value", "ties"])
_TEXT: Shape = {"type": "string"}


@dataclass(frozen=True, slots=True)
class Target:
    """What a reference leads to: `wrong` says why nowhere, `path` is how it should be written, `types` are the JSON
    types that it can have (None: not known), `doubt` says that it may not be there.
    """

    path: str
    wrong: str | None = None
    types: frozenset[str] | None = None
    doubt: str | None = None
    unchecked: bool = False

    def at(self, parts: Sequence[str | int | None]) -> "Target":
        """The same under another path."""
        return replace(self, path=write_path(parts))


class Outputs:
    """What the steps of a plan, and those before them, give."""

    def __init__(self, steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context) -> None:
        self.steps = {step.id: step for step in steps}
        self._tools, self._context = tools, context

    def look(self, ident: str, path: str) -> Target:
        """What a reference leads to."""
        if step := self.steps.get(ident):
            return self._in_step(step, path)
        if ident not in self._context.earlier:
            there = ", ".join(map(repr, [*self.steps, *self._context.earlier][:20])) or "none"
            return Target(path, wrong=f"there is no step {ident!r}; there are {there}")
        known = (self._context.known or {}).get(ident, {})
        shape: JSON = known.get("shape")
        if shape is None and known.get("ok") is False:
            return Target(path, wrong=f"the step {ident!r} failed and gave nothing")
        return _in_earlier(shape, path) if is_object(shape) else Target(path, unchecked=True)

    def _in_step(self, step: Step, path: str) -> Target:
        named = [*step.produces, *step.from_]
        parts = parse_path(path)
        if not parts and (named or not step.call):
            parts = [named[0] if len(named) == 1 else "result"]
            return self._in_step(step, write_path(parts))
        first = parts[0] if parts else "result"
        if first in named:
            shape = self._named(step, str(first))
            return _in_shape(shape, parts[1:], path) if shape else Target(path, unchecked=len(parts) > 1)
        if first == "result":
            return self._in_result(step, parts[1:], path)
        if step.call:
            found = self._in_result(step, parts, path)
            return found if not named or found.wrong else found.at(["result", *parse_path(found.path)])
        return _in_text(step, parts, path)

    def _named(self, step: Step, name: str) -> Shape | None:
        if name in step.produces:
            return step.produces[name]
        shape = self.result(step)
        return shapes.at(shape, step.from_[name]) if shape is not None and not shapes.is_learnt(shape) else None

    def result(self, step: Step) -> Shape | None:
        """The shape of a step's result; None where it is not known."""
        if step.call:
            return self._context.shapes.get(step.call.tool)
        return _TEXT if step.compute is None else None

    def _in_result(self, step: Step, parts: Sequence[str | int | None], path: str) -> Target:
        shape = self.result(step)
        return _in_shape(shape, parts, path) if shape is not None else Target(path, unchecked=bool(parts))


def _in_text(step: Step, parts: Sequence[str | int | None], path: str) -> Target:
    """Where a path leads among the outputs of a step that is no call, its result apart."""
    if step.compute is not None:
        known = parts[0] in _COMPUTED
        return Target(path if known else write_path(["result", *parts]), unchecked=not known or len(parts) > 1)
    if parts[0] == "calls":
        return Target(path, unchecked=True)
    named = ", ".join(map(repr, ["result", *step.produces, *step.from_]))
    return Target(path, wrong=f"the step {step.id!r} gives only {named}; name what else it gives in its 'produces'")


def _in_shape(shape: Shape, parts: Sequence[str | int | None], path: str) -> Target:
    """Where the rest of a path leads; `path` is the whole of it."""
    inner = write_path(parts)
    wrong = shapes.path_problem(shape, inner)
    if wrong is None:
        types = None if shapes.is_learnt(shape) else shapes.type_at(shape, inner)
        return Target(path, types=types, unchecked=bool(parts) and shapes.at(shape, inner) is None)
    if meant := shapes.mended_path(shape, inner):
        whole = parse_path(path)
        return Target(write_path([*whole[: len(whole) - len(parts)], *parse_path(meant)]))
    return Target(path, doubt=wrong) if shapes.is_learnt(shape) else Target(path, wrong=wrong)


def _in_earlier(shape: Shape, path: str) -> Target:
    """Where a path into the outputs of an ended step leads, whose shape was learnt from these very outputs."""
    names: JSONObject = shape.get("properties") or {}
    if "result" not in names:
        shape, names = {"type": "object", "properties": {"result": shape}}, {"result": shape}
    parts = parse_path(path)
    if list(names) == ["result"] and parts[:1] != ["result"]:
        found = _in_earlier(shape, write_path(["result", *parts]))
        return found.at(parse_path(found.path)[1:])
    if wrong := shapes.path_problem(shape, path):
        meant = shapes.mended_path(shape, path)
        return Target(meant) if meant else Target(path, wrong=wrong)
    return Target(path, types=shapes.type_at(shape, path))


def check_references(
    steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context, report: Report
) -> list[Step]:
    """The steps with references that lead somewhere, as far as that is known; the others are left open."""
    outputs = Outputs(steps, tools, context)
    checker = _Checker(outputs, tools, context, report)
    checked: list[Step] = []
    for step in steps:
        kept = checker.check(step)
        checked += [kept] if kept else []
    return checked


class _Checker:
    def __init__(self, outputs: Outputs, tools: Mapping[str, KnownTool], context: Context, report: Report) -> None:
        self._outputs, self._tools, self._context, self._report = outputs, tools, context, report
        self._ids = {*outputs.steps, *context.earlier}

    def check(self, step: Step) -> Step | None:
        step = self._tidied(step)
        step = self._description(step)
        checked = self._call(step) if step.call else self._compute(step) if step.compute is not None else step
        return self._check(checked) if checked and checked.check is not None else checked

    def _tidied(self, step: Step) -> Step:
        """The step with references written as they are read: `${ a.x }` and `${a['x']}` are not."""
        arguments = step.call.arguments if step.call else None
        written: JSON = [arguments, step.compute, step.check]
        tidy: JSON = _over_texts(written, self._tidy)
        if tidy == written:
            return step
        self._report.mended(step.id, "reference", f"step {step.id!r}: references were written as they are read")
        call = PlannedCall(step.call.tool, tidy[0]) if step.call else None
        return structs.replace(step, call=call, compute=tidy[1], check=tidy[2])

    def _tidy(self, text: str) -> str:
        def rewrite(match: re.Match[str]) -> str:
            inner = _SINGLE.sub(r'["\1"]', match[1])
            whole = whole_reference(f"${{{inner}}}")
            return f"${{{inner}}}" if whole and whole[0] in self._ids else match[0]

        return _SPACED.sub(rewrite, text) if "${" in text else text

    def _description(self, step: Step) -> Step:
        """What is no reference in a description is text: it must not hold the step up."""

        def plain(ident: str, path: str) -> str | None:
            if ident == step.id:
                return f"{ident}{path}"
            if ident not in self._ids:
                return None
            target = self._outputs.look(ident, path)
            if target.wrong:
                return f"{ident}{path}"
            return f"${{{ident}{target.path}}}" if target.path != path else None

        text = step.description
        for ident, written in list(malformed_references(text)):
            if ident in self._ids:
                text = text.replace(written, written[2:-1])
        text = replace_references(text, plain)
        if text == step.description:
            return step
        self._report.mended(step.id, "reference", f"step {step.id!r}: the description was mended: {text[:200]!r}")
        return structs.replace(step, description=text)

    def _value(self, step: Step, value: JSON, *, own: bool = False) -> tuple[JSON, str | None]:
        """A value with its references as they should be written, and what is wrong with them."""
        if odd := next((text for ident, text in malformed_references(value) if ident in self._ids), None):
            return value, f"{odd!r} is not a reference; write it like ${{step.result.items[0].id}}"
        written: dict[tuple[str, str], str] = {}
        for ident, path in reference_paths(value):
            if ident == step.id:
                if not own:
                    return value, "it uses its own result"
                continue
            target = self._outputs.look(ident, path)
            if target.wrong:
                return value, f"${{{ident}{path}}}: {target.wrong}"
            written[ident, path] = f"${{{ident}{target.path}}}"
        changed: JSON = replace_references(value, lambda ident, path: written.get((ident, path)))
        if changed != value:
            self._report.mended(step.id, "reference", f"step {step.id!r}: a path was read as it was meant: {changed}")
        return changed, None

    def _call(self, step: Step) -> Step | None:
        assert step.call
        tool = self._tools.get(step.call.tool)
        arguments = step.call.arguments
        if not arguments or not tool:
            return step
        kept: JSONObject = {}
        wrong: list[str] = []
        for name, value in arguments.items():
            kept[name], problem = self._value(step, value)
            problem = problem or self._misfit(kept[name], name, tool)
            if problem:
                text = f"step {step.id!r}, argument {name!r}: {problem}"
                self._report.problem(step.id, "reference", text, "a model fills it in")
                wrong.append(name)
        if kept != arguments:
            step = structs.replace(step, call=PlannedCall(step.call.tool, kept))
        return open_up(step, wrong, tool, self._context) if wrong else step

    def _misfit(self, value: JSON, name: str, tool: KnownTool) -> str | None:
        """Why what a whole reference stands for can never be this argument."""
        whole = whole_reference(value)
        types = self._outputs.look(*whole).types if whole else None
        if not types or name not in tool.properties:
            return None
        wanted = shapes.type_at({**tool.info.parameters, "type": "object"}, write_path([name]))
        if not wanted or any(_may_be(one, other) for one in types for other in wanted):
            return None
        return f"{value} is {' or '.join(sorted(types))}, and {' or '.join(sorted(wanted))} is needed"

    def _compute(self, step: Step) -> Step | None:
        assert step.compute is not None
        spec: JSONObject = {}
        for name, value in step.compute.items():
            spec[name], problem = self._value(step, value)
            if problem:
                done = "what is computed with is filled in" if name in OPERATORS else "the executor does it"
                self._report.problem(step.id, "reference", f"step {step.id!r}, {name!r}: {problem}", done)
                if name not in OPERATORS:
                    return _opened_compute(step, self._context, lambda ident, path: f"{ident}{path}")
                spec[name] = None
        return structs.replace(step, compute=spec) if spec != step.compute else step

    def _check(self, step: Step) -> Step:
        check, problem = self._value(step, step.check, own=True)
        if problem:
            self._report.problem(step.id, "check", f"step {step.id!r}, check: {problem}", "the check was dropped")
            return structs.replace(step, check=None)
        return structs.replace(step, check=check) if check != step.check else step


def without_references(
    step: Step, lost: Collection[str], tools: Mapping[str, KnownTool], context: Context
) -> Step | None:
    """The step with its references to some steps open, or as text. None where it can be none of the kinds allowed."""

    def plain(ident: str, path: str) -> str | None:
        return f"{ident}{path}" if ident in lost else None

    def hit(value: JSON) -> bool:
        return any(ident in lost for ident in references(value))

    step = structs.replace(step, description=str(replace_references(step.description, plain)))
    if hit(step.check):
        step = structs.replace(step, check=None)
    if step.compute is not None and hit(step.compute):
        operand = next((name for name in OPERATORS if name in step.compute), None)
        options = {name: value for name, value in step.compute.items() if name != operand}
        if operand and not hit(options):
            return structs.replace(step, compute={operand: None, **options})
        return _opened_compute(step, context, plain)
    tool = tools.get(step.call.tool) if step.call else None
    names = [name for name, value in ((step.call.arguments if step.call else None) or {}).items() if hit(value)]
    return open_up(step, names, tool, context) if names and tool else step


def _opened_compute(step: Step, context: Context, plain: Callable[[str, str], str | None]) -> Step | None:
    """A computation as a step for the executor, with references as text; None where that is not allowed."""
    compute: JSONObject = replace_references(step.compute, plain)
    return opened(structs.replace(step, compute=compute)) if "open" in context.kinds else None


def _may_be(given: str, wanted: str) -> bool:
    """Whether a value of one JSON type can be read as one of another: texts as anything, numbers as texts."""
    if given in (wanted, "string", "null") or (wanted == "array" and given != "array"):
        return True
    return given in ("integer", "number") and wanted in ("integer", "number", "string")


def _over_texts(value: JSON, change: Callable[[str], str]) -> JSON:
    if isinstance(value, str):
        return change(value)
    if is_list(value):
        return [_over_texts(item, change) for item in value]
    if is_object(value):
        return {key: _over_texts(item, change) for key, item in value.items()}
    return value
