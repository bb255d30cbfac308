"""The durability seam on Temporal: the loops run as a workflow, their steps as activities of any worker process.

A run is one workflow. A step is one activity; what it gave is stored once in a folder that all workers share, so that
another process can read it by its key, and an activity that is started again after its worker died finds it there.
"""

import asyncio
import contextlib
import functools
import hashlib
import os
import urllib.parse
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import msgspec
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.exceptions import CancelledError as ActivityCancelled
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

import replan.planning.stages  # noqa: F401  # registers the steps of plans
from replan import loop
from replan.durable import Cancelled, Completed, Completion, Failed, InDoubt, Outcome, Program, StepContext, find_step
from replan.encoding import JSON, JSONObject, clean_text, decode, encode
from replan.errors import JournalError, ReplanError
from replan.planning import loop as planning_loop
from replan.planning.state import PlanningState
from replan.testing.engines import PROGRAMS

STEP = "replan-step"
HEARTBEAT = timedelta(seconds=2)
"""A worker that gives no sign of life for so long is taken for dead."""
MAX_RESULT_BYTES = 1_000_000
"""Well below what the server takes in one message: a result beyond that would be sent again for ever."""

ServicesFactory = Callable[[Path, str], Any]
"""What a worker process has for a run, by the shared folder and the run's id: `StepContext.services`."""


class TemporalDurable:
    """`Durable` inside a workflow. What was started lands in `_ready` in the order of the workflow's history."""

    def __init__(self, *, unattended: str = "deny") -> None:
        info = workflow.info()
        self.run_id = info.workflow_id
        self.events: list[JSON] = []
        self.inbox: dict[str, JSONObject] = {}
        self.answers: dict[str, JSON] = {}
        self._waits = unattended == "wait"
        self._now = info.start_time.timestamp()
        self._keys: set[str] = set()
        self._stops: tuple[str, ...] = ()
        self._asked: set[str] = set()
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._ready: deque[Completion] = deque()

    def start(self, step: str, args: JSON, *, key: str, once: bool = False) -> None:
        find_step(step)
        if self._is_stopped(key):
            return
        task = workflow.start_activity(
            STEP,
            {"step": step, "key": key, "args": args},
            activity_id=f"{key}#{crc32(encode([step, args])):08x}",  # a replay compares it
            start_to_close_timeout=timedelta(hours=1),
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.1), maximum_attempts=1 if once else 0),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        self._enter(key, task, functools.partial(self._step_outcome, key, InDoubt(args) if once else None))

    def sleep(self, seconds: float, *, key: str) -> None:
        if not self._is_stopped(key):
            self._enter(key, asyncio.create_task(workflow.sleep(max(0.0, seconds))), _plain_outcome)

    def expect(
        self, name: str, *, key: str, body: JSON = None, deadline: float | None = None, default: JSON = None
    ) -> None:
        if not self._is_stopped(key):
            item = {"name": name, "body": body}
            self._enter(key, asyncio.create_task(self._answer(item, key, deadline, default)), _plain_outcome)

    async def next(self) -> Completion:
        if not self._ready and not self._running:
            raise RuntimeError(f"run {self.run_id!r} awaits a completion, but nothing that could complete was started")
        await workflow.wait_condition(lambda: bool(self._ready))
        completion = self._ready.popleft()
        self._now = completion.at
        return completion

    def cancel(self, key: str) -> None:
        if task := self._running.get(key):
            self._asked.add(key)
            task.cancel()

    def cancel_prefix(self, prefix: str) -> None:
        """Stop everything whose key begins with `prefix`, now and later in this run."""
        self._stops += (prefix,)
        for key in [key for key in self._running if key.startswith(prefix)]:
            self.cancel(key)

    def now(self) -> float:
        return self._now

    async def emit(self, event: JSON) -> None:
        self.events.append(event)  # a replay builds the same list again

    async def close(self) -> None:
        """Stop what still runs, and wait until it has ended."""
        self.cancel_prefix("")
        await workflow.wait_condition(lambda: not self._running)

    def _is_stopped(self, key: str) -> bool:
        """Whether what is started under this new key is cancelled at once."""
        if key in self._keys:
            raise ValueError(f"key {key!r} was used already in run {self.run_id!r}; a key can be started once")
        self._keys.add(key)
        if self._stops and key.startswith(self._stops):
            self._ready.append(Completion(key, Cancelled(), workflow.now().timestamp()))
            return True
        return False

    def _enter(self, key: str, task: asyncio.Task[Any], outcome: Callable[[asyncio.Task[Any]], Outcome]) -> None:
        def land(task: asyncio.Task[Any]) -> None:
            del self._running[key]
            self._ready.append(Completion(key, outcome(task), workflow.now().timestamp()))

        self._running[key] = task
        task.add_done_callback(land)

    async def _answer(self, item: JSONObject, key: str, deadline: float | None, default: JSON) -> JSON:
        if key not in self.answers and self._waits and (deadline is None or deadline > 0):
            self.inbox[key] = item
            try:
                with contextlib.suppress(TimeoutError):
                    await workflow.wait_condition(lambda: key in self.answers, timeout=deadline)
            finally:
                del self.inbox[key]
        return self.answers.get(key, default)

    def _step_outcome(self, key: str, doubt: InDoubt | None, task: asyncio.Task[Any]) -> Outcome:
        if task.cancelled():
            return Cancelled()
        error = task.exception()
        if error is None:
            result: JSONObject = task.result()
            return Failed(result["failed"]) if "failed" in result else Completed(result["value"])
        cause = error.cause if isinstance(error, ActivityError) else error
        if isinstance(cause, ActivityCancelled):
            return Cancelled()
        if doubt or key in self._asked:
            return doubt or Cancelled()
        return Failed({"type": type(cause).__name__, "message": str(cause)})


def _plain_outcome(task: asyncio.Task[Any]) -> Outcome:
    return Cancelled() if task.cancelled() else Completed(task.result())


@workflow.defn(name="replan-run", failure_exception_types=[Exception])
class RunWorkflow:
    """One run of `agent` or `planning`, giving the final state as JSON, or of a program of the conformance checks."""

    @workflow.init
    def __init__(self, order: JSONObject) -> None:
        self._durable = TemporalDurable(unattended=order["unattended"])
        self._state: Any = PlanningState() if order["program"] == "planning" else loop.AgentState()

    @workflow.run
    async def run(self, order: JSONObject) -> Any:
        try:
            result = await self._run(order["program"], order["input"])
        except (Exception, asyncio.CancelledError) as error:
            await self._durable.close()
            if not isinstance(error, ReplanError):
                raise
            raise ApplicationError(str(error), error.to_json(), type=type(error).__name__) from error
        await self._durable.close()
        return result

    async def _run(self, program: str, input: JSON) -> JSON:
        if program in PROGRAMS:
            return await PROGRAMS[program](self._durable, input)
        await (planning_loop.run if program == "planning" else loop.run)(self._durable, input, self._state)
        return state_json(self._state)

    @workflow.signal
    def answer(self, key: str, value: Any) -> None:
        self._durable.answers.setdefault(key, value)

    @workflow.signal
    def cancel_prefix(self, prefix: str) -> None:
        self._durable.cancel_prefix(prefix)

    @workflow.query
    def events(self, offset: int = 0) -> list[Any]:
        return self._durable.events[offset:]

    @workflow.query
    def inbox(self) -> dict[str, dict[str, Any]]:
        return self._durable.inbox

    @workflow.query
    def snapshot(self) -> dict[str, Any]:
        return state_json(self._state)


def state_json(state: Any) -> JSONObject:
    """What a run has come to, as JSON."""
    result = {name: getattr(state, name) for name in ("status", "stop_reason", "text", "output", "messages")}
    result |= {"usage": state.meter.usage, "tool_calls": state.meter.tool_calls}
    if isinstance(state, PlanningState):
        result["trace"] = state.trace
    return decode(encode(msgspec.to_builtins(result)))


class StepRunner:
    """The activity, in one worker process. What steps were given and gave is kept in files that the workers share."""

    def __init__(self, folder: Path, services: ServicesFactory) -> None:
        self._folder = folder
        self._services = functools.lru_cache(100)(functools.partial(services, folder))

    @activity.defn(name=STEP)
    async def run(self, call: JSONObject) -> JSONObject:
        run_id, key, args = activity.info().workflow_id, call["key"], call["args"]
        assert run_id is not None
        path = self._path(run_id, key)
        if path.exists() and (done := decode(path.read_bytes()).get("result")):
            return done  # the worker died, or lost the server, between storing it and saying so
        _write(path, encode({"args": args}))
        context = StepContext(
            run_id=run_id,
            key=key,
            services=self._services(run_id),
            read=functools.partial(self._read, run_id),
            live=lambda event: None,
            keep=self._keep,
        )
        async with _heartbeats():
            result = await _outcome(call["step"], context, args)
        _write(path, encode({"args": args, "result": result}))
        return result

    async def _read(self, run_id: str, key: str) -> tuple[JSON, JSON]:
        try:
            record: JSONObject = decode(self._path(run_id, key).read_bytes())
        except FileNotFoundError:
            raise LookupError(f"run {run_id!r} has started nothing under the key {key!r}") from None
        return record["args"], record.get("result", {}).get("value")

    def _keep(self, data: bytes, mime: str) -> Path:
        path = self._folder / "artifacts" / hashlib.sha256(data).hexdigest()
        _write(path, data)
        return path

    def _path(self, run_id: str, key: str) -> Path:
        return self._folder / "steps" / run_id / (urllib.parse.quote(key, safe="") + ".json")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)


async def _outcome(step: str, context: StepContext, args: JSON) -> JSONObject:
    try:
        value = await find_step(step)(context, args)
    except ReplanError as error:
        return {"failed": error.to_json()}
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task and task.cancelling():
            raise
        return {"failed": {"type": "CancelledError", "message": f"step {step!r} ended itself as cancelled"}}
    except Exception as error:
        return {"failed": {"type": type(error).__name__, "message": clean_text(str(error))}}
    if (size := len(encode(value))) > MAX_RESULT_BYTES:
        message = f"step {step!r} gave a result of {size:,} bytes; the limit is {MAX_RESULT_BYTES:,}"
        return {"failed": {"type": "ResultTooLarge", "message": message}}
    return {"value": value}


@contextlib.asynccontextmanager
async def _heartbeats() -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(HEARTBEAT.total_seconds() / 5)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()


def sandbox(*shared: str) -> SandboxedWorkflowRunner:
    """Runs workflows where clock, environment, randomness and I/O cannot be reached.

    Modules below `shared` are taken as they are; with none, the loops themselves are imported anew inside, and held to
    the same.
    """
    return SandboxedWorkflowRunner(SandboxRestrictions.default.with_passthrough_modules("msgspec", *shared))


def make_worker(
    client: Client, queue: str, folder: Path, services: ServicesFactory, *, cached: int = 0, strict: bool = False
) -> Worker:
    """A worker that keeps `cached` workflows in memory; with none, each decision comes from a replay of the run.

    With `strict` the loops are held to the sandbox too.
    """
    return Worker(
        client,
        task_queue=queue,
        workflows=[RunWorkflow],
        activities=[StepRunner(folder, services).run],
        workflow_runner=sandbox() if strict else sandbox("replan"),
        max_cached_workflows=cached,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        max_heartbeat_throttle_interval=HEARTBEAT / 5,
    )


async def start_run(client: Client, run_id: str, order: JSONObject, queue: str) -> WorkflowHandle[Any, Any]:
    limit = timedelta(seconds=2)  # for one decision, so that one that was lost with its worker is soon made again
    return await client.start_workflow(RunWorkflow.run, order, id=run_id, task_queue=queue, task_timeout=limit)


class TemporalEngine:
    """Temporal as an `Engine` of the conformance checks: each run has a worker of its own, in this process."""

    can_wait = True
    max_result_bytes = MAX_RESULT_BYTES

    def __init__(self, client: Client, folder: Path) -> None:
        self._client, self._folder = client, folder
        self._programs = dict(PROGRAMS)
        self._handles: dict[str, WorkflowHandle[Any, Any]] = {}
        self._names: dict[str, str] = {}
        self._workers: dict[str, Worker] = {}
        self._told: dict[str, list[JSON]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        PROGRAMS.update(self._programs)
        for worker in self._workers.values():
            await worker.__aexit__(None, None, None)

    async def begin(self, run_id: str, program: Program, input: JSON, *, wait: bool = False) -> None:
        name = self._names[run_id] = program.__name__
        PROGRAMS[name] = program
        order = {"program": name, "input": input, "unattended": "wait" if wait else "deny"}
        self._handles[run_id] = await start_run(self._client, run_id, order, run_id)
        await self._work(run_id)

    async def interrupt(self, run_id: str) -> None:
        self._told[run_id] = await self.events(run_id)  # nobody can be asked while there is no worker
        await self._workers.pop(run_id).__aexit__(None, None, None)

    async def resume(self, run_id: str, program: Program) -> None:
        PROGRAMS[self._names[run_id]] = program
        await self._work(run_id)
        # without a reason to decide, a changed program would be noticed later: at the workflow's next decision
        await self._handles[run_id].signal(RunWorkflow.answer, args=["", None])
        del self._told[run_id]

    async def result(self, run_id: str) -> JSON:
        try:
            return await self._handles[run_id].result()
        except WorkflowFailureError as failure:
            if "Nondeterminism" in str(failure.cause):
                raise JournalError(f"the history of run {run_id!r} does not fit the program") from failure
            raise

    async def cancel_prefix(self, run_id: str, prefix: str) -> None:
        await self._handles[run_id].signal(RunWorkflow.cancel_prefix, prefix)

    async def open_items(self, run_id: str) -> JSONObject:
        items = await self._handles[run_id].query(RunWorkflow.inbox)
        return {key: item["body"] for key, item in items.items()}

    async def answer(self, run_id: str, key: str, value: JSON) -> None:
        await self._handles[run_id].signal(RunWorkflow.answer, args=[key, value])

    async def events(self, run_id: str) -> list[JSON]:
        return self._told.get(run_id) or await self._handles[run_id].query(RunWorkflow.events, 0)

    async def _work(self, run_id: str) -> None:
        worker = make_worker(self._client, run_id, self._folder, lambda folder, run_id: None, cached=10)
        self._workers[run_id] = await worker.__aenter__()
