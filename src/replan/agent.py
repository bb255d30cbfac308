"""The plain agent, put together."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypeVar

from . import events, loop, models
from .base import Answerer, BaseAgent, Parts, common_fields, typed_value
from .connections import ToolLike
from .effects import Stage
from .encoding import JSON, JSONObject
from .journal import Journal, LocalRun, RunStatus
from .live import text_watch
from .model import Model
from .output import TypedOutput
from .run import EventHandler, RunResult
from .settings import Limits, ModelSettings
from .tool import ToolInfo

__all__ = ["Agent"]

OutputT = TypeVar("OutputT", default=None)


class Agent(BaseAgent[RunResult[OutputT]]):
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
        self._model = models.resolve(model or models.default_model(), settings=settings)
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
        state.value = typed_value(self._typed, state.output)

    async def _parts(self, tools: tuple[ToolInfo, ...]) -> Parts:
        typed = self._typed
        stage = Stage(
            phase="execute",
            model=self._model,
            instructions=self._system_prompt,
            tools=tools,
            schema=typed.schema if typed else None,
            read=(lambda args, text: typed.read(text)) if typed else None,
            settings=self._settings,
            watch=text_watch(events.FinalTextDelta, events.FinalReasoningDelta, typed.partial if typed else None),
        )
        return {"executor": stage}, {}

    def _result(self, run_id: str, state: loop.AgentState, status: RunStatus) -> RunResult[OutputT]:
        return RunResult(**common_fields(run_id, state, status, self._settings))
