"""Structured output for models that have no JSON schema of their own: as a tool that they must call, or in words."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import structs

from replan.encoding import encode
from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall
from replan.model import (
    CallDelta,
    Delta,
    Done,
    FinishReason,
    ModelProfile,
    ModelRequest,
    OutputSchema,
    TextDelta,
    ToolSpec,
)

__all__ = ["OutputTool", "form_of", "schema_instructions"]

Form = TypeVar("Form")


def schema_instructions(instructions: str, output: OutputSchema) -> str:
    """The instructions with the schema in words."""
    schema = encode(output.schema).decode()
    asked = f"Reply with one JSON value that fulfils this JSON schema, and with nothing else:\n{schema}"
    return f"{instructions}\n\n{asked}" if instructions else asked


@dataclass(frozen=True, slots=True)
class OutputTool:
    """The output of a request as a tool: what the model calls it with is the reply's text.

    A model that answers in text all the same has its text taken as the output.
    """

    spec: ToolSpec
    tools: tuple[ToolSpec, ...]
    forced: bool

    @staticmethod
    def of(request: ModelRequest, profile: ModelProfile) -> "OutputTool | None":
        """The tool, for a request with an output schema to a model that takes it as a tool."""
        output = request.output
        if output is None or profile.structured_output != "tool" or output.schema.get("type") != "object":
            return None
        tools = _with_output(request.tools, output)
        thinks = request.thinking and request.thinking.wanted
        return OutputTool(tools[-1], tools, profile.forced_calls_while_thinking or not thinks)

    def request(self, request: ModelRequest) -> ModelRequest:
        """The request with the tool in place of the schema."""
        asked = f"Give the final answer by calling the tool {self.spec.name!r}."
        instructions = f"{request.instructions}\n\n{asked}" if request.instructions else asked
        return structs.replace(
            request,
            output=None,
            tools=self.tools,
            instructions=request.instructions if self.forced else instructions,
            tool_choice="required" if self.forced else "auto",
        )

    def delta(self, delta: Delta) -> Delta:
        """The delta, with pieces of the output as text."""
        return TextDelta(delta.arguments) if type(delta) is CallDelta and delta.name == self.spec.name else delta

    def done(self, done: Done) -> Done:
        """The reply with the output as its text. What the model said beside it is left out."""
        outputs = [call for call in done.message.calls if call.name == self.spec.name]
        if not outputs:
            return done
        content: list[Text | Thinking | Refusal | ToolCall] = []
        content += [part for part in done.message.content if part not in outputs and not isinstance(part, Text)]
        if not any(isinstance(part, ToolCall) for part in content):
            content.append(Text(outputs[0].raw or encode(outputs[0].arguments).decode()))
        finish: FinishReason = "stop" if done.finish == "tool_calls" and not _calls(content) else done.finish
        return structs.replace(done, message=Assistant(tuple(content)), finish=finish)


_forms: dict[tuple[int, Callable[..., Any]], tuple[OutputSchema, Any]] = {}


def form_of(output: OutputSchema, made: Callable[[OutputSchema], Form]) -> Form:
    """What a wire makes of an output, made once: the same output is asked for in every turn."""
    key = (id(output), made)
    if key not in _forms:
        if len(_forms) >= 64:
            _forms.clear()
        _forms[key] = (output, made(output))
    return _forms[key][1]


_known: dict[tuple[int, int], tuple[Any, Any, tuple[ToolSpec, ...]]] = {}


def _with_output(tools: tuple[ToolSpec, ...], output: OutputSchema) -> tuple[ToolSpec, ...]:
    """The tools and the output behind them: the same tuple for the same ones, so that a wire can keep what it made."""
    key = (id(tools), id(output))
    if key not in _known:
        if len(_known) >= 64:
            _known.clear()
        spec = ToolSpec(_free(output.name, tools), "Give the final answer.", output.schema)
        _known[key] = (tools, output, (*tools, spec))
    return _known[key][2]


def _calls(content: Iterable[object]) -> bool:
    return any(isinstance(part, ToolCall) for part in content)


def _free(name: str, tools: Iterable[ToolSpec]) -> str:
    """The name of the output, changed where a tool has it."""
    taken = {tool.name for tool in tools}
    while name in taken:
        name = f"{name[:60]}_out"
    return name
