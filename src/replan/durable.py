"""The durability seam: the only door through which a loop does anything.

A loop starts what can start, takes the next completion, and decides. It owns no tasks, timers, clock, randomness or
I/O. The order of completions is journalled, so a replay of the loop over the journal decides the same; that is what
makes a run resumable at any instant, in this process or another.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from .encoding import JSON, JSONObject

__all__ = [
    "Cancelled",
    "Completed",
    "Completion",
    "Durable",
    "Failed",
    "InDoubt",
    "Outcome",
    "Program",
    "Step",
    "StepContext",
    "durable_step",
    "find_step",
]


@dataclass(frozen=True, slots=True)
class Completed:
    """The step ended with this result."""

    value: JSON


@dataclass(frozen=True, slots=True)
class Failed:
    """The step raised. `error` is what `ReplanError.to_json` gives: `type`, `message` and fields of its own."""

    error: JSONObject


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A step that must not run twice was interrupted: nobody knows whether it took effect.

    `args` are what it was started with.
    """

    args: JSON


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The step was stopped by `Durable.cancel` before it had a result."""


Outcome: TypeAlias = Completed | Failed | InDoubt | Cancelled


@dataclass(frozen=True, slots=True)
class Completion:
    """What became of the step, inbox item or timer that was started under `key`.

    `at` is the journalled time, in seconds since 1970.
    """

    key: str
    outcome: Outcome
    at: float


class Durable(Protocol):
    """One run's effects, journalled. Keys are unique in the run; a loop derives them from its own position only."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    def start(self, step: str, args: JSON, *, key: str, once: bool = False) -> None:
        """Begin the registered step; return at once. Its completion comes from `next`.

        With `once` the intent is written before the step runs, and an interrupted step is never run again: it completes
        as `InDoubt`.
        """
        ...

    async def next(self) -> Completion:
        """The next completion, in the journalled order.

        Raises `RuntimeError` where nothing was started that could complete.
        """
        ...

    def cancel(self, key: str) -> None:
        """Ask a running step to stop. Its completion says what came of it. Unknown and finished keys are ignored."""
        ...

    def cancel_prefix(self, prefix: str) -> None:
        """Stop every step whose key begins with `prefix`, now and later: how one part of a run is cancelled."""
        ...

    def expect(
        self, name: str, *, key: str, body: JSON = None, deadline: float | None = None, default: JSON = None
    ) -> None:
        """Put an item into the inbox; it completes like a step, with the answer, or with `default` after `deadline`
        seconds. `body` is what is asked: it is stored with the item and shown to whoever answers.
        """
        ...

    def sleep(self, seconds: float, *, key: str) -> None:
        """Start a timer; it completes like a step, with None."""
        ...

    def now(self) -> float:
        """Seconds since 1970 at the run's journalled position: the time of the last completion that `next` gave."""
        ...

    async def emit(self, event: JSON) -> None:
        """Tell the outside. Ordered, journalled, and idempotent by position: a replay emits nothing twice."""
        ...


Program: TypeAlias = Callable[[Durable, JSON], Awaitable[JSON]]
"""A loop: runs on a `Durable` and the JSON input of the run, gives the JSON result."""


@dataclass(slots=True)
class StepContext:
    """What a step function can reach. Each process builds its own.

    `services` are the live things that the agent's factory makes: models, tools, users' dependencies. `read(key)` gives
    the arguments and the result of an earlier step of the run: `(args, result)`; the result is None while there is
    none. `live(event)` is for what need not survive: text deltas, retries; it drops the event where nobody listens
    (`listening` says whether anybody does). `keep(data, mime)` stores bytes as an artifact, named by their hash, and
    gives the path. `idempotency_key` is the same when an interrupted step runs again.
    """

    run_id: str
    key: str
    services: Any
    read: Callable[[str], Awaitable[tuple[JSON, JSON]]]
    live: Callable[[Any], None]
    keep: Callable[[bytes, str], Path]
    listening: bool = False

    @property
    def idempotency_key(self) -> str:
        """`run_id/key`: the same in every process and attempt."""
        return f"{self.run_id}/{self.key}"


Step: TypeAlias = Callable[[StepContext, JSON], Awaitable[JSON]]
StepT = TypeVar("StepT", bound=Step)

_steps: dict[str, Step] = {}


def durable_step(name: str) -> Callable[[StepT], StepT]:
    """Register an async function `(StepContext, JSON) -> JSON` as a step that loops can start by name."""

    def register(function: StepT) -> StepT:
        known = _steps.setdefault(name, function)
        if known is not function and known.__qualname__ != function.__qualname__:
            raise ValueError(f"a durable step named {name!r} exists already: {known.__module__}.{known.__qualname__}")
        return function

    return register


def find_step(name: str) -> Step:
    """The step of that name. Raises `LookupError` where none is registered."""
    try:
        return _steps[name]
    except KeyError:
        raise LookupError(f"no durable step is named {name!r}; registered: {', '.join(sorted(_steps))}") from None
