import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replan import Limits, ModelSettings, Planning, PlanningAgent, Stages, StepResult, ToolError, Usage, tool, user
from replan.errors import AuthError, BadResponse, ConfigError, Overloaded, ReplanError, RunFailed
from replan.events import (
    BudgetExceeded,
    Error,
    Log,
    PlanCreated,
    PlanRevised,
    PlanStepAdded,
    PlanThoughtDelta,
    ReplanDecision,
    RevisionsExceeded,
    StepComplete,
    StepStart,
)
from replan.messages import Assistant, Refusal, Text, ToolCall
from replan.model import Done, ModelRequest
from replan.testing import ScriptedModel, call

Make = Callable[..., Any]


@tool(read_only=True)
async def look(key: str) -> str:
    "Look up a key."
    if key.startswith("bad"):
        raise ToolError(f"there is no key like {key}")
    return f"value of {key}"


@tool(read_only=True)
async def other() -> str:
    "Another way."
    return "other value"


def direct(key: str) -> dict[str, Any]:
    return {"description": f"look up {key}", "call": {"tool": "look", "arguments": {"key": key}}}


def decision(mode: str, reason: str = "because") -> str:
    return json.dumps({"reason": reason, "mode": mode, "steps": []})


def decisions(made: Any) -> list[tuple[str, str, str]]:
    return [(e.mode, e.reason, e.cause) for e in made.of(ReplanDecision)]


REFUSALS: list[tuple[Any, str, str]] = [
    ([Refusal("I will not.")], "refusal", "I will not."),
    (Done(Assistant((Refusal("I will not."),)), Usage(), "stop"), "refusal", "I will not."),
    (Done(Assistant(()), Usage(), "refusal"), "refusal", ""),
    (Done(Assistant(()), Usage(), "content_filter"), "content-filter", ""),
    (Done(Assistant((Text("I can only"),)), Usage(), "content_filter"), "content-filter", "I can only"),
]


async def test_a_goal_is_planned_executed_and_answered(cast: Make, plan_of: Make, prompt_of: Make):
    made = cast(
        [plan_of(direct("a"), "sum it up", thought="Two steps.")], ["It is a."], ["The value is a."], tools=[look]
    )
    result = await made.run("What is a?", history=[user("Hi."), Assistant((Text("Hello."),))])
    assert made.kinds() == [
        "run.start", "usage", "plan.created",
        "step.start", "step.tool-call", "step.tool-result", "step.complete", "replan.decision",
        "step.start", "usage", "step.complete", "replan.decision",
        "usage", "final", "run.complete",
    ]  # fmt: skip
    assert (result.text, result.status, result.iterations, result.revisions) == ("The value is a.", "complete", 2, 0)
    assert (result.plan.thought, [s.id for s in result.plan.steps]) == ("Two steps.", ["s1", "s2"])
    assert [(step.summary, step.blocked) for step in result.trace] == [("value of a", False), ("It is a.", False)]
    assert result.messages == [
        user("Hi."), Assistant((Text("Hello."),)), user("What is a?"), Assistant((Text("The value is a."),))
    ]  # fmt: skip
    assert prompt_of(made.planner.requests[0]) == (
        "Conversation so far:\nUser: Hi.\nAssistant: Hello.\n\nGoal: What is a?"
    )
    assert "User: Hi." in prompt_of(made.synthesizer.requests[0])
    assert "value of a" in prompt_of(made.synthesizer.requests[0])
    assert decisions(made) == [
        ("continue", "the step worked", "clean-step"), ("finish", "the plan is done", "last-step")
    ]  # fmt: skip


async def test_the_plan_is_told_while_it_is_written_and_then_as_a_whole(cast: Make, plan_of: Make):
    made = cast([plan_of(direct("a"), "then", thought="First this then that.")], ["ok"], tools=[look])
    await made.run()
    told = [e for e in made.events if isinstance(e, (PlanThoughtDelta, PlanStepAdded, PlanCreated))]
    names = [type(e).__name__ for e in told]
    assert names == sorted(names, key=["PlanThoughtDelta", "PlanStepAdded", "PlanCreated"].index)
    assert "".join(e.delta for e in told if isinstance(e, PlanThoughtDelta)) == "First this then that."
    assert [(e.index, e.id, e.description) for e in told if isinstance(e, PlanStepAdded)] == [
        (0, "s1", "look up a"),
        (1, "s2", "then"),
    ]
    assert told[-1].plan["thought"] == "First this then that."
    assert told[-1].fallback is False


async def test_a_plan_without_steps_is_answered_at_once(cast: Make, plan_of: Make, prompt_of: Make):
    made = cast([plan_of()], synthesizer=["Hello!"])
    result = await made.run("Say hello.")
    assert (result.text, result.status, result.trace, result.iterations) == ("Hello!", "complete", (), 0)
    assert prompt_of(made.synthesizer.requests[0]) == "Goal: Say hello."


CUT = Done(Assistant((Text('{"thought": "t", "steps": [{"desc'),)), Usage(), "length")


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ([Overloaded("too busy")], "too busy"),
        ([BadResponse("not JSON")], "not JSON"),
        ([ZeroDivisionError("oops")], "ZeroDivisionError: oops"),
        (["I would look it up.", "Really."], "it holds no JSON"),
        (['{"steps": 5}', '{"steps": ["x"]}'], "is an object"),
        ([CUT], "length"),
        ([""] * 2, "Your reply was empty"),
    ],
)
async def test_a_planner_that_fails_is_replaced_by_the_goal_as_one_step(
    cast: Make, replies: list[Any], words: str, prompt_of: Make
):
    made = cast(replies, [call("look", key="a"), "It is a."], tools=[look])
    result = await made.run("What is a?")
    [created] = made.of(PlanCreated)
    assert created.fallback
    assert [s["description"] for s in created.plan["steps"]] == ["What is a?"]
    assert (result.text, result.status) == ("The answer.", "complete")
    assert result.trace[0].summary == "It is a."
    [error] = made.of(Error)
    assert (error.phase, error.kind) == ("plan", "PlannerFailed")
    assert words in error.message
    assert made.planner.remaining == 0


async def test_a_planner_whose_first_plan_is_no_plan_is_asked_again(cast: Make, plan_of: Make):
    made = cast(["I would look.", plan_of(direct("a"))], tools=[look])
    await made.run()
    assert made.of(PlanCreated)[0].fallback is False
    assert made.of(Error) == []
    last = made.planner.requests[1].conversation.messages[-1]
    assert last == user("Your reply is not a plan: it holds no JSON. Reply again with only the corrected JSON.")


@pytest.mark.parametrize("error", [AuthError("no key"), ConfigError("the engine is not installed")])
async def test_what_would_fail_every_call_fails_the_run_at_once(cast: Make, error: Exception):
    made = cast([error])
    with pytest.raises(type(error), match=str(error)) as caught:
        await made.run()
    assert made.of(PlanCreated) == []
    assert [(e.phase, e.kind) for e in made.of(Error)] == [("plan", type(error).__name__)]
    assert caught.value.result.messages == [user("Reach the goal.")]


async def test_unknown_tools_in_a_plan_are_dropped_with_a_warning(cast: Make, plan_of: Make):
    steps = [{"description": "one", "suggested_tools": ["look", "nothing"]}, {**direct("a"), "call": {"tool": "no"}}]
    made = cast([plan_of(*steps)], ["ok", "ok"], tools=[look])
    await made.run()
    assert [e.level for e in made.of(Log)] == ["warning", "warning"]
    created = made.of(PlanCreated)[0].plan["steps"]
    assert created[0]["suggested_tools"] == ["look"]
    assert created[1] == {"id": "s2", "description": "look up a", "requires_tools": True}


async def test_a_plan_is_cut_to_the_allowed_number_of_steps(cast: Make, plan_of: Make, revision_of: Make):
    made = cast(
        [plan_of(direct("bad"), *"bcdef"), revision_of("x", "y", "z", "u")],
        ["no [BLOCKER]", "ok", "ok", "ok"],
        tools=[look],
        limits=Limits(max_plan_steps=3),
    )
    result = await made.run()
    assert [s["description"] for s in made.of(PlanCreated)[0].plan["steps"]] == ["look up bad", "b", "c"]
    assert [s["description"] for s in made.of(PlanRevised)[0].plan["steps"]] == ["x", "y", "z"]
    assert [step.step.description for step in result.trace] == ["look up bad", "x", "y", "z"]
    assert Limits().max_plan_steps == 8


# ---- replanning


async def test_a_failed_step_is_put_to_the_replanner_and_a_revision_replaces_the_rest(
    cast: Make, plan_of: Make, revision_of: Make, prompt_of: Make
):
    made = cast(
        [
            plan_of(direct("a"), direct("bad"), direct("c"), thought="t"),
            revision_of(direct("${s1.result}"), reason="use a"),
        ],
        ["no such key [BLOCKER]"],
        tools=[look],
    )
    result = await made.run()
    assert [(s.step.id, s.step.description) for s in result.trace][2] == ("s4", "look up ${s1.result}")
    assert result.trace[2].calls[0].arguments == {"key": "value of a"}
    assert (result.revisions, result.plan.revision, result.iterations) == (1, 1, 3)
    [revised] = made.of(PlanRevised)
    assert (revised.reason, [s["id"] for s in revised.plan["steps"]]) == ("use a", ["s4"])
    assert decisions(made) == [
        ("continue", "the step worked", "clean-step"),
        ("revise", "use a", "llm-decision"),
        ("finish", "the plan is done", "last-step"),
    ]
    assert "- s3: look up c" in prompt_of(made.planner.requests[1])
    assert "no such key" in prompt_of(made.planner.requests[1])


async def test_the_replanner_may_let_the_plan_go_on(cast: Make, plan_of: Make):
    made = cast(
        [plan_of(direct("bad"), direct("b")), decision("continue", "not needed")], ["no [BLOCKER]"], tools=[look]
    )
    result = await made.run()
    assert [s.ok for s in result.trace] == [False, True]
    assert decisions(made)[0] == ("continue", "not needed", "llm-decision")
    assert made.of(PlanRevised) == []


async def test_the_replanner_may_finish_and_the_answer_says_what_was_left(cast: Make, plan_of: Make, prompt_of: Make):
    made = cast([plan_of(direct("bad"), direct("b")), decision("finish", "no data")], ["no [BLOCKER]"], tools=[look])
    result = await made.run()
    assert (len(result.trace), result.status) == (1, "complete")
    assert decisions(made) == [("finish", "no data", "llm-decision")]
    prompt = prompt_of(made.synthesizer.requests[0])
    assert "[FAILED]" in prompt
    assert "Not done:\n- look up b (no data)" in prompt


async def test_after_the_last_step_nobody_is_asked(cast: Make, plan_of: Make):
    for planning in (Planning(), Planning(replan_after="always")):
        made = cast([plan_of(direct("bad"))], ["no [BLOCKER]"], tools=[look], planning=planning)
        await made.run()
        assert len(made.planner.requests) == 1
        assert decisions(made) == [("finish", "the plan is done", "last-step")]


async def test_a_tool_that_stayed_failed_is_a_failure_and_one_that_recovered_is_not(cast: Make, plan_of: Make):
    stayed = cast(
        [plan_of("look around", "then"), decision("continue")], [call("look", key="bad"), "nothing", "ok"], tools=[look]
    )
    result = await stayed.run()
    assert (result.trace[0].blocked, result.trace[0].ok) == (False, False)
    assert decisions(stayed)[0][2] == "llm-decision"
    recovered = cast(
        [plan_of("look around", "then")], [call("look", key="bad"), call("look", key="a"), "found", "ok"], tools=[look]
    )
    result = await recovered.run()
    assert result.trace[0].ok
    assert decisions(recovered)[0][2] == "clean-step"


async def test_the_replanner_can_be_asked_after_every_step(cast: Make, plan_of: Make, prompt_of: Make):
    made = cast(
        [plan_of(direct("a"), direct("b"), direct("c")), decision("continue"), decision("finish", "enough")],
        tools=[look],
        planning=Planning(replan_after="always"),
    )
    result = await made.run()
    assert len(result.trace) == 2
    assert [d[2] for d in decisions(made)] == ["llm-decision"] * 2
    assert "did not work" not in prompt_of(made.planner.requests[1])


async def slowly(result: StepResult) -> bool:
    await asyncio.Event().wait()
    return True


def broken(result: StepResult) -> bool:
    raise RuntimeError("no")


async def async_broken(result: StepResult) -> bool:
    raise RuntimeError("no")


async def yes(result: StepResult) -> bool:
    return result.summary == "value of a"


@pytest.mark.parametrize(
    ("trigger", "asked_after"),
    [
        (lambda result: result.step.id == "s1", ["s1"]),
        (lambda result: False, []),
        (lambda result: "yes", ["s1", "s2"]),
        (yes, ["s1"]),
        (broken, ["s2"]),
        (async_broken, ["s2"]),
        (slowly, ["s2"]),
    ],
)
async def test_a_function_of_the_users_decides_when_to_ask_and_failing_it_failures_do(
    cast: Make, plan_of: Make, trigger: Any, asked_after: list[str]
):
    made = cast(
        [plan_of(direct("a"), direct("bad"), direct("c")), decision("continue"), decision("continue")],
        ["no [BLOCKER]"],
        tools=[look],
        planning=Planning(replan_after=trigger),
        settings=ModelSettings(timeout=0.02),
    )
    result = await made.run()
    causes = dict(zip([s.step.id for s in result.trace], [d[2] for d in decisions(made)], strict=True))
    assert [step for step, cause in causes.items() if cause == "llm-decision"] == asked_after
    assert len(result.trace) == 3


@pytest.mark.parametrize("replies", [[Overloaded("busy")], ["hm", "hm"], [CUT], [[Refusal("no")]]])
async def test_a_replanner_that_fails_lets_the_plan_go_on(cast: Make, plan_of: Make, replies: list[Any]):
    made = cast([plan_of(direct("bad"), direct("b")), *replies], ["no [BLOCKER]"], tools=[look])
    result = await made.run()
    assert (len(result.trace), result.status) == (2, "complete")
    assert decisions(made)[0] == ("continue", "no decision", "llm-decision")
    assert made.planner.remaining == 0


async def test_a_replanner_without_access_fails_the_run(cast: Make, plan_of: Make):
    made = cast([plan_of(direct("bad"), direct("b")), AuthError("no key")], ["no [BLOCKER]"], tools=[look])
    with pytest.raises(AuthError) as caught:
        await made.run()
    assert [e.phase for e in made.of(Error)] == ["replan"]
    assert len(caught.value.result.trace) == 1


# ---- never without end


async def test_a_replanner_that_always_wants_one_more_step_is_stopped(
    cast: Make, plan_of: Make, revision_of: Make, prompt_of: Make
):
    made = cast([plan_of(direct("bad"), "last")], tools=[look])
    made.planner = ScriptedModel(
        plan_of(direct("bad0"), "last"),
        otherwise=lambda request: revision_of(direct(f"bad{len(made.planner.requests)}"), "last"),
    )
    made.executor = ScriptedModel(otherwise="no [BLOCKER]")
    result = await made.run()
    assert result.revisions == 2
    assert len(result.trace) == 3
    assert made.of(RevisionsExceeded) == [RevisionsExceeded(run_id=result.run_id, cap=2)]
    assert decisions(made)[-1] == ("finish", "the plan was revised 2 times", "llm-decision")
    assert "- last (the plan was revised 2 times)" in prompt_of(made.synthesizer.requests[0])
    assert result.text == "The answer."


@pytest.mark.parametrize("cap", [0, 1])
async def test_the_number_of_revisions_is_limited(cast: Make, plan_of: Make, revision_of: Make, cap: int):
    revisions = [revision_of(direct(f"bad{n}"), "last") for n in range(1, 4)]
    made = cast(
        [plan_of(direct("bad0"), "last"), *revisions],
        ["no [BLOCKER]"] * 4,
        tools=[look],
        limits=Limits(max_revisions=cap),
    )
    result = await made.run()
    assert (result.revisions, made.of(RevisionsExceeded)[0].cap) == (cap, cap)


@pytest.mark.parametrize(
    ("revised", "reason"),
    [
        (["FIND it ", "last"], "the revised plan was no different"),
        ([direct("bad")], "the revised plan has no steps"),
        ([], "the revised plan has no steps"),
    ],
)
async def test_a_revision_that_changes_nothing_ends_the_steps(
    cast: Make, plan_of: Make, revision_of: Make, prompt_of: Make, revised: list[Any], reason: str
):
    first = direct("bad") if revised[:1] != ["FIND it "] else "find it"
    made = cast([plan_of(first, "last"), revision_of(*revised)], ["no [BLOCKER]"], tools=[look])
    result = await made.run()
    assert (result.revisions, len(result.trace)) == (0, 1)
    assert decisions(made)[-1] == ("finish", reason, "llm-decision")
    assert f"- last ({reason})" in prompt_of(made.synthesizer.requests[0])


async def test_a_call_that_failed_is_not_planned_again(cast: Make, plan_of: Make, revision_of: Make):
    made = cast(
        [plan_of(direct("bad"), "last"), revision_of(direct("bad"), "last")], ["no [BLOCKER]", "ok"], tools=[look]
    )
    result = await made.run()
    assert [s.step.description for s in result.trace] == ["look up bad", "last"]
    assert result.tool_calls == 1


async def test_a_call_that_needs_a_failed_step_is_not_made(cast: Make, plan_of: Make, prompt_of: Make):
    steps = [
        direct("bad"),
        {"description": "fill in", "call": {"tool": "look", "arguments": None}},
        {"description": "refer", "call": {"tool": "look", "arguments": {"key": "${s1.result}"}}},
        direct("a"),
        {"description": "fill in too", "call": {"tool": "look", "arguments": None}},
    ]
    made = cast([plan_of(*steps), decision("continue")], ["no such key", '{"key": "b"}'], tools=[look])
    result = await made.run()
    assert [(s.needs, s.blocked) for s in result.trace] == [
        (None, False), ("s1", True), ("s1", True), (None, False), (None, False)
    ]  # fmt: skip
    assert [call.arguments["key"] for s in result.trace for call in s.calls] == ["bad", "a", "b"]
    assert len(made.planner.requests) == 2
    assert "Not run: it needs the result of step s1, which failed." in prompt_of(made.synthesizer.requests[0])


async def test_a_step_that_found_another_way_is_no_failed_need(cast: Make, plan_of: Make):
    steps = [
        "find it",
        {"description": "refer", "call": {"tool": "look", "arguments": {"key": "${s1.result}"}}},
    ]
    made = cast(
        [plan_of(*steps), decision("continue")],
        [[call("look", key="bad"), call("other")], "found"],
        tools=[look, other],
    )
    result = await made.run()
    assert result.trace[0].failed_tools == ["look"]
    assert result.trace[1].calls[0].arguments == {"key": "found"}


async def test_steps_that_depend_on_themselves_or_on_each_other_still_run_once(cast: Make, plan_of: Make):
    steps = [
        {**direct("a"), "depends_on": ["s1"]},
        {**direct("b"), "depends_on": ["s3"]},
        {**direct("c"), "depends_on": ["s2", "nothing"]},
    ]
    made = cast([plan_of(*steps)], tools=[look])
    result = await made.run()
    assert [s.summary for s in result.trace] == ["value of a", "value of b", "value of c"]
    assert result.status == "complete"


async def test_the_same_open_step_with_other_tools_is_another_plan(cast: Make, plan_of: Make, revision_of: Make):
    again = {"description": "find it", "suggested_tools": ["look"]}
    made = cast([plan_of("find it", "last"), revision_of(again, "last")], ["no [BLOCKER]", "found", "ok"], tools=[look])
    assert (await made.run()).revisions == 1
    same = cast([plan_of("find it", "last"), revision_of(" Find IT", "last")], ["no [BLOCKER]"], tools=[look])
    assert (await same.run()).revisions == 0


async def test_the_number_of_steps_is_limited_and_the_answer_says_what_is_missing(
    cast: Make, plan_of: Make, prompt_of: Make
):
    made = cast([plan_of(direct("a"), direct("b"), direct("c"))], tools=[look], limits=Limits(max_iterations=2))
    result = await made.run()
    assert (result.iterations, result.status, result.stop_reason) == (2, "stopped", "limit")
    assert made.of(BudgetExceeded) == [BudgetExceeded(run_id=result.run_id, kind="iterations", tokens=2, cap=2)]
    assert prompt_of(made.synthesizer.requests[0]).endswith("Not done:\n- look up c (the limit of 2 steps was reached)")
    assert result.text == "The answer."


@pytest.mark.parametrize("where", ["plan", "step"])
async def test_a_token_limit_ends_the_steps_but_not_the_answer(cast: Make, plan_of: Make, prompt_of: Make, where: str):
    cap = 110 if where == "plan" else 200
    made = cast(
        [plan_of("one", "two")], [call("look", key="a"), "done"], tools=[look], limits=Limits(max_total_tokens=cap)
    )
    result = await made.run()
    assert (result.status, result.stop_reason, result.text) == ("stopped", "limit", "The answer.")
    assert [(e.kind, e.cap) for e in made.of(BudgetExceeded)] == [("total", cap)]
    assert len(made.executor.requests) == (0 if where == "plan" else 1)
    assert f"- two (the limit of {cap} total tokens was reached)" in prompt_of(made.synthesizer.requests[0])
    if where == "step":
        assert (result.trace[0].blocked, result.trace[0].calls[0].ok) == (True, True)


async def test_at_a_limit_the_replanner_is_not_asked_any_more(cast: Make, plan_of: Make):
    made = cast([plan_of(direct("bad"), "two")], ["no [BLOCKER]"], tools=[look], limits=Limits(max_total_tokens=220))
    result = await made.run()
    assert (result.stop_reason, len(made.planner.requests)) == ("limit", 1)


async def test_a_limit_that_is_crossed_by_the_last_step_stops_nothing(cast: Make, plan_of: Make):
    made = cast([plan_of("one")], ["done"], limits=Limits(max_total_tokens=220))
    result = await made.run()
    assert (result.status, made.of(BudgetExceeded)) == ("complete", [])


# ---- refusals


@pytest.mark.parametrize(("reply", "reason", "text"), REFUSALS)
async def test_a_planner_that_refuses_ends_the_run_with_its_words(cast: Make, reply: Any, reason: str, text: str):
    made = cast([reply])
    result = await made.run()
    assert (result.status, result.stop_reason, result.text) == ("stopped", reason, text)
    assert len(made.planner.requests) == 1
    assert made.executor.requests == made.synthesizer.requests == []
    assert made.kinds()[-2:] == ["final", "run.complete"]
    assert made.of(PlanCreated) == []


@pytest.mark.parametrize(("reply", "reason", "text"), REFUSALS)
async def test_a_synthesizer_that_refuses_ends_the_run_with_its_words(
    cast: Make, plan_of: Make, reply: Any, reason: str, text: str
):
    made = cast([plan_of("one")], ["done"], [reply], output_type=int)
    result = await made.run()
    assert (result.status, result.stop_reason, result.text, result.output) == ("stopped", reason, text, None)
    assert len(made.synthesizer.requests) == 1
    assert len(result.trace) == 1


async def test_a_step_whose_model_refuses_is_blocked_and_the_plan_goes_on(cast: Make, plan_of: Make):
    made = cast([plan_of("one", "two"), decision("continue")], [[Refusal("I will not.")], "done"])
    result = await made.run()
    assert [(s.summary, s.blocked) for s in result.trace] == [("I will not.", True), ("done", False)]


async def test_a_cut_answer_is_given_as_what_there_is(cast: Make, plan_of: Make):
    made = cast([plan_of()], [], [Done(Assistant((Text("The first half"),)), Usage(), "length")])
    result = await made.run()
    assert (result.status, result.stop_reason, result.text) == ("stopped", "length", "The first half")


async def test_a_synthesizer_that_fails_fails_the_run_with_the_trace(cast: Make, plan_of: Make):
    made = cast([plan_of(direct("a"))], [], [Overloaded("busy")], tools=[look])
    with pytest.raises(Overloaded) as caught:
        await made.run()
    assert [s.summary for s in caught.value.result.trace] == ["value of a"]
    assert caught.value.result.plan.steps[0].id == "s1"
    assert [e.phase for e in made.of(Error)] == ["synthesize"]


async def test_usage_that_is_estimated_counts_for_limits_and_stays_marked(cast: Make, plan_of: Make):
    made = cast([plan_of("one", "two")], ["done"], limits=Limits(max_input_tokens=150))
    made.executor = ScriptedModel("done", usage=Usage(input_tokens=50, estimated=True))
    result = await made.run()
    assert (result.stop_reason, result.iterations, result.usage.estimated) == ("limit", 1, True)


# ---- whatever happens

steps = st.one_of(
    st.sampled_from(["a", "b", "bad"]).map(direct),
    st.just({"description": "open"}),
    st.just({"description": "bound", "call": {"tool": "look", "arguments": None}}),
    st.just({"description": "refers", "call": {"tool": "look", "arguments": {"key": "${s1.result}"}}}),
    st.just({"description": "unknown", "call": {"tool": "nothing", "arguments": {}}}),
    st.just("no step"),
)
plans = st.lists(steps, max_size=4).map(lambda some: json.dumps({"thought": "t", "steps": some}))
revisions = st.lists(steps, max_size=3).map(lambda some: json.dumps({"mode": "revise", "reason": "r", "steps": some}))
odd = st.sampled_from(["", "text", Overloaded("busy"), CUT, [Refusal("no")], RunFailed("broke")])
planner_replies = st.lists(plans | revisions | odd | st.just(decision("continue")), max_size=5)
executor_replies = st.lists(
    st.one_of(
        st.sampled_from(["done", "no [BLOCKER]", '{"key": "a"}', '{"key": "bad"}', ""]),
        st.lists(
            st.sampled_from(["a", "bad"]).map(lambda key: ToolCall("", "look", {"key": key})), min_size=1, max_size=3
        ),
        odd,
    ),
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(planner=planner_replies, executor=executor_replies, stop=st.none() | st.integers(0, 80), step=st.booleans())
def test_a_planning_run_always_ends_in_order(planner: list[Any], executor: list[Any], stop: int | None, step: bool):
    seen: list[Any] = []

    def reply(request: ModelRequest) -> str:
        name = request.output.name if request.output else ""
        return {"plan": '{"steps": []}', "decision": decision("finish"), "arguments": '{"key": "a"}'}.get(name, "ok")

    async def main() -> None:
        models = Stages(
            planner=ScriptedModel(*planner, otherwise=reply),
            executor=ScriptedModel(*executor, otherwise=reply),
            synthesizer=ScriptedModel(otherwise=reply),
        )
        agent = PlanningAgent(models=models, tools=[look], limits=Limits(max_iterations=6), on_event=seen.append)
        async with agent, agent.start("go") as run:
            for _ in range(stop or 0):
                await asyncio.sleep(0)
            if stop is not None:
                run.cancel_step("s1") if step else run.cancel()
            try:
                result = await run.result()
            except ReplanError as error:
                result = error.result
            assert len(result.trace) <= 6
            assert len({s.step.id for s in result.trace}) == len(result.trace)
        again = PlanningAgent(ScriptedModel('{"steps": []}', "fine"))
        assert (await again.run("and now?", history=result.messages)).text == "fine"

    asyncio.run(main())
    started = [e.step_id for e in seen if isinstance(e, StepStart)]
    completed = [e.step_id for e in seen if isinstance(e, StepComplete)]
    assert set(completed) <= set(started)
    assert len(set(started)) == len(started)
    assert len(set(completed)) == len(completed)
    assert seen[-1].__struct_config__.tag == "run.complete"
