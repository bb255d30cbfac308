"""What was done: one `StepResult` for each executed step."""

from typing import Literal

from msgspec import Struct

from replan.encoding import JSON, JSONObject, decode, encode

from .plan import Step

__all__ = ["StepResult", "ToolUse"]


class ToolUse(Struct, frozen=True):
    """One tool call of a step: what it was given and what it gave, whole."""

    tool: str
    arguments: JSONObject
    output: str
    ok: bool


class StepResult(Struct, frozen=True, kw_only=True):
    """How a step went. `outputs` maps names to values that later steps refer to; `seconds` is the journalled duration.

    `ok` is False for a step that is `blocked`, and for one whose last tool call of some tool failed. `needs` is the id
    of the failed step without whose result it was not run.
    """

    step: Step
    kind: Literal["direct", "bound", "open"]
    summary: str
    calls: tuple[ToolUse, ...] = ()
    outputs: JSONObject = {}
    blocked: bool = False
    cancelled: bool = False
    needs: str | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the step did what it was for."""
        return not self.blocked and not self.failed_tools

    @property
    def fruitless(self) -> bool:
        """Whether nothing came of the step: it is blocked, or all its calls failed."""
        return self.blocked or bool(self.calls and not any(call.ok for call in self.calls))

    @property
    def failed_tools(self) -> list[str]:
        """Tools whose last call in this step failed: a failure that stayed."""
        last = {call.tool: call.ok for call in self.calls}
        return [tool for tool, ok in last.items() if not ok]

    def to_json(self) -> JSON:
        """The result as plain JSON."""
        return decode(encode(self))
