"""What lint works with, and what it has to say."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import Struct

from replan.encoding import JSONObject
from replan.mcp.arguments import ArgumentSchema
from replan.planning.compute import open_operand
from replan.planning.plan import Step
from replan.planning.shapes import Shape
from replan.tool import ToolInfo
from replan.tools.coercion import property_schemas

__all__ = ["Context", "Finding", "KnownTool", "Report", "kind_of", "may_write", "open_arguments", "waits_for_results"]

_PARTIAL = ("$schema", "type", "properties", "patternProperties", "additionalProperties", "$defs", "definitions")


class Finding(Struct, frozen=True):
    """Something about a plan. `mended` says that the plan was changed for it."""

    step: str | None
    kind: str
    text: str
    mended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a plan is looked at with.

    `kinds` are the kinds of steps that are allowed. `taken` are the ids of the run's earlier steps; `known` are those
    of them that have ended or are running: `call`, `ok` and the `shape` of their outputs (None: all of `taken`, of
    which nothing else is known). `uses` are the tools that the planner said it would use, `shapes` those of results by
    tool, `checks` the host's functions that a check may name (None: not known).
    """

    goal: str = ""
    max_steps: int = 8
    kinds: Collection[str] = frozenset({"direct", "bound", "open"})
    taken: Collection[str] = ()
    known: Mapping[str, JSONObject] | None = None
    uses: Collection[str] = ()
    shapes: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    checks: Collection[str] | None = None

    @property
    def earlier(self) -> Collection[str]:
        """The ids of earlier steps that can be referred to."""
        return self.taken if self.known is None else self.known


class KnownTool:
    """A tool with what lint asks of its parameters."""

    def __init__(self, info: ToolInfo) -> None:
        self.info = info
        self.required: list[str] = list(info.parameters.get("required") or ())
        self.properties = property_schemas(info.parameters)

    def problems(self, arguments: JSONObject) -> list[str]:
        """What is wrong with some of the arguments, whatever the others will be."""
        return self._partial.problems(arguments)

    def all_problems(self, arguments: JSONObject) -> list[str]:
        """What is wrong with the whole of the arguments."""
        return self._whole.problems(self._whole.prune(arguments))

    @cached_property
    def _partial(self) -> ArgumentSchema:
        root = self.info.parameters
        return ArgumentSchema({key: root[key] for key in _PARTIAL if key in root}, self.info.name)

    @cached_property
    def _whole(self) -> ArgumentSchema:
        return ArgumentSchema(self.info.parameters, self.info.name)


class Report:
    """The findings and problems, in order, each once."""

    def __init__(self) -> None:
        self._findings: dict[Finding, None] = {}
        self._problems: dict[str, None] = {}

    @property
    def findings(self) -> list[Finding]:
        """What was found."""
        return list(self._findings)

    @property
    def problems(self) -> list[str]:
        """What only the planner can put right, one sentence each."""
        return list(self._problems)

    def note(self, step: str | None, kind: str, text: str) -> None:
        """Say something of a plan that stays as it is."""
        self._findings[Finding(step, kind, text)] = None

    def mended(self, step: str | None, kind: str, text: str) -> None:
        """Say what was mended."""
        self._findings[Finding(step, kind, text, mended=True)] = None

    def problem(self, step: str | None, kind: str, wrong: str, done: str) -> None:
        """Say what is wrong, for the planner, and what was done so that the plan can be run as it is."""
        self._problems[f"{wrong[:1].upper()}{wrong[1:]}."] = None
        self.mended(step, kind, f"{wrong}; {done}")


def open_arguments(step: Step, tool: KnownTool) -> list[str]:
    """The required arguments that a call leaves open."""
    given = (step.call.arguments if step.call else None) or {}
    return [name for name in tool.required if given.get(name) is None]


def kind_of(step: Step, tools: Mapping[str, KnownTool]) -> str:
    """How a step is run: direct, bound, open or compute."""
    if step.call is None or step.call.tool not in tools:
        return "open" if step.compute is None else "compute"
    return "bound" if open_arguments(step, tools[step.call.tool]) else "direct"


def may_write(step: Step, tools: Mapping[str, KnownTool]) -> bool:
    """Whether a step may change something."""
    if step.call and step.call.tool in tools:
        return not tools[step.call.tool].info.read_only
    if step.compute is not None:
        return False
    named: Sequence[str] = [] if step.requires_tools else [name for name in step.suggested_tools if name in tools]
    return any(not tools[name].info.read_only for name in named or tools)


def waits_for_results(step: Step, tools: Mapping[str, KnownTool]) -> bool:
    """Whether something in the step is to be filled in when results are there."""
    if step.compute is not None:
        return open_operand(step.compute) is not None
    return kind_of(step, tools) == "bound"
