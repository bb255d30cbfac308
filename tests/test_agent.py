import asyncio
import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pydantic
import pytest

from replan import (
    Agent,
    Audio,
    File,
    Image,
    Limits,
    ModelSettings,
    Planning,
    PlanningAgent,
    Stages,
    ToolContext,
    attachment,
    tool,
    user,
)
from replan.errors import ConfigError, JournalError, McpError, RunCancelled, RunFailed
from replan.events import Error, FinalOutputDelta
from replan.journal import MemoryJournal
from replan.messages import Assistant, Text, ToolCall, from_json, to_json
from replan.model import Done, ModelRequest
from replan.testing import ScriptedModel, call
from replan.usage import Usage


class Tier(pydantic.BaseModel):
    name: str = pydantic.Field(alias="tierName")
    prices: tuple[int, ...] = ()


@dataclass
class Point:
    x: int
    y: int = 0


class Counted(ScriptedModel):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


@tool
async def look(key: str) -> str:
    "Look up a key."
    return f"value of {key}"


async def hang(begun: asyncio.Event) -> str:
    begun.set()
    await asyncio.Event().wait()
    return "never"


def hanging_agent(begun: asyncio.Event, **options: Any) -> Agent[None]:
    @tool
    async def stay() -> str:
        return await hang(begun)

    return Agent(ScriptedModel(otherwise=call("stay")), tools=[stay], **options)


@pytest.mark.parametrize("goal", ["", "   ", "\n\t"])
async def test_an_empty_goal_is_refused(goal: str):
    for agent in (Agent(ScriptedModel("a")), PlanningAgent(ScriptedModel("a"))):
        with pytest.raises(ConfigError, match="the goal is empty"):
            await agent.run(goal)
        assert agent.active_runs == 0


async def test_a_goal_of_a_megabyte_works():
    goal = "x" * 1_000_000
    model = ScriptedModel("ok")
    result = await Agent(model).run(goal)
    assert model.requests[0].conversation.messages == [user(goal)]
    assert result.messages[0] == user(goal)


async def test_a_goal_with_a_lone_surrogate_is_made_writable():
    model = ScriptedModel("ok")
    await Agent(model).run("a\ud800")
    assert model.requests[0].conversation.messages == [user("a\ufffd")]


async def test_a_history_goes_before_the_goal_and_is_not_changed():
    history = [user("one"), Assistant((Text("two"),))]
    kept = list(history)
    model = ScriptedModel("ok")
    result = await Agent(model).run("three", history=history)
    assert model.requests[0].conversation.messages == [*kept, user("three")]
    assert history == kept
    assert result.messages == [*kept, user("three"), Assistant((Text("ok"),))]


async def test_a_broken_history_is_mended_before_it_is_used(check_history: Callable[..., None]):
    calls = Assistant((ToolCall("a", "look", {"key": "1"}), ToolCall("b", "look", {"key": "2"})))
    broken = [user("one"), calls, from_json(to_json(user("three")))]
    model = ScriptedModel("ok")
    result = await Agent(model, tools=[look]).run("four", history=broken)
    check_history(model.requests[0].conversation.messages)
    assert len(broken) == 3
    check_history(result.messages)


def test_run_sync_works_without_an_event_loop():
    threads: list[int] = []

    @tool
    async def where() -> None:
        threads.append(threading.get_ident())

    agent = Agent(ScriptedModel(call("where"), "ok", "again"), tools=(t for t in [where]))
    assert agent.run_sync("go").text == "ok"
    assert threads == [threading.get_ident()]
    assert agent.run_sync("go").text == "again"


async def test_run_sync_works_inside_an_event_loop_in_a_thread_with_the_callers_context():
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")
    got: list[Any] = []

    @tool
    async def note(context: ToolContext[str]) -> None:
        got.append((where.get(), context.deps, threading.current_thread() is threading.main_thread()))

    where.set("here")
    agent = Agent(ScriptedModel(call("note"), "ok"), tools=[note])
    assert agent.run_sync("go", deps="d", history=[user("before")]).text == "ok"
    assert got == [("here", "d", False)]


def test_run_sync_raises_what_the_run_raises():
    with pytest.raises(RunFailed, match="boom"):
        Agent(ScriptedModel(RunFailed("boom"))).run_sync("go")


async def test_run_sync_uses_a_copy_so_that_the_agent_stays_usable():
    journal = MemoryJournal()
    for kind in (Agent, PlanningAgent):
        model = Counted('{"steps": []}', "ok") if kind is PlanningAgent else Counted("ok")
        agent = kind(model, journal=journal, name="mine", system_prompt="Be brief.")
        result = agent.run_sync("go")
        info = await journal.info(result.run_id)
        assert (info.status, info.input["agent"]) == ("complete", "mine")
        assert "Be brief." in model.requests[0].instructions
        assert agent.active_runs == 0
        assert model.closed == 0


@pytest.mark.parametrize(
    ("output_type", "reply", "output"),
    [
        (Tier, '{"tierName": "gold", "prices": [1, 2]}', Tier(tierName="gold", prices=(1, 2))),
        (Point, 'Here it is:\n```json\n{"x": 1}\n```', Point(1)),
        (list[int], '{"result": [1, 2]}', [1, 2]),
        (list[int], "[1, 2]", [1, 2]),
        (int | Point, '{"result": {"x": 3, "y": 4}}', Point(3, 4)),
        (int | Point, '{"result": 5}', 5),
        (str, '{"result": "text"}', "text"),
        (bool, '{"result": false}', False),
    ],
)
async def test_the_output_has_the_type_that_was_asked_for(output_type: Any, reply: str, output: Any):
    model = ScriptedModel(reply)
    result = await Agent(model, output_type=output_type).run("go")
    assert result.output == output
    assert type(result.output) is type(output)
    assert result.text == reply
    schema = model.requests[0].output
    assert schema is not None
    assert schema.schema["type"] == "object"


async def test_an_output_that_does_not_fit_is_asked_for_again_in_the_validators_words():
    model = ScriptedModel('{"x": "no"}', "nothing", '{"x": 2}')
    result = await Agent(model, output_type=Point).run("go")
    assert result.output == Point(2)
    first, second = (model.requests[n].conversation.messages[-1] for n in (1, 2))
    assert "x: Input should be a valid integer" in first.content[0].text
    assert "it holds no JSON" in second.content[0].text
    assert result.usage.model_calls == 3


async def test_an_output_that_never_fits_fails_the_run_after_its_repairs():
    model = ScriptedModel(otherwise='{"x": "no"}')
    with pytest.raises(RunFailed, match=r"repairs included.*valid integer") as caught:
        await Agent(model, output_type=Point).run("go")
    assert len(model.requests) == 3
    assert caught.value.result.output is None
    assert caught.value.result.text == '{"x": "no"}'


async def test_the_planning_agents_answer_has_the_type_too():
    planner = ScriptedModel('{"steps": []}')
    synthesizer = ScriptedModel("about five", '{"result": 5}')
    agent = PlanningAgent(models=Stages(planner=planner, executor=planner, synthesizer=synthesizer), output_type=int)
    result = await agent.run("go")
    assert (result.output, result.status) == (5, "complete")
    assert "it holds no JSON" in synthesizer.requests[1].conversation.messages[-1].content[0].text
    failing = ScriptedModel('{"steps": []}', otherwise="none")
    with pytest.raises(RunFailed, match="the answer could not be used, repairs included"):
        await PlanningAgent(failing, output_type=int).run("go")
    assert len(failing.requests) == 4


async def test_an_output_of_another_type_than_that_of_the_start_says_so():
    class Stopping(MemoryJournal):
        """Its runs do not get to write their end."""

        async def create(self, *args: Any, **options: Any) -> Any:
            session = await super().create(*args, **options)

            async def finish(*given: Any) -> None:
                await session.release()
                raise JournalError("stopped")

            session.finish = finish  # type: ignore[method-assign]
            return session

    journal = Stopping()
    with pytest.raises(JournalError, match="stopped"):
        await Agent(ScriptedModel('{"x": 1}'), output_type=Point, journal=journal).run("go", run_id="r1")
    with pytest.raises(ConfigError, match="does not fit this agent's output_type"):
        await Agent(ScriptedModel(), output_type=int, journal=journal).resume("r1")
    assert (await Agent(ScriptedModel(), output_type=Point, journal=journal).resume("r1")).output == Point(1)


async def test_a_type_without_a_schema_is_refused():
    with pytest.raises(ConfigError, match="has no JSON schema"):
        Agent(ScriptedModel(), output_type=threading.Lock)  # type: ignore[type-var]


async def test_dependencies_reach_the_tools_as_they_are():
    got: list[Any] = []

    @tool
    async def use(context: ToolContext[object]) -> None:
        got.append(context.deps)

    deps = object()
    agent = Agent(ScriptedModel(call("use"), "ok", call("use"), "ok"), tools=[use])
    await agent.run("go", deps=deps)
    await agent.run("go")
    assert got == [deps, None]


async def test_tools_are_listed_with_what_is_known_of_them():
    @tool(read_only=True)
    def peek(key: str) -> str:
        "Peek at a key."
        return key

    agent = Agent(ScriptedModel(), tools=[look, peek])
    first, second = await agent.list_tools()
    assert (first.name, first.description, first.read_only, first.server) == ("look", "Look up a key.", False, None)
    assert (second.name, second.read_only) == ("peek", True)
    assert await agent.server_statuses() == []


async def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two tools are named 'look'"):
        Agent(ScriptedModel(), tools=[look, look])


async def test_closing_cancels_what_is_running():
    begun = asyncio.Event()
    before = asyncio.all_tasks()
    async with hanging_agent(begun) as agent:
        run = agent.start("go")
        await begun.wait()
    assert run.done
    with pytest.raises(RunCancelled):
        await run.result()
    assert agent.active_runs == 0
    assert asyncio.all_tasks() == before


async def test_closing_can_wait_for_the_runs():
    release = asyncio.Event()

    @tool
    async def stay() -> str:
        await release.wait()
        return "ok"

    agent = Agent(ScriptedModel(call("stay"), "done"), tools=[stay])
    run = agent.start("go")
    closing = asyncio.create_task(agent.close(wait_for_runs=True))
    await asyncio.sleep(0)
    with pytest.raises(ConfigError, match="is closed"):
        agent.start("another")
    release.set()
    await closing
    assert (await run.result()).text == "done"


async def test_closing_waits_no_longer_than_it_was_told():
    begun = asyncio.Event()
    before = asyncio.all_tasks()
    agent = hanging_agent(begun)
    run = agent.start("go")
    await begun.wait()
    await agent.close(wait_for_runs=True, timeout=0.01)
    with pytest.raises(RunCancelled):
        await run.result()
    assert asyncio.all_tasks() == before
    await agent.close()


async def test_closing_that_is_cancelled_stays_cancelled():
    begun = asyncio.Event()
    agent = hanging_agent(begun)
    run = agent.start("go")
    await begun.wait()
    closing = asyncio.create_task(agent.close(wait_for_runs=True))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not run.done
    await agent.close()
    assert run.done


async def test_a_closed_agent_runs_nothing():
    agent = Agent(ScriptedModel("a"))
    await agent.close()
    await agent.close()
    for attempt in (lambda: agent.run("go"), lambda: agent.resume("r1").result(), agent.list_tools, agent.reconnect):
        with pytest.raises(ConfigError, match="the agent 'agent' is closed; make a new one"):
            await attempt()
    assert agent.active_runs == 0


async def test_a_model_and_a_journal_that_were_given_are_not_closed_with_the_agent():
    model = Counted("a", "b")
    journal = MemoryJournal()
    async with Agent(model, journal=journal) as agent:
        await agent.run("go", run_id="r1")
    assert model.closed == 0
    assert (await journal.info("r1")).status == "complete"
    async with PlanningAgent(model, models=Stages(synthesizer=model)):
        pass
    assert model.closed == 0


async def test_reconnecting_is_refused_while_runs_are_active():
    begun = asyncio.Event()
    agent = hanging_agent(begun)
    run = agent.start("go")
    await begun.wait()
    with pytest.raises(ConfigError, match="1 runs are active"):
        await agent.reconnect()
    run.cancel()
    assert await run.wait(10)
    await agent.reconnect()
    assert [info.name for info in await agent.list_tools()] == ["stay"]


async def test_a_server_that_cannot_be_reached_is_left_out_or_fails_the_run(tmp_path: Any):
    servers = {"gone": {"command": str(tmp_path / "nothing-here")}}
    model = ScriptedModel('{"steps": []}', "ok")
    async with PlanningAgent(model, mcp_servers=servers) as agent:
        result = await agent.run("go")
        [status] = await agent.server_statuses()
    assert result.text == "ok"
    assert status.error is not None
    assert "Server 'gone' is not available" in model.requests[0].instructions
    seen: list[Any] = []
    async with Agent(model, mcp_servers=servers, fail_on_no_tools=True, on_event=seen.append) as strict:
        with pytest.raises(McpError, match="'gone'"):
            await strict.run("go")
        assert strict.active_runs == 0
    assert [event.phase for event in seen if isinstance(event, Error)] == ["init"]


async def test_the_limits_and_options_of_a_run_are_stored_with_it():
    journal = MemoryJournal()
    planning = Planning(replan_after=lambda result: False, tool_selection="plan-narrowed")
    model = ScriptedModel('{"steps": []}', "ok")
    agent = PlanningAgent(model, journal=journal, limits=Limits(max_turns=3), planning=planning)
    await agent.run("go", run_id="r1")
    task = (await journal.info("r1")).input
    assert task["limits"]["max_turns"] == 3
    assert (task["replan_after"], task["tool_selection"]) == ("function", "plan-narrowed")


async def test_a_finished_run_cannot_be_resumed_and_a_run_of_another_kind_neither():
    journal = MemoryJournal()
    agent = Agent(ScriptedModel("a"), journal=journal)
    await agent.run("go", run_id="r1")
    with pytest.raises(JournalError, match="is complete"):
        await agent.resume("r1")
    begun = asyncio.Event()
    run = hanging_agent(begun, journal=journal).start("go", run_id="r2")
    await begun.wait()
    run.cancel()
    assert await run.wait(10)
    with pytest.raises(ConfigError, match="is of a 'agent' agent and cannot be resumed by a 'planning' agent"):
        await PlanningAgent(ScriptedModel(), journal=journal).resume("r2")
    assert (await journal.info("r2")).owner is None


async def test_the_cost_is_known_where_every_price_is():
    done = Done(Assistant((Text("a"),)), Usage(input_tokens=1_000_000), "stop")

    def reply(request: ModelRequest) -> Done:
        return done

    local = await Agent(ScriptedModel(reply, name="local:x")).run("go")
    assert local.cost == 0
    paid = await Agent(ScriptedModel(reply, name="openai:gpt-4.1-mini")).run("go")
    assert paid.cost is not None
    assert paid.cost > 0
    unknown = await Agent(ScriptedModel(reply, name="nobody:nothing")).run("go")
    assert unknown.cost is None


@pytest.mark.parametrize("wrong", [{"replan_after": "Failure"}, {"tool_selection": "narrow"}])
def test_words_that_planning_does_not_know_are_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError, match=repr(next(iter(wrong.values())))):
        Planning(**wrong)


PNG = Image("image/png", data=b"\x89PNG")


async def test_what_is_attached_goes_with_the_goal_and_survives_in_the_history():
    model = ScriptedModel(otherwise="A lamp.")
    async with Agent(model) as agent:
        result = await agent.run("What is this?", attachments=[PNG])
        await agent.run("And its colour?", history=result.messages)
    assert model.requests[0].conversation.messages == [user("What is this?", PNG)]
    assert model.requests[1].conversation.messages[0] == user("What is this?", PNG)


async def test_every_stage_that_works_on_the_goal_sees_what_is_attached():
    plan = '{"thought": "t", "steps": [{"id": "a", "description": "Look at it."}]}'
    model = ScriptedModel(plan, "a lamp", "The answer.")
    async with PlanningAgent(model) as agent:
        result = await agent.run("What is this?", attachments=[PNG])
    assert [request.conversation.messages[0].content[1:] for request in model.requests] == [(PNG,)] * 3
    assert result.messages[0] == user("What is this?", PNG)


async def test_what_cannot_be_attached_is_refused():
    with pytest.raises(ConfigError, match=r"'a\.png' in attachments"):
        await Agent(ScriptedModel()).run("x", attachments=["a.png"])  # type: ignore[list-item]


@pytest.mark.parametrize(("name", "kind"), [("a.png", Image), ("a.wav", Audio), ("a.pdf", File), ("a.unknown", File)])
def test_a_file_becomes_a_part_of_the_kind_that_its_name_tells(tmp_path: Path, name: str, kind: type):
    (tmp_path / name).write_bytes(b"data")
    part = attachment(tmp_path / name)
    assert (type(part), part.data) == (kind, b"data")  # type: ignore[union-attr]


async def test_a_typed_output_is_shown_while_it_is_written():
    seen: list[Any] = []

    def see(event: Any) -> None:
        if isinstance(event, FinalOutputDelta):
            seen.append(event.output)

    async with Agent(ScriptedModel('{"tierName": "small one", "prices": [1, 22]}'), output_type=Tier) as agent:
        result = await agent.run("Which?", on_event=see)
    assert result.output == Tier(tierName="small one", prices=(1, 22))
    assert {"tierName": "small"} in seen
    assert seen[-1] == {"tierName": "small one", "prices": [1, 22]}


async def test_a_cost_estimator_counts_before_the_table_of_prices():
    def estimate(model: str, usage: Usage) -> float | None:
        return usage.input_tokens * 0.01 if model == "scripted:model" else None

    async with Agent(ScriptedModel("ok"), settings=ModelSettings(cost_estimator=estimate)) as agent:
        assert (await agent.run("x")).cost == Decimal(1)
    async with Agent(ScriptedModel("ok")) as agent:
        assert (await agent.run("x")).cost is None
