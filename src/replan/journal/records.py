"""What a journal holds of a run, and how an engine writes it.

A run is an append-only list of records. Its state is a fold over them (`history.py`); nothing is changed or deleted.

    intent      a step that must not run twice is about to start; `body` is its arguments
    completed   a step, timer or inbox item ended; `body` is the result
    failed      it raised; `body` is the error
    cancelled   it was stopped
    in-doubt    it was interrupted and must not run again; `body` is its arguments
    timer       a timer was set; `body` is when it is due, in seconds since 1970
    item        an inbox item was opened; `body` is its deadline, default and body (older records have none)
    stop        everything whose key begins with `key` is to be stopped
    event       something was told to the outside; `handed` counts the completions that the program had been given by
    then cut         the order of completions ends before what was recorded: `history.py` says how
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from replan.encoding import JSON, JSONObject
from replan.errors import ConfigError

__all__ = [
    "STATUSES",
    "Fold",
    "InboxItem",
    "Kind",
    "Record",
    "RunInfo",
    "RunLog",
    "RunOwner",
    "RunStatus",
    "Wiring",
    "check_run_id",
    "item_body",
]

Kind: TypeAlias = Literal[
    "intent", "completed", "failed", "cancelled", "in-doubt", "timer", "item", "stop", "event", "cut"
]
RunStatus: TypeAlias = Literal["running", "complete", "paused", "stopped", "failed", "cancelled"]
STATUSES = ("complete", "paused", "stopped", "failed", "cancelled")
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Record(Struct, frozen=True):
    """One entry of a run's journal. `digest` stands for the arguments; `at` is in seconds since 1970."""

    kind: Kind
    key: str = ""
    step: str = ""
    digest: Any = None
    body: JSON = None
    at: float = 0.0
    handed: int = 0


class InboxItem(Struct, frozen=True, kw_only=True):
    """Something that a run waits for from people.

    `body` is what is asked, in the shape that belongs to the `name`. At `deadline` (seconds since 1970; None: never) it
    is settled with `default`.
    """

    run_id: str
    key: str
    name: str
    body: JSON = None
    deadline: float | None = None
    default: JSON = None


def item_body(item: InboxItem) -> JSONObject:
    """What is recorded of an inbox item besides its key and name."""
    return {"deadline": item.deadline, "default": item.default, "body": item.body}


class RunOwner(Struct, frozen=True, kw_only=True):
    """The process that drives a run. `since` is in seconds since 1970."""

    host: str
    pid: int
    since: float


class RunInfo(Struct, frozen=True, kw_only=True):
    """A run as the journal knows it.

    Status `running` without an `owner` means: interrupted, can be resumed. Times are in seconds since 1970.
    """

    run_id: str
    program: str
    status: RunStatus = "running"
    input: JSON = None
    meta: JSONObject = {}
    result: JSON = None
    error: JSONObject | None = None
    created: float = 0.0
    updated: float = 0.0
    owner: RunOwner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What one process connects to a run; nothing of it is stored.

    `services` are handed to steps. `on_event` hears events as they are emitted, `on_live` what steps say outside the
    journal. `answerer` settles inbox items in this process, one of `answerers` those of its name; where there is none
    and `unattended` is `wait`, items stay open in a journal that others can reach, else they get their default at once.
    `artifacts` replaces the folder of artifacts and is never removed. A result of more than `max_result_bytes` fails
    its step. Closing waits `grace` seconds for what it cancelled.
    """

    services: Any = None
    on_event: Callable[[JSON], None] | None = None
    on_live: Callable[[Any], None] | None = None
    answerer: Callable[[InboxItem], Awaitable[JSON]] | None = None
    answerers: Mapping[str, Callable[[InboxItem], Awaitable[JSON]]] = field(
        default_factory=dict[str, Callable[[InboxItem], Awaitable[JSON]]]
    )
    unattended: Literal["deny", "wait"] = "deny"
    artifacts: Path | None = None
    max_result_bytes: int = 8_000_000
    grace: float = 5.0


Fold: TypeAlias = tuple[Sequence[Record], dict[str, JSON]]
"""The records of a run in order, and the answers that its inbox items got, by key."""


class RunLog(Protocol):
    """Where one open run writes. All calls come from the run's event loop; callbacks are called there.

    `on_failure` is set by the run and told once, when writing became impossible; `on_answer` when somebody answered
    an open inbox item.
    """

    durable: bool
    artifacts: Path | None
    on_failure: Callable[[Exception], None]
    on_answer: Callable[[str, JSON], None]

    def append(self, record: Record, *, full: bool = False) -> None:
        """Queue a record.

        It is written with the next commit, or soon; `full` records survive a power cut once committed.
        """
        ...

    def commit(self, then: Callable[[], None]) -> None:
        """Write what is queued, look for answers, then call `then`. On failure `on_failure` is called instead."""
        ...

    def held(self) -> bool:
        """Whether the run is surely still this process's; where that is not sure, a commit finds out."""
        ...

    async def end(self, status: RunStatus | None, result: JSON, error: JSONObject | None, handed: int) -> None:
        """Write what is queued and give up the run

        None keeps its status. Raises `JournalError` where that cannot be written.
        """
        ...


def check_run_id(run_id: str) -> str:
    """The run id, if it can be one. Raises `ConfigError`."""
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(f"{run_id!r} cannot be a run id; use 1 to 128 of the letters A-Z a-z, digits, '_' and '-'")
    return run_id
