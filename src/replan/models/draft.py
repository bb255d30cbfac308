"""The content and the counts of one reply while it arrives, for wires whose replies are lists of blocks."""

from collections.abc import Hashable
from typing import Any

from replan.encoding import JSON, encode
from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall
from replan.model import CallDelta, Done, FinishReason, TextDelta, ThinkingDelta
from replan.usage import Usage, estimate_tokens

from .arguments import parse_arguments
from .wire import Sent

__all__ = ["FILTERED", "Draft", "Tally", "characters"]

FILTERED = "The provider's content filter stopped this reply."
_REFUSED = "The model refused."


class _Block:
    __slots__ = ("call_id", "data", "kind", "name", "pieces", "signature")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.signature: list[str] = []
        self.data: JSON = None
        self.name = self.call_id = ""


class Draft:
    """The blocks of a reply, in the order in which they were opened. A key tells a block; the first piece opens it.

    `model` is the `provider:name` that thoughts are marked with.
    """

    __slots__ = ("_blocks", "_model")

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: dict[Hashable, _Block] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def text(self, key: Hashable, piece: str) -> TextDelta:
        """Add to a text."""
        self._block(key, "text").pieces.append(piece)
        return TextDelta(piece)

    def refusal(self, key: Hashable, piece: str) -> None:
        """Add to a refusal."""
        self._block(key, "refusal").pieces.append(piece)

    def thinking(self, key: Hashable, piece: str = "", *, signature: str = "", data: JSON = None) -> ThinkingDelta:
        """Add to a thought: text, a piece of its signature, or the provider's own data, of which the last counts."""
        block = self._block(key, "thinking")
        block.pieces.append(piece)
        if signature:
            block.signature.append(signature)
        if data is not None:
            block.data = data
        return ThinkingDelta(piece)

    def call(self, key: Hashable, *, name: str = "", call_id: str = "", arguments: str = "") -> CallDelta:
        """Add to a tool call: its name and id, of which the first count, and a piece of its arguments as JSON text."""
        block = self._block(key, "call")
        block.name = block.name or name
        block.call_id = block.call_id or call_id
        block.pieces.append(arguments)
        return CallDelta(block.name, arguments)

    def said(self, key: Hashable) -> str:
        """The text, or the arguments, of a block so far; empty where there is no such block."""
        block = self._blocks.get(_hashable(key))
        return "".join(block.pieces) if block else ""

    def done(self, finish: FinishReason, tally: "Tally", sent: Sent) -> Done:
        """The whole reply. A reply that the filter stopped, or in which the model refused, has a refusal."""
        parts: list[Text | Thinking | Refusal | ToolCall] = []
        ids = _Ids(sent)
        for block in self._blocks.values():
            parts += self._part(block, ids)
        if any(isinstance(part, ToolCall) for part in parts) and finish == "stop":
            finish = "tool_calls"
        refused = any(isinstance(part, Refusal) for part in parts)
        if refused and finish == "stop":
            finish = "refusal"
        if finish == "refusal" and not refused:
            said = "".join(part.text for part in parts if isinstance(part, Text))
            parts = [*(part for part in parts if not isinstance(part, Text)), Refusal(said or _REFUSED)]
        if finish == "content_filter" and not refused:
            parts.append(Refusal(FILTERED))
        message = Assistant(tuple(parts))
        return Done(message, tally.usage(message, sent), finish)

    def _block(self, key: Hashable, kind: str) -> _Block:
        key = _hashable(key)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _Block(kind)
        return block

    def _part(self, block: _Block, ids: "_Ids") -> list[Any]:
        text = "".join(block.pieces)
        match block.kind:
            case "call":
                arguments, raw = parse_arguments(text)
                return [ToolCall(ids.own(block.call_id), block.name, arguments, raw)]
            case "thinking":
                signature = "".join(block.signature) or None
                kept = text or signature or block.data is not None
                return [Thinking(text, signature, self._model, block.data)] if kept else []
            case "refusal":
                return [Refusal(text)] if text else []
            case _:
                return [Text(text)] if text else []


class _Ids:
    """Ids of calls that are unique in the conversation."""

    def __init__(self, sent: Sent) -> None:
        self._sent, self._number = sent, sent.first_number
        self._used: set[str] = set()

    def own(self, call_id: str) -> str:
        while not call_id or call_id in self._used or self._sent.taken(call_id):
            call_id, self._number = f"call_{self._number}", self._number + 1
        self._used.add(call_id)
        return call_id


class Tally:
    """Token counts of one reply. Providers repeat totals while they stream: the highest of each counts.

    `input` includes what was read from and written to a cache, `output` includes reasoning.
    """

    __slots__ = ("cached", "input", "output", "reasoning", "written")

    def __init__(self) -> None:
        self.input = self.output = self.reasoning = self.cached = self.written = 0

    def note(
        self,
        *,
        input: int | None = None,  # named as what it counts
        output: int | None = None,
        reasoning: int | None = None,
        cached: int | None = None,
        written: int | None = None,
    ) -> None:
        """Take counts as they come; what is None was not reported."""
        self.input = max(self.input, input or 0)
        self.output = max(self.output, output or 0)
        self.reasoning = max(self.reasoning, reasoning or 0)
        self.cached = max(self.cached, cached or 0)
        self.written = max(self.written, written or 0)

    def usage(self, message: Assistant, sent: Sent) -> Usage:
        """The usage, estimated from the length of the texts where nothing was reported."""
        estimated = not self.input or not (self.output or not message.content)
        return Usage(
            input_tokens=self.input or estimate_tokens(sent.characters()),
            output_tokens=self.output or estimate_tokens(characters(message)),
            reasoning_tokens=self.reasoning,
            cached_input_tokens=self.cached,
            cache_write_tokens=self.written,
            model_calls=1,
            estimated=estimated,
        )


def _hashable(key: Hashable) -> Hashable:
    """The key; providers send lists and objects where numbers belong, too."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key


def characters(message: Assistant) -> int:
    """The length of a reply in characters."""
    total = 0
    for part in message.content:
        total += len(part.name) + len(encode(part.arguments)) if isinstance(part, ToolCall) else len(part.text)
    return total
