"""A model that plays a script: what an agent does is then decided by the test alone."""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from replan.encoding import encode
from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall
from replan.model import (
    CallDelta,
    Conversation,
    Delta,
    Done,
    FinishReason,
    ModelProfile,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from replan.usage import Usage

__all__ = ["Reply", "ScriptExhausted", "ScriptedModel", "call"]

Part: TypeAlias = str | Text | Thinking | Refusal | ToolCall
Played: TypeAlias = str | Assistant | Done | ToolCall | BaseException | Sequence[Part] | Sequence[Delta]
Reply: TypeAlias = Played | Callable[[ModelRequest], Played | Awaitable[Played]]
"""One entry of a script; see `ScriptedModel`."""

_WORD = re.compile(r"\s*\S+\s*\Z|\s*\S+|\s+")


class ScriptExhausted(AssertionError):
    """The model was called more often than the script has replies."""


def call(name: str, /, **arguments: object) -> ToolCall:
    """A tool call for a script. The model that plays it gives it an id."""
    return ToolCall("", name, arguments)


def split_words(text: str) -> list[str]:
    """The text in the pieces that a model would stream: a word each, with the space before it."""
    return _WORD.findall(text)


class ScriptedModel:
    """A `Model` that plays `replies` in order and records what it was asked.

        model = ScriptedModel([call("lookup", key="a")], "The answer is 7.")

    A reply is one of:

    - a text, or a whole `Assistant` message;
    - a tool call, or a list of calls, texts, `Thinking` and `Refusal` parts: one message of these;
    - a `Done`, to choose usage and finish reason too;
    - an exception, which is raised;
    - a list of deltas, played exactly as it is (it should end with `Done`);
    - a function of the request, sync or async, that gives any of these. It can look at `request.instructions` to tell
      the stages of a planning agent apart, or wait for an event to hold the reply back.

    After the last reply `otherwise` is played, as often as needed; without it the call raises `ScriptExhausted`. Text
    is streamed word by word. `usage` is what each reply reports. `requests` holds the requests in order, each with the
    messages of its time.
    """

    def __init__(
        self,
        *replies: Reply,
        otherwise: Reply | None = None,
        name: str = "scripted:model",
        profile: ModelProfile | None = None,
        usage: Usage | None = None,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self._replies = replies
        self._otherwise = otherwise
        self._name = name
        self._profile = profile or ModelProfile()
        self._usage = usage or Usage(input_tokens=100, output_tokens=10, model_calls=1)
        self._calls = 0

    @property
    def name(self) -> str:
        """The name that events and errors show."""
        return self._name

    @property
    def profile(self) -> ModelProfile:
        """What the model claims to be able to do."""
        return self._profile

    @property
    def remaining(self) -> int:
        """How many replies of the script have not been played."""
        return max(0, len(self._replies) - len(self.requests))

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Play the next reply. Raises `ScriptExhausted` where there is none."""
        index = len(self.requests)
        seen = msgspec.structs.replace(request, conversation=Conversation(list(request.conversation.messages)))
        self.requests.append(seen)
        for delta in self._deltas(await _settle(self._reply(index), seen)):
            yield delta

    async def close(self) -> None:
        """Nothing to release."""

    def _reply(self, index: int) -> Reply:
        if index < len(self._replies):
            return self._replies[index]
        if self._otherwise is None:
            raise ScriptExhausted(
                f"model {self._name!r} is called for the {index + 1}. time, but its script has {len(self._replies)} "
                "replies; add one, or give `otherwise=`"
            )
        return self._otherwise

    def _deltas(self, reply: Played) -> Sequence[Delta]:
        match reply:
            case BaseException():
                raise reply
            case Done():
                return [*_pieces(reply.message), reply]
            case Assistant():
                message = reply
            case str() | ToolCall():
                message = Assistant((_part(reply),))
            case _:
                if deltas := [part for part in reply if isinstance(part, Delta)]:
                    return deltas
                message = Assistant(tuple(_part(part) for part in reply if not isinstance(part, Delta)))
        message = Assistant(tuple(self._numbered(part) for part in message.content))
        return [*_pieces(message), Done(message, self._usage, _finish(message))]

    def _numbered(self, part: Text | Thinking | Refusal | ToolCall) -> Text | Thinking | Refusal | ToolCall:
        if not isinstance(part, ToolCall) or part.call_id:
            return part
        self._calls += 1
        return msgspec.structs.replace(part, call_id=f"call_{self._calls}")


async def _settle(reply: Reply, request: ModelRequest) -> Played:
    if not callable(reply):
        return reply
    played = reply(request)
    return await played if inspect.isawaitable(played) else played


def _part(part: Part) -> Text | Thinking | Refusal | ToolCall:
    return Text(part) if isinstance(part, str) else part


def _pieces(message: Assistant) -> list[Delta]:
    deltas: list[Delta] = []
    for part in message.content:
        match part:
            case Text():
                deltas += [TextDelta(piece) for piece in split_words(part.text)]
            case Thinking():
                deltas += [ThinkingDelta(piece) for piece in split_words(part.text)]
            case ToolCall():
                deltas += [CallDelta(part.name, ""), CallDelta(part.name, encode(part.arguments).decode())]
            case Refusal():
                pass
    return deltas


def _finish(message: Assistant) -> FinishReason:
    if message.calls:
        return "tool_calls"
    return "stop" if message.refusal is None else "refusal"
