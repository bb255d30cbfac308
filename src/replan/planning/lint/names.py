"""The tools that a plan names: found however they are spelt, where it is clear which is meant."""

import re
from collections.abc import Mapping, Sequence

from msgspec import structs

from replan.encoding import JSON, encode, is_object
from replan.planning.catalogue import tool_names
from replan.planning.plan import PlannedCall, Step
from replan.tool import ToolInfo
from replan.tools import nearest

from .report import KnownTool, Report

__all__ = ["Names", "name_tools", "opened"]

_PREFIX = re.compile(r"(.*)(?:__|[./:])(.+)")
_NAMESPACES = frozenset(["functions", "function", "tools", "tool", "mcp"])
_MAX_INTENT = 300


class Names:
    """Which tool a name means."""

    def __init__(self, tools: Sequence[ToolInfo]) -> None:
        self._known = tool_names(tools)
        self._tools = {info.name: info for info in tools}
        self._folded: dict[str, set[str]] = {}
        for name, alias in self._known.items():
            self._folded.setdefault(_fold(name), set()).add(alias)

    def find(self, name: str) -> str | None:
        """The tool of this name, up to case, separators and a prefix that says where it is from."""
        if name in self._known:
            return self._known[name]
        found = self._folded.get(_fold(name), set())
        if not found and (prefix := _PREFIX.fullmatch(name)):
            found = {
                alias
                for alias in self._folded.get(_fold(prefix[2]), ())
                if self._may_prefix(_fold(prefix[1]), self._tools[alias])
            }
        return next(iter(found)) if len(found) == 1 else None

    def alike(self, name: str) -> list[str]:
        """The tools with names like this one, best first."""
        return nearest(name, self._tools)

    def _may_prefix(self, prefix: str, info: ToolInfo) -> bool:
        return info.read_only or prefix in _NAMESPACES or prefix == _fold(info.server or "")


def _fold(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


def name_tools(steps: Sequence[Step], names: Names, tools: Mapping[str, KnownTool], report: Report) -> list[Step]:
    """The steps with tools that exist.

    A call of an unknown tool becomes one of the only tool that is like it, if that only reads and has these
    parameters; else the executor's, with what was to be called in the description.
    """
    return [
        _checked_call(_named(_suggested(step, names, report), names, tools, report), names, report) for step in steps
    ]


def _suggested(step: Step, names: Names, report: Report) -> Step:
    found = {name: names.find(name) for name in step.suggested_tools}
    kept = tuple(dict.fromkeys(name for name in found.values() if name))
    if kept == step.suggested_tools:
        return step
    if unknown := [name for name, alias in found.items() if alias is None]:
        text = f"step {step.id!r} suggested unknown tools, which were dropped: {', '.join(map(repr, unknown))}"
        report.mended(step.id, "unknown-tool", text)
    return structs.replace(step, suggested_tools=kept, requires_tools=step.requires_tools or not kept)


def _named(step: Step, names: Names, tools: Mapping[str, KnownTool], report: Report) -> Step:
    if step.call is None or step.call.tool in tools:
        return step
    name, arguments = step.call.tool, step.call.arguments
    found = names.find(name)
    if found is None:
        alike = names.alike(name)
        only = tools[alike[0]] if len(alike) == 1 else None
        if only and only.info.read_only and set(arguments or {}) <= set(only.properties):
            found = alike[0]
            report.mended(step.id, "unknown-tool", f"step {step.id!r} called {name!r}, which was read as {found!r}")
    if found:
        return structs.replace(step, call=PlannedCall(found, arguments))
    alike = names.alike(name)
    meant = f" (did you mean {' or '.join(map(repr, alike))}?)" if alike else ""
    wrong = f"step {step.id!r} called the unknown tool {name!r}{meant}"
    report.problem(step.id, "unknown-tool", wrong, "the executor chooses one instead")
    return structs.replace(opened(step), suggested_tools=(), requires_tools=True)


def _checked_call(step: Step, names: Names, report: Report) -> Step:
    """The step with the tool of a check under its own name."""
    call: JSON = step.check.get("call") if is_object(step.check) else None
    if not is_object(call) or not isinstance(call.get("tool"), str):
        return step
    found = names.find(call["tool"])
    if found is None or found == call["tool"]:
        return step
    return structs.replace(step, check={**step.check, "call": {**call, "tool": found}})


def opened(step: Step) -> Step:
    """The step as one for the executor: what was planned stands in the description."""
    if step.call:
        arguments = {name: value for name, value in (step.call.arguments or {}).items() if value is not None}
        intent = f"{step.call.tool}({encode(arguments).decode()})" if arguments else ""
        suggested = tuple(dict.fromkeys([step.call.tool, *step.suggested_tools]))
    else:
        intent = f"compute {encode(step.compute).decode()}" if step.compute else ""
        suggested = step.suggested_tools
    planned = f" (planned: {intent[:_MAX_INTENT]})" if intent else ""
    return structs.replace(
        step, description=step.description + planned, suggested_tools=suggested, call=None, compute=None
    )
