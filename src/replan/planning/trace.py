"""What was done: one `StepResult` for each executed step."""

from typing import Literal

from msgspec import Struct

from replan.encoding import JSON, JSONObject, decode, encode

from .plan import Step

__all__ = ["StepResult", "ToolUse"]

_LABEL_CHARS = 60


class ToolUse(Struct, frozen=True):
    """One tool call of a step: what it was given and what it gave, whole.

    `writes` says that it may change something.
    """

    tool: str
    arguments: JSONObject
    output: str
    ok: bool
    writes: bool = False


class StepResult(Struct, frozen=True, kw_only=True):
    """How a step went. `outputs` maps names to values that later steps refer to; `seconds` is the journalled duration.

    `ok` is False for a step that is `blocked`, for one with a `problem` (its outputs or its check are not as planned),
    and for one whose last tool call of some tool failed. `needs` is the id of the failed step without whose result it
    was not run.
    """

    step: Step
    kind: Literal["direct", "bound", "open", "compute"]
    summary: str
    calls: tuple[ToolUse, ...] = ()
    outputs: JSONObject = {}
    blocked: bool = False
    cancelled: bool = False
    problem: str | None = None
    needs: str | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the step did what it was for."""
        return not self.blocked and self.problem is None and not self.failed_tools

    @property
    def fruitless(self) -> bool:
        """Whether nothing came of the step: it is blocked, all its calls failed, or what it was to write was not
        written.
        """
        if self.blocked or self.problem is not None:
            return True
        in_vain = bool(self.calls) and not any(call.ok for call in self.calls)
        return in_vain or any(call.writes and call.tool in self.failed_tools for call in self.calls)

    @property
    def label(self) -> str:
        """The texts that the step's call was given (`Oslo` of `weather(city="Oslo")`), else the step's id."""
        made = [use for use in self.calls if use.ok]
        texts = [v for use in made[:1] for v in use.arguments.values() if isinstance(v, str) and v]
        text = ", ".join(texts)
        return text if len(made) == 1 and 0 < len(text) <= _LABEL_CHARS else self.step.id

    @property
    def wrote(self) -> bool:
        """Whether the step made a call that may have changed something."""
        return any(call.writes for call in self.calls)

    @property
    def failed_tools(self) -> list[str]:
        """Tools whose last call in this step failed: a failure that stayed."""
        last = {call.tool: call.ok for call in self.calls}
        return [tool for tool, ok in last.items() if not ok]

    def to_json(self) -> JSON:
        """The result as plain JSON."""
        return decode(encode(self))
