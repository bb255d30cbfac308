"""The loops that run in process run, resume, cancel and replay unchanged as workflows of a Temporal server.

Run as a program it is a worker: `test_temporal.py ADDRESS QUEUE FOLDER`; it ends when its standard input does.
"""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("temporalio", reason="needs temporalio (make temporal)")

from temporal_engine import RunWorkflow, TemporalEngine, make_worker, sandbox, start_run, state_json
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

from replan import calls, loop
from replan.effects import Services, Stage
from replan.encoding import JSON, JSONObject
from replan.errors import BadRequest
from replan.journal import MemoryJournal, Wiring
from replan.messages import Assistant, ToolCall, ToolResult
from replan.model import ModelRequest
from replan.planning import loop as planning_loop
from replan.planning.stages import planning_parts
from replan.planning.state import PlanningState
from replan.settings import Limits, ModelSettings, Planning
from replan.testing import Reply, ScriptedModel
from replan.testing.engines import CHECKS, Check
from replan.tools import FunctionTool, Toolbox, tool

pytestmark = [pytest.mark.temporal, pytest.mark.asyncio(loop_scope="module")]

PATIENCE = 20.0
"""Seconds after which something that a test waits for is not going to happen."""


# ---- what the workers have: tools that count their calls in files, models whose replies follow from the conversation


def count(folder: Path, what: str) -> int:
    """Count one more call of `what`, whichever process makes it; how many there were, this one included."""
    with (folder / f"calls-{what}").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return len(pids(folder, what))


def pids(folder: Path, what: str) -> list[int]:
    """Which processes called `what`, in order."""
    path = folder / f"calls-{what}"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_tools(folder: Path) -> list[FunctionTool[Any, Any]]:
    @tool(read_only=True)
    async def lookup(key: str) -> str:
        "What is known about a key."
        count(folder, "lookup")
        return f"{key} is {len(key)}" + "." * (500 if key.startswith("turn") else 0)

    @tool(read_only=True)
    async def wait_for(mark: str) -> str:
        "Wait for a mark."
        while not (folder / mark).exists():
            await asyncio.sleep(0.02)
        return f"saw {mark}"

    @tool(read_only=True)
    async def fragile(name: str) -> str:
        "Hang when called for the first time."
        return await hang_once("fragile", name)

    @tool
    async def order(name: str) -> str:
        "Order something: not to be done twice."
        return await hang_once("order", name)

    @tool(read_only=True)
    def broken() -> str:
        "Fail."
        raise ValueError("it is broken")

    async def hang_once(what: str, name: str) -> str:
        if count(folder, what) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                count(folder, f"{what}-told")
                raise
        return f"{what} {name}"

    return [lookup, wait_for, fragile, order, broken]


def call(call_id: str, name: str, /, **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, arguments)


def heard(request: ModelRequest) -> str:
    """All that tools said so far, in the order of the calls."""
    results = [m for m in request.conversation.messages if isinstance(m, ToolResult)]
    return "; ".join(result.text.rstrip(".") for result in results)


def lookups(turns: int) -> list[Reply]:
    return [*(call(f"c{n}", "lookup", key=f"turn{n}") for n in range(turns)), "done"]


SCENES: dict[str, list[Reply]] = {
    "two at once": [[call("c1", "wait_for", mark="go"), call("c2", "lookup", key="ab")], heard],
    "worker dies": [call("c1", "lookup", key="ab"), call("c2", "fragile", name="x"), heard],
    "worker dies in a write": [call("c1", "lookup", key="ab"), call("c2", "order", name="x"), heard],
    "cancelled": [[call("c1", "lookup", key="ab"), call("c2", "order", name="x")], "never said"],
    "refused": [BadRequest("no such model", model="scripted:model", status=400)],
    "10 turns": lookups(10),
    "20 turns": lookups(20),
    "40 turns": lookups(40),
    "plan": [call("c1", "lookup", key="abcd"), lambda request: f"found: {heard(request)}"],
}
PLAN = {
    "thought": "Look up, build on it, look around, and try what is broken.",
    "steps": [
        {"id": "a", "description": "Look up ab", "call": {"tool": "lookup", "arguments": {"key": "ab"}}},
        {"id": "b", "description": "Build on it", "call": {"tool": "lookup", "arguments": {"key": "${a.result}!"}}},
        {"id": "c", "description": "Look around"},
        {"id": "d", "description": "Try it", "call": {"tool": "broken", "arguments": {}}},
    ],
}


def services(folder: Path, run_id: str) -> Services:
    """The live things of one run in one process."""
    goal = (folder / f"goal-{run_id}").read_text()

    def reply(request: ModelRequest) -> Any:
        count(folder, "model")
        told = SCENES[goal][sum(isinstance(message, Assistant) for message in request.conversation.messages)]
        return told(request) if callable(told) else told

    def summary(request: ModelRequest) -> str:
        return str(request.conversation.messages[0].content)

    toolbox = Toolbox(make_tools(folder))
    infos = tuple(each.info for each in toolbox.values())
    executor = ScriptedModel(otherwise=reply)
    stages, functions = {"executor": Stage(phase="execute", model=executor, tools=infos)}, dict[str, Any]()
    if goal == "plan":
        models = {
            "planner": ScriptedModel(otherwise=json.dumps(PLAN)),
            "executor": executor,
            "synthesizer": ScriptedModel(otherwise=summary),
        }
        models["replanner"] = models["planner"]
        settings = dict.fromkeys(models, ModelSettings())
        stages, functions = planning_parts(models, infos, "", settings, Planning(), Limits())
    return Services(stages, toolbox, lambda: folder, functions=functions)


async def serve(address: str, queue: str, folder: str) -> None:
    """Be a worker process, until standard input ends."""
    worker = make_worker(await Client.connect(address), queue, Path(folder), services, cached=10)
    ended = asyncio.Event()
    running = asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.read(), running.call_soon_threadsafe(ended.set)), daemon=True).start()
    async with worker:
        await ended.wait()


# ---- a server, workers, and runs on them


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[WorkflowEnvironment]:
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        dev_server_log_level="error",
        dev_server_extra_args=["--dynamic-config-value", "frontend.enableServerVersionCheck=false"],
    )
    try:
        yield environment
    finally:
        await environment.shutdown()
        del environment
        gc.collect()  # a client that is left to the interpreter's end can abort it


@dataclass
class Told:
    """What a run came to, and what it told meanwhile, without what differs from run to run."""

    result: JSONObject
    events: list[JSONObject]


def task_of(goal: str) -> tuple[str, JSONObject]:
    task: JSONObject = {"agent": "a", "goal": goal, "history": [], "limits": asdict(Limits())}
    if goal == "plan":
        return "planning", {**task, "replan_after": "failure", "tool_selection": "all"}
    return "agent", task


def timeless(value: JSON) -> JSON:
    """The value without times and without the run's id."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in ("seconds", "run_id", "call_id")}
    return [timeless(item) for item in value] if isinstance(value, list) else value


@dataclass
class Bench:
    """One task queue with a folder, and what a test does there."""

    client: Client
    folder: Path
    queue: str = field(default_factory=lambda: f"queue-{uuid.uuid4().hex}")

    def worker(self, *, cached: int = 0, strict: bool = False) -> Worker:
        return make_worker(self.client, self.queue, self.folder, services, cached=cached, strict=strict)

    async def start(self, goal: str, *, unattended: str = "deny") -> WorkflowHandle[Any, Any]:
        run_id = f"run-{uuid.uuid4().hex}"
        (self.folder / f"goal-{run_id}").write_text(goal)
        program, task = task_of(goal)
        order = {"program": program, "input": task, "unattended": unattended}
        return await start_run(self.client, run_id, order, self.queue)

    async def run(self, goal: str, *, strict: bool = False) -> tuple[WorkflowHandle[Any, Any], Told]:
        handle = await self.start(goal)
        async with self.worker(strict=strict):
            return handle, await self.told(handle)

    async def told(self, handle: WorkflowHandle[Any, Any]) -> Told:
        """The end of a run, where a worker is there to be asked."""
        async with asyncio.timeout(PATIENCE):
            return Told(timeless(await handle.result()), timeless(await handle.query(RunWorkflow.events, 0)))

    async def until(self, happened: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not happened():
                await asyncio.sleep(0.02)

    async def until_completed(self, handle: WorkflowHandle[Any, Any], steps: int) -> None:
        """Wait until so many steps have ended, by the workflow's history."""
        async with asyncio.timeout(PATIENCE):
            while (await event_types(handle)).count(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED) < steps:
                await asyncio.sleep(0.02)


async def event_types(handle: WorkflowHandle[Any, Any]) -> list[int]:
    return [event.event_type for event in (await handle.fetch_history()).events]


@pytest.fixture
def bench(server: WorkflowEnvironment, tmp_path: Path) -> Bench:
    return Bench(server.client, tmp_path)


@pytest.fixture
def processes(server: WorkflowEnvironment, bench: Bench) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two worker processes on the test's queue."""
    address = server.client.service_client.config.target_host
    command = [sys.executable, __file__, address, bench.queue, str(bench.folder)]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    yield workers
    try:
        for worker in workers:
            worker.communicate(timeout=10)  # ends its standard input
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert {worker.returncode for worker in workers} <= {0, -signal.SIGKILL}


async def in_memory(goal: str, folder: Path, on_event: Callable[[JSON], None] = lambda event: None) -> Told:
    """The same program on the in-process engine."""
    (folder / "goal-m").write_text(goal)
    told: list[JSONObject] = []

    def hear(event: JSONObject) -> None:
        told.append(event)
        on_event(event)

    program, task = task_of(goal)
    run = await MemoryJournal().create(
        "m", program=program, input=task, wiring=Wiring(services=services(folder, "m"), on_event=hear)
    )
    state: Any = PlanningState() if program == "planning" else loop.AgentState()
    await (planning_loop.run if program == "planning" else loop.run)(run, task, state)
    await run.finish(state.status)
    return Told(timeless(state_json(state)), timeless(told))


def tool_results(events: list[JSONObject]) -> list[str]:
    return [event["output"] for event in events if event["type"] == "step.tool-result"]


def roles(snapshot: JSONObject) -> list[str]:
    return [message["role"] for message in snapshot["messages"]]


# ---- tests


@pytest.mark.parametrize("cached", [0, 1])
async def test_parallel_calls_give_the_same_answer_and_order_as_in_process(
    bench: Bench, tmp_path: Path, cached: int
) -> None:
    local = tmp_path / "local"
    local.mkdir()
    expected = await in_memory(
        "two at once", local, lambda event: event["type"] == "step.tool-result" and (local / "go").touch()
    )
    handle = await bench.start("two at once")
    async with bench.worker(cached=cached, strict=True):
        await bench.until_completed(handle, 2)
        if cached:  # a query of a workflow that is not in memory can get in the way of its next decision
            assert roles(await handle.query(RunWorkflow.snapshot)) == ["user", "assistant", "tool", "tool"]
        (bench.folder / "go").touch()
        told = await bench.told(handle)
    assert told == expected
    assert told.result["text"] == "saw go; ab is 2"
    assert tool_results(told.events) == ["ab is 2", "saw go"]


async def test_a_plan_gives_the_same_answer_and_events_as_in_process(bench: Bench, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    expected = await in_memory("plan", local)
    _, told = await bench.run("plan", strict=True)
    assert told == expected
    assert [(step["kind"], step["outputs"]["result"]) for step in told.result["trace"]] == [
        ("direct", "ab is 2"),
        ("direct", "ab is 2! is 8"),
        ("open", "found: abcd is 4"),
        ("direct", "found: abcd is 4"),
    ]
    assert "ab is 2! is 8" in told.result["text"]


async def test_a_killed_workers_run_is_finished_by_another_process(bench: Bench, processes: Any) -> None:
    handle = await bench.start("worker dies")
    await bench.until(lambda: pids(bench.folder, "fragile"))
    [killed] = pids(bench.folder, "fragile")
    os.kill(killed, signal.SIGKILL)
    result = await asyncio.wait_for(handle.result(), PATIENCE)
    assert result["text"] == "ab is 2; fragile x"
    again = pids(bench.folder, "fragile")
    assert len(again) == 2
    assert again[1] != killed
    assert len(pids(bench.folder, "lookup")) == 1
    assert len(pids(bench.folder, "model")) == 3


async def test_a_write_that_a_worker_died_in_is_reported_as_unknown(bench: Bench, processes: Any) -> None:
    handle = await bench.start("worker dies in a write")
    await bench.until(lambda: pids(bench.folder, "order"))
    os.kill(pids(bench.folder, "order")[0], signal.SIGKILL)
    result = await asyncio.wait_for(handle.result(), PATIENCE)
    assert result["text"].startswith(f"ab is 2; {calls.OUTCOME_UNKNOWN[:16]}")
    assert result["status"] == "complete"
    assert len(pids(bench.folder, "order")) == 1
    assert len(pids(bench.folder, "lookup")) == 1


async def test_a_person_answers_for_a_write_in_doubt(bench: Bench, processes: Any) -> None:
    handle = await bench.start("worker dies in a write", unattended="wait")
    await bench.until(lambda: pids(bench.folder, "order"))
    os.kill(pids(bench.folder, "order")[0], signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        while not (inbox := await handle.query(RunWorkflow.inbox)):
            await asyncio.sleep(0.05)
    assert {key: item["name"] for key, item in inbox.items()} == {"t1/0/doubt": "in-doubt"}
    await handle.signal(RunWorkflow.answer, args=["t1/0/doubt", {"outcome": "done", "result": "order 17"}])
    result = await asyncio.wait_for(handle.result(), PATIENCE)
    assert result["text"] == "ab is 2; order 17"
    assert len(pids(bench.folder, "order")) == 1


async def test_cancelling_the_workflow_tells_the_tool_and_starts_nothing_more(bench: Bench) -> None:
    handle = await bench.start("cancelled")
    async with bench.worker():
        await bench.until_completed(handle, 2)
        await bench.until(lambda: pids(bench.folder, "order"))
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failure:
            await asyncio.wait_for(handle.result(), PATIENCE)
        assert isinstance(failure.value.cause, CancelledError)
        description = await handle.describe()
        left = await handle.query(RunWorkflow.snapshot)
    assert description.status == WorkflowExecutionStatus.CANCELED
    assert not description.raw_description.pending_activities
    assert {what: len(pids(bench.folder, what)) for what in ("model", "lookup", "order", "order-told")} == {
        "model": 1,
        "lookup": 1,
        "order": 1,
        "order-told": 1,
    }
    assert roles(left) == ["user", "assistant", "tool", "tool"]


async def test_a_model_that_fails_for_good_fails_the_workflow_with_its_error(bench: Bench) -> None:
    with pytest.raises(WorkflowFailureError) as failure:
        await bench.run("refused")
    cause = failure.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.details[0] == {
        "type": "BadRequest",
        "message": "no such model",
        "model": "scripted:model",
        "status": 400,
    }
    assert len(pids(bench.folder, "model")) == 1


@pytest.mark.parametrize("goal", ["10 turns", "plan"])
async def test_a_history_replays_to_the_same_decisions(bench: Bench, goal: str) -> None:
    handle, _ = await bench.run(goal)
    history = await handle.fetch_history()
    replayed = await Replayer(workflows=[RunWorkflow], workflow_runner=sandbox()).replay_workflow(history)
    assert replayed.replay_failure is None


async def test_the_history_grows_linearly(bench: Bench) -> None:
    async with bench.worker(cached=3):
        runs = [await bench.start(f"{turns} turns") for turns in (10, 20, 40)]
        for run in runs:
            assert (await asyncio.wait_for(run.result(), PATIENCE))["text"] == "done"
    sizes = [sum(event.ByteSize() for event in (await run.fetch_history()).events) for run in runs]
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert second == pytest.approx(2 * first, rel=0.05)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_does_what_every_engine_must_do(check: Check, server: WorkflowEnvironment, tmp_path: Path) -> None:
    await check(lambda: TemporalEngine(server.client, tmp_path))


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
    gc.collect()  # see the server's fixture
