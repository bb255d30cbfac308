"""One run of an agent: the handle that callers hold, and what comes out of it."""

import asyncio
import contextlib
import contextvars
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

import msgspec

from . import events
from .encoding import JSON, JSONObject, clean_text, normalise
from .errors import ReplanError, RunCancelled, RunFailed
from .journal import InboxItem, LocalRun, Paused, RunStatus, Wiring
from .limits import Meter
from .messages import Message
from .messages import from_json as message_from_json
from .prices import CostEstimator, estimated_price
from .usage import Usage

__all__ = ["EventHandler", "Run", "RunResult", "StepStartHandler", "current_run"]

EventHandler: TypeAlias = Callable[[events.AnyEvent], None]
"""Called with each event, in order, in the run's event loop. What it raises is logged and changes nothing."""

StepStartHandler: TypeAlias = Callable[[events.StepStart, Callable[[], None]], None]
"""Called when a step begins, with a function that cancels it."""

_log = logging.getLogger("replan")

OutputT = TypeVar("OutputT")
ResultT = TypeVar("ResultT", bound="RunResult[Any]")

_current: "contextvars.ContextVar[Run[Any] | None]" = contextvars.ContextVar("replan_run", default=None)


def current_run() -> "Run[Any] | None":
    """The run that the calling code is part of, if any: in tools (sync ones too), handlers and whatever they call."""
    return _current.get()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[OutputT]):
    """What a run came to.

    `status` is `complete`, `paused` (waits for a person), `stopped` (at a limit or by a refusal: `stop_reason` says by
    what; the rest is what there is), or, on the error of a run that raised, `failed` or `cancelled`. `output` is the
    validated output where the agent has an `output_type`. `usage_by_model` maps `provider:name` to tokens.
    """

    run_id: str
    status: RunStatus
    text: str
    output: OutputT | None = None
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    usage_by_model: dict[str, Usage] = field(default_factory=dict[str, Usage])
    tool_calls: int = 0
    raw_messages: list[JSONObject] = field(default_factory=list[JSONObject], repr=False)
    cost_estimator: CostEstimator | None = field(default=None, repr=False, compare=False)

    @property
    def messages(self) -> list[Message]:
        """The conversation, to be given to the next run as `history`."""
        return [message_from_json(message) for message in self.raw_messages]

    @property
    def cost(self) -> Decimal | None:
        """What the run cost, in US dollars; None where a price is not known."""
        prices = [estimated_price(model, usage, self.cost_estimator) for model, usage in self.usage_by_model.items()]
        known = [amount for amount in prices if amount is not None]
        return sum(known, Decimal(0)) if len(known) == len(prices) else None


class State(Protocol):
    """What every program's state has."""

    meter: Meter
    phase: events.Phase
    status: RunStatus
    stop_reason: str | None
    text: str
    output: JSON

    @property
    def messages(self) -> list[JSONObject]:
        """The conversation as JSON, valid whenever it is read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(Generic[ResultT]):
    """How an agent starts one run: the program with its state, the live things, the journal, and how the state becomes
    a result.
    """

    run_id: str
    program: Callable[[LocalRun, JSON], Awaitable[None]]
    state: State
    services: Callable[[], Awaitable[Any]]
    open: Callable[[Wiring], Awaitable[LocalRun]]
    result: Callable[[RunStatus], ResultT]
    ended: "Callable[[Run[Any]], None]"
    on_event: EventHandler | None = None
    on_step_start: StepStartHandler | None = None
    answerer: Callable[[InboxItem], Awaitable[JSON]] | None = None
    answerers: Mapping[str, Callable[[InboxItem], Awaitable[JSON]]] = field(
        default_factory=dict[str, Callable[[InboxItem], Awaitable[JSON]]]
    )
    unattended: Literal["deny", "wait"] = "deny"
    collect: bool = True


class Run(Generic[ResultT]):
    """A run that has been started: an async iterator of its events, and its result.

    Use it as `async with agent.start(goal) as run:`; leaving the block cancels a run that is still going. Awaiting the
    handle gives the result.
    """

    def __init__(self, launch: Launch[ResultT]) -> None:
        self.run_id = launch.run_id
        self._launch = launch
        self._session: LocalRun | None = None
        self._events: list[events.AnyEvent] = []
        self._news = asyncio.Event()
        self._begun = self._cancelled = self._ended = False
        self._cancelled_steps: list[str] = []
        self._started = time.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._drive(), name=f"replan run {launch.run_id}")
        self._task.add_done_callback(self._leave)

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self._task.done()

    async def result(self) -> ResultT:
        """Wait for the end of the run; any number of tasks may.

        Raises its error when it failed, and `RunCancelled` when it was cancelled by `cancel`. Giving up waiting leaves
        the run alone; awaiting the handle itself gives the result too, and ends the run when the waiting is cancelled.
        """
        return await asyncio.shield(self._task)

    def cancel(self) -> None:
        """Stop the run: tools, servers and model calls are told.

        `result` then raises `RunCancelled`. A journalled run can be resumed.
        """
        if not self._task.done() and not self._ended:
            self._cancelled = True
            if self._begun:
                self._task.cancel()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the run, whatever it comes to, up to `timeout` seconds; says whether it has ended."""
        await asyncio.wait([self._task], timeout=timeout)
        return self._task.done()

    def cancel_step(self, step_id: str) -> None:
        """Stop one step of a plan, whether it runs or comes later; it counts as blocked, and the run goes on."""
        self._cancelled_steps.append(step_id)
        if self._session and not self._task.done():
            self._session.cancel_prefix(f"step/{step_id}/")

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self._owned().__await__()

    async def _owned(self) -> ResultT:
        """The result, for the one who waits for nothing else: the run ends with that task."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if not self._ended:
                self._task.cancel()
            while not self._task.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await self.wait()
            raise

    async def __aiter__(self) -> AsyncIterator[events.AnyEvent]:
        position = 0
        while True:
            while position < len(self._events):
                yield self._events[position]
                position += 1
            if self._task.done():
                return
            self._news.clear()
            await self._news.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        await self.wait()

    async def _drive(self) -> ResultT:
        _current.set(self)
        launch = self._launch
        status, error = await self._run_program()
        try:
            await self._finish(status, launch.result(status), error)
        except ReplanError as failure:
            status, error = (status, error) if error else ("failed", failure)
        except asyncio.CancelledError as cancelled:
            error = error or cancelled
        self._ended = True
        self._deliver_end(status, error)
        launch.ended(self)
        if error is None:
            return launch.result(status)
        raise self._error(error, launch.result(status))

    async def _run_program(self) -> tuple[RunStatus, BaseException | None]:
        """How the program ended, and the error with which it did."""
        launch, state = self._launch, self._launch.state
        self._begun = True
        try:
            if self._cancelled:
                raise asyncio.CancelledError
            self._session = await launch.open(await self._wiring())
            for step_id in self._cancelled_steps:
                self._session.cancel_prefix(f"step/{step_id}/")
            await launch.program(self._session, self._session.info.input)
        except Paused:
            state.stop_reason = "waiting"
            return "paused", None
        except asyncio.CancelledError as cancelled:
            return "cancelled", cancelled
        except Exception as failure:  # noqa: BLE001  # whatever it is, the run must be closed and the caller told
            return "failed", failure
        return state.status, None

    async def _wiring(self) -> Wiring:
        launch = self._launch
        listens = launch.collect or launch.on_event is not None
        return Wiring(
            services=await launch.services(),
            on_event=self._on_event if listens or launch.on_step_start else None,
            on_live=self._deliver if listens else None,
            answerer=launch.answerer,
            answerers=launch.answerers,
            unattended=launch.unattended,
        )

    async def _finish(self, status: RunStatus, result: ResultT, error: BaseException | None) -> None:
        """Write the end into the journal; a cancellation that comes meanwhile waits for it, and is then raised."""
        if self._session is None:
            return
        failure = error.to_json() if isinstance(error, ReplanError) else None
        if status == "failed" and failure is None:
            failure = {"type": type(error).__name__, "message": str(error)}
        closing = asyncio.ensure_future(self._session.finish(status, _stored(result), failure))
        cancelled: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.wait([closing])
            except asyncio.CancelledError as request:
                cancelled = None if self._cancelled else request
        closing.result()
        if cancelled:
            raise cancelled

    def _leave(self, task: "asyncio.Task[ResultT]") -> None:
        """The task has ended, perhaps before its first turn; who wants its error asks `result`."""
        if not task.cancelled():
            task.exception()
        if not self._begun:
            self._launch.ended(self)
        self._news.set()

    def _error(self, error: BaseException, result: ResultT) -> BaseException:
        if isinstance(error, asyncio.CancelledError):
            if not self._cancelled:
                return error
            error = RunCancelled(f"run {self.run_id!r} was cancelled")
        elif not isinstance(error, ReplanError):
            failed = RunFailed(f"run {self.run_id!r} failed: {type(error).__name__}: {error}")
            failed.__cause__ = error
            error = failed
        error.result = result
        return error

    def _on_event(self, event: JSON) -> None:
        self._deliver(events.from_json(event))

    def _deliver(self, event: events.AnyEvent) -> None:
        launch = self._launch
        if launch.collect:
            self._events.append(event)
            self._news.set()
        if launch.on_event:
            _call(launch.on_event, event)
        if launch.on_step_start and isinstance(event, events.StepStart):
            _call(launch.on_step_start, event, partial(self.cancel_step, event.step_id))

    def _deliver_end(self, status: RunStatus, error: BaseException | None) -> None:
        state = self._launch.state
        if error is not None and status == "failed":
            phase = state.phase if self._session else "init"
            kind, message = type(error).__name__, clean_text(str(error))
            self._deliver(events.Error(run_id=self.run_id, phase=phase, message=message, kind=kind))
        end = events.RunComplete(
            run_id=self.run_id,
            status=status,
            stop_reason=state.stop_reason,
            usage=state.meter.usage,
            seconds=time.monotonic() - self._started,
        )
        self._deliver(end)


def _call(handler: Callable[..., None], *args: Any) -> None:
    try:
        handler(*args)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001  # a handler never breaks a run, whatever it raises
        _log.debug("an event handler raised", exc_info=True)


def _stored(result: RunResult[Any]) -> JSONObject:
    """What a journal keeps of a result; messages and steps are in its records already."""
    return {
        "text": result.text,
        "output": normalise(result.output),
        "stop_reason": result.stop_reason,
        "usage": msgspec.to_builtins(result.usage),
        "usage_by_model": msgspec.to_builtins(result.usage_by_model),
        "tool_calls": result.tool_calls,
    }
