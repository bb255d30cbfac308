"""When a plan is put before a person, and what the answers mean."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.answers import read_approval
from replan.planning.plan import Plan, PlannedCall, Step
from replan.planning.review import (
    Accept,
    Edit,
    Reject,
    read_review,
    review_body,
    wants_review,
)

FACTS: dict[str, Any] = {"send": {"writes": True}, "find": {"writes": False}}
READ = Step(id="r", description="Find", call=PlannedCall("find", {"name": "Bob"}))
WRITE = Step(id="w", description="Send", call=PlannedCall("send"))
UNKNOWN = Step(id="u", description="Call", call=PlannedCall("unknown"))
OPEN = Step(id="o", description="Look around")
OPEN_READ = Step(id="p", description="Look around", suggested_tools=("find",))
OPEN_WRITE = Step(id="q", description="Write around", suggested_tools=("find", "send"))
LOST = Step(id="l", description="Look around", suggested_tools=("find",), requires_tools=True)
SUM = Step(id="s", description="Add", compute={"sum": "${r.result}"})


@pytest.mark.parametrize(
    ("steps", "writes", "narrowed", "wanted"),
    [
        ([READ, SUM], True, False, False),
        ([READ, WRITE], False, False, True),
        ([UNKNOWN], False, False, True),
        ([OPEN], True, False, True),
        ([OPEN], False, False, False),
        ([OPEN_READ], True, False, True),
        ([OPEN_READ], True, True, False),
        ([OPEN_WRITE], True, True, True),
        ([OPEN, OPEN_READ], True, True, True),
        ([LOST], True, True, True),
        ([LOST], False, True, False),
        ([], True, False, False),
    ],
)
def test_plans_that_may_write_are_reviewed(steps: list[Step], writes: bool, narrowed: bool, wanted: bool):
    plan = Plan(steps=tuple(steps))
    assert wants_review("writes", plan, FACTS, writes, narrowed=narrowed) is wanted
    assert wants_review("always", plan, FACTS, writes, narrowed=narrowed)
    assert not wants_review("never", plan, FACTS, writes, narrowed=narrowed)


def test_the_body_holds_what_a_person_needs():
    plan = Plan(steps=(WRITE,), revision=2)
    body = review_body("Mail Bob", plan, findings=[{"text": "hm"}], price={"cost": None}, reason="it failed")
    assert json.loads(json.dumps(body)) == {
        "goal": "Mail Bob",
        "plan": {
            "thought": "",
            "steps": [{"id": "w", "description": "Send", "call": {"tool": "send", "arguments": None}}],
            "skills": [],
            "revision": 2,
        },
        "findings": [{"text": "hm"}],
        "price": {"cost": None},
        "revision": 2,
        "outside": [],
        "reason": "it failed",
    }
    assert review_body("g", plan, origins={"w": {"to": "model"}})["origins"] == {"w": {"to": "model"}}


@pytest.mark.parametrize(
    "answer", [True, "accept", " Yes ", "approve", {"decision": "accept"}, {"decision": "Accept "}]
)
def test_a_yes_accepts(answer: Any):
    assert read_review(answer) == Accept()


def test_an_edit_brings_a_plan():
    plan = {"steps": [{"description": "Look"}]}
    assert read_review({"decision": "edit", "plan": plan}) == Edit(plan)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, ""),
        (None, ""),
        ("no", ""),
        ("reject", ""),
        ("not to eve\ud800", "not to eve\ufffd"),
        ({"decision": "reject"}, ""),
        ({"decision": "reject", "reason": " too dear "}, "too dear"),
        ({"decision": "reject", "reason": ["too", "dear"]}, '["too","dear"]'),
    ],
)
def test_a_no_rejects_with_its_reason(answer: Any, reason: str):
    assert read_review(answer) == Reject(reason)


MALFORMED: list[Any] = [
    {},
    [],
    1,
    1.5,
    ["accept"],
    {"accept": True},
    {"decision": True},
    {"decision": ["accept"]},
    {"decision": "accept", "plan": {"steps": []}},
    {"decision": "edit"},
    {"decision": "edit", "plan": "steps"},
    {"decision": "edit", "plan": {"steps": {}}},
    {"decision": "acceptable"},
    {"decision": "allow"},
]


@pytest.mark.parametrize("answer", MALFORMED)
def test_what_cannot_be_understood_is_no_yes(answer: Any):
    found = read_review(answer)
    assert isinstance(found, Reject)
    assert found.reason.startswith("the answer was not understood: ")
    assert found.reason.endswith("; its decision is one of accept, edit with a plan or reject")


def test_a_long_answer_that_is_not_understood_is_clipped():
    assert len(read_review({"x": "y" * 9000}).reason) < 400  # pyright: ignore[reportAttributeAccessIssue]  # rejected


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        (True, (True, "")),
        ("allow", (True, "")),
        ("Yes", (True, "")),
        ({"decision": "allow"}, (True, "")),
        (False, (False, "")),
        (None, (False, "")),
        ("deny", (False, "")),
        ("too many", (False, "too many")),
        ({"decision": "deny"}, (False, "")),
        ({"decision": "deny", "reason": "not him"}, (False, "not him")),
        ("accept", (False, "accept")),
    ],
)
def test_answers_to_approvals(answer: Any, meant: tuple[bool, str]):
    assert read_approval(answer) == meant


@pytest.mark.parametrize("answer", [{}, 1, [True], {"allow": True}, {"decision": "accept"}, {"decision": None}])
def test_an_approval_that_cannot_be_understood_denies(answer: Any):
    allowed, reason = read_approval(answer)
    assert not allowed
    assert reason.startswith("the answer was not understood: ")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["accept", "allow", "edit"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["decision", "plan", "steps", "reason", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(anything)
def test_only_a_plain_yes_accepts(answer: Any):
    word = answer.get("decision") if isinstance(answer, dict) else answer
    plain = (
        word is True if not isinstance(word, str) else word.strip().casefold() in ("accept", "allow", "y", "yes", "ok")
    )
    if isinstance(read_review(answer), Accept) or read_approval(answer)[0]:
        assert plain
