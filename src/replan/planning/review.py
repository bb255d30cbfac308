"""What people are asked about a plan and about calls outside of it, and what their answers mean.

Answers come from terminals, programs and other processes. What cannot be understood is a no that says so.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from replan.answers import not_understood, reason_of, word_of
from replan.encoding import JSON, JSONObject, is_list, is_object
from replan.settings import Review

from .plan import Plan, Step, to_json

__all__ = ["Accept", "Edit", "Reject", "ReviewAnswer", "read_review", "review_body", "wants_review"]

_YES = frozenset({"accept", "accepted", "approve", "approved", "yes", "y", "ok"})


class Accept(Struct, frozen=True):
    """The plan is accepted as it was shown."""


class Edit(Struct, frozen=True):
    """This plan is accepted in place of the one that was shown. It is JSON, and may not be a plan that can be run."""

    plan: JSONObject


class Reject(Struct, frozen=True):
    """The plan is not to be run; `reason` may be empty."""

    reason: str = ""


ReviewAnswer: TypeAlias = Accept | Edit | Reject


def review_body(
    goal: str,
    plan: Plan,
    *,
    findings: Sequence[JSONObject] = (),
    price: JSONObject | None = None,
    outside: Sequence[JSONObject] = (),
    reason: str = "",
    origins: JSONObject | None = None,
) -> JSONObject:
    """The body of the inbox item `plan-review`.

    `outside` are the calls that an accepted plan does not permit (`grant.outside`), where a revision asks for more, and
    `reason` is why it was revised. `origins` say for each step where its argument values, by path, come from.
    """
    return {
        "goal": goal,
        "plan": to_json(plan),
        "findings": list(findings),
        "price": price or {},
        "revision": plan.revision,
        "outside": list(outside),
        "reason": reason,
        **({"origins": origins} if origins else {}),
    }


def read_review(answer: JSON) -> ReviewAnswer:
    """What the answer to a `plan-review` means.

    `{"decision": "accept"}`, `{"decision": "edit", "plan": {...}}` and `{"decision": "reject", "reason": "..."}` are
    understood, True and words for yes; False, None, words for no and any other text (a reason) reject. What has another
    shape rejects and says so: it is never taken for a yes.
    """
    if answer is True or word_of(answer) in _YES:
        return Accept()
    if answer is None or answer is False or isinstance(answer, str):
        return Reject(reason_of(answer))
    decision = word_of(answer.get("decision")) if is_object(answer) else None
    if decision == "accept" and answer.get("plan") is None:
        return Accept()
    if decision == "edit" and is_object(answer.get("plan")) and is_list(answer["plan"].get("steps")):
        return Edit(answer["plan"])
    if decision == "reject":
        return Reject(reason_of(answer.get("reason")))
    return Reject(not_understood(answer, "accept", "edit with a plan", "reject"))


def wants_review(
    mode: Review, plan: Plan, facts: Mapping[str, JSONObject], writes: bool, *, narrowed: bool = False
) -> bool:
    """Whether the plan is put before a person.

    With the mode `writes`: where a step calls a tool that may write, or is open and may use one. An open step may use
    any of the agent's tools, of which `writes` says whether one may write; with `narrowed` only those it suggests.
    """
    if mode == "writes":
        return any(_may_write(step, facts, writes, narrowed) for step in plan.steps)
    return mode == "always"


def _may_write(step: Step, facts: Mapping[str, JSONObject], writes: bool, narrowed: bool) -> bool:
    if step.compute is not None and step.call is None:
        return False
    if step.call is None and not (narrowed and step.suggested_tools and not step.requires_tools):
        return writes
    tools = (step.call.tool,) if step.call else step.suggested_tools
    return any(facts.get(tool, {}).get("writes") is not False for tool in tools)
