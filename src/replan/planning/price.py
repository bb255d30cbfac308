"""What a plan will cost before it is run: intervals of model calls, tool calls, tokens, money and time.

The low end is what the plan takes when everything works as it is written. The high end is what it typically takes when
it does not: a call that a model fills in is tried twice; a call of a tool that has failed before, by the journal, is
also filled in anew and then left to the executor; an open step takes six turns, or as many as the limits allow; and the
replanner is asked once, where a step that may fail is not the only one. Steps of a revision and what the planner has
spent are not in it. A run can cost more than the high end; the low end is what it cannot do without, as far as tokens
can be told from characters.

    step      model calls             tool calls
    direct    0                       1
    compute   0; an open operand 1-2  0
    bound     1-2                     1-2
    open      2-6                     1-5; where no tool is suggested, 1-6 and 0-5
    answer    1                       0

A check by a call is one more tool call. Tokens are characters by four: of the instructions and tools of each model
call, of the goal and of the results that it is shown, which are as long as the journal knows (else up to 600
characters). Time is the longest chain of steps that wait for each other, or all of the work shared by the steps that
may run at once, whichever is longer; tools take as long as the journal knows (else up to half a second), model calls
one to six seconds. Money is what the tokens cost without anything that a provider's cache may save.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil

from replan.effects import Stage
from replan.encoding import JSON, JSONObject, encode
from replan.prices import price as money
from replan.usage import Usage, estimate_tokens

from .bill import NOTHING, Basis, Span, bill_of
from .plan import Plan

__all__ = ["Pricer", "price_line"]

_UNITS = {
    "steps": "step",
    "tool_calls": "tool call",
    "input_tokens": "input token",
    "output_tokens": "output token",
    "total_tokens": "token",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricer(Basis):
    """Prices the plans of one run; `Basis` says by what."""

    @staticmethod
    def sizes(stages: Mapping[str, Stage]) -> JSONObject:
        """`instructions`, `models`, `tools` and `any_writes` of the stages of a planning agent, to build a `Pricer`."""
        tools = stages["executor"].tools
        return {
            "instructions": {name: len(stage.instructions) for name, stage in stages.items()},
            "models": {name: stage.model.name for name, stage in stages.items()},
            "tools": {t.name: len(t.name) + len(t.description) + len(encode(t.parameters)) for t in tools},
            "any_writes": any(not info.read_only for info in tools),
        }

    def price(self, plan: Plan, facts: Mapping[str, JSONObject], args: JSONObject) -> JSONObject:
        """The price of a plan that is about to be run.

        `facts` are those of the tools that it calls or suggests, `args` the arguments of the planner's effect: `goal`,
        and where they are there `kinds`, `known`, `left` and `with_cost`. Gives `model_calls`, `tool_calls`,
        `input_tokens`, `output_tokens`, `seconds` and `cost` (US dollars), each `[low, high]`, and `exceeds`, one
        sentence for each limit that the plan may reach. `cost` is null where a price is not known, and where
        `with_cost` is false: the table of prices takes about 0.2 seconds to load.
        """
        bill = bill_of(self, plan, facts, args)
        given = {stage: _tokens(span) for stage, span in bill.given.items()}
        written = {stage: _tokens(span) for stage, span in bill.written.items()}
        price: JSONObject = {
            "model_calls": _whole(_sum(bill.calls.values())),
            "tool_calls": _whole(bill.tool_calls),
            "input_tokens": _whole(_sum(given.values())),
            "output_tokens": _whole(_sum(written.values())),
            "seconds": [round(bill.seconds.lo, 1), round(bill.seconds.hi, 1)],
            "cost": self._cost(given, written) if args.get("with_cost", True) else None,
        }
        return {**price, "exceeds": _exceeds(price, len(plan.steps), args.get("left") or {})}

    def _cost(self, given: Mapping[str, Span], written: Mapping[str, Span]) -> JSON:
        by_model: dict[str, tuple[Span, Span]] = {}
        for stage, span in given.items():
            tokens = by_model.get(self.models[stage], (NOTHING, NOTHING))
            by_model[self.models[stage]] = tokens[0] + span, tokens[1] + written[stage]
        ends: list[float] = []
        for end in ("lo", "hi"):
            prices = [
                money(model, Usage(input_tokens=int(getattr(into, end)), output_tokens=int(getattr(out, end))))
                for model, (into, out) in by_model.items()
            ]
            known = [amount for amount in prices if amount is not None]
            if len(known) != len(prices):
                return None
            ends.append(float(sum(known)))
        return ends


def _sum(spans: Iterable[Span]) -> Span:
    return sum(spans, NOTHING)


def _tokens(chars: Span) -> Span:
    return Span(chars.lo // 4, estimate_tokens(ceil(chars.hi)))


def _whole(span: Span) -> list[int]:
    return [int(span.lo), ceil(span.hi)]


def _exceeds(price: JSONObject, steps: int, left: Mapping[str, float]) -> list[str]:
    """One sentence for each limit of which less is left than the plan needs, or may need."""
    needs = {**price, "total_tokens": _total_tokens(price), "steps": [steps, steps]}
    found: list[str] = []
    for name, unit in _UNITS.items():
        remaining = left.get(name)
        if remaining is None or needs[name][1] <= remaining:
            continue
        low, high = needs[name]
        amount = f"needs at least {low:,}" if low > remaining else f"may need {high:,}"
        count = low if low > remaining else high
        rest = "none is left" if remaining <= 0 else f"{remaining:,} {'is' if remaining == 1 else 'are'} left"
        found.append(f"{amount} {unit}{'' if count == 1 else 's'}, {rest}")
    return found


def _total_tokens(price: JSONObject) -> list[int]:
    return [given + written for given, written in zip(price["input_tokens"], price["output_tokens"], strict=True)]


def price_line(price: JSONObject) -> str:
    """A price in one line: `2-4 model calls, 3 tool calls, ~1.2-3 k tokens, $0.001-0.003, about 2-9 s`.

    Without a known cost it is left out.
    """
    parts = [
        _counted(price["model_calls"], "model call"),
        _counted(price["tool_calls"], "tool call"),
        f"~{_thousands(_total_tokens(price))} tokens",
    ]
    if (cost := price.get("cost")) is not None:
        parts.append(f"${_ends(*map(_dollars, cost))}")
    low, high = price["seconds"]
    parts.append(f"about {_ends(_short(low), _short(high))} s")
    return ", ".join(parts)


def _counted(ends: Sequence[int], unit: str) -> str:
    return f"{_ends(*map(str, ends))} {unit}{'' if list(ends) == [1, 1] else 's'}"


def _thousands(ends: Sequence[int]) -> str:
    if ends[1] < 1000:
        return _ends(*map(str, ends))
    return f"{_ends(*(_short(end / 1000) for end in ends))} k"


def _ends(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"


def _dollars(amount: float) -> str:
    """Two digits below a dollar, cents from there on."""
    return f"{amount:.2f}" if amount >= 1 else f"{Decimal(f'{amount:.2g}'):f}"


def _short(number: float) -> str:
    """At most one decimal, and none from ten on."""
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}".removesuffix(".0")
