"""Replies of the Anthropic Messages API, streamed or whole (guide "Streaming messages")."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from replan.encoding import JSON, JSONObject, encode
from replan.model import Delta, Done, FinishReason
from replan.models.draft import Draft, Tally
from replan.models.failures import event_failure
from replan.models.fields import a_number, a_text, an_object, load_object, objects
from replan.models.sse import Event
from replan.models.wire import Sent

__all__ = ["AnthropicReply"]

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "content_filter": "content_filter",
}
_READ = frozenset(["text", "thinking", "tool_use"])
"""Kinds of blocks that come in pieces; of others (tools of the provider's own) nothing is read."""


class _Open(NamedTuple):
    """A block whose pieces come: its kind, its key in the draft, and for a call its id."""

    kind: str
    key: int
    call_id: str = ""


class AnthropicReply:
    """Collects one reply."""

    __slots__ = ("_blocks", "_draft", "_finish", "_model", "_open", "_secrets", "_tally", "ended")

    def __init__(self, model: str, secrets: Collection[str] = ()) -> None:
        self._model, self._secrets = model, secrets
        self._draft, self._tally = Draft(model), Tally()
        self._finish: str | None = None
        self._open: dict[JSON, _Open] = {}
        self._blocks = 0
        self.ended = False
        """Whether `message_stop` was read: nothing follows."""

    @property
    def finished(self) -> bool:
        """Whether the reply is complete."""
        return self._finish is not None or (self.ended and bool(self._draft))

    @property
    def empty(self) -> bool:
        """Whether nothing of a reply has come yet."""
        return not self._draft

    def events(self, events: Iterable[Event]) -> list[Delta]:
        """The deltas of stream events. Raises `Failure` where one reports an error or cannot be read."""
        deltas: list[Delta] = []
        for name, data in events:
            if not data or data.isspace():
                continue
            if data == b"[DONE]":
                self.ended = True
                break
            value = load_object(data, self._model)
            kind = a_text(value.get("type")) or name.decode("ascii", "replace")
            if kind == "content_block_delta":
                self._piece(value.get("index"), an_object(value.get("delta")), deltas)
            else:
                self._event(kind, value, deltas)
            if self.ended:
                break
        return deltas

    def whole(self, body: bytes) -> list[Delta]:
        """The deltas of an answer that is one message."""
        value = load_object(body, self._model)
        deltas: list[Delta] = []
        if value.get("type") == "error" or value.get("error"):
            self._fail(value)
        for index, block in enumerate(objects(value.get("content"))):
            self._begin(index, block, deltas)
        self._count(an_object(value.get("usage")))
        self._end(value)
        self.ended = True
        return deltas

    def done(self, sent: Sent) -> Done:
        """The whole reply."""
        done = self._draft.done(_FINISH.get(self._finish or "", "stop"), self._tally, sent)
        return replace(done, finish="stop") if done.finish == "tool_calls" and not done.message.calls else done

    def _event(self, kind: str, value: JSONObject, deltas: list[Delta]) -> None:
        match kind:
            case "content_block_start":
                self._begin(value.get("index"), an_object(value.get("content_block")), deltas)
            case "message_start":
                self._count(an_object(an_object(value.get("message")).get("usage")))
            case "message_delta":
                self._count(an_object(value.get("usage")))
                self._end(an_object(value.get("delta")))
            case "message_stop":
                self.ended = True
            case _ if kind == "error" or value.get("error"):
                self._fail(value)
            case _:
                pass  # pings, ends of blocks, and what is not known yet

    def _begin(self, index: JSON, block: JSONObject, deltas: list[Delta]) -> None:
        """A block, with what it has from its start: in a whole message that is all of it."""
        kind, call_id = a_text(block.get("type")), a_text(block.get("id"))
        key = self._opened(index, kind, call_id)
        match kind:
            case "text":
                if text := a_text(block.get("text")):
                    deltas.append(self._draft.text(key, text))
            case "thinking":
                text, signature = a_text(block.get("thinking")), a_text(block.get("signature"))
                delta = self._draft.thinking(key, text, signature=signature)
                deltas += [delta] if text else []
            case "redacted_thinking":
                self._draft.thinking(key, data={"type": kind, **block})
            case "tool_use":
                arguments = block.get("input")
                text = encode(arguments).decode() if arguments else ""
                name = a_text(block.get("name"))
                deltas.append(self._draft.call(key, name=name, call_id=call_id, arguments=text))
            case _:
                pass

    def _piece(self, index: JSON, delta: JSONObject, deltas: list[Delta]) -> None:
        match a_text(delta.get("type")):
            case "text_delta":
                text = a_text(delta.get("text"))
                if text and (key := self._key(index, "text")) is not None:
                    deltas.append(self._draft.text(key, text))
            case "input_json_delta":
                text = a_text(delta.get("partial_json"))
                if text and (key := self._key(index, "tool_use")) is not None:
                    deltas.append(self._draft.call(key, arguments=text))
            case "thinking_delta":
                text = a_text(delta.get("thinking"))
                if text and (key := self._key(index, "thinking")) is not None:
                    deltas.append(self._draft.thinking(key, text))
            case "signature_delta":
                if (key := self._key(index, "thinking")) is not None:
                    self._draft.thinking(key, signature=a_text(delta.get("signature")))
            case _:
                pass  # citations

    def _opened(self, index: JSON, kind: str, call_id: str = "") -> int:
        """The key of a new block; indices may be missing, or the same for all blocks. A call may be told twice."""
        index = index if isinstance(index, int | float | str) else None
        known = self._open.get(index)
        if known is None or not call_id or known.call_id != call_id:
            known = _Open(kind, self._blocks, call_id)
            self._blocks += 1
        self._open[index] = self._open[None] = known
        return known.key

    def _key(self, index: JSON, kind: str) -> int | None:
        """The key of the block that a piece of this kind belongs to; None where it is not read."""
        known = self._open.get(index if isinstance(index, int | float | str) else None)
        if known is not None and (known.kind == kind or known.kind not in _READ):
            return known.key if known.kind == kind else None
        return self._opened(index, kind)

    def _end(self, delta: JSONObject) -> None:
        reason = a_text(delta.get("stop_reason"))
        if reason:
            self._finish = reason
        said = a_text(an_object(delta.get("stop_details")).get("explanation"))
        if reason == "refusal" and said:
            self._draft.refusal("refusal", said)

    def _count(self, usage: JSONObject) -> None:
        """Counts come at the start and again at the end, as totals. `input_tokens` is without what a cache has."""
        read, written = (
            a_number(usage.get("cache_read_input_tokens")),
            a_number(usage.get("cache_creation_input_tokens")),
        )
        fresh = a_number(usage.get("input_tokens"))
        self._tally.note(
            input=None if fresh is None else fresh + (read or 0) + (written or 0),
            output=a_number(usage.get("output_tokens")),
            reasoning=a_number(an_object(usage.get("output_tokens_details")).get("thinking_tokens")),
            cached=read,
            written=written,
        )

    def _fail(self, value: JSONObject) -> None:
        """An error. Where the provider's filter stopped the reply, that is its end."""
        failure = event_failure(value, model=self._model, secrets=self._secrets)
        if "content filter" not in failure.text.lower():
            raise failure
        self._finish, self.ended = "content_filter", True
