"""The model seam: one method, `Model.stream`, and what goes through it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import Struct

from .encoding import JSONObject
from .messages import Assistant, Message
from .settings import PromptCaching, Thinking, ThinkingLevel, ThinkingSetting
from .usage import Usage

__all__ = [
    "CacheStyle",
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
    "StageModel",
    "Stages",
    "StructuredOutput",
    "TextDelta",
    "ThinkingDelta",
    "ThinkingStyle",
    "ToolChoice",
    "ToolSpec",
]

FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "refusal", "content_filter"]
ToolChoice: TypeAlias = Literal["auto", "required", "none"]
StructuredOutput: TypeAlias = Literal["native", "tool", "prompted"]
CacheStyle: TypeAlias = Literal["none", "automatic", "key", "marks"]
ThinkingStyle: TypeAlias = Literal[
    "none", "effort", "reasoning", "switch", "budget", "adaptive", "gemini-budget", "gemini-level"
]
"""How thinking is asked for: OpenAI's `reasoning_effort` and `reasoning`, DeepSeek's switch, Anthropic's budget and
adaptive thinking, Gemini's budget and level.
"""


class ModelProfile(Struct, frozen=True, kw_only=True):
    """What a model can do and how it wants to be asked, as far as a request must know it.

    `context_window` and `max_output_tokens` are tokens. `images`, `audio` and `files` (PDF) say what it reads in user
    messages, `result_images` whether also in tool results. `structured_output` is how a JSON schema is put to it: as
    its own feature, as a tool that it must call, or in words. `thinking` is how thinking is asked for (see
    `replan.models.thinking`), `thinking_levels` what it takes where that is less than all; with
    `forced_calls_while_thinking` false it refuses a forced tool call then. `sampling` says that it takes `temperature`
    and `top_p`. `caching` is how it keeps prompts: not at all, by itself, by a key, or at marked places. `constrained`
    says that its output is held to a JSON schema token by token, so that a schema may also restrict values.
    """

    context_window: int = 128_000
    max_output_tokens: int | None = None
    structured_output: StructuredOutput = "native"
    images: bool = False
    audio: bool = False
    files: bool = False
    result_images: bool = False
    thinking: ThinkingStyle = "none"
    thinking_levels: tuple[ThinkingLevel, ...] = ()
    forced_calls_while_thinking: bool = True
    sampling: bool = True
    caching: CacheStyle = "none"
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
    """One model call. `options` are the provider's own and are merged into the request body last.

    What is None is left to the model's own settings; False says no to them. `cache_key` tells requests with the same
    beginning.
    """

    instructions: str = ""
    conversation: Conversation
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    output: OutputSchema | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    thinking: Thinking | Literal[False] | None = None
    prompt_caching: PromptCaching | Literal[False] | None = None
    cache_key: str = ""
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
    """The end of the stream and the whole reply; nothing follows. `message` may be empty where `finish` says why.

    `model` is the `provider:name` that gave the reply where it is not the one that was asked.
    """

    message: Assistant
    usage: Usage
    finish: FinishReason
    model: str | None = None


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
class StageModel:
    """What one stage does otherwise than the agent: another model, other settings of it.

    `thinking` of a stage counts whenever it is given, False too; None leaves the agent's. `options` are merged over the
    agent's. `base_url` and `api_key` are for a model on another provider, given as a string.
    """

    model: str | Model | None = None
    thinking: ThinkingSetting = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    options: JSONObject = field(default_factory=dict[str, Any])
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """A model for a stage, where it is not the agent's own. The replanner uses the planner's model, and may think
    otherwise.
    """

    planner: str | Model | StageModel | None = None
    executor: str | Model | StageModel | None = None
    replanner: StageModel | None = None
    synthesizer: str | Model | StageModel | None = None
