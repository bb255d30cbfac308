"""Counting tokens and tool calls of one run against its limits."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from replan.encoding import JSONObject
from replan.settings import Limits
from replan.usage import Usage

LimitKind: TypeAlias = Literal["input", "output", "reasoning", "total", "tool-calls", "iterations"]


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that has stopped something: `amount` of `kind` where `cap` is allowed."""

    kind: LimitKind
    amount: int
    cap: int

    def __str__(self) -> str:
        unit = {"tool-calls": "tool calls", "iterations": "steps"}.get(self.kind, f"{self.kind} tokens")
        return f"the limit of {self.cap} {unit} was reached"


@dataclass(slots=True)
class Meter:
    """The run's counters. Retries inside a model call are the provider's to report; each reported call counts once.

    `reached` are the limits that have stopped something, each once, in that order.
    """

    limits: Limits
    usage: Usage = field(default_factory=Usage)
    by_model: dict[str, Usage] = field(default_factory=dict[str, Usage])
    tool_calls: int = 0
    reached: list[Excess] = field(default_factory=list[Excess])
    told: int = 0

    def add(self, model: str, usage: JSONObject) -> Usage:
        """Count one model call; gives what it used."""
        used = msgspec.convert({**usage, "model_calls": 1}, Usage)
        self.usage += used
        self.by_model[model] = self.by_model.get(model, Usage()) + used
        return used

    def take_tool_call(self) -> bool:
        """Reserve one tool call; False where none is left."""
        cap = self.limits.max_tool_calls
        if cap is not None and self.tool_calls >= cap:
            self.reach(Excess("tool-calls", self.tool_calls, cap))
            return False
        self.tool_calls += 1
        return True

    def out_of_tokens(self) -> bool:
        """Whether a limit of tokens is reached: asked before work that would use more."""
        limits, usage = self.limits, self.usage
        counted: tuple[tuple[LimitKind, int, int | None], ...] = (
            ("input", usage.input_tokens, limits.max_input_tokens),
            ("output", usage.output_tokens, limits.max_output_tokens),
            ("reasoning", usage.reasoning_tokens, limits.max_reasoning_tokens),
            ("total", usage.total_tokens, limits.max_total_tokens),
        )
        spent = [Excess(kind, amount, cap) for kind, amount, cap in counted if cap is not None and amount >= cap]
        for excess in spent:
            self.reach(excess)
        return bool(spent)

    def reach(self, excess: Excess) -> None:
        """Remember a limit that stops something; the first time of its kind counts."""
        if all(known.kind != excess.kind for known in self.reached):
            self.reached.append(excess)

    def news(self) -> list[Excess]:
        """The limits that were reached since this was asked before."""
        new, self.told = self.reached[self.told :], len(self.reached)
        return new
