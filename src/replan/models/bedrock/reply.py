"""Replies of Amazon Bedrock, streamed or whole (API reference "ConverseStream" and "Converse")."""

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable

from replan.encoding import JSON, JSONObject, encode
from replan.errors import BadResponse
from replan.model import Delta, Done, FinishReason
from replan.models.draft import Draft, Tally
from replan.models.failures import Failure, event_failure
from replan.models.fields import a_number, a_text, an_object, load, load_object, objects
from replan.models.sse import Event
from replan.models.wire import Sent

__all__ = ["BedrockReply"]

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "refusal": "refusal",
}


class BedrockReply:
    """Collects one reply. Its blocks are told by number: servers leave out indices, and use one twice."""

    __slots__ = ("_blocks", "_draft", "_finish", "_last", "_model", "_open", "_redacted", "_secrets", "_tally", "ended")

    def __init__(self, model: str, secrets: Collection[str] = ()) -> None:
        self._model, self._secrets = model, secrets
        self._draft, self._tally = Draft(model), Tally()
        self._finish: str | None = None
        self._open: dict[JSON, tuple[str, int]] = {}
        self._redacted: dict[int, bytes] = {}
        self._last: JSON = None
        self._blocks = 0
        self.ended = False
        """Whether the counts were read, which come behind the end of the message: nothing follows."""

    @property
    def finished(self) -> bool:
        """Whether the reply is complete."""
        return self._finish is not None

    @property
    def empty(self) -> bool:
        """Whether nothing of a reply has come yet."""
        return not self._draft

    def events(self, events: Iterable[Event]) -> list[Delta]:
        """The deltas of stream events. Raises `Failure` where one reports an error or cannot be read."""
        deltas: list[Delta] = []
        for name, data in events:
            if name.startswith(b"exception:"):
                raise self._error(name[10:].decode(errors="replace"), load(data))
            if name == b"contentBlockDelta":
                value = load_object(data, self._model)
                self._piece(self._index(value), an_object(value.get("delta")), deltas)
            elif data:
                self._event(name, load_object(data, self._model), deltas)
        return deltas

    def whole(self, body: bytes) -> list[Delta]:
        """The deltas of an answer of `Converse`, which is one JSON object."""
        value = load_object(body, self._model)
        message = an_object(an_object(value.get("output")).get("message"))
        if not message:
            raise self._error(a_text(an_object(value.get("Output")).get("__type")), value)
        deltas: list[Delta] = []
        for index, block in enumerate(objects(message.get("content"))):
            self._block(index, block, deltas)
        self._count(an_object(value.get("usage")))
        self._end(a_text(value.get("stopReason")) or "end_turn")
        self.ended = True
        return deltas

    def done(self, sent: Sent) -> Done:
        """The whole reply."""
        return self._draft.done(_FINISH.get(self._finish or "", "stop"), self._tally, sent)

    def _event(self, name: bytes, value: JSONObject, deltas: list[Delta]) -> None:
        match name:
            case b"contentBlockStart":
                self._start(self._index(value), an_object(value.get("start")), deltas)
            case b"contentBlockStop":
                self._open.pop(self._index(value), None)
            case b"messageStop":
                self._end(a_text(value.get("stopReason")) or "end_turn")
            case b"metadata":
                self._count(an_object(value.get("usage")))
                self.ended = self.finished
            case _:
                pass  # the start of the message, and what is not known yet

    def _start(self, index: JSON, start: JSONObject, deltas: list[Delta]) -> None:
        if not isinstance(start.get("toolUse"), dict):
            return
        call = an_object(start["toolUse"])
        if call.get("type"):  # run by the server
            self._open[index] = ("unread", -1)
            return
        self._open.pop(index, None)
        name, call_id = a_text(call.get("name")), a_text(call.get("toolUseId"))
        deltas.append(self._draft.call(self._key(index, "call"), name=name, call_id=call_id))

    def _piece(self, index: JSON, delta: JSONObject, deltas: list[Delta]) -> None:
        if text := a_text(delta.get("text")):
            deltas.append(self._draft.text(self._key(index, "text"), text))
        elif "toolUse" in delta:
            text = a_text(an_object(delta["toolUse"]).get("input"))
            if text and self._open.get(index, ("", 0))[0] != "unread":
                deltas.append(self._draft.call(self._key(index, "call"), arguments=text))
        elif "reasoningContent" in delta:
            self._thought(index, an_object(delta["reasoningContent"]), deltas)

    def _thought(self, index: JSON, thought: JSONObject, deltas: list[Delta]) -> None:
        if isinstance(thought.get("redactedContent"), str):
            key = self._key(index, "redacted")
            self._redacted[key] = self._redacted.get(key, b"") + _bytes(thought["redactedContent"])
            self._draft.thinking(key, data={"redactedContent": b64encode(self._redacted[key]).decode()})
            return
        text, signature = a_text(thought.get("text")), a_text(thought.get("signature"))
        delta = self._draft.thinking(self._key(index, "thought"), text, signature=signature)
        if text:
            deltas.append(delta)

    def _block(self, index: int, block: JSONObject, deltas: list[Delta]) -> None:
        """A block of a whole message, as the pieces that it would be streamed in."""
        if "toolUse" in block:
            call = an_object(block["toolUse"])
            self._start(index, {"toolUse": call}, deltas)
            arguments = call.get("input")
            self._piece(index, {"toolUse": {"input": encode(arguments).decode() if arguments else ""}}, deltas)
        elif "reasoningContent" in block:
            thought = an_object(block["reasoningContent"])
            self._thought(index, an_object(thought.get("reasoningText")) or thought, deltas)
        elif "citationsContent" in block:
            for part in objects(an_object(block["citationsContent"]).get("content")):
                self._piece(index, part, deltas)
        else:
            self._piece(index, block, deltas)

    def _index(self, value: JSONObject) -> JSON:
        index = value.get("contentBlockIndex")
        if isinstance(index, int | str):
            self._last = index
        return self._last

    def _key(self, index: JSON, kind: str) -> int:
        """The number of the block that is open at the index; a new one where that is of another kind."""
        found = self._open.get(index)
        if found is None or found[0] != kind:
            self._blocks += 1
            found = self._open[index] = (kind, self._blocks)
        return found[1]

    def _end(self, reason: str) -> None:
        if reason.startswith("malformed_"):
            error = BadResponse(f"{self._model} gave up: stop reason {reason!r}", model=self._model)
            raise Failure(error, repeat=True)
        self._finish = reason

    def _count(self, usage: JSONObject) -> None:
        """`inputTokens` is without what a cache has."""
        read, written = a_number(usage.get("cacheReadInputTokens")), a_number(usage.get("cacheWriteInputTokens"))
        fresh = a_number(usage.get("inputTokens"))
        self._tally.note(
            input=None if fresh is None else fresh + (read or 0) + (written or 0),
            output=a_number(usage.get("outputTokens")),
            cached=read,
            written=written,
        )

    def _error(self, kind: str, value: JSON) -> Failure:
        """The failure that an exception means; one of the model's own may tell the status that the model gave."""
        said = an_object(value)
        message = a_text(said.get("originalMessage")) or a_text(said.get("message")) or a_text(said.get("Message"))
        status = a_number(said.get("originalStatusCode"))
        error: JSONObject = {"type": kind or a_text(said.get("__type")), "message": message}
        if status is not None and 400 <= status < 600 and status != 424:  # which says no more than that it failed
            error["status"] = status
        return event_failure({"error": error}, model=self._model, secrets=self._secrets)


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text)
    except ValueError:
        return text.encode()
