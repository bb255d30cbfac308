import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replan import Agent, Limits, PlanningAgent, ToolContext, ToolError, tool, user
from replan.encoding import encode
from replan.errors import AuthError, JournalBusy, JournalError, Overloaded, RunCancelled, RunNotFound
from replan.journal import InboxItem, Journal, MemoryJournal
from replan.journal.sqlite import SqliteJournal
from replan.messages import ToolCall, ToolResult
from replan.model import ModelRequest
from replan.testing import ScriptedModel, call

MakeJournal = Callable[[], Journal]


@pytest.fixture(params=["memory", "sqlite"])
def make_journal(request: pytest.FixtureRequest, tmp_path: Path) -> MakeJournal:
    """Gives the same journal each time; of SQLite a new object, as another process would have it."""
    if request.param == "sqlite":
        return lambda: SqliteJournal(tmp_path / "runs.db")
    journal = MemoryJournal()
    return lambda: journal


class Interrupted(MemoryJournal):
    """Hands on to another journal, and interrupts the program of a run once it was given `after` completions.

    With `settle` what was started then has ended, too.
    """

    def __init__(self, journal: Journal, after: int, *, settle: bool) -> None:
        self.journal, self._after, self._settle = journal, after, settle

    async def create(self, run_id: str, **options: Any) -> Any:
        session = await self.journal.create(run_id, **options)
        start, original, started, given = session.start, session.next, 0, 0

        def count_and_start(*args: Any, **more: Any) -> None:
            nonlocal started
            started += 1
            start(*args, **more)

        async def next_completion() -> Any:
            nonlocal given
            if given == self._after:
                while self._settle and len(await self.journal.completions(run_id)) < started:
                    await asyncio.sleep(0.001)
                raise asyncio.CancelledError
            given += 1
            return await original()

        session.start, session.next = count_and_start, next_completion
        return session


class World:
    """What tools have done, in order: `begun` and `done` hold one entry a call."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []

    @property
    def tools(self) -> list[Any]:
        @tool(read_only=True)
        async def look(key: str) -> dict[str, str]:
            self.begun.append(f"look {key}")
            await asyncio.sleep(0)
            if key == "bad":
                raise ToolError("there is no 'bad'")
            self.done.append(f"look {key}")
            return {"value": key * 2}

        @tool
        async def write(text: str) -> str:
            self.begun.append(f"write {text}")
            await asyncio.sleep(0)
            self.done.append(f"write {text}")
            return f"wrote {text}"

        return [look, write]


def last_text(request: ModelRequest) -> str:
    message = request.conversation.messages[-1]
    return "" if isinstance(message, ToolResult) else message.content[0].text


def plain_reply(request: ModelRequest) -> Any:
    """The same reply to the same conversation, whatever was asked before."""
    results = [m for m in request.conversation.messages if isinstance(m, ToolResult)]
    match len(results):
        case 0:
            return [ToolCall("a", "look", {"key": "a"}), ToolCall("b", "write", {"text": "b"}), ToolCall("x", "no", {})]
        case 3:
            return [ToolCall("c", "look", {"key": "bad"}), ToolCall("d", "look", {"key": "d"})]
        case 5:
            return ToolCall("a", "write", {"text": "e"})
        case _:
            return f"done with {len(results)} results: {results[-1].text}"


PLAN = encode(
    {
        "thought": "look, then write",
        "steps": [
            {"id": "one", "description": "look", "call": {"tool": "look", "arguments": {"key": "a"}}},
            {"id": "two", "description": "write", "call": {"tool": "write", "arguments": {"text": None}}},
            {"id": "three", "description": "judge"},
            {
                "id": "four",
                "description": "more",
                "call": {"tool": "look", "arguments": {"key": "${one.value}"}},
                "depends_on": ["three"],
            },
        ],
    }
).decode()
REVISED = encode(
    {
        "mode": "revise",
        "reason": "no such key",
        "steps": [{"id": "five", "description": "other", "call": {"tool": "look", "arguments": {"key": "z"}}}],
    }
).decode()


def planning_reply(request: ModelRequest) -> Any:
    output = request.output.name if request.output else None
    results = [m for m in request.conversation.messages if isinstance(m, ToolResult)]
    match output:
        case "plan":
            return PLAN
        case "decision":
            return REVISED
        case "arguments":
            return '{"text": "aa"}'
    if "Your step: judge" in last_text(request):
        return [ToolCall("k", "look", {"key": "bad"}), ToolCall("l", "write", {"text": "judged"})]
    return "cannot [BLOCKER]" if results else "the answer"


def make_agent(kind: str, journal: Any, world: World, models: list[ScriptedModel], **options: Any) -> Any:
    reply = plain_reply if kind == "plain" else planning_reply
    models.append(ScriptedModel(otherwise=reply))
    make: Any = Agent if kind == "plain" else PlanningAgent
    return make(models[-1], tools=world.tools, journal=journal, **options)


async def told(journal: Journal, run_id: str) -> list[Any]:
    """The journalled events without what is another one in each run; calls are numbered."""
    numbers: dict[str, int] = {}
    rows: list[Any] = []
    for _, event in await journal.events(run_id):
        row = {name: value for name, value in event.items() if name not in ("seconds", "run_id", "price")}
        if "call_id" in row:
            row["call_id"] = numbers.setdefault(row["call_id"], len(numbers))
        rows.append(row)
    return rows


COMPLETIONS = {"plain": 9, "planning": 11}


@pytest.mark.parametrize("settle", [False, True])
@pytest.mark.parametrize(
    ("kind", "after"), [(kind, after) for kind, most in COMPLETIONS.items() for after in range(most)]
)
async def test_a_run_interrupted_anywhere_goes_on_and_repeats_nothing(
    make_journal: MakeJournal, kind: str, after: int, settle: bool, check_history: Callable[..., None]
):
    whole = World()
    models: list[ScriptedModel] = []
    before = make_journal()
    expected = await make_agent(kind, before, whole, models).run("go", run_id="whole")
    assert len(await before.completions("whole")) == COMPLETIONS[kind]

    world = World()
    first = make_agent(kind, Interrupted(before, after, settle=settle), world, models)
    with pytest.raises(asyncio.CancelledError):
        await first.run("go", run_id="cut")
    asked = len(models[1].requests)
    ended = {row[0] for row in await before.completions("cut")}
    await before.close()

    journal = make_journal()
    answer = {"outcome": "not-done"}
    resumed = make_agent(kind, journal, world, models, answerer=lambda item: asyncio.sleep(0, answer))
    result = await resumed.resume("cut")
    rows = await journal.completions("cut")
    await journal.close()

    assert (result.text, result.status) == (expected.text, "complete")
    assert sorted(world.done) == sorted(whole.done)
    assert ended <= {row[0] for row in rows}
    assert len({row[0] for row in rows}) == len(rows)
    steps = [row[0] for row in rows if row[1] == "model"]
    assert len(models[2].requests) == len([key for key in steps if key not in ended])
    if settle:
        assert asked + len(models[2].requests) == len(models[0].requests)
        assert sorted(world.begun) == sorted(whole.begun)
    assert result.usage == expected.usage
    check_history(result.messages)


@pytest.mark.parametrize("kind", ["plain", "planning"])
async def test_a_resumed_run_tells_the_same_events(make_journal: MakeJournal, kind: str):
    journal = make_journal()
    models: list[ScriptedModel] = []
    await make_agent(kind, journal, World(), models).run("go", run_id="whole")
    expected = await told(journal, "whole")
    for after in range(COMPLETIONS[kind]):
        world = World()
        cut = make_agent(kind, Interrupted(journal, after, settle=True), world, models)
        with pytest.raises(asyncio.CancelledError):
            await cut.run("go", run_id=f"cut{after}")
        await make_agent(kind, journal, world, models).resume(f"cut{after}")
        assert await told(journal, f"cut{after}") == expected
    await journal.close()


async def test_a_resume_tells_its_listener_of_the_plan_and_of_what_is_new(make_journal: MakeJournal):
    journal = make_journal()
    world = World()
    models: list[ScriptedModel] = []
    with pytest.raises(asyncio.CancelledError):
        await make_agent("planning", Interrupted(journal, 3, settle=True), world, models).run("go", run_id="r1")
    seen: list[Any] = []
    await make_agent("planning", journal, world, models, on_event=seen.append).resume("r1")
    kinds = [event.__struct_config__.tag for event in seen if not event.live]
    assert kinds[0] == "plan.created"
    assert "run.start" not in kinds
    assert kinds[-2:] == ["final", "run.complete"]
    await journal.close()


class Mailbox:
    """A tool that may write, and hangs the first time it is called."""

    def __init__(self, *, read_only: bool = False) -> None:
        self.begun = asyncio.Event()
        self.keys: list[str] = []

        @tool(read_only=read_only)
        async def send(text: str, context: ToolContext) -> str:
            self.keys.append(context.idempotency_key)
            if len(self.keys) == 1:
                self.begun.set()
                await asyncio.Event().wait()
            return f"sent {text}"

        self.tool = send


def sending(journal: Journal, box: Mailbox, **options: Any) -> Agent[None]:
    def reply(request: ModelRequest) -> Any:
        results = [m for m in request.conversation.messages if isinstance(m, ToolResult)]
        return results[0].text if results else call("send", text="hello")

    return Agent(ScriptedModel(otherwise=reply), tools=[box.tool], journal=journal, **options)


async def interrupt(agent: Agent[None], box: Mailbox) -> None:
    run = agent.start("go", run_id="r1")
    await box.begun.wait()
    run.cancel()
    with pytest.raises(RunCancelled):
        await run


UNKNOWN = "Outcome unknown: the call was interrupted"


async def fails(item: InboxItem) -> Any:
    raise RuntimeError("nobody is here")


@pytest.mark.parametrize(
    ("answer", "text", "calls"),
    [
        (None, UNKNOWN, 1),
        ({"outcome": "done"}, "Done.", 1),
        ({"outcome": "done", "result": "sent by hand"}, "sent by hand", 1),
        ({"outcome": "done", "result": 5}, "5", 1),
        ({"outcome": "not-done"}, "sent hello", 2),
        ({"outcome": "what?"}, UNKNOWN, 1),
        ("yes", UNKNOWN, 1),
        (fails, UNKNOWN, 1),
        ("nobody", UNKNOWN, 1),
    ],
)
async def test_a_call_that_may_have_taken_effect_is_asked_about(
    make_journal: MakeJournal, answer: Any, text: str, calls: int
):
    box, items = Mailbox(), []
    journal = make_journal()
    await interrupt(sending(journal, box), box)
    await journal.close()

    async def answerer(item: InboxItem) -> Any:
        items.append(item)
        return await answer(item) if callable(answer) else answer

    journal = make_journal()
    agent = sending(journal, box, answerer=None if answer == "nobody" else answerer)
    result = await agent.resume("r1")
    assert result.text.startswith(text)
    assert len(box.keys) == calls
    assert [(item.run_id, item.name) for item in items] == [("r1", "in-doubt")] * (answer != "nobody")
    [tool_result] = [m for m in result.messages if isinstance(m, ToolResult)]
    assert tool_result.is_error is (text == UNKNOWN)
    await journal.close()


async def test_a_second_interruption_of_the_same_call_is_asked_about_again(make_journal: MakeJournal):
    journal = make_journal()
    box = Mailbox()
    await interrupt(sending(journal, box), box)
    box.keys.clear()
    box.begun.clear()
    again = sending(journal, box, answerer=lambda item: asyncio.sleep(0, {"outcome": "not-done"}))
    run = again.resume("r1")
    await box.begun.wait()
    run.cancel()
    with pytest.raises(RunCancelled):
        await run
    result = await again.resume("r1")
    assert (result.text, len(box.keys)) == ("sent hello", 2)
    await journal.close()


async def test_a_run_can_wait_for_an_answer_from_elsewhere(tmp_path: Path):
    path = tmp_path / "runs.db"
    box = Mailbox()
    journal = SqliteJournal(path)
    await interrupt(sending(journal, box), box)
    seen: list[Any] = []
    waiting = sending(journal, box, unattended="wait", on_event=seen.append)
    result = await waiting.resume("r1")
    assert (result.status, result.stop_reason) == ("paused", "waiting")
    assert seen[-1].status == "paused"
    assert (await journal.info("r1")).status == "paused"
    await journal.close()

    elsewhere = SqliteJournal(path)
    [item] = await elsewhere.inbox()
    await elsewhere.answer("r1", item.key, {"outcome": "done", "result": "it had been sent"})
    await elsewhere.close()

    journal = SqliteJournal(path)
    result = await sending(journal, box, unattended="wait").resume("r1")
    assert (result.status, result.text) == ("complete", "it had been sent")
    assert len(box.keys) == 1
    await journal.close()


async def test_an_answer_that_comes_while_the_run_goes_on_is_taken(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db")
    box = Mailbox()
    await interrupt(sending(journal, box), box)
    result = await sending(journal, box, unattended="wait").resume("r1")
    assert result.status == "paused"
    again = await sending(journal, box, unattended="wait").resume("r1")
    assert again.status == "paused"
    agent = sending(journal, box, unattended="wait")
    [item] = await agent.inbox("r1")
    assert await agent.inbox() == [item]
    await agent.answer("r1", item.key, {"outcome": "not-done"})
    with pytest.raises(JournalError, match="no open inbox item"):
        await agent.answer("r1", item.key, {"outcome": "done"})
    with pytest.raises(RunNotFound):
        await agent.inbox("r2")
    assert (await agent.resume("r1")).text == "sent hello"
    await journal.close()


async def test_a_call_that_only_reads_is_made_again_under_the_same_key(make_journal: MakeJournal):
    journal = make_journal()
    box = Mailbox(read_only=True)
    await interrupt(sending(journal, box), box)
    result = await sending(journal, box, answerer=fails).resume("r1")
    assert result.text == "sent hello"
    assert box.keys == ["r1/t0/0", "r1/t0/0"]
    await journal.close()


@pytest.mark.parametrize("kind", ["plain", "planning"])
async def test_a_failed_run_tries_the_failing_model_call_again(make_journal: MakeJournal, kind: str):
    journal = make_journal()
    world = World()
    models: list[ScriptedModel] = []
    expected = await make_agent(kind, journal, World(), models).run("go", run_id="whole")
    reply = plain_reply if kind == "plain" else planning_reply
    broken = ScriptedModel(reply, reply, AuthError("overdrawn", status=401))
    make: Any = Agent if kind == "plain" else PlanningAgent
    with pytest.raises(AuthError):
        await make(broken, tools=world.tools, journal=journal).run("go", run_id="r1")
    assert (await journal.info("r1")).status == "failed"
    begun = list(world.begun)
    result = await make_agent(kind, journal, world, models).resume("r1")
    assert result.text == expected.text
    assert world.begun[: len(begun)] == begun
    assert sorted(world.done) == sorted(set(world.done))
    assert len(broken.requests) - 1 + len(models[1].requests) == len(models[0].requests)
    await journal.close()


async def test_an_overloaded_provider_does_not_lose_the_run(make_journal: MakeJournal):
    journal = make_journal()
    world = World()
    model = ScriptedModel(plain_reply, Overloaded("busy"), Overloaded("busy"), otherwise=plain_reply)
    agent = Agent(model, tools=world.tools, journal=journal)
    with pytest.raises(Overloaded):
        await agent.run("go", run_id="r1")
    with pytest.raises(Overloaded):
        await agent.resume("r1")
    assert (await agent.resume("r1")).status == "complete"
    assert sorted(world.done) == ["look a", "look d", "write b", "write e"]
    await journal.close()


async def test_what_cannot_be_resumed_says_why(make_journal: MakeJournal):
    journal = make_journal()
    agent = Agent(ScriptedModel("a"), journal=journal)
    await agent.run("go", run_id="r1")
    with pytest.raises(JournalError, match="complete"):
        await agent.resume("r1")
    with pytest.raises(RunNotFound):
        await agent.resume("unknown")
    box = Mailbox()
    busy = sending(journal, box)
    run = busy.start("go", run_id="r2")
    await box.begun.wait()
    with pytest.raises(JournalBusy):
        await busy.resume("r2")
    assert not run.done
    run.cancel()
    assert await run.wait(10)
    assert agent.active_runs == busy.active_runs == 0
    await journal.close()


async def test_a_resumed_run_keeps_its_goal_its_history_and_its_limits(make_journal: MakeJournal):
    journal = make_journal()
    box = Mailbox(read_only=True)
    asked = asyncio.Event()

    async def think(request: ModelRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(ScriptedModel(think), tools=[box.tool], journal=journal, limits=Limits(max_turns=1))
    run = agent.start("the goal", run_id="r1", history=[user("before")])
    await asked.wait()
    run.cancel()
    with pytest.raises(RunCancelled):
        await run
    model = ScriptedModel(call("send", text="x"))
    result = await Agent(model, tools=[box.tool], journal=journal, limits=Limits(max_turns=50)).resume("r1")
    assert (result.status, result.stop_reason) == ("stopped", "max-turns")
    assert [m.content[0].text for m in model.requests[0].conversation.messages] == ["before", "the goal"]
    await journal.close()


async def test_call_ids_stay_unique_when_the_conversation_is_rebuilt(make_journal: MakeJournal):
    journal = make_journal()
    world = World()
    same = ToolCall("x", "look", {"key": "a"})
    model = ScriptedModel(same, Overloaded("busy"), same, "done")
    agent = Agent(model, tools=world.tools, journal=journal)
    with pytest.raises(Overloaded):
        await agent.run("go", run_id="r1")
    result = await agent.resume("r1")
    ids = [m.call_id for m in result.messages if isinstance(m, ToolResult)]
    assert len(set(ids)) == 2
    assert msgspec.to_builtins(model.requests[-1].conversation.messages) == msgspec.to_builtins(result.messages[:-1])
    await journal.close()
