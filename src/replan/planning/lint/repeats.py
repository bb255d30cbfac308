"""Calls that were made already, calls that are planned twice, and calls that are missing."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from replan.calls import same_call
from replan.encoding import JSON, encode, is_object
from replan.planning.plan import PlannedCall, Step, free_id
from replan.planning.references import replace_references

from .report import Context, KnownTool, Report, may_write

__all__ = ["add_forgotten", "merge_repeats"]


def merge_repeats(
    steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context, report: Report
) -> tuple[list[Step], set[str]]:
    """The steps without those that ask for the very call of an earlier one, with nothing between them that may change
    what it gives, and the ids of those that are lost.

    References go to the earlier one. A call that failed is not planned again unchanged, and nothing takes its place.
    """
    seen = _Known(tools, context)
    kept: list[Step] = []
    fresh: dict[bytes, list[Step]] = {}
    renamed: dict[str, str] = {}
    lost: set[str] = set()
    for original in steps:
        step = _follow(original, renamed)
        alike = fresh.get(_work(step), [])
        repeated = next((other.id for other in alike if _repeats(step, other)), None) or seen.made(step)
        if repeated:
            renamed[step.id] = repeated
            report.mended(step.id, "repeat", f"step {step.id!r} repeated an earlier one and was left out")
            continue
        if failed := seen.failed(step):
            lost.add(step.id)
            report.mended(
                step.id, "repeat", f"step {step.id!r} repeated the call of {failed!r}, which failed; left out"
            )
            continue
        kept.append(step)
        if may_write(step, tools):
            fresh = {}
        fresh.setdefault(_work(step), []).append(step)
        seen.pass_over(step)
    return [_follow(step, renamed) for step in kept], lost


class _Known:
    """The calls of the run's earlier steps, as far as nothing that came since may have changed what they give."""

    def __init__(self, tools: Mapping[str, KnownTool], context: Context) -> None:
        self._tools = tools
        self._calls: dict[str, tuple[str, bool, bool]] = {}
        for ident, known in (context.known or {}).items():
            call: JSON = known.get("call")
            tool = tools.get(str(call.get("tool"))) if is_object(call) else None
            if tool is None or not tool.info.read_only:
                self._calls = {key: found for key, found in self._calls.items() if not found[2]}
            if tool and is_object(call):
                signature = _signature(tool.info.name, call.get("arguments"))
                self._calls[signature] = ident, known.get("ok") is not False, tool.info.read_only

    def made(self, step: Step) -> str | None:
        """The earlier step that made the call of this one."""
        ident, ok, _ = self._find(step)
        return ident if ok and not (step.produces or step.from_) else None

    def failed(self, step: Step) -> str | None:
        """The earlier step whose call was this, and failed."""
        ident, ok, _ = self._find(step)
        return None if ok else ident

    def pass_over(self, step: Step) -> None:
        """Take it that a step is done."""
        if may_write(step, self._tools):
            self._calls = {}

    def _find(self, step: Step) -> tuple[str | None, bool, bool]:
        tool = self._tools.get(step.call.tool) if step.call else None
        if tool is None or not step.call or not step.call.arguments or None in step.call.arguments.values():
            return None, True, False
        if any(step.call.arguments.get(name) is None for name in tool.required):
            return None, True, False
        return self._calls.get(_signature(step.call.tool, step.call.arguments), (None, True, False))


def _signature(tool: str, arguments: JSON) -> str:
    given = arguments if is_object(arguments) else {}
    return same_call(tool, {name: value for name, value in given.items() if value is not None})


def _work(step: Step) -> bytes:
    """What a step calls and what it makes of it."""
    return encode([step.call, step.produces, step.from_])


def _repeats(step: Step, other: Step) -> bool:
    """Whether a step asks for the call of another one of the same work; where arguments are open, in the same words."""
    if step.call is None:
        return False
    arguments = step.call.arguments
    return step.description == other.description or bool(arguments and None not in arguments.values())


def _follow(step: Step, renamed: Mapping[str, str]) -> Step:
    """The step with references to steps that were left out going to those that took their place."""
    if not renamed:
        return step

    def new(ident: str, path: str) -> str | None:
        return f"${{{renamed[ident]}{path}}}" if ident in renamed else None

    call, depends = step.call, step.depends_on
    arguments: JSON = replace_references(call.arguments, new) if call else None
    return structs.replace(
        step,
        description=str(replace_references(step.description, new)),
        call=PlannedCall(call.tool, arguments) if call else None,
        compute=replace_references(step.compute, new),
        check=replace_references(step.check, new),
        depends_on=depends and tuple(dict.fromkeys(renamed.get(ident, ident) for ident in depends)),
    )


def add_forgotten(
    steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context, report: Report
) -> list[Step]:
    """The steps and a call of each tool that writes, that the planner said it would use, and that no step calls: a plan
    that only looks things up would leave the goal undone.
    """
    kept = list(steps)
    named = {step.call.tool for step in kept if step.call} | {name for step in kept for name in step.suggested_tools}
    if not all(step.call or step.compute is not None for step in kept):
        return kept
    for tool in tools.values():
        info = tool.info
        if info.read_only or info.name not in context.uses or info.name in named:
            continue
        if len(kept) >= context.max_steps or set(context.kinds) == {"direct"}:
            report.note(None, "missing", f"the plan uses {info.name!r} without a step for it")
        else:
            ident = free_id(len(kept) + 1, {*context.taken, *context.earlier, *(step.id for step in kept)})
            kept.append(Step(id=ident, description=f"Call {info.name}, as the goal asks", call=PlannedCall(info.name)))
            text = f"the plan uses {info.name!r} without a step for it; step {ident!r} was added"
            report.mended(ident, "added", text)
    return kept
