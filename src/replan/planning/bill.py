"""What a plan takes, from what its steps are: model calls and the characters in and out of them, tool calls, time.

How much of everything, and why, is said in `price`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from replan.encoding import JSON, JSONObject, is_object
from replan.journal import ToolHistory
from replan.settings import Limits, ReplanTrigger, StepKind

from .compute import open_operand
from .plan import Plan, Step
from .schedule import dependencies, in_order

__all__ = ["NOTHING", "Basis", "Bill", "Span", "bill_of"]

OPEN_TURNS = 6
"""How many model calls an open step takes at most, typically: its tools one after the other, and the reply."""


@dataclass(frozen=True, slots=True)
class Span:
    """An interval, both ends included."""

    lo: float = 0
    hi: float = 0

    def __add__(self, other: "Span") -> "Span":
        return Span(self.lo + other.lo, self.hi + other.hi)

    def __mul__(self, other: "Span") -> "Span":
        return Span(self.lo * other.lo, self.hi * other.hi)

    def clipped(self, most: float) -> "Span":
        """The interval with neither end above `most`."""
        return Span(min(self.lo, most), min(self.hi, most))


NOTHING = Span()
_ONCE = Span(1, 1)
_TWICE = Span(1, 2)
_MODEL_SECONDS = Span(1.0, 6.0)
_TOOL_SECONDS = Span(0.05, 0.5)
_UNKNOWN_CHARS = Span(0, 600)
_COMPUTED_CHARS = Span(1, 200)
_REPLY_CHARS = {
    "binder": Span(20, 400),
    "executor": Span(60, 800),
    "replanner": Span(60, 1_500),
    "synthesizer": Span(80, 2_000),
}
_FRAME = Span(20, 80)
"""What a prompt says around a description, a tool or a result."""

_SHOWN = {"binder": 2_000, "executor": 2_000, "replanner": 1_500, "synthesizer": 4_000}
"""How much of one result each stage is shown in its first message."""


@dataclass(slots=True)
class Bill:
    """What some part of a plan takes. `chars` are those in and out of the model calls, by stage."""

    calls: dict[str, Span] = field(default_factory=dict[str, Span])
    given: dict[str, Span] = field(default_factory=dict[str, Span])
    written: dict[str, Span] = field(default_factory=dict[str, Span])
    tool_calls: Span = NOTHING
    seconds: Span = NOTHING

    def call_model(self, stage: str, times: Span, chars: Span, each: Span) -> None:
        """`times` calls, which are given `chars` in all and take `each` seconds."""
        self.calls[stage] = self.calls.get(stage, NOTHING) + times
        self.given[stage] = self.given.get(stage, NOTHING) + chars
        self.written[stage] = self.written.get(stage, NOTHING) + times * _REPLY_CHARS[stage]
        self.seconds += times * each

    def add(self, other: "Bill") -> None:
        """Add another bill; its time too."""
        for mine, theirs in (
            (self.calls, other.calls),
            (self.given, other.given),
            (self.written, other.written),
        ):
            for stage, span in theirs.items():
                mine[stage] = mine.get(stage, NOTHING) + span
        self.tool_calls += other.tool_calls
        self.seconds += other.seconds


@dataclass(frozen=True, slots=True)
class _Results:
    """What the steps of a plan give, in characters of text, and whose results a step waits for."""

    each: Mapping[str, Span]
    waits_for: Mapping[str, Collection[str]]
    earlier: int
    totals: dict[str, float] = field(default_factory=dict[str, float])

    def shown(self, stage: str, step: Step | None, *, only_needed: bool = False) -> Span:
        """What a stage is shown of results: those that `step` waits for, up to all of the other steps'."""
        needed = self._lines(stage, self.each if step is None else self.waits_for[step.id])
        if only_needed:
            return needed
        if stage not in self.totals:
            earlier = self.earlier * min(_SHOWN[stage], _UNKNOWN_CHARS.hi + _FRAME.hi)
            self.totals[stage] = self._lines(stage, self.each).hi + earlier
        own = self._lines(stage, [step.id]).hi if step else 0
        return Span(needed.lo, self.totals[stage] - own)

    def _lines(self, stage: str, idents: Iterable[str]) -> Span:
        lines = [(self.each[ident] + _FRAME).clipped(_SHOWN[stage]) for ident in idents]
        return Span(sum(line.lo for line in lines), sum(line.hi for line in lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the plans of one run are priced by.

    `instructions` are the characters of each stage's standing instructions, `models` the names of their models, `tools`
    the characters of each tool as the executor's model is told of it. `narrowed`: the executor is offered only what the
    plan suggests. `conversation` is how many characters of the conversation so far prompts begin with. `model_seconds`
    is how long a model call takes.
    """

    instructions: Mapping[str, int]
    models: Mapping[str, str]
    tools: Mapping[str, int] = field(default_factory=dict[str, int])
    history: Mapping[str, ToolHistory] = field(default_factory=dict[str, ToolHistory])
    limits: Limits = field(default_factory=Limits)
    narrowed: bool = False
    any_writes: bool = True
    kinds: Collection[StepKind] = ("direct", "bound", "open")
    replan_after: ReplanTrigger = "failure"
    max_parallel_steps: int = 8
    conversation: int = 0
    model_seconds: tuple[float, float] = (_MODEL_SECONDS.lo, _MODEL_SECONDS.hi)


def bill_of(basis: Basis, plan: Plan, facts: Mapping[str, JSONObject], args: JSONObject) -> Bill:
    """What a plan takes; the arguments are those of `Pricer.price`."""
    return _Job(basis, plan, facts, args).whole()


class _Job:
    """The pricing of one plan."""

    def __init__(self, basis: Basis, plan: Plan, facts: Mapping[str, JSONObject], args: JSONObject) -> None:
        self.basis, self.steps, self.facts = basis, plan.steps, facts
        self.goal = _exactly(len(str(args.get("goal") or ""))) + _FRAME
        self.conversation = int(args.get("conversation") or basis.conversation)
        self.kinds = frozenset(args.get("kinds") or basis.kinds)
        self.known: Mapping[str, JSON] = args.get("known") or {}
        self.stated = dependencies(self.steps, self.known)
        self.needs = {i: [other for other in others if other not in self.known] for i, others in self.stated.items()}
        ordered = in_order(self.needs)
        placed = set(ordered)
        self.order = [*ordered, *(ident for ident in self.needs if ident not in placed)]
        self.results = _Results({step.id: self._result(step) for step in self.steps}, self._sources(), len(self.known))
        self.outline = sum(len(step.description) for step in self.steps)
        self.each = Span(*basis.model_seconds)

    def whole(self) -> Bill:
        """What the whole of it takes: the steps, the replanner, the answer."""
        bill = Bill()
        bills = {step.id: self._step(step) for step in self.steps}
        for part in bills.values():
            bill.add(part)
        after = Bill()
        if (asked := self._replans()).hi:
            results = Span(0, self.results.shown("replanner", None).hi)
            after.call_model("replanner", asked, asked * (self._prompt("replanner") + results), self.each)
        results = self.results.shown("synthesizer", None)
        after.call_model("synthesizer", _ONCE, self._prompt("synthesizer") + results, self.each)
        bill.add(after)
        bill.seconds = after.seconds + self._elapsed({ident: part.seconds for ident, part in bills.items()})
        return bill

    def _prompt(self, stage: str) -> Span:
        size = self.basis.instructions.get(stage, 0)
        return self.goal + Span(size, size + self.conversation)

    def _kind(self, step: Step) -> str:
        """How a step will be run: a call whose arguments a model has to find without any result is the executor's."""
        if step.compute is not None and "direct" in self.kinds:
            return "compute"
        if step.call is None or step.call.tool not in self.facts:
            return "open"
        given = {name: value for name, value in (step.call.arguments or {}).items() if value is not None}
        if "direct" in self.kinds and all(name in given for name in self._required(step)):
            return "direct"
        alone = not given and not self.stated[step.id]
        return "bound" if "bound" in self.kinds and not (alone and "open" in self.kinds) else "open"

    def _required(self, step: Step) -> Sequence[str]:
        return self.facts[step.call.tool].get("required") or () if step.call else ()

    def _step(self, step: Step) -> Bill:
        bill = Bill(tool_calls=_ONCE if _checked_by_call(step) else NOTHING)
        binds, calls, turns = NOTHING, NOTHING, NOTHING
        match self._kind(step):
            case "compute":
                asks = step.compute is not None and open_operand(step.compute) and "bound" in self.kinds
                binds = _TWICE if asks else NOTHING
            case "open":
                turns = self._turns(step)
            case kind:
                retried = Span(0, 1 if self._failed(step) and "bound" in self.kinds else 0)
                binds = _TWICE + retried if kind == "bound" else retried
                calls = _TWICE if kind == "bound" else _ONCE + retried
                if self._failed(step) and "open" in self.kinds:
                    turns = Span(0, self._turns(step).hi)
        if binds.hi:
            bill.call_model("binder", binds, self._bind_chars(step, binds), self.each)
        if turns.hi:
            bill.call_model("executor", turns, self._turn_chars(step, turns), self.each)
            calls += self._calls_in(step, turns)
        bill.tool_calls += calls
        bill.seconds += bill.tool_calls * self._of_tools(step, "seconds", _TOOL_SECONDS)
        return bill

    def _failed(self, step: Step) -> bool:
        """Whether the tool of the step's call has failed before."""
        history = self.basis.history.get(step.call.tool) if step.call else None
        return history is not None and history.failed > 0

    def _turns(self, step: Step) -> Span:
        most = min(self.basis.limits.max_turns, OPEN_TURNS) if self._offered(step) else 1
        return Span(2 if self._wants_tools(step) else 1, most).clipped(most)

    def _calls_in(self, step: Step, turns: Span) -> Span:
        """The tool calls of an open step: one in each turn but the last, at least where it needs one."""
        return Span(max(0, turns.lo - 1) if self._wants_tools(step) else 0, max(0, turns.hi - 1))

    def _wants_tools(self, step: Step) -> bool:
        return bool(step.suggested_tools or step.requires_tools or step.call)

    def _offered(self, step: Step) -> int:
        """The characters of the tools that the executor is offered for a step."""
        basis = self.basis
        if not basis.narrowed or step.requires_tools:
            return sum(basis.tools.values())
        return sum(basis.tools.get(name, 0) for name in dict.fromkeys(_named(step)))

    def _turn_chars(self, step: Step, turns: Span) -> Span:
        """What the executor is given in all turns of a step: the same beginning, and what was said and found since."""
        size = len(step.description) + len(step.expected_outcome) + self.outline + self._offered(step)
        first = self._prompt("executor") + self.results.shown("executor", step) + _exactly(size)
        since = Span(turns.lo * max(0, turns.lo - 1) / 2, turns.hi * (turns.hi - 1) / 2)
        said = self._of_tools(step, "chars", _UNKNOWN_CHARS) + Span(_FRAME.lo, _REPLY_CHARS["executor"].hi)
        return turns * first + since * said

    def _bind_chars(self, step: Step, binds: Span) -> Span:
        size = len(step.description)
        if step.call:
            size += len(str(self.facts.get(step.call.tool, {}).get("line") or "")) + self.basis.tools.get(
                step.call.tool, 0
            )
        first = self._prompt("binder") + self.results.shown("binder", step, only_needed=True)
        return binds * (first + _exactly(size))

    def _of_tools(self, step: Step, what: str, otherwise: Span) -> Span:
        """Seconds or characters of a call in the step, as far as the journal knows its tools."""
        named = _named(step)
        spans = [] if named else [otherwise]
        for name in named or self.basis.tools:
            known = getattr(self.basis.history.get(name), what, (0, 0))
            spans.append(Span(*known) if known[1] else otherwise)
        return Span(min(s.lo for s in spans) if named else otherwise.lo, max(s.hi for s in spans))

    def _result(self, step: Step) -> Span:
        """The text of the step's result."""
        match self._kind(step):
            case "compute":
                return _COMPUTED_CHARS
            case "open":
                calls = Span(0, self._turns(step).hi)
                return calls * self._of_tools(step, "chars", _UNKNOWN_CHARS) + Span(0, _REPLY_CHARS["executor"].hi)
            case _:
                moved = Span(0, OPEN_TURNS * _UNKNOWN_CHARS.hi if self._failed(step) else 0)
                return self._of_tools(step, "chars", _UNKNOWN_CHARS) + moved

    def _sources(self) -> dict[str, set[str]]:
        """The steps that each step waits for, and those that these wait for."""
        found: dict[str, set[str]] = {}
        for ident in self.order:
            direct = [other for other in self.needs[ident] if other in found]
            found[ident] = set(direct).union(*(found[other] for other in direct))
        return found

    def _replans(self) -> Span:
        before_last = max(0, len(self.steps) - 1)
        if self.basis.replan_after == "always":
            return Span(before_last, before_last)
        if callable(self.basis.replan_after):
            return Span(0, before_last)
        fallible = any(self._kind(step) != "compute" for step in self.steps)
        return Span(0, 1 if before_last and fallible else 0)

    def _elapsed(self, seconds: Mapping[str, Span]) -> Span:
        """How long the steps take together, up to so many at once as may run."""
        parallel = self.basis.max_parallel_steps
        low = {ident: span.lo for ident, span in seconds.items()}
        high = {ident: span.hi for ident, span in seconds.items()}
        longest = Span(self._longest(low), self._longest(high))
        work = Span(sum(low.values()), sum(high.values()))
        if len(self.steps) <= parallel:
            return longest
        # no order of work at so many places takes longer than this
        return Span(max(longest.lo, work.lo / parallel), longest.hi + (work.hi - longest.hi) / parallel)

    def _longest(self, seconds: Mapping[str, float]) -> float:
        """The longest chain of steps that wait for each other, those that write in the plan's order."""
        ends: dict[str, float] = {}
        by_id = {step.id: step for step in self.steps}
        silent = stated = 0.0
        for ident in self.order:
            step = by_id[ident]
            start = max((ends.get(other, 0.0) for other in self.needs[ident]), default=0.0)
            writes = self._writes(step)
            if writes:
                start = max(start, silent, stated if step.depends_on is None else 0.0)
            ends[ident] = end = start + seconds[ident]
            if writes and step.depends_on is None:
                silent = max(silent, end)
            elif writes:
                stated = max(stated, end)
        return max(ends.values(), default=0.0)

    def _writes(self, step: Step) -> bool:
        if self._kind(step) == "compute":
            return False
        names = [name for name in _named(step) if name in self.facts]
        if step.call or (self.basis.narrowed and names and not step.requires_tools):
            return any(self.facts[name].get("writes", True) for name in names)
        return self.basis.any_writes


def _exactly(number: float) -> Span:
    return Span(number, number)


def _named(step: Step) -> list[str]:
    """The tools that a step names."""
    return [*step.suggested_tools, *([step.call.tool] if step.call else [])]


def _checked_by_call(step: Step) -> bool:
    return is_object(step.check) and "call" in step.check
