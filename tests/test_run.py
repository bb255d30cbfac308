import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from replan import Agent, Run, RunResult, ToolContext, current_run, tool, user
from replan.errors import AuthError, ConfigError, JournalError, ReplanError, RunCancelled, RunFailed
from replan.events import Error, Final, RunComplete, RunStart, StepToolCall, StepToolResult
from replan.journal import MemoryJournal
from replan.messages import ToolResult
from replan.testing import ScriptedModel, call


class Blocking:
    """A tool that waits to be released, and says when it has begun."""

    def __init__(self) -> None:
        self.begun, self.release, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @tool
        async def block() -> str:
            self.begun.set()
            try:
                await self.release.wait()
            finally:
                self.left.set()
            return "released"

        self.tool = block


@pytest.fixture
async def blocking() -> Blocking:
    return Blocking()


def blocked_agent(blocking: Blocking, **options: Any) -> Agent[None]:
    return Agent(ScriptedModel(call("block"), "done"), tools=[blocking.tool], **options)


def kinds(events: list[Any]) -> list[str]:
    return [event.__struct_config__.tag for event in events if not event.live]


async def test_the_events_of_a_run_come_in_order_and_all_of_its_run():
    async with Agent(ScriptedModel(call("nothing"), "Hi.")).start("Say hi.", run_id="r1") as run:
        seen = [event async for event in run]
    assert kinds(seen) == ["run.start", "usage", "usage", "final", "run.complete"]
    assert {event.run_id for event in seen} == {"r1"}
    assert seen[0] == RunStart(run_id="r1", goal="Say hi.", agent="agent")
    assert isinstance(seen[-1], RunComplete)
    assert (seen[-1].status, seen[-1].stop_reason, seen[-1].usage.model_calls) == ("complete", None, 2)
    assert seen[-1].seconds > 0
    assert seen[-2] == Final(run_id="r1", text="Hi.")


async def test_events_can_be_read_late_and_more_than_once():
    async with Agent(ScriptedModel("Hi.")).start("go") as run:
        result = await run.result()
        assert run.done
        late = [event async for event in run]
        again = [event async for event in run]
    assert late == again
    assert isinstance(late[-1], RunComplete)
    assert result.text == "Hi."
    assert [event async for event in run] == late


async def test_two_readers_see_the_same_events_while_the_run_goes_on(blocking: Blocking):
    async def read(run: Run[Any]) -> list[Any]:
        return [event async for event in run]

    async with blocked_agent(blocking).start("go") as run:
        readers = [asyncio.create_task(read(run)) for _ in range(2)]
        await blocking.begun.wait()
        blocking.release.set()
        first, second = await asyncio.gather(*readers)
    assert first == second
    assert kinds(first)[-1] == "run.complete"


async def test_awaiting_the_handle_gives_the_result():
    result = await Agent(ScriptedModel("Hi.")).start("go")
    assert isinstance(result, RunResult)
    assert result.text == "Hi."


async def test_leaving_the_block_cancels_the_run(blocking: Blocking):
    agent = blocked_agent(blocking)
    async with agent.start("go") as run:
        await blocking.begun.wait()
        assert agent.active_runs == 1
    assert blocking.left.is_set()
    assert run.done
    assert agent.active_runs == 0
    with pytest.raises(RunCancelled):
        await run.result()


async def test_leaving_the_block_by_an_error_cancels_the_run_and_passes_the_error(blocking: Blocking):
    run = blocked_agent(blocking).start("go")

    async def body() -> None:
        async with run:
            await blocking.begun.wait()
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await body()
    assert run.done
    assert blocking.left.is_set()


async def test_cancel_raises_with_what_there_is(blocking: Blocking, check_history: Callable[..., None]):
    seen: list[Any] = []
    run = blocked_agent(blocking, on_event=seen.append).start("go", run_id="r1")
    await blocking.begun.wait()
    run.cancel()
    with pytest.raises(RunCancelled, match="'r1' was cancelled") as caught:
        await run.result()
    partial = caught.value.result
    assert (partial.status, partial.usage.model_calls, partial.tool_calls) == ("cancelled", 1, 1)
    assert partial.messages[-1].text == "Interrupted before it had a result."
    check_history(partial.messages)
    assert kinds(seen) == ["run.start", "usage", "step.tool-call", "run.complete"]
    assert seen[-1].status == "cancelled"
    run.cancel()


@pytest.mark.parametrize("leave", [False, True])
async def test_a_run_that_is_cancelled_before_its_first_turn_ends_as_well(leave: bool):
    seen: list[Any] = []
    agent = Agent(ScriptedModel(), on_event=seen.append)
    if leave:
        async with agent.start("go") as run:
            pass
    else:
        run = agent.start("go")
        run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    assert agent.active_runs == 0
    assert kinds([event async for event in run]) == kinds(seen) == ["run.complete"]


async def test_a_task_that_is_cancelled_before_the_run_has_begun_leaves_nothing_behind():
    agent = Agent(ScriptedModel())
    run = agent.start("go")
    waiter = asyncio.ensure_future(run.result())
    [task] = [t for t in asyncio.all_tasks() if t.get_name() == f"replan run {run.run_id}"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert agent.active_runs == 0
    assert [event async for event in run] == []


async def test_cancelling_the_calling_task_cancels_the_run_and_leaves_no_task(blocking: Blocking):
    before = asyncio.all_tasks()
    journal = MemoryJournal()
    agent = blocked_agent(blocking, journal=journal)
    caller = asyncio.create_task(agent.run("go", run_id="r1"))
    await blocking.begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert blocking.left.is_set()
    assert agent.active_runs == 0
    assert asyncio.all_tasks() == before
    info = await journal.info("r1")
    assert (info.status, info.owner) == ("cancelled", None)


async def test_a_timeout_around_a_run_ends_it(blocking: Blocking):
    before = asyncio.all_tasks()

    async def expire(clock: asyncio.Timeout) -> None:
        await blocking.begun.wait()
        clock.reschedule(asyncio.get_running_loop().time())

    async def hurried() -> None:
        async with asyncio.timeout(None) as clock, asyncio.TaskGroup() as tasks:
            tasks.create_task(expire(clock))
            await blocked_agent(blocking).run("go")

    with pytest.raises(TimeoutError):
        await hurried()
    assert blocking.left.is_set()
    assert asyncio.all_tasks() == before


async def test_cancelling_again_and_again_does_not_cut_the_end_short():
    cleaned = asyncio.Event()
    begun = asyncio.Event()

    @tool
    async def careful() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            cleaned.set()
        return ""

    before = asyncio.all_tasks()
    journal = MemoryJournal()
    agent = Agent(ScriptedModel(call("careful")), tools=[careful], journal=journal)
    caller = asyncio.create_task(agent.run("go", run_id="r1"))
    await begun.wait()
    while not caller.done():
        caller.cancel()
        await asyncio.sleep(0)
    assert caller.cancelled()
    assert cleaned.is_set()
    assert (await journal.info("r1")).status == "cancelled"
    assert asyncio.all_tasks() == before


async def test_a_finished_sibling_keeps_its_result_when_the_run_is_cancelled(
    blocking: Blocking, check_history: Callable[..., None]
):
    @tool
    async def quick(n: int) -> str:
        return f"quick {n}"

    model = ScriptedModel([call("quick", n=1), call("block"), call("quick", n=2)])
    seen: list[Any] = []
    run = Agent(model, tools=[quick, blocking.tool], on_event=seen.append).start("go")
    while len([e for e in seen if isinstance(e, StepToolResult)]) < 2:
        await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(RunCancelled) as caught:
        await run.result()
    messages = caught.value.result.messages
    check_history(messages)
    texts = [m.text for m in messages if isinstance(m, ToolResult)]
    assert texts == ["quick 1", "Interrupted before it had a result.", "quick 2"]


async def test_the_next_run_can_go_on_from_a_cancelled_one(blocking: Blocking):
    run = blocked_agent(blocking).start("go")
    await blocking.begun.wait()
    run.cancel()
    with pytest.raises(RunCancelled) as caught:
        await run.result()
    history = caught.value.result.messages
    model = ScriptedModel("Go on.")
    await Agent(model).run("and now?", history=history)
    assert model.requests[0].conversation.messages == [*history, user("and now?")]


async def test_a_failing_run_raises_its_error_with_what_there_is_and_says_so_in_an_event():
    seen: list[Any] = []
    model = ScriptedModel(call("nothing"), AuthError("the key is wrong", status=401))
    with pytest.raises(AuthError, match="the key is wrong") as caught:
        await Agent(model, on_event=seen.append).run("go", run_id="r1")
    assert caught.value.status == 401
    assert caught.value.result.usage.model_calls == 1
    assert len(caught.value.result.messages) == 3
    assert kinds(seen) == ["run.start", "usage", "error", "run.complete"]
    assert seen[-2] == Error(run_id="r1", phase="execute", message="the key is wrong", kind="AuthError")
    assert seen[-1].status == "failed"


async def test_a_run_that_cannot_begin_says_so_too():
    journal = MemoryJournal()
    await Agent(ScriptedModel("a"), journal=journal).run("go", run_id="r1")
    seen: list[Any] = []
    with pytest.raises(JournalError, match="a run 'r1'"):
        await Agent(ScriptedModel("a"), journal=journal, on_event=seen.append).run("go", run_id="r1")
    assert [(e.phase, e.kind) for e in seen if isinstance(e, Error)] == [("init", "JournalError")]


async def test_an_unforeseen_error_becomes_a_run_failure_with_its_cause():
    model = ScriptedModel(ZeroDivisionError("oh"))
    with pytest.raises(RunFailed, match="ZeroDivisionError: oh"):
        await Agent(model).run("go")


async def test_an_unforeseen_error_outside_of_steps_is_stored_and_raised_as_a_failure_too():
    class Odd(MemoryJournal):
        async def create(self, *args: Any, **options: Any) -> Any:
            session = await super().create(*args, **options)

            async def emit(event: Any) -> None:
                raise ZeroDivisionError("oh")

            session.emit = emit  # type: ignore[method-assign]
            return session

    journal = Odd()
    with pytest.raises(RunFailed, match="run 'r1' failed: ZeroDivisionError: oh") as caught:
        await Agent(ScriptedModel("a"), journal=journal).run("go", run_id="r1")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.result.status == "failed"
    assert (await journal.info("r1")).error == {"type": "ZeroDivisionError", "message": "oh"}


async def test_the_error_of_a_run_that_nobody_asks_for_is_no_warning():
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    run = Agent(ScriptedModel(AuthError("no"))).start("go")
    assert await run.wait(5)
    del run
    await asyncio.sleep(0)
    assert not problems


async def test_waiting_says_whether_the_run_has_ended(blocking: Blocking):
    async with blocked_agent(blocking).start("go") as run:
        await blocking.begun.wait()
        assert not await run.wait(0.01)
        blocking.release.set()
        assert await run.wait(10)
        assert (await run.result()).text == "done"


async def test_a_handler_that_raises_changes_nothing():
    def broken(event: Any) -> None:
        raise RuntimeError("handler")

    seen: list[Any] = []
    agent = Agent(ScriptedModel(call("nothing"), "Hi."), on_event=broken)
    async with agent.start("go", on_event=seen.append) as run:
        heard = [event async for event in run]
        result = await run.result()
    assert result.text == "Hi."
    assert seen == heard
    assert kinds(seen)[-1] == "run.complete"


async def test_handlers_of_the_agent_and_of_the_run_are_both_called_in_the_event_loop():
    first: list[Any] = []
    second: list[Any] = []
    threads: set[int] = set()

    def listen(event: Any) -> None:
        threads.add(threading.get_ident())
        second.append(event)

    await Agent(ScriptedModel("Hi."), on_event=first.append).run("go", on_event=listen)
    assert first == second
    assert kinds(first) == ["run.start", "usage", "final", "run.complete"]
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("journal", ["memory", "sqlite"])
async def test_the_current_run_is_known_in_tools_and_handlers_and_only_there(journal: str, tmp_path: Any):
    inside: dict[str, Any] = {}

    @tool
    async def writes() -> None:
        inside["async tool"] = current_run()

    @tool(read_only=True)
    async def reads() -> None:
        inside["read-only tool"] = current_run()

    @tool
    def threaded() -> None:
        inside["sync tool"] = current_run()

    def listen(event: Any) -> None:
        inside.setdefault(type(event).__name__, current_run())

    model = ScriptedModel([call("writes"), call("reads"), call("threaded")], "done")
    where = None if journal == "memory" else tmp_path / "runs.db"
    async with (
        Agent(model, tools=[writes, reads, threaded], journal=where) as agent,
        agent.start("go", on_event=listen) as run,
    ):
        await run.result()
    assert {"async tool", "read-only tool", "sync tool", "RunStart", "StepToolResult", "RunComplete"} <= set(inside)
    assert set(inside.values()) == {run}
    assert current_run() is None


async def test_runs_at_the_same_time_are_apart():
    barrier = asyncio.Barrier(3)
    seen_by: dict[str, Any] = {}

    @tool
    async def meet(name: str, context: ToolContext) -> str:
        await barrier.wait()
        run = current_run()
        assert run is not None
        seen_by[name] = (run.run_id, context.run_id, context.deps)
        return f"met {name}"

    def reply(request: Any) -> Any:
        messages = request.conversation.messages
        name = messages[0].text if hasattr(messages[0], "text") else messages[0].content[0].text
        return call("meet", name=name) if len(messages) == 1 else f"done {name}"

    agent = Agent(ScriptedModel(otherwise=reply), tools=[meet])
    runs = {name: agent.start(name, run_id=f"run-{name}", deps=name) for name in "abc"}
    assert agent.active_runs == 3
    results = {name: await run.result() for name, run in runs.items()}
    for name, result in results.items():
        assert result.text == f"done {name}"
        assert result.usage.model_calls == 2
        assert seen_by[name] == (f"run-{name}", f"run-{name}", name)
        assert {event.run_id async for event in runs[name]} == {f"run-{name}"}
        assert [e.arguments async for e in runs[name] if isinstance(e, StepToolCall)] == [{"name": name}]
    assert agent.active_runs == 0


async def test_cancelling_one_run_leaves_the_others(blocking: Blocking):
    agent = Agent(ScriptedModel(call("block"), call("block"), "done"), tools=[blocking.tool])
    first, second = agent.start("one"), agent.start("two")
    await blocking.begun.wait()
    first.cancel()
    with pytest.raises(RunCancelled):
        await first.result()
    blocking.release.set()
    assert (await second.result()).text == "done"


@pytest.mark.parametrize("run_id", ["", "a b", "../x", "x" * 129, "é"])
async def test_an_impossible_run_id_is_refused(run_id: str):
    with pytest.raises(ConfigError, match="cannot be a run id"):
        await Agent(ScriptedModel("a")).run("go", run_id=run_id)
    with pytest.raises(ConfigError, match="cannot be a run id"):
        await Agent(ScriptedModel("a")).resume(run_id)


async def test_a_journal_that_fails_at_the_end_fails_the_run():
    class Full(MemoryJournal):
        async def create(self, *args: Any, **options: Any) -> Any:
            session = await super().create(*args, **options)

            async def finish(*given: Any) -> None:
                raise JournalError("the disk is full")

            session.finish = finish  # type: ignore[method-assign]
            return session

    seen: list[Any] = []
    with pytest.raises(JournalError, match="disk is full") as caught:
        await Agent(ScriptedModel("Hi."), journal=Full(), on_event=seen.append).run("go")
    assert (caught.value.result.status, caught.value.result.text) == ("failed", "Hi.")
    assert seen[-1].status == "failed"


async def test_what_the_journal_keeps_of_a_run_is_its_result():
    journal = MemoryJournal()
    await Agent(ScriptedModel('{"result": 7}'), journal=journal, output_type=int).run("go", run_id="r1", meta={"a": 1})
    info = await journal.info("r1")
    assert info.result["output"] == 7
    assert info.result["text"] == '{"result": 7}'
    assert info.result["usage"] == {"input_tokens": 100, "output_tokens": 10, "model_calls": 1}
    assert info.meta == {"a": 1}
    failing = Agent(ScriptedModel(AuthError("no", status=401)), journal=journal)
    with pytest.raises(ReplanError):
        await failing.run("go", run_id="r2")
    assert (await journal.info("r2")).error == {"type": "AuthError", "message": "no", "status": 401}


async def test_one_who_gives_up_waiting_leaves_the_run_to_the_others():
    release = asyncio.Event()

    @tool
    async def hold() -> str:
        await release.wait()
        return "held"

    run = Agent(ScriptedModel(call("hold"), "done"), tools=[hold]).start("go")
    other = asyncio.create_task(run.result())
    impatient = asyncio.create_task(run.result())
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    release.set()
    assert (await other).text == "done"


async def test_a_handler_may_raise_anything_and_cancel_too_late():
    runs: list[Any] = []

    def handle(event: Any) -> None:
        if event.type == "run.complete":
            runs[0].cancel()
        raise asyncio.CancelledError

    agent = Agent(ScriptedModel("done"), on_event=handle)
    runs.append(agent.start("go"))
    assert (await runs[0].result()).text == "done"
    assert agent.active_runs == 0
