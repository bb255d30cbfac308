"""A Chat Completions answer, streamed or whole, read into deltas and one message."""

from collections.abc import Collection, Iterable
from typing import Any, cast

from replan.encoding import JSON, JSONObject
from replan.errors import BadResponse, Overloaded
from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall
from replan.model import CallDelta, Delta, Done, FinishReason, TextDelta, ThinkingDelta
from replan.models.draft import FILTERED, Tally
from replan.models.failures import Failure, event_failure
from replan.models.sse import Event
from replan.models.wire import Sent

from .calls import CallAssembler
from .chunk import CallPiece, Choice, Chunk, Counts, Function, Piece, load, read_chunk

__all__ = ["ChatReply"]

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "refusal": "refusal",
    "content_filter": "content_filter",
    "content-filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
}
_BROKEN_FINISH = ("error", "insufficient_system_resource", "network_error", "abort", "cancelled")


class ChatReply:
    """Collects one reply. Feed it the events of a stream, or a whole answer; then ask for `done`.

    `model` is the `provider:name` that thoughts are marked with, `tools` are the names that the request
    offered, `secrets` must not show up in errors.
    """

    __slots__ = (
        "_calls",
        "_details",
        "_finish",
        "_model",
        "_refusal",
        "_secrets",
        "_tally",
        "_text",
        "_thoughts",
        "_total",
        "ended",
    )

    def __init__(self, *, model: str, tools: Collection[str] = (), secrets: Collection[str] = ()) -> None:
        self._model, self._secrets = model, secrets
        self._calls = CallAssembler(tools)
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._refusal: list[str] = []
        self._details: list[JSONObject] = []
        self._tally = Tally()
        self._total = 0
        self._finish: str | None = None
        self.ended = False
        """Whether `[DONE]` was read: nothing follows."""

    @property
    def finished(self) -> bool:
        """Whether the reply is complete: the provider gave a reason for its end, or said that the stream is done."""
        return self._finish is not None or (self.ended and not self.empty)

    @property
    def empty(self) -> bool:
        """Whether nothing of a reply has come yet."""
        return not (self._text or self._thoughts or self._refusal or self._calls)

    def events(self, events: Iterable[Event]) -> list[Delta]:
        """The deltas of stream events. Raises `Failure` where one reports an error or cannot be read."""
        deltas: list[Delta] = []
        for name, data in events:
            if data == b"[DONE]":
                self.ended = True
                break
            if name == b"error":
                raise self._error(data)
            if data and not data.isspace():
                self._chunk(data, deltas)
        return deltas

    def whole(self, body: bytes) -> list[Delta]:
        """The deltas of an answer that is one JSON object. Raises `Failure` where it is none, as with a web page."""
        if body.lstrip().startswith(b"<"):
            raise Failure(
                BadResponse(f"{self._model} answered with a web page; is the base URL right?", model=self._model),
                repeat=False,
            )
        deltas: list[Delta] = []
        self._chunk(body, deltas)
        self.ended = True
        return deltas

    def done(self, sent: Sent) -> Done:
        """The whole reply."""
        calls = self._calls.calls(sent.taken, sent.first_number)
        finish = self._reason(bool(calls))
        refusal = "".join(self._refusal)
        if not refusal and finish == "content_filter":
            refusal = FILTERED
        if not refusal and finish == "refusal":
            refusal = "".join(self._text) or "The model refused."
            self._text = []
        parts: list[Text | Thinking | Refusal | ToolCall] = []
        thoughts = "".join(self._thoughts)
        if thoughts or self._details:
            parts.append(Thinking(thoughts, model=self._model, data=_joined_details(self._details) or None))
        if text := "".join(self._text):
            parts.append(Text(text))
        if refusal:
            parts.append(Refusal(refusal))
        message = Assistant((*parts, *calls))
        return Done(message, self._counted().usage(message, sent), finish)

    def _chunk(self, data: bytes, deltas: list[Delta]) -> None:
        chunk = read_chunk(data)
        if chunk is None:
            text = data[:200].decode(errors="replace")
            raise Failure(BadResponse(f"{self._model} sent what is not JSON: {text!r}", model=self._model), repeat=True)
        if chunk.error or chunk.choices is None:
            self._check(chunk, data)
        if chunk.usage is not None:
            self._count(chunk.usage)
        for choice in chunk.choices or ():
            if not choice.index:
                self._choice(choice, deltas)

    def _choice(self, choice: Choice, deltas: list[Delta]) -> None:
        piece = choice.delta or choice.message
        if piece is not None:
            if content := piece.content:
                self._text.append(content)
                deltas.append(TextDelta(content))
            if thought := piece.reasoning_content or piece.reasoning:
                self._thoughts.append(thought)
                deltas.append(ThinkingDelta(thought))
            if piece.reasoning_details:
                self._details += [cast("JSONObject", d) for d in _list(piece.reasoning_details) if isinstance(d, dict)]
            if piece.refusal:
                self._refusal.append(piece.refusal)
            if piece.tool_calls or piece.function_call:
                deltas += self._call_pieces(piece)
        if choice.finish_reason is not None:
            self._end(choice.finish_reason)
        if choice.usage is not None:
            self._count(choice.usage)

    def _call_pieces(self, piece: Piece) -> list[CallDelta]:
        self._calls.begin_delta()
        pieces = piece.tool_calls or []
        if piece.function_call is not None:
            pieces = [*pieces, CallPiece(function=piece.function_call)]
        found: list[CallDelta] = []
        for call in pieces:
            function = call.function or Function()
            delta = self._calls.add(call.index, call.id or "", function.name or "", function.arguments or "")
            if delta is not None:
                found.append(delta)
        return found

    def _end(self, reason: str) -> None:
        if reason.lower() in _BROKEN_FINISH:
            raise Failure(
                Overloaded(f"{self._model} gave up: finish reason {reason!r}", model=self._model), repeat=True
            )
        self._finish = reason.lower() or self._finish

    def _reason(self, calls: bool) -> FinishReason:
        given = _FINISH.get(self._finish or "")
        if given in ("length", "content_filter", "refusal"):
            return given
        if calls:
            return "tool_calls"
        return "refusal" if self._refusal else "stop"

    def _count(self, usage: Counts) -> None:
        inputs, outputs = usage.prompt_tokens_details, usage.completion_tokens_details
        self._tally.note(
            input=usage.prompt_tokens,
            output=usage.completion_tokens,
            reasoning=outputs and outputs.reasoning_tokens,
            cached=usage.prompt_cache_hit_tokens,
            written=inputs and inputs.cache_write_tokens,
        )
        self._tally.note(cached=inputs and inputs.cached_tokens)
        self._total = max(self._total, usage.total_tokens or 0)

    def _counted(self) -> Tally:
        """The counts; some servers count reasoning beside the output."""
        tally = self._tally
        if tally.reasoning and self._total == tally.input + tally.output + tally.reasoning:
            tally.output += tally.reasoning
        return tally

    def _check(self, chunk: Chunk, data: bytes) -> None:
        if chunk.error:
            raise self._error(data)
        value = load(data)
        if isinstance(value, dict) and ("detail" in value or "message" in value):
            raise self._error(data)

    def _error(self, data: bytes) -> Failure:
        value = load(data)
        return event_failure(
            data.decode(errors="replace") if value is None else value, model=self._model, secrets=self._secrets
        )


def _joined_details(pieces: list[JSONObject]) -> list[JSON]:
    """The pieces of `reasoning_details` put together: those of one index are one entry, its texts joined."""
    found: dict[Any, JSONObject] = {}
    for number, piece in enumerate(pieces):
        key = (piece.get("index"), piece.get("type")) if "index" in piece else number
        entry = found.setdefault(key, {})
        for name, value in piece.items():
            grows = name in ("text", "summary", "data") and isinstance(value, str) and isinstance(entry.get(name), str)
            if grows:
                entry[name] += value
            elif value is not None or name not in entry:
                entry[name] = value
    return list(found.values())


def _list(value: JSON) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
