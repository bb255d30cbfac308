import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from replan import (
    Limits,
    ModelSettings,
    PlanningAgent,
    PlanningResult,
    Stages,
    ToolContext,
    current_run,
    tool,
    user,
)
from replan.errors import ConfigError, RunCancelled
from replan.events import (
    FinalReasoningDelta,
    FinalTextDelta,
    RunComplete,
    StepComplete,
    StepReasoningDelta,
    StepStart,
    StepTextDelta,
)
from replan.journal import MemoryJournal
from replan.messages import Assistant, Text, Thinking, to_json
from replan.testing import ScriptedModel, call

Make = Callable[..., Any]


@tool(read_only=True)
async def look(key: str) -> str:
    "Look up a key."
    return f"value of {key}"


def direct(key: str) -> dict[str, Any]:
    return {"description": f"look up {key}", "call": {"tool": "look", "arguments": {"key": key}}}


GO_ON = json.dumps({"mode": "continue", "reason": "go on", "steps": []})


async def test_each_stage_uses_its_own_model_and_the_replanner_the_planners(cast: Make, plan_of: Make):
    blocked = "no [BLOCKER]"
    made = cast(
        [plan_of("one", {"description": "two", "call": {"tool": "look"}}), GO_ON],
        [blocked, '{"key": "a"}'],
        ["Yes."],
        tools=[look],
    )
    result = await made.run()
    assert [len(m.requests) for m in (made.planner, made.executor, made.synthesizer)] == [2, 1, 1]
    names = {m.name: m.requests for m in (made.planner, made.executor, made.synthesizer)}
    assert set(result.usage_by_model) == set(names)
    assert [r.output.name if r.output else None for r in made.planner.requests] == ["plan", "decision"]


async def test_one_model_serves_all_stages_that_have_none_of_their_own(plan_of: Make):
    model = ScriptedModel(plan_of("one"), "done", name="scripted:all")
    synthesizer = ScriptedModel("Yes.", name="scripted:synthesizer")
    result = await PlanningAgent(model, models=Stages(synthesizer=synthesizer)).run("go")
    assert (len(model.requests), len(synthesizer.requests), result.text) == (2, 1, "Yes.")
    executor = ScriptedModel("done")
    model = ScriptedModel(plan_of("one"), "Yes.")
    await PlanningAgent(model, models=Stages(executor=executor)).run("go")
    assert (len(model.requests), len(executor.requests)) == (2, 1)
    planner = ScriptedModel(plan_of("one"))
    model = ScriptedModel("done", "Yes.")
    await PlanningAgent(model, models=Stages(planner=planner)).run("go")
    assert (len(model.requests), len(planner.requests)) == (2, 1)


async def test_the_users_prompt_is_part_of_the_instructions_of_every_stage(cast: Make, plan_of: Make):
    steps = ["one", {"description": "two", "call": {"tool": "look", "arguments": None}}]
    made = cast(
        [plan_of(*steps), GO_ON],
        [call("look", key="a"), call("nothing"), "hm", '{"key": "b"}'],
        tools=[look],
        system_prompt="Be brief.",
    )
    await made.run()
    requests = [*made.planner.requests, *made.executor.requests, *made.synthesizer.requests]
    assert len({r.instructions for r in requests}) == 5
    assert all(r.instructions.endswith("Be brief.") for r in requests)


async def test_the_stages_are_told_to_go_on_without_the_user(cast: Make, plan_of: Make):
    steps = ["one", "two"]
    made = cast([plan_of(*steps), GO_ON], ["no [BLOCKER]", "done"])
    await made.run()
    planner, replanner = (r.instructions for r in made.planner.requests)
    executor, synthesizer = made.executor.requests[0].instructions, made.synthesizer.requests[0].instructions
    assert "No step asks the user" in planner
    assert "no step that asks the user" in replanner
    assert "Prefer `revise`" in replanner
    assert "never ask the user" in executor
    assert "say in your reply what you assumed" in executor
    assert "[BLOCKER]" in executor
    assert "assumptions" in synthesizer
    assert "Ask the user something only if" in synthesizer


async def test_the_settings_hold_for_every_stage(cast: Make, plan_of: Make):
    settings = ModelSettings(max_output_tokens=99, temperature=0.25, options={"seed": 7})
    made = cast([plan_of("one")], ["done"], settings=settings)
    await made.run()
    for model in (made.planner, made.executor, made.synthesizer):
        [request] = model.requests
        assert (request.max_output_tokens, request.temperature, request.options) == (99, 0.25, {"seed": 7})


async def test_max_turns_limits_each_step_by_itself(cast: Make, plan_of: Make):
    turns = [call("look", key="a"), "done"]
    made = cast([plan_of("one", "two")], [*turns, *turns], tools=[look], limits=Limits(max_turns=2))
    result = await made.run()
    assert [step.ok for step in result.trace] == [True, True]


async def test_the_history_reaches_the_prompts_clipped_and_is_not_changed(cast: Make, plan_of: Make, prompt_of: Make):
    history = [user(f"q{n} " + "x" * 5000) if n % 2 == 0 else Assistant((Text(f"a{n}"),)) for n in range(20)]
    before = [to_json(m) for m in history]
    made = cast([plan_of("one")], ["done"])
    result = await made.run("now?", history=history)
    assert [to_json(m) for m in history] == before
    for request in (made.planner.requests[0], made.executor.requests[0], made.synthesizer.requests[0]):
        prompt = prompt_of(request)
        assert prompt.count("User: q") == prompt.count("Assistant: a") == 4
        assert "x" * 1480 in prompt
        assert "x" * 1501 not in prompt
    assert result.messages[: len(history)] == history
    assert result.messages[-2:] == [user("now?"), Assistant((Text("The answer."),))]


async def test_a_goal_of_a_megabyte_works(cast: Make, plan_of: Make, prompt_of: Make):
    made = cast([plan_of(direct("a"))], tools=[look])
    result = await made.run("y" * 1_000_000)
    assert result.status == "complete"
    assert len(prompt_of(made.planner.requests[0])) > 1_000_000


async def test_later_steps_see_what_was_found_and_not_the_transcripts(cast: Make, plan_of: Make, prompt_of: Make):
    made = cast(
        [plan_of("one", "two")], [["I will look now.", call("look", key="a")], "It is a.", "done"], tools=[look]
    )
    await made.run()
    later = made.executor.requests[2]
    assert len(later.conversation.messages) == 1
    assert "value of a" in prompt_of(later)
    assert "It is a." in prompt_of(later)
    assert "I will look now." not in prompt_of(later)


async def test_texts_and_thoughts_are_streamed_by_stage(cast: Make, plan_of: Make):
    made = cast([plan_of("one")], [[Thinking("hm hm"), "do ne"]], [[Thinking("so"), "The answer."]])
    await made.run()

    def joined(kind: type) -> str:
        return "".join(event.delta for event in made.of(kind))

    assert (joined(StepTextDelta), joined(StepReasoningDelta)) == ("do ne", "hm hm")
    assert (joined(FinalTextDelta), joined(FinalReasoningDelta)) == ("The answer.", "so")
    assert {e.step_id for e in made.of(StepTextDelta)} == {"s1"}


async def test_a_step_can_be_cancelled_as_it_starts_and_the_replanner_is_next(
    cast: Make, plan_of: Make, revision_of: Make
):
    made = cast([plan_of(direct("a"), "two"), revision_of("three")], ["done"], tools=[look])
    started: list[Any] = []

    def on_step_start(event: StepStart, cancel: Callable[[], None]) -> None:
        started.append((event.step_id, event.index, event.kind, event.description))
        if event.step_id == "s1":
            cancel()

    result = await made.agent().run("go", on_step_start=on_step_start)
    assert started == [("s1", 0, "direct", "look up a"), ("s3", 1, "open", "three")]
    assert [(s.blocked, s.cancelled) for s in result.trace] == [(True, True), (False, False)]
    assert result.trace[0].calls[0].ok is False
    assert [(e.step_id, e.blocked) for e in made.of(StepComplete)] == [("s1", True), ("s3", False)]
    assert "did not work" in made.planner.requests[1].conversation.messages[0].content[0].text


@pytest.mark.parametrize("kind", ["open", "bound"])
async def test_a_step_that_talks_to_a_model_can_be_cancelled(cast: Make, plan_of: Make, kind: str):
    asked, left = asyncio.Event(), asyncio.Event()

    async def think(request: Any) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return "never"

    step = {"description": "two", "call": {"tool": "look", "arguments": None}} if kind == "bound" else "two"
    made = cast([plan_of(direct("a"), step, "three"), GO_ON], [think, "done"], tools=[look])
    async with made.agent().start("go") as run:
        await asked.wait()
        run.cancel_step("s2")
        result = await run.result()
    assert left.is_set()
    assert [s.cancelled for s in result.trace] == [False, True, False]
    assert (result.text, result.status) == ("The answer.", "complete")


async def test_step_start_handlers_that_raise_change_nothing(cast: Make, plan_of: Make):
    def broken(*given: Any) -> None:
        raise RuntimeError("handler")

    started: list[str] = []
    made = cast([plan_of(direct("a"))], tools=[look])
    result = await made.agent(on_event=broken).run("go", on_step_start=broken)
    assert result.status == "complete"
    made = cast([plan_of(direct("a"))], tools=[look])
    await made.agent(on_event=broken).run("go", on_step_start=lambda event, cancel: started.append(event.step_id))
    assert started == ["s1"]


async def test_cancelling_the_run_leaves_the_trace_and_a_valid_conversation(cast: Make, plan_of: Make):
    begun = asyncio.Event()

    @tool
    async def stay() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    before = asyncio.all_tasks()
    made = cast(
        [plan_of(direct("a"), {"description": "stay", "call": {"tool": "stay", "arguments": {}}})], tools=[look, stay]
    )
    run = made.agent().start("go", history=[user("before")])
    await begun.wait()
    run.cancel()
    with pytest.raises(RunCancelled) as caught:
        await run
    partial = caught.value.result
    assert isinstance(partial, PlanningResult)
    assert [s.summary for s in partial.trace] == ["value of a"]
    assert (partial.status, partial.iterations, len(partial.plan.steps)) == ("cancelled", 2, 2)
    assert partial.messages == [user("before"), user("go")]
    assert made.of(RunComplete)[0].status == "cancelled"
    assert asyncio.all_tasks() == before


async def test_tools_in_steps_know_their_step_and_their_run(cast: Make, plan_of: Make):
    got: list[Any] = []

    @tool
    async def note(context: ToolContext[Any]) -> str:
        run = current_run()
        assert run is not None
        got.append((context.step_id, context.run_id == run.run_id, context.deps, context.idempotency_key))
        return "ok"

    made = cast(
        [plan_of({"description": "one", "call": {"tool": "note", "arguments": {}}}, "two")],
        [call("note"), "done"],
        tools=[note],
    )
    await made.agent().run("go", deps="d", run_id="r1")
    assert got == [("s1", True, "d", "r1/step/s1/call0"), ("s2", True, "d", "r1/step/s2/open/0/0")]


async def test_runs_of_a_planning_agent_at_the_same_time_are_apart(plan_of: Make, prompt_of: Make):
    both = asyncio.Barrier(2)

    @tool(read_only=True)
    async def meet(name: str) -> str:
        await both.wait()
        return f"met {name}"

    def reply(request: Any) -> str:
        name = prompt_of(request).partition("Goal: ")[2].split()[0]
        if request.output:
            return plan_of({"description": "meet", "call": {"tool": "meet", "arguments": {"name": name}}})
        return f"{name} is done"

    agent = PlanningAgent(ScriptedModel(otherwise=reply), tools=[meet])
    first, second = await asyncio.gather(agent.run("ann"), agent.run("bob"))
    assert (first.text, second.text) == ("ann is done", "bob is done")
    assert (first.trace[0].summary, second.trace[0].summary) == ("met ann", "met bob")
    assert first.usage.model_calls == second.usage.model_calls == 2


async def test_what_a_result_says_is_what_the_journal_keeps(cast: Make, plan_of: Make):
    journal = MemoryJournal()
    made = cast([plan_of("one")], ["done"], ['{"result": [1, 2]}'], output_type=list[int], journal=journal)
    result = await made.agent().run("go", run_id="r1")
    info = await journal.info("r1")
    assert result.output == info.result["output"] == [1, 2]
    assert (info.program, info.status) == ("planning", "complete")
    events = [event for _, event in await journal.events("r1")]
    live = {"step.text-delta", "final.text-delta", "plan.thought-delta", "plan.step-added"}
    assert not live & {event["type"] for event in events}
    assert events[-1] == {"type": "final", "run_id": "r1", "text": '{"result": [1, 2]}', "output": [1, 2]}


async def test_an_agent_without_tools_plans_and_answers(cast: Make, plan_of: Make):
    made = cast([plan_of("write a line")], ["A line."])
    assert (await made.run()).trace[0].summary == "A line."
    assert "There are no tools." in made.planner.requests[0].instructions


async def test_a_planning_agent_can_be_closed_while_it_runs(cast: Make, plan_of: Make):
    asked = asyncio.Event()

    async def think(request: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    made = cast([think])
    async with made.agent() as agent:
        run = agent.start("go")
        await asked.wait()
    with pytest.raises(RunCancelled):
        await run
    with pytest.raises(ConfigError, match="is closed"):
        await agent.run("go")
