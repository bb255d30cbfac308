"""The agents: the only place that knows which parts there are and puts them together."""

import asyncio
import contextvars
import inspect
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self

from typing_extensions import TypeVar

from . import events, loop
from .effects import Services, Stage, text_watch
from .encoding import JSON, JSONObject, clean_text, normalise
from .errors import ConfigError, McpError, RunFailed
from .journal import InboxItem, Journal, LocalRun, RunStatus, ToolHistory, Wiring, check_run_id, open_journal
from .messages import Message, repaired, to_json
from .model import Model, Stages
from .models import default_model, resolve
from .output import TypedOutput
from .planning import Plan
from .planning import loop as planning_loop
from .planning.plan import to_json as plan_json
from .planning.stages import planning_parts
from .planning.state import PlanningState
from .run import EventHandler, Launch, PlanningResult, PlanPreview, Run, RunResult, StepStartHandler
from .settings import Limits, ModelSettings, Planning
from .tool import Tool, ToolInfo
from .tools import Toolbox

if TYPE_CHECKING:
    from .mcp import McpServers, ServerStatus

__all__ = ["Agent", "PlanningAgent"]

_log = logging.getLogger("replan")

OutputT = TypeVar("OutputT", default=None)
ResultT = TypeVar("ResultT", bound=RunResult[Any])
Answerer = Callable[[InboxItem], Awaitable[JSON]]
ToolLike = Tool | Callable[..., Any]


class _Agent(Generic[ResultT]):
    """What the agents share: tools, servers, the journal, and the handle API. Several runs may go on at once."""

    _program_name: str

    def __init__(
        self,
        *,
        tools: Iterable[ToolLike],
        mcp_servers: Any,
        fail_on_no_tools: bool,
        journal: str | Path | Journal | None,
        unattended: Literal["deny", "wait"],
        answerer: Answerer | None,
        on_event: EventHandler | None,
        name: str,
    ) -> None:
        self.name = name
        self._native = Toolbox(tools).check()
        self._mcp_config = mcp_servers
        self._fail_on_no_tools = fail_on_no_tools
        self._servers: McpServers | None = None
        self._arriving: McpServers | None = None
        self._journal_source = journal
        self._journal: Journal | None = None
        self._unattended: Literal["deny", "wait"] = unattended
        self._answerer = answerer
        self._on_event = on_event
        self._connecting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._toolbox: Toolbox | None = None
        self._runs: set[Run[Any]] = set()
        self._closed = False
        if mcp_servers:
            from .mcp import parse_servers

            self._mcp_config = parse_servers(mcp_servers)

    # ---- running

    def start(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        deps: Any = None,
        run_id: str | None = None,
        meta: JSONObject | None = None,
        on_event: EventHandler | None = None,
        on_step_start: StepStartHandler | None = None,
    ) -> Run[ResultT]:
        """Start a run and return its handle: events, `result()`, `cancel()`. Needs a running event loop.

        `history` are messages of earlier runs (`result.messages`); it is not changed. `deps` is handed to tools in
        their context. `meta` is stored with the run in the journal. `on_event` is called besides the agent's own.
        Raises `ConfigError` for an empty goal or an impossible run id.
        """
        return self._start(goal, history, deps, run_id, meta, on_event, on_step_start, collect=True)

    stream = start

    async def run(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        deps: Any = None,
        run_id: str | None = None,
        meta: JSONObject | None = None,
        on_event: EventHandler | None = None,
        on_step_start: StepStartHandler | None = None,
    ) -> ResultT:
        """Run to the end and return the result.

        Arguments as for `start`. Cancelling the calling task cancels the run.
        """
        return await self._start(goal, history, deps, run_id, meta, on_event, on_step_start, collect=False)

    def run_sync(self, goal: str, *, history: Sequence[Message] = (), deps: Any = None) -> ResultT:
        """`run` for code that is not async; works inside a running event loop too, which it holds up.

        Connections are made and closed for this one run.
        """

        async def whole() -> ResultT:
            async with self._copy() as agent:
                return await agent.run(goal, history=history, deps=deps)

        return _run_to_end(whole)

    def resume(
        self,
        run_id: str,
        *,
        deps: Any = None,
        on_event: EventHandler | None = None,
        on_step_start: StepStartHandler | None = None,
    ) -> Run[ResultT]:
        """Go on with a run of this agent's journal from where it was left; finished calls are not made again.

        The goal, the history and the limits are those of the run's start. Awaiting the handle gives the result, or
        raises `RunNotFound`, `JournalBusy` while another process drives the run, and `JournalError` for a run that is
        complete.
        """
        ident, state, journal = check_run_id(run_id), self._new_state(), self._open_journal()

        async def reopen(wiring: Wiring) -> LocalRun:
            session = await journal.open(ident, wiring=wiring)
            if session.info.program != self._program_name:
                await session.release()
                raise ConfigError(
                    f"run {run_id!r} is of a {session.info.program!r} agent and cannot be resumed by a "
                    f"{self._program_name!r} agent; use the matching class"
                )
            return session

        return self._launch(ident, state, reopen, deps, on_event, on_step_start, collect=True)

    def _start(
        self,
        goal: str,
        history: Sequence[Message],
        deps: Any,
        run_id: str | None,
        meta: JSONObject | None,
        on_event: EventHandler | None,
        on_step_start: StepStartHandler | None,
        *,
        collect: bool,
        **task_options: JSON,
    ) -> Run[ResultT]:
        _check_input(goal, history)
        ident = _new_run_id() if run_id is None else check_run_id(run_id)
        task = {
            "agent": self.name,
            "goal": clean_text(goal),
            "history": normalise([to_json(message) for message in repaired(history)]),
            **self._task(),
            **task_options,
        }
        journal = self._open_journal()

        async def create(wiring: Wiring) -> LocalRun:
            return await journal.create(ident, program=self._program_name, input=task, meta=meta or {}, wiring=wiring)

        return self._launch(ident, self._new_state(), create, deps, on_event, on_step_start, collect=collect)

    def _launch(
        self,
        run_id: str,
        state: Any,
        open_run: Callable[[Wiring], Awaitable[LocalRun]],
        deps: Any,
        on_event: EventHandler | None,
        on_step_start: StepStartHandler | None,
        *,
        collect: bool,
    ) -> Run[ResultT]:
        sandbox = _Sandbox(run_id)
        launch: Launch[ResultT] = Launch(
            run_id=run_id,
            program=partial(self._program, state),
            state=state,
            services=partial(self._services, sandbox, deps),
            open=open_run,
            result=partial(self._result, run_id, state),
            ended=partial(self._run_ended, sandbox),
            on_event=_both(self._on_event, on_event),
            on_step_start=on_step_start,
            answerer=self._answerer,
            answerers=self._answerers(),
            unattended=self._unattended,
            collect=collect,
        )
        run = Run(launch)
        self._runs.add(run)
        return run

    def _run_ended(self, sandbox: "_Sandbox", run: Run[Any]) -> None:
        self._runs.discard(run)
        sandbox.remove()

    # ---- what the kinds of agent differ in

    def _task(self) -> JSONObject:
        raise NotImplementedError

    def _new_state(self) -> Any:
        raise NotImplementedError

    async def _program(self, state: Any, durable: LocalRun, task: JSON) -> None:
        raise NotImplementedError

    async def _parts(self, tools: tuple[ToolInfo, ...]) -> tuple[dict[str, Stage], dict[str, Callable[..., Any]]]:
        """The stages, by name, and the functions that steps call."""
        raise NotImplementedError

    def _result(self, run_id: str, state: Any, status: RunStatus) -> ResultT:
        raise NotImplementedError

    def _copy(self) -> Self:
        raise NotImplementedError

    def _models(self) -> Iterable[Model]:
        raise NotImplementedError

    def _answerers(self) -> Mapping[str, Answerer]:
        return {}

    # ---- parts

    async def _services(self, sandbox: "_Sandbox", deps: Any) -> Services:
        toolbox = self._toolbox or await self._connect()
        stages, functions = await self._parts(_infos(toolbox))
        return Services(stages=stages, toolbox=toolbox, sandbox=sandbox.path, deps=deps, functions=functions)

    async def _connect(self) -> Toolbox:
        """Connect the servers, once, and mount their tools behind the agent's own, in declared order."""
        async with self._turn():
            self._check_open()
            if self._toolbox is None:
                if self._mcp_config and self._servers is None:
                    self._servers = await self._connected()
                mounted = self._servers.tools if self._servers else ()
                self._toolbox = Toolbox([*self._native.values(), *mounted])
        return self._toolbox

    async def _connected(self) -> "McpServers":
        """The servers, connected; `close` may come in between, and then they are closed too."""
        from .mcp import McpServers

        self._arriving = servers = McpServers(self._mcp_config, fail_on_no_tools=self._fail_on_no_tools)
        try:
            await servers.__aenter__()
        except McpError:
            self._check_open()
            raise
        finally:
            self._arriving = None
        if self._closed:
            await servers.close()
        self._check_open()
        return servers

    def _turn(self) -> asyncio.Lock:
        """The lock for connecting, a new one where the event loop that used it is gone."""
        loop = asyncio.get_running_loop()
        if self._loop is None or (self._loop is not loop and not self._loop.is_running()):
            self._loop, self._connecting, self._arriving = loop, asyncio.Lock(), None
        return self._connecting

    def _remarks(self) -> list[str]:
        """What the planner is told of the servers."""
        if self._servers is None:
            return []
        failed = [f"Server {s.name!r} is not available: {s.error}" for s in self._servers.statuses if s.error]
        said = [f"About the server {name!r}: {text}" for name, text in self._servers.instructions.items()]
        return [*failed, *said]

    def _open_journal(self) -> Journal:
        self._check_open()
        if self._journal is None:
            self._journal = open_journal(self._journal_source)
        return self._journal

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError(f"the agent {self.name!r} is closed; make a new one")

    # ---- the agent

    async def list_tools(self) -> list[ToolInfo]:
        """The tools that runs have, connecting the servers where that has not been done."""
        return list(_infos(self._toolbox or await self._connect()))

    async def server_statuses(self) -> "list[ServerStatus]":
        """How the MCP servers are, connecting them where that has not been done."""
        await self._connect()
        return list(self._servers.statuses) if self._servers else []

    async def inbox(self, run_id: str | None = None) -> list[InboxItem]:
        """What the run waits for from people, or, without `run_id`, all running and paused runs of the journal.

        Raises `RunNotFound`.
        """
        return await self._open_journal().inbox(run_id)

    async def answer(self, run_id: str, key: str, value: JSON) -> None:
        """Answer an open inbox item of the run; the first answer counts. A paused run then goes on with `resume`.

        Raises `RunNotFound`, or `JournalError` where no such item is open.
        """
        await self._open_journal().answer(run_id, key, value)

    async def reconnect(self) -> None:
        """Close and connect the MCP servers anew, with fresh headers. Raises `ConfigError` while runs are active."""
        if self._runs:
            raise ConfigError(f"{len(self._runs)} runs are active; reconnect when they have ended")
        async with self._turn():
            servers, self._servers, self._toolbox = self._servers, None, None
            if servers:
                await servers.close()
        await self._connect()

    @property
    def active_runs(self) -> int:
        """How many runs are going on."""
        return len(self._runs)

    async def close(self, *, wait_for_runs: bool = False, timeout: float = 30.0) -> None:
        """End the agent: its runs (cancelled, or with `wait_for_runs` awaited up to `timeout` seconds), servers,
        models, journal.

        May be called twice.
        """
        self._closed = True
        runs = list(self._runs)
        until = time.monotonic() + (timeout if wait_for_runs else 0.0)
        for run in runs:
            await run.wait(max(0.0, until - time.monotonic()))
        for run in runs:
            run.cancel()
        for run in runs:
            await run.wait()
        self._toolbox = None
        for servers in (self._arriving, self._servers):
            if servers:
                await servers.close()
        self._servers = None
        for model in self._models():
            await model.close()
        if self._journal is not None and self._journal is not self._journal_source:
            await self._journal.close()
            self._journal = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Agent(_Agent[RunResult[OutputT]]):
    """The plain agent: a model in a loop with tools.

    Args:
        model: `provider:name`, or a `Model`; None takes the environment's default.
        tools: functions (decorated with `@tool` or not) and `Tool` objects.
        mcp_servers: a dict of name to URL or options, the content or path of an `mcp.json`.
        system_prompt: standing instructions.
        output_type: a type that the answer must have; `result.output` holds it, validated.
        journal: a file for a SQLite journal, or a `Journal`; by default runs are kept in memory.
        unattended: what becomes of questions that nobody here can answer: `deny`, or `wait` (the run pauses).
        answerer: answers such questions in this process, an async function of an `InboxItem`. Of an interrupted call
            (item `in-doubt`) it says `{"outcome": "done", "result": text}`, `{"outcome": "not-done"}`, or None.
        fail_on_no_tools: raise where none of the MCP servers can be reached.
    """

    _program_name = "agent"

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        tools: Iterable[ToolLike] = (),
        mcp_servers: Any = None,
        system_prompt: str = "",
        output_type: type[OutputT] | None = None,
        limits: Limits = Limits(),
        settings: ModelSettings = ModelSettings(),
        journal: str | Path | Journal | None = None,
        unattended: Literal["deny", "wait"] = "deny",
        answerer: Answerer | None = None,
        on_event: EventHandler | None = None,
        fail_on_no_tools: bool = False,
        name: str = "agent",
    ) -> None:
        tools = tuple(tools)
        self._arguments = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._model = resolve(model or default_model(), settings=settings)
        self._system_prompt, self._limits, self._settings = system_prompt, limits, settings
        self._typed = TypedOutput(output_type) if output_type is not None else None
        super().__init__(
            tools=tools,
            mcp_servers=mcp_servers,
            fail_on_no_tools=fail_on_no_tools,
            journal=journal,
            unattended=unattended,
            answerer=answerer,
            on_event=on_event,
            name=name,
        )

    def _copy(self) -> "Agent[OutputT]":
        return Agent(**self._arguments)

    def _models(self) -> Iterable[Model]:
        return [self._model] if self._model is not self._arguments["model"] else []

    def _task(self) -> JSONObject:
        return {"limits": asdict(self._limits)}

    def _new_state(self) -> loop.AgentState:
        return loop.AgentState()

    async def _program(self, state: loop.AgentState, durable: LocalRun, task: JSON) -> None:
        await loop.run(durable, task, state)
        state.value = _typed_value(self._typed, state.output)

    async def _parts(self, tools: tuple[ToolInfo, ...]) -> tuple[dict[str, Stage], dict[str, Callable[..., Any]]]:
        typed = self._typed
        stage = Stage(
            phase="execute",
            model=self._model,
            instructions=self._system_prompt,
            tools=tools,
            schema=typed.schema if typed else None,
            read=(lambda args, text: typed.read(text)) if typed else None,
            settings=self._settings,
            watch=text_watch(events.FinalTextDelta, events.FinalReasoningDelta),
        )
        return {"executor": stage}, {}

    def _result(self, run_id: str, state: loop.AgentState, status: RunStatus) -> RunResult[OutputT]:
        return RunResult(**_common(run_id, state, status))


class PlanningAgent(_Agent[PlanningResult[OutputT]]):
    """The planning agent: plans, executes step by step, replans where a step did not work, and answers.

    Arguments as for `Agent`; besides:

    Args:
        models: other models for single stages; the replanner uses the planner's.
        planning: how a plan is followed.
        system_prompt: added to the instructions of all stages.
    """

    _program_name = "planning"

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        models: Stages = Stages(),
        tools: Iterable[ToolLike] = (),
        mcp_servers: Any = None,
        system_prompt: str = "",
        output_type: type[OutputT] | None = None,
        limits: Limits = Limits(),
        planning: Planning = Planning(),
        settings: ModelSettings = ModelSettings(),
        journal: str | Path | Journal | None = None,
        unattended: Literal["deny", "wait"] = "deny",
        answerer: Answerer | None = None,
        on_event: EventHandler | None = None,
        fail_on_no_tools: bool = False,
        name: str = "planning agent",
    ) -> None:
        tools = tuple(tools)
        self._arguments = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._stage_models = _resolve_stages(model, models, settings)
        self._system_prompt, self._limits, self._planning, self._settings = system_prompt, limits, planning, settings
        self._typed = TypedOutput(output_type) if output_type is not None else None
        super().__init__(
            tools=tools,
            mcp_servers=mcp_servers,
            fail_on_no_tools=fail_on_no_tools,
            journal=journal,
            unattended=unattended,
            answerer=answerer,
            on_event=on_event,
            name=name,
        )

    def start(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        deps: Any = None,
        run_id: str | None = None,
        meta: JSONObject | None = None,
        on_event: EventHandler | None = None,
        on_step_start: StepStartHandler | None = None,
        plan: Plan | JSONObject | None = None,
        dry_run: bool = False,
    ) -> Run[PlanningResult[OutputT]]:
        """Start a run and return its handle, see `Agent.start`.

        `plan` is run instead of one that the planner writes (a `Plan`, or the same as JSON); where it cannot be run as
        it is, the run fails with `ConfigError`, which says why. With `dry_run` no call that may write is made:
        `result.effects` says which would have been.
        """
        options = {"plan": _plan_json(plan), "dry_run": dry_run}
        return self._start(goal, history, deps, run_id, meta, on_event, on_step_start, collect=True, **options)

    stream = start

    async def run(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        deps: Any = None,
        run_id: str | None = None,
        meta: JSONObject | None = None,
        on_event: EventHandler | None = None,
        on_step_start: StepStartHandler | None = None,
        plan: Plan | JSONObject | None = None,
        dry_run: bool = False,
    ) -> PlanningResult[OutputT]:
        """Run to the end and return the result. Arguments as for `start`."""
        options = {"plan": _plan_json(plan), "dry_run": dry_run}
        return await self._start(goal, history, deps, run_id, meta, on_event, on_step_start, collect=False, **options)

    async def plan(
        self, goal: str, *, history: Sequence[Message] = (), plan: Plan | JSONObject | None = None, deps: Any = None
    ) -> PlanPreview:
        """The plan for a goal, checked and priced, and not run. With `plan`: that one, checked and priced.

        Raises `RunFailed` where the planner refuses, and what `run` raises.
        """
        options = {"plan": _plan_json(plan), "only_plan": True}
        result = await self._start(goal, history, deps, None, None, None, None, collect=False, **options)
        if result.plan is None:
            raise RunFailed(f"there is no plan: {result.stop_reason}{': ' if result.text else ''}{result.text}")
        return PlanPreview(goal, result.plan, result.findings, result.price, result.origins, result.usage)

    def _copy(self) -> "PlanningAgent[OutputT]":
        return PlanningAgent(**self._arguments)

    def _models(self) -> Iterable[Model]:
        given: Stages = self._arguments["models"]
        foreign = (self._arguments["model"], given.planner, given.executor, given.synthesizer)
        return [model for model in set(self._stage_models.values()) if not any(model is other for other in foreign)]

    def _task(self) -> JSONObject:
        planning, trigger = self._planning, self._planning.replan_after
        return {
            "limits": asdict(self._limits),
            "replan_after": trigger if isinstance(trigger, str) else "function",
            "tool_selection": planning.tool_selection,
            "step_kinds": sorted(planning.step_kinds),
            "max_parallel_steps": planning.max_parallel_steps,
            "review": planning.review,
            "checks": sorted(planning.checks),
            "with_cost": planning.with_cost,
            "plan": None,
            "only_plan": False,
            "dry_run": False,
        }

    def _answerers(self) -> Mapping[str, Answerer]:
        reviewer = self._planning.review_with
        return {} if reviewer is None else {"plan-review": partial(_ask, reviewer)}

    def _new_state(self) -> PlanningState:
        return PlanningState()

    async def _program(self, state: PlanningState, durable: LocalRun, task: JSON) -> None:
        await planning_loop.run(durable, task, state)
        state.value = _typed_value(self._typed, state.output)

    async def _parts(self, tools: tuple[ToolInfo, ...]) -> tuple[dict[str, Stage], dict[str, Callable[..., Any]]]:
        history = await _tool_history(self._open_journal(), [info.name for info in tools])
        return planning_parts(
            self._stage_models,
            tools,
            self._system_prompt,
            self._settings,
            self._planning,
            self._limits,
            output=self._typed,
            remarks=self._remarks(),
            history=history,
        )

    def _result(self, run_id: str, state: PlanningState, status: RunStatus) -> PlanningResult[OutputT]:
        return PlanningResult(
            **_common(run_id, state, status),
            plan=state.plan,
            trace=tuple(state.trace),
            iterations=state.iterations,
            revisions=state.revisions,
            findings=tuple(state.findings),
            price=state.price,
            origins=state.origins,
            effects=tuple(state.effects),
        )


def _check_input(goal: Any, history: Sequence[Any]) -> None:
    """Callers without a type checker pass other things too. Raises `ConfigError`."""
    if not isinstance(goal, str):
        raise ConfigError(f"the goal is {goal!r}; say in a text what the agent is to do")
    if not goal.strip():
        raise ConfigError("the goal is empty; say what the agent is to do")
    for message in history:
        if not isinstance(message, Message):
            raise ConfigError(f"{message!r} in history is no message; give `result.messages`, or user('...')")


async def _tool_history(journal: Journal, tools: list[str]) -> dict[str, ToolHistory]:
    """What a journal knows of tools; one that somebody else wrote may not know how to tell."""
    try:
        return await journal.tool_history(tools)
    except Exception:  # noqa: BLE001  # a run does not depend on it
        _log.debug("the journal was not asked for earlier tool calls", exc_info=True)
        return {}


async def _ask(function: Callable[[InboxItem], Any], item: InboxItem) -> JSON:
    answer = function(item)
    return await answer if inspect.isawaitable(answer) else answer


def _plan_json(plan: Plan | JSONObject | None) -> JSON:
    return plan_json(plan) if isinstance(plan, Plan) else normalise(plan)


def _infos(toolbox: Toolbox) -> tuple[ToolInfo, ...]:
    return tuple(tool.info for tool in toolbox.values())


class _Sandbox:
    """The run's folder for files, made on first use and removed with the run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._path: Path | None = None

    def path(self) -> Path:
        if self._path is None:
            import tempfile

            self._path = Path(tempfile.mkdtemp(prefix=f"replan-{self._run_id}-"))
        return self._path

    def remove(self) -> None:
        if self._path is not None:
            import shutil

            shutil.rmtree(self._path, ignore_errors=True)


def _typed_value(typed: TypedOutput | None, output: JSON) -> Any:
    if typed is None or output is None:
        return None
    try:
        return typed.value(output)
    except ValueError as error:
        raise ConfigError(
            f"the output does not fit this agent's output_type; resume with that of the start: {error}"
        ) from None


def _common(run_id: str, state: loop.AgentState | PlanningState, status: RunStatus) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "status": status,
        "text": state.text,
        "output": state.value,
        "stop_reason": state.stop_reason,
        "usage": state.meter.usage,
        "usage_by_model": dict(state.meter.by_model),
        "tool_calls": state.meter.tool_calls,
        "raw_messages": state.messages,
    }


def _resolve_stages(model: str | Model | None, stages: Stages, settings: ModelSettings) -> Mapping[str, Model]:
    """A model for each stage; the same string gives the same object."""
    known: dict[str, Model] = {}

    def get(wanted: str | Model | None) -> Model:
        if isinstance(wanted, str):
            return known.setdefault(wanted, resolve(wanted, settings=settings))
        return resolve(wanted, settings=settings) if wanted is not None else get_default()

    def get_default() -> Model:
        if "" not in known:
            known[""] = get(model) if model is not None else resolve(default_model(), settings=settings)
        return known[""]

    return {
        "planner": get(stages.planner),
        "executor": get(stages.executor),
        "synthesizer": get(stages.synthesizer),
    }


def _both(first: EventHandler | None, second: EventHandler | None) -> EventHandler | None:
    if first is None or second is None:
        return first or second

    def handle(event: events.AnyEvent) -> None:
        try:
            first(event)
        finally:
            second(event)

    return handle


def _new_run_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-") + os.urandom(4).hex()


def _run_to_end(main: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """`asyncio.run`, in a thread of its own where this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1, "replan run_sync") as threads:
        return threads.submit(contextvars.copy_context().run, asyncio.run, main()).result()
