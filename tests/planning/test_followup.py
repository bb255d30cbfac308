from typing import Any

import pytest

from replan import PlanningAgent, tool
from replan.model import ModelProfile
from replan.planning import Plan, PlannedCall, Step, StepResult, ToolUse
from replan.planning.followup import follow_up
from replan.testing import ScriptedModel

TOOLS = {"person": {}}
ANN = {"name": "Ann Lee", "phone": 1234, "manager": "Bo Dahl", "home_town": "Oslo"}
BO = {"name": "Bo Dahl", "phone": 5678, "manager": "Cy Moe", "home_town": "Bergen"}


def found(ident: str, value: Any, *, writes: bool = False, ok: bool = True, **arguments: Any) -> StepResult:
    use = ToolUse("person", arguments, "text", ok, writes)
    return StepResult(
        step=Step(id=ident, description="look"), kind="direct", summary="", calls=(use,), outputs={"result": value}
    )


@pytest.mark.parametrize(
    ("goal", "name"),
    [
        ("What is the phone of Ann Lee's manager?", "Bo Dahl"),
        ("Which phone has the manager of Ann Lee?", "Bo Dahl"),
        ("What is Ann Lee’s manager's phone?", "Bo Dahl"),
        ("Who is Ann Lee's manager?", None),  # the result says it
        ("What is the phone of Ann Lee?", None),
        ("Which phone has Ann Lee, and how is the management?", None),
    ],
)
def test_what_a_result_names_is_looked_up_where_the_goal_asks_on(goal: str, name: str | None):
    step = follow_up(goal, [found("s1", ANN, name="Ann Lee")], TOOLS, ["s1"])
    assert (step and step.call) == (name and PlannedCall("person", {"name": name}))
    if step:
        assert (step.id, step.depends_on) == ("s2", ("s1",))


def test_a_chain_is_followed_as_often_as_the_goal_says():
    trace = [found("s1", ANN, name="Ann Lee"), found("s2", BO, name="Bo Dahl")]
    assert follow_up("the phone of Ann Lee's manager", trace, TOOLS, ["s1", "s2"]) is None
    again = follow_up("the phone of Ann Lee's manager's manager", trace, TOOLS, ["s1", "s2"])
    assert again
    assert again.call == PlannedCall("person", {"name": "Cy Moe"})


@pytest.mark.parametrize(
    "result",
    [
        found("s1", ANN, writes=True, name="Ann Lee"),
        found("s1", ANN, ok=False, name="Ann Lee"),
        found("s1", ANN, name="Ann Lee", year="2020"),
        found("s1", ANN, number=5),
        found("s1", "a text", name="Ann Lee"),
        found("s1", {**ANN, "manager": None}, name="Ann Lee"),
    ],
)
def test_only_a_reading_look_up_by_one_name_is_followed(result: StepResult):
    assert follow_up("the phone of Ann Lee's manager", [result], TOOLS, ["s1"]) is None


async def test_a_short_plan_is_completed_and_a_full_one_is_not():
    people = {"Ann Lee": ANN, "Bo Dahl": BO}

    @tool(read_only=True)
    def person(name: str) -> dict[str, Any]:
        "Find a person."
        return people[name]

    plan = (
        '{"thought": "t", "uses": {"person": true}, "steps": [{"description": "Find Ann Lee",'
        ' "call": {"tool": "person", "arguments": {"name": "Ann Lee"}}}]}'
    )

    async def run(*, constrained: bool) -> list[str]:
        model = ScriptedModel(plan, otherwise="5678", profile=ModelProfile(constrained=constrained))
        result = await PlanningAgent(model, tools=[person]).run("What is the phone of Ann Lee's manager?")
        assert isinstance(result.plan, Plan)
        return [use.arguments["name"] for step in result.trace for use in step.calls]

    assert await run(constrained=True) == ["Ann Lee", "Bo Dahl"]
    assert await run(constrained=False) == ["Ann Lee"]
