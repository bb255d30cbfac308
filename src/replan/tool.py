"""The tool seam: what a tool is to the runtime, and what a tool is given when it is called."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from .encoding import JSON, JSONObject
from .messages import Content, Text

__all__ = ["InvalidArguments", "Tool", "ToolContext", "ToolError", "ToolInfo", "ToolOutput"]

DepsT = TypeVar("DepsT")


class ToolError(Exception):
    """Raised by a tool to tell the model what went wrong; its text is the call's result.

    `outcome_unknown` says that the call may have taken effect all the same: it is not made again unasked.
    """

    def __init__(self, *args: object, outcome_unknown: bool = False) -> None:
        super().__init__(*args)
        self.outcome_unknown = outcome_unknown


class InvalidArguments(Exception):
    """The arguments do not fit the tool's schema. `problems` says what is wrong, one short text for each parameter."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class ToolInfo(Struct, frozen=True, kw_only=True):
    """What is known of a tool before it is called.

    `name` is what the model sees: `[A-Za-z0-9_-]{1,64}`, unique in the agent. `original` is the server's own name for
    it. `parameters` and `output_schema` are JSON schemas. `read_only` and `idempotent` are declarations of ours or of
    the host (a server's own hint counts only if that server is trusted): a tool with neither may write, and is never
    called twice unasked.
    """

    name: str
    description: str
    parameters: JSONObject
    output_schema: JSONObject | None = None
    read_only: bool = False
    idempotent: bool = False
    server: str | None = None
    original: str | None = None

    @property
    def repeatable(self) -> bool:
        """Whether an interrupted call may simply be made again."""
        return self.read_only or self.idempotent


class ToolOutput(Struct, frozen=True):
    """What a call gave: `content` for the model, `structured` for programs and later steps.

    `outcome_unknown` is set in an error of a call that may have taken effect.
    """

    content: tuple[Content, ...]
    structured: JSON = None
    is_error: bool = False
    outcome_unknown: bool = False


def text_output(text: str, *, is_error: bool = False, outcome_unknown: bool = False) -> ToolOutput:
    """An output of one text."""
    return ToolOutput((Text(text),), is_error=is_error, outcome_unknown=outcome_unknown)


@dataclass(frozen=True, slots=True)
class ToolContext(Generic[DepsT]):
    """What a tool can know of the run that calls it. A tool asks for it by a parameter of this type.

    `idempotency_key` is the same when an interrupted call is made again. `sandbox` is a folder of the run, made on
    first use. `cancelled` is set when the call is cancelled: a sync tool, which runs in a thread, can look at it
    between two pieces of work. `keep(data, mime)` stores bytes as an artifact of the run and gives the path. `deps` is
    what the caller gave to the agent. `progress` tells the outside how far the call is.
    """

    run_id: str
    call_id: str
    tool_name: str
    idempotency_key: str
    deps: DepsT
    logger: logging.Logger
    sandbox_path: Callable[[], Path]
    keep: Callable[[bytes, str], Path]
    step_id: str | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    progress: Callable[[float, float | None, str | None], None] = lambda done, total, message: None

    @property
    def sandbox(self) -> Path:
        """The run's folder for files."""
        return self.sandbox_path()


@runtime_checkable
class Tool(Protocol):
    """Something that a model can call."""

    @property
    def info(self) -> ToolInfo:
        """Name, description, schemas and declarations."""
        ...

    def validate(self, arguments: JSONObject) -> JSONObject:
        """The arguments as `call` wants them, as JSON. Raises `InvalidArguments`; changes and coerces nothing."""
        ...

    async def call(self, arguments: JSONObject, context: ToolContext[Any]) -> ToolOutput:
        """Run the tool. What it raises becomes an error result that the model reads."""
        ...
