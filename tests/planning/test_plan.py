import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.planning import Plan, PlannedCall
from replan.planning.plan import fallback_plan, make_plan, to_json


def plan(*steps: Any, **options: Any) -> tuple[Plan, list[str]]:
    return make_plan({"thought": "t", "steps": list(steps)}, max_steps=options.pop("max_steps", 8), **options)


def one(**step: Any) -> tuple[Any, list[str]]:
    made, remarks = plan({"id": "s1", "description": "do", **step})
    return made.steps[0], remarks


def test_a_plan_is_read_as_it_was_written():
    step = {
        "id": "find",
        "description": "Find it",
        "expected_outcome": "the page",
        "suggested_tools": ["look"],
        "depends_on": [],
        "produces": {"page": {"type": "string"}},
        "call": {"tool": "look", "arguments": {"key": "a", "more": None}},
        "compute": {"value": "1"},
        "from": {"page": "result.url"},
        "check": {"type": "object"},
    }
    made, remarks = plan(step)
    assert remarks == []
    assert made.thought == "t"
    assert to_json(made)["steps"] == [step]
    assert made.steps[0].call == PlannedCall("look", {"key": "a", "more": None})
    written = {"tool": "look", "arguments": '{"key": "a"}'}
    assert one(call=written)[0].call == PlannedCall("look", {"key": "a"})


@pytest.mark.parametrize("data", [None, [], "plan", 5, {}, {"steps": {}}, {"steps": "1. look"}, {"steps": None}])
def test_what_is_no_plan_is_refused(data: Any):
    with pytest.raises(ValueError, match='an object with "steps"'):
        make_plan(data, max_steps=8)


def test_steps_that_are_no_objects_are_no_plan_unless_some_are():
    with pytest.raises(ValueError, match='each of the "steps" is an object with a "description"'):
        plan("look it up", "write it down")
    made, remarks = plan("look it up", {"description": "write"})
    assert [step.description for step in made.steps] == ["write"]
    assert remarks == ["step 1 is not an object and was left out"]


def test_a_plan_without_steps_is_a_plan():
    assert plan() == (Plan(thought="t"), [])


@pytest.mark.parametrize("given", [None, "", "S1", "1", 1, "a b", "x" * 33, "_a", "é"])
def test_an_id_that_cannot_be_one_is_replaced(given: Any):
    made, _ = plan({"id": given, "description": "a"}, {"description": "b"})
    assert [step.id for step in made.steps] == ["s1", "s2"]


def test_references_follow_ids_that_were_replaced():
    made, _ = plan(
        {"id": "Step 1", "description": "a"},
        {"id": "2", "description": "b of ${Step 1.result}", "depends_on": ["Step 1"]},
        {
            "id": "3",
            "description": "c",
            "call": {"tool": "look", "arguments": {"key": "${2.x} and ${Step 1[0]}", "in": ["${2}"], "lit": "$${2}"}},
            "depends_on": [2, "Step 1"],
        },
    )
    first, second, third = made.steps
    assert (first.id, second.id, third.id) == ("s1", "s2", "s3")
    assert (second.description, second.depends_on) == ("b of ${s1.result}", ("s1",))
    assert third.call.arguments == {"key": "${s2.x} and ${s1[0]}", "in": ["${s2}"], "lit": "$${2}"}
    assert third.depends_on == ("s2", "s1")


def test_a_repeated_id_is_replaced_and_later_references_mean_the_later_step():
    made, remarks = plan(
        {"id": "a", "description": "one"},
        {"id": "a", "description": "two ${a.x}"},
        {"id": "b", "description": "three ${a.x}"},
    )
    assert [(step.id, step.description) for step in made.steps] == [
        ("a", "one"),
        ("s2", "two ${a.x}"),
        ("b", "three ${s2.x}"),
    ]
    assert remarks == ["there are two steps 'a'; the later one is now 's2'"]


def test_a_revision_can_refer_to_finished_steps_although_it_uses_their_ids_again():
    made, _ = plan(
        {"id": "s1", "description": "use ${s1.name}"}, {"description": "next"}, taken=["s1", "s3"], revision=1
    )
    assert [(step.id, step.description) for step in made.steps] == [("s4", "use ${s1.name}"), ("s5", "next")]
    assert made.revision == 1


def test_ids_are_unique_over_the_run():
    made, _ = plan(*[{"description": "x"}] * 5, taken=["s1", "s2", "s7"])
    assert [step.id for step in made.steps] == ["s4", "s5", "s6", "s8", "s9"]


def test_more_steps_than_allowed_are_cut_off():
    made, remarks = plan(*[{"description": str(n)} for n in range(5)], max_steps=2)
    assert [step.description for step in made.steps] == ["0", "1"]
    assert remarks == ["the plan had 5 steps; those after the first 2 were left out"]


def test_tools_stay_as_they_were_named():
    step, remarks = one(suggested_tools=["look", "nothing", "look"], call={"tool": "other", "arguments": {"a": 1}})
    assert (step.suggested_tools, step.call, remarks) == (("look", "nothing"), PlannedCall("other", {"a": 1}), [])
    assert one(requires_tools=True)[0].requires_tools is True
    assert one()[0].requires_tools is False


def test_forward_references_follow_ids_that_were_replaced():
    made, _ = plan(
        {"id": "first", "description": "a ${Last.x} ${first}", "depends_on": "Last"},
        {"description": "between", "compute": "${Last.x} + 1"},
        {"id": "Last", "description": "b", "check": {"call": {"tool": "look", "arguments": {"key": "${Last.x}"}}}},
    )
    first, between, last = made.steps
    assert (first.description, first.depends_on) == ("a ${s3.x} ${first}", ("s3",))
    assert between.compute == {"value": "${s3.x} + 1"}
    assert last.check["call"]["arguments"] == {"key": "${s3.x}"}


def test_a_given_id_is_not_taken_by_a_step_without_one():
    made, remarks = plan({"description": "a"}, {"id": "s1", "description": "b ${s1}"})
    assert [(step.id, step.description) for step in made.steps] == [("s2", "a"), ("s1", "b ${s1}")]
    assert remarks == []


def test_what_is_no_schema_or_path_names_no_output():
    step, remarks = one(produces={"a": {}, "b": "text"}, **{"from": {"a": "x", "c": 5}})
    assert (step.produces, step.from_) == ({"a": {}}, {"a": "x"})
    assert remarks == ["step 's1' names outputs without a schema or path: 'b', 'c'"]


@pytest.mark.parametrize("arguments", [None, [], "a", 5])
def test_arguments_that_are_no_object_are_open(arguments: Any):
    step, _ = one(call={"tool": "look", "arguments": arguments})
    assert step.call == PlannedCall("look", None)


@pytest.mark.parametrize("value", [None, "look", [], 5])
def test_a_call_that_is_no_object_is_no_call(value: Any):
    step, remarks = one(call=value)
    assert (step.call, step.requires_tools, remarks) == (None, False, [])


def test_a_step_without_a_description_still_says_what_it_is():
    made, _ = plan({"call": {"tool": "look"}}, {"id": "Fetch the page"}, {})
    assert [step.description for step in made.steps] == ["Call look", "Fetch the page", "s3"]


def test_the_fallback_plan_is_the_goal_itself_with_all_tools():
    [step] = fallback_plan("Find it.").steps
    assert (step.id, step.description, step.requires_tools, step.call) == ("s1", "Find it.", True, None)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["s1", "look", "${s1.x}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["id", "description", "suggested_tools", "depends_on", "call", "produces", "compute", "from", "check"]
rough_steps = st.dictionaries(st.sampled_from(FIELDS), anything, max_size=5)
rough_calls = st.fixed_dictionaries({"call": st.fixed_dictionaries({"tool": st.just("look"), "arguments": anything})})


@given(
    steps=st.lists(rough_steps | rough_calls | anything, max_size=6), taken=st.lists(st.sampled_from(["s1", "s2", "a"]))
)
def test_any_list_of_steps_becomes_a_plan_that_can_be_run_or_a_problem(steps: list[Any], taken: list[str]):
    try:
        made, remarks = make_plan({"steps": steps}, max_steps=4, taken=taken)
    except ValueError:
        assert steps
        assert not any(isinstance(step, dict) for step in steps)
        return
    ids = [step.id for step in made.steps]
    assert len(ids) == len(set(ids)) <= 4
    assert set(ids).isdisjoint(taken)
    assert all(step.description for step in made.steps)
    assert all(isinstance(remark, str) for remark in remarks)
    again, _ = make_plan(json.loads(json.dumps(to_json(made))), max_steps=4)
    assert again.steps == made.steps
