"""What the agents share: starting and resuming runs, the journal, the inbox, closing."""

import asyncio
import contextvars
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from . import events
from .connections import Connections, ToolLike
from .effects import Services, Stage
from .encoding import JSON, JSONObject, clean_text, normalise
from .errors import ConfigError
from .journal import InboxItem, Journal, LocalRun, RunStatus, Wiring, check_run_id, open_journal
from .messages import Content, Message, part_json, repaired, to_json
from .model import Model
from .output import TypedOutput
from .run import EventHandler, Launch, Run, RunResult, StepStartHandler
from .sandbox import Sandbox
from .settings import ModelSettings
from .tool import ToolInfo

if TYPE_CHECKING:
    from .mcp import ServerStatus

__all__ = ["Answerer", "BaseAgent", "Parts", "common_fields", "typed_value"]

ResultT = TypeVar("ResultT", bound=RunResult[Any])
Answerer = Callable[[InboxItem], Awaitable[JSON]]
Parts = tuple[dict[str, Stage], dict[str, Callable[..., Any]]]
"""The stages of an agent, by name, and the functions that its steps call."""


class BaseAgent(Generic[ResultT]):
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
        self._connections = Connections(name, tools, mcp_servers, fail_on_no_tools=fail_on_no_tools)
        self._journal_source = journal
        self._journal: Journal | None = None
        self._unattended: Literal["deny", "wait"] = unattended
        self._answerer = answerer
        self._on_event = on_event
        self._runs: set[Run[Any]] = set()

    # ---- running

    def start(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        attachments: Sequence[Content] = (),
        deps: Any = None,
        run_id: str | None = None,
        meta: JSONObject | None = None,
        on_event: EventHandler | None = None,
        on_step_start: StepStartHandler | None = None,
    ) -> Run[ResultT]:
        """Start a run and return its handle: events, `result()`, `cancel()`. Needs a running event loop.

        `history` are messages of earlier runs (`result.messages`); it is not changed. `attachments` are images, sounds
        and files that belong to the goal (`replan.attachment(path)` makes one); a model that cannot take one is told
        what it is. `deps` is handed to tools in their context. `meta` is stored with the run in the journal. `on_event`
        is called besides the agent's own. Raises `ConfigError` for an empty goal or an impossible run id.
        """
        return self._start(goal, history, attachments, deps, run_id, meta, on_event, on_step_start, collect=True)

    stream = start

    async def run(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        attachments: Sequence[Content] = (),
        deps: Any = None,
        run_id: str | None = None,
        meta: JSONObject | None = None,
        on_event: EventHandler | None = None,
        on_step_start: StepStartHandler | None = None,
    ) -> ResultT:
        """Run to the end and return the result.

        Arguments as for `start`. Cancelling the calling task cancels the run.
        """
        return await self._start(goal, history, attachments, deps, run_id, meta, on_event, on_step_start, collect=False)

    def run_sync(
        self,
        goal: str,
        *,
        history: Sequence[Message] = (),
        attachments: Sequence[Content] = (),
        deps: Any = None,
    ) -> ResultT:
        """`run` for code that is not async; works inside a running event loop too, which it holds up.

        Connections are made and closed for this one run.
        """

        async def whole() -> ResultT:
            async with self._copy() as agent:
                return await agent.run(goal, history=history, attachments=attachments, deps=deps)

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
        attachments: Sequence[Content],
        deps: Any,
        run_id: str | None,
        meta: JSONObject | None,
        on_event: EventHandler | None,
        on_step_start: StepStartHandler | None,
        *,
        collect: bool,
        **task_options: JSON,
    ) -> Run[ResultT]:
        _check_input(goal, history, attachments)
        ident = _new_run_id() if run_id is None else check_run_id(run_id)
        task = {
            "agent": self.name,
            "goal": clean_text(goal),
            "history": normalise([to_json(message) for message in repaired(history)]),
            **({"attachments": [part_json(part) for part in attachments]} if attachments else {}),
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
        sandbox = Sandbox(run_id)
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

    def _run_ended(self, sandbox: Sandbox, run: Run[Any]) -> None:
        self._runs.discard(run)
        sandbox.remove()

    # ---- what the kinds of agent differ in

    def _task(self) -> JSONObject:
        raise NotImplementedError

    def _new_state(self) -> Any:
        raise NotImplementedError

    async def _program(self, state: Any, durable: LocalRun, task: JSON) -> None:
        raise NotImplementedError

    async def _parts(self, tools: tuple[ToolInfo, ...]) -> Parts:
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

    async def _services(self, sandbox: Sandbox, deps: Any) -> Services:
        toolbox = await self._connections.toolbox()
        stages, functions = await self._parts(await self._connections.infos())
        return Services(
            stages=stages, toolbox=toolbox, sandbox=sandbox.path, deps=deps, functions=functions, client=self.name
        )

    def _open_journal(self) -> Journal:
        self._connections.check_open()
        if self._journal is None:
            self._journal = open_journal(self._journal_source)
        return self._journal

    # ---- the agent

    async def list_tools(self) -> list[ToolInfo]:
        """The tools that runs have, connecting the servers where that has not been done."""
        return list(await self._connections.infos())

    async def server_statuses(self) -> "list[ServerStatus]":
        """How the MCP servers are, connecting them where that has not been done."""
        return await self._connections.statuses()

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
        await self._connections.reconnect()

    @property
    def active_runs(self) -> int:
        """How many runs are going on."""
        return len(self._runs)

    async def close(self, *, wait_for_runs: bool = False, timeout: float = 30.0) -> None:
        """End the agent: its runs (cancelled, or with `wait_for_runs` awaited up to `timeout` seconds), servers,
        models, journal.

        May be called twice.
        """
        self._connections.closed = True
        runs = list(self._runs)
        until = time.monotonic() + (timeout if wait_for_runs else 0.0)
        for run in runs:
            await run.wait(max(0.0, until - time.monotonic()))
        for run in runs:
            run.cancel()
        for run in runs:
            await run.wait()
        await self._connections.close()
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


def typed_value(typed: TypedOutput | None, output: JSON) -> Any:
    """The output as the Python type that was asked for. Raises `ConfigError` where it does not fit that."""
    if typed is None or output is None:
        return None
    try:
        return typed.value(output)
    except ValueError as error:
        raise ConfigError(
            f"the output does not fit this agent's output_type; resume with that of the start: {error}"
        ) from None


def common_fields(run_id: str, state: Any, status: RunStatus, settings: ModelSettings) -> dict[str, Any]:
    """What every result has, from the state of a run."""
    return {
        "cost_estimator": settings.cost_estimator,
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


def _check_input(goal: Any, history: Sequence[Any], attachments: Sequence[Any]) -> None:
    """Callers without a type checker pass other things too. Raises `ConfigError`."""
    if not isinstance(goal, str):
        raise ConfigError(f"the goal is {goal!r}; say in a text what the agent is to do")
    if not goal.strip():
        raise ConfigError("the goal is empty; say what the agent is to do")
    for message in history:
        if not isinstance(message, Message):
            raise ConfigError(f"{message!r} in history is no message; give `result.messages`, or user('...')")
    for part in attachments:
        if not isinstance(part, Content):
            raise ConfigError(f"{part!r} in attachments is none; give an Image, Audio, File or attachment(path)")


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
