"""Replies of the Anthropic Messages API, streamed or whole (guide "Streaming messages")."""

from collections.abc import Collection, Iterable

from replan.encoding import JSON, JSONObject, encode
from replan.model import Delta, Done, FinishReason
from replan.models.draft import Draft, Tally
from replan.models.failures import Failure, event_failure
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
}


class AnthropicReply:
    """Collects one reply."""

    __slots__ = ("_draft", "_finish", "_model", "_secrets", "_tally", "_unread", "ended")

    def __init__(self, model: str, secrets: Collection[str] = ()) -> None:
        self._model, self._secrets = model, secrets
        self._draft, self._tally = Draft(model), Tally()
        self._finish: str | None = None
        self._unread: set[JSON] = set()
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
        if value.get("type") == "error" or "error" in value:
            raise self._error(value)
        for index, block in enumerate(objects(value.get("content"))):
            self._begin(index, block, deltas)
        self._count(an_object(value.get("usage")))
        self._end(value)
        self.ended = True
        return deltas

    def done(self, sent: Sent) -> Done:
        """The whole reply."""
        return self._draft.done(_FINISH.get(self._finish or "", "stop"), self._tally, sent)

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
            case "error":
                raise self._error(value)
            case _:
                pass  # pings, ends of blocks, and what is not known yet

    def _begin(self, index: JSON, block: JSONObject, deltas: list[Delta]) -> None:
        """A block, with what it has from its start: in a whole message that is all of it."""
        match a_text(block.get("type")):
            case "text":
                if text := a_text(block.get("text")):
                    deltas.append(self._draft.text(index, text))
            case "thinking":
                text, signature = a_text(block.get("thinking")), a_text(block.get("signature"))
                delta = self._draft.thinking(index, text, signature=signature)
                deltas += [delta] if text else []
            case "redacted_thinking":
                self._draft.thinking(index, data=block)
            case "tool_use":
                arguments = block.get("input")
                text = encode(arguments).decode() if arguments else ""
                name, call_id = a_text(block.get("name")), a_text(block.get("id"))
                deltas.append(self._draft.call(index, name=name, call_id=call_id, arguments=text))
            case _:
                self._unread.add(_key(index))

    def _piece(self, index: JSON, delta: JSONObject, deltas: list[Delta]) -> None:
        if _key(index) in self._unread:
            return
        match a_text(delta.get("type")):
            case "text_delta":
                if text := a_text(delta.get("text")):
                    deltas.append(self._draft.text(index, text))
            case "input_json_delta":
                if text := a_text(delta.get("partial_json")):
                    deltas.append(self._draft.call(index, arguments=text))
            case "thinking_delta":
                if text := a_text(delta.get("thinking")):
                    deltas.append(self._draft.thinking(index, text))
            case "signature_delta":
                self._draft.thinking(index, signature=a_text(delta.get("signature")))
            case _:
                pass  # citations

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

    def _error(self, value: JSONObject) -> Failure:
        return event_failure(value, model=self._model, secrets=self._secrets)


def _key(index: JSON) -> JSON:
    return index if isinstance(index, int | str) else None
