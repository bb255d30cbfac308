"""Counting tokens and tool calls of one run against its limits."""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ..encoding import JSONObject
from ..settings import Limits
from ..usage import Usage


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that is reached: `amount` of `kind` where `cap` is allowed."""

    kind: Literal["input", "output", "reasoning", "total", "tool-calls", "iterations"]
    amount: int
    cap: int


@dataclass(slots=True)
class Meter:
    """The run's counters. Retries inside a model call are the provider's to report; each reported call counts once."""

    limits: Limits
    usage: Usage = field(default_factory=Usage)
    by_model: dict[str, Usage] = field(default_factory=dict[str, Usage])
    tool_calls: int = 0
    excess: Excess | None = None

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
            self.excess = self.excess or Excess("tool-calls", self.tool_calls, cap)
            return False
        self.tool_calls += 1
        return True

    def check(self) -> Excess | None:
        """The first limit that is reached, remembered from then on."""
        if self.excess is None:
            limits, usage = self.limits, self.usage
            for kind, amount, cap in (
                ("input", usage.input_tokens, limits.max_input_tokens),
                ("output", usage.output_tokens, limits.max_output_tokens),
                ("reasoning", usage.reasoning_tokens, limits.max_reasoning_tokens),
                ("total", usage.total_tokens, limits.max_total_tokens),
            ):
                if cap is not None and amount >= cap:
                    self.excess = Excess(kind, amount, cap)
                    break
        return self.excess
