import json
from pathlib import Path
from typing import Any

import pytest

from replan import PlanningAgent, tool
from replan.errors import ConfigError
from replan.events import PlanCreated
from replan.journal import InboxItem
from replan.settings import Planning
from replan.testing import ScriptedModel, call

LOG: list[str] = []


@tool(read_only=True)
def look(key: str) -> str:
    "Look something up."
    if key == "bad":
        raise ValueError("there is no 'bad'")
    LOG.append(key)
    return f"<{key}>"


@tool
def send(to: str, text: str) -> str:
    "Send a message."
    LOG.append(f"{to}: {text}")
    return "sent"


@pytest.fixture(autouse=True)
def _fresh_log():
    LOG.clear()


def step(ident: str, name: str, *needs: str, **arguments: Any) -> dict[str, Any]:
    call = {"tool": name, "arguments": arguments}
    return {"id": ident, "description": f"{name} {ident}", "call": call, "depends_on": list(needs)}


def plan(*steps: dict[str, Any]) -> str:
    return json.dumps({"thought": "t", "steps": steps})


class Reviewer:
    """Answers plan reviews with what was prepared, and keeps what it was shown."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.shown = list(answers), list[Any]()

    async def __call__(self, item: InboxItem) -> Any:
        self.shown.append(item.body)
        return self.answers.pop(0)


def agent(*replies: Any, review: Any = "always", by: Reviewer | None = None, **options: Any) -> PlanningAgent[Any]:
    planning = Planning(review=review, review_with=by, step_kinds=options.pop("kinds", ("direct", "open")))
    model = options.pop("model", None) or ScriptedModel(*replies, otherwise="The answer.")
    return PlanningAgent(model, tools=[look, send], planning=planning, **options)


PLAN = plan(step("a", "look", key="x"), step("b", "send", "a", to="Bob", text="${a.result}"))


async def test_an_accepted_plan_is_run_and_its_writes_need_no_more():
    by = Reviewer({"decision": "accept"})
    result = await agent(PLAN, by=by).run("Tell Bob of x.")
    assert (LOG, result.status) == (["x", "Bob: <x>"], "complete")
    (shown,) = by.shown
    assert [s["id"] for s in shown["plan"]["steps"]] == ["a", "b"]
    assert (shown["goal"], shown["price"]["tool_calls"]) == ("Tell Bob of x.", [2, 2])


async def test_nothing_runs_before_the_answer_and_a_plain_no_ends_the_run():
    by = Reviewer({"decision": "reject", "reason": ""})
    result = await agent(PLAN, by=by).run("Tell Bob of x.")
    assert (LOG, result.status, result.stop_reason) == ([], "stopped", "plan-rejected")


async def test_a_reason_goes_to_the_planner_and_the_next_plan_is_shown():
    by = Reviewer({"decision": "reject", "reason": "look up y"}, {"decision": "accept"})
    model = ScriptedModel(PLAN, plan(step("a", "look", key="y")), otherwise="The answer.")
    result = await agent(model=model, by=by).run("Tell Bob of x.")
    assert (LOG, result.status) == (["y"], "complete")
    assert "rejected it: look up y" in model.requests[1].conversation.messages[-1].content[0].text


async def test_an_edited_plan_is_checked_and_run():
    edited = json.loads(plan(step("a", "look", key="z"), step("b", "send", "a", to="Ann", text="hi")))
    events: list[Any] = []
    result = await agent(PLAN, by=Reviewer({"decision": "edit", "plan": edited}), on_event=events.append).run("Go.")
    assert LOG == ["z", "Ann: hi"]
    assert result.plan is not None
    assert [e.plan["steps"][0]["call"]["arguments"] for e in events if isinstance(e, PlanCreated)] == [{"key": "z"}]


async def test_an_edited_plan_that_cannot_be_run_is_shown_again_with_why():
    broken = {"steps": [step("a", "nowhere_near", key="z")]}
    by = Reviewer({"decision": "edit", "plan": broken}, {"decision": "accept"})
    await agent(PLAN, by=by).run("Go.")
    assert "nowhere_near" in by.shown[1]["reason"]
    assert LOG == ["x", "Bob: <x>"]


async def test_plans_that_only_read_are_not_shown_where_writes_are_asked_for():
    by = Reviewer()
    await agent(plan(step("a", "look", key="x")), review="writes", by=by).run("Go.")
    assert (LOG, by.shown) == (["x"], [])


async def test_a_write_that_nobody_planned_is_asked_for_with_the_difference():
    asked: list[InboxItem] = []

    async def allow(item: InboxItem) -> Any:
        asked.append(item)
        return {"decision": "allow" if item.body["arguments"]["to"] == "Ann" else "deny", "reason": "not him"}

    model = ScriptedModel(
        plan({"id": "a", "description": "tell them", "suggested_tools": ["look"]}),
        [call("send", to="Bob", text="1"), call("send", to="Ann", text="2")],
        "told Ann",
        otherwise="The answer.",
    )
    result = await agent(model=model, by=Reviewer({"decision": "accept"}), answerer=allow).run("Go.")
    assert LOG == ["Ann: 2"]
    assert asked[0].name == "approval"
    assert asked[0].body["difference"] == "'send' is not in the plan"
    assert "Denied: not him" in result.trace[0].calls[0].output


async def test_a_planned_write_with_other_arguments_is_asked_for():
    asked: list[InboxItem] = []

    async def deny(item: InboxItem) -> Any:
        asked.append(item)

    model = ScriptedModel(
        plan(
            {"id": "a", "description": "tell", "suggested_tools": ["look"]}, step("b", "send", "a", to="Bob", text="1")
        ),
        call("send", to="Bob", text="something else"),
        "could not [BLOCKER]",
        '{"mode": "continue", "reason": "r", "steps": []}',
        otherwise="The answer.",
    )
    await agent(model=model, by=Reviewer({"decision": "accept"}), answerer=deny).run("Go.")
    assert "`text` is 'something else', the plan has '1'" in asked[0].body["difference"]


async def test_a_revision_asks_only_for_what_it_adds():
    first = plan(step("a", "look", key="bad"), step("b", "send", "a", to="Bob", text="hi"))
    same = json.dumps({"mode": "revise", "reason": "r", "steps": [step("c", "send", to="Bob", text="hi")]})
    by = Reviewer({"decision": "accept"})
    await agent(first, same, by=by, kinds=("direct",)).run("Go.")
    assert (LOG, len(by.shown)) == (["Bob: hi"], 1)
    LOG.clear()
    more = json.dumps({"mode": "revise", "reason": "r", "steps": [step("c", "send", to="Eve", text="hi")]})
    by = Reviewer({"decision": "accept"}, {"decision": "reject", "reason": "not Eve"})
    result = await agent(first, more, by=by, kinds=("direct",)).run("Go.")
    assert LOG == []
    assert [(o["tool"], o["arguments"]["to"]) for o in by.shown[1]["outside"]] == [("send", "Eve")]
    assert result.status == "complete"


async def test_where_nobody_can_answer_a_plan_is_not_run():
    result = await agent(PLAN).run("Go.")
    assert (LOG, result.status, result.stop_reason) == ([], "stopped", "plan-rejected")


async def test_a_review_is_answered_from_outside_and_the_run_goes_on(tmp_path: Path):
    async with agent(PLAN, unattended="wait", journal=tmp_path / "runs.db") as first:
        paused = await first.run("Go.", run_id="r")
    assert (LOG, paused.status) == ([], "paused")
    async with agent(unattended="wait", journal=tmp_path / "runs.db") as second:
        (item,) = await second.inbox("r")
        assert (item.name, item.body["plan"]["steps"][1]["id"]) == ("plan-review", "b")
        await second.answer("r", item.key, {"decision": "accept"})
        result = await second.resume("r")
    assert (LOG, result.status) == (["x", "Bob: <x>"], "complete")


async def test_problems_of_a_plan_go_back_to_the_planner_once():
    wrong = plan(step("a", "look", key="x"), step("b", "send", to="${zz.result}", text="t"))
    model = ScriptedModel(wrong, wrong, call("send", to="Bob", text="t"), "sent", otherwise="The answer.")
    await agent(model=model, review="never", kinds=("direct", "bound", "open")).run("Go.")
    assert "zz" in model.requests[1].conversation.messages[-1].content[0].text
    assert sum(request.output is not None and request.output.name == "plan" for request in model.requests) == 2


async def test_a_given_plan_is_refused_with_all_that_is_wrong():
    with pytest.raises(ConfigError, match=r"nowhere_near.*"):
        await agent(review="never").run("Go.", plan={"steps": [step("a", "nowhere_near", key="z")]})
    with pytest.raises(ConfigError, match="steps"):
        await agent(review="never").run("Go.", plan={"stages": []})
