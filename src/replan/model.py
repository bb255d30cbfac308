"""The model seam: one method, `Model.stream`, and what goes through it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import Struct

from .encoding import JSONObject
from .messages import Assistant, Message
from .usage import Usage

__all__ = [
    "CallDelta",
    "Conversation",
    "Delta",
    "Done",
    "FinishReason",
    "Model",
    "ModelProfile",
    "ModelRequest",
    "OutputSchema",
    "Retry",
    "Stages",
    "TextDelta",
    "ThinkingDelta",
    "ToolSpec",
]

FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "refusal", "content_filter"]
ToolChoice: TypeAlias = Literal["auto", "required", "none"]


class ModelProfile(Struct, frozen=True):
    """What a model can do, as far as a request must know it.

    `constrained` says that the model's output is held to a JSON schema token by token, so that a schema may also
    restrict values.
    """

    context_window: int = 128_000
    json_schema: bool = True
    images: bool = False
    constrained: bool = False


class ToolSpec(Struct, frozen=True):
    """A tool as a model sees it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: JSONObject


class OutputSchema(Struct, frozen=True):
    """The JSON schema that the reply's text must fulfil; `name` matches `[A-Za-z0-9_-]{1,64}`."""

    name: str
    schema: JSONObject


class Conversation:
    """An append-only list of messages, with room for what a wire derives from each of them once.

    `encoded[wire]` is a list parallel to `messages`, filled by that wire as far as it has got; it is what makes a
    turn's cost independent of the length of the conversation.
    """

    __slots__ = ("encoded", "messages")

    def __init__(self, messages: list[Message] | None = None) -> None:
        self.messages: list[Message] = messages or []
        self.encoded: dict[str, list[Any]] = {}


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One model call. `options` are the provider's own and are merged into the request body last."""

    instructions: str = ""
    conversation: Conversation
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    output: OutputSchema | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    options: JSONObject = msgspec.field(default_factory=dict[str, Any])


class TextDelta(Struct, frozen=True):
    """A piece of the reply's text."""

    text: str


class ThinkingDelta(Struct, frozen=True):
    """A piece of the model's thoughts."""

    text: str


class CallDelta(Struct, frozen=True):
    """A piece of a tool call's arguments, for display only; the whole call comes with `Done`."""

    name: str
    arguments: str


class Retry(Struct, frozen=True):
    """The call is about to be repeated: everything streamed so far is void. `delay` is in seconds."""

    attempt: int
    error: str
    delay: float


class Done(Struct, frozen=True):
    """The end of the stream and the whole reply; nothing follows. `message` may be empty where `finish` says why."""

    message: Assistant
    usage: Usage
    finish: FinishReason


Delta: TypeAlias = TextDelta | ThinkingDelta | CallDelta | Retry | Done


@runtime_checkable
class Model(Protocol):
    """A language model. Safe to use from several runs at once."""

    @property
    def name(self) -> str:
        """`provider:name`, for events, errors and prices."""
        ...

    @property
    def profile(self) -> ModelProfile:
        """What this model can do."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Run one call. The last delta is `Done`. Raises `ModelError` when the call failed for good, retries included.

        Closing the iterator ends the call at the provider.
        """
        ...

    async def close(self) -> None:
        """Release what this model alone holds. May be called twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """A model for a stage, where it is not the agent's own. The replanner uses the planner's."""

    planner: str | Model | None = None
    executor: str | Model | None = None
    synthesizer: str | Model | None = None
