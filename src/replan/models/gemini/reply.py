"""Replies of Gemini's `generateContent`, streamed or whole (reference "GenerateContentResponse")."""

from collections.abc import Collection, Iterable

from replan.encoding import JSON, JSONObject, encode
from replan.errors import BadResponse
from replan.model import Delta, Done, FinishReason
from replan.models.draft import Draft, Tally
from replan.models.failures import Failure, event_failure
from replan.models.fields import a_number, a_text, an_object, load, load_object, objects
from replan.models.sse import Event
from replan.models.wire import Sent

from .parts import ALONE, NEXT

__all__ = ["GeminiReply"]

_FILTERS = frozenset({
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
})  # fmt: skip
_BROKEN = frozenset(
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE"]
)


class GeminiReply:
    """Collects one reply. The stream has no end of its own: a reason why the candidate is finished is one."""

    __slots__ = ("_draft", "_finish", "_model", "_number", "_open", "_secrets", "_tally", "ended")

    def __init__(self, model: str, secrets: Collection[str] = ()) -> None:
        self._model, self._secrets = model, secrets
        self._draft, self._tally = Draft(model), Tally()
        self._finish: FinishReason | None = None
        self._number = 0
        self._open = ""
        self.ended = False
        """Never, before the stream ends: counts may come behind the reason."""

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
        for _, data in events:
            if data and not data.isspace() and data != b"[DONE]":
                self._chunk(load_object(data, self._model), deltas)
        return deltas

    def whole(self, body: bytes) -> list[Delta]:
        """The deltas of an answer that is one response, or a list of its pieces."""
        value = load(body)
        chunks = objects(value) if isinstance(value, list) else [load_object(body, self._model)]
        deltas: list[Delta] = []
        for chunk in chunks:
            self._chunk(chunk, deltas)
        return deltas

    def done(self, sent: Sent) -> Done:
        """The whole reply."""
        return self._draft.done(self._finish or "stop", self._tally, sent)

    def _chunk(self, value: JSONObject, deltas: list[Delta]) -> None:
        if "error" in value:
            raise event_failure(value, model=self._model, secrets=self._secrets)
        self._count(an_object(value.get("usageMetadata")))
        for candidate in objects(value.get("candidates"))[:1]:
            for part in objects(an_object(candidate.get("content")).get("parts")):
                self._part(part, deltas)
            self._end(a_text(candidate.get("finishReason")), a_text(candidate.get("finishMessage")))
        if blocked := a_text(an_object(value.get("promptFeedback")).get("blockReason")):
            self._finish = "content_filter"
            self._draft.refusal("blocked", f"The prompt was blocked: {blocked}.")

    def _part(self, part: JSONObject, deltas: list[Delta]) -> None:
        signature, text = a_text(part.get("thoughtSignature")), a_text(part.get("text"))
        if "functionCall" in part:
            self._call(an_object(part["functionCall"]), signature, deltas)
        elif part.get("thought"):
            self._thought(text, signature, deltas)
        elif text or signature:
            self._text(text, signature, deltas)

    def _call(self, call: JSONObject, signature: str, deltas: list[Delta]) -> None:
        self._sign(signature, NEXT)
        key = self._next("call")
        arguments = encode(call.get("args") or {}).decode()
        name, call_id = a_text(call.get("name")), a_text(call.get("id"))
        deltas.append(self._draft.call(key, name=name, call_id=call_id, arguments=arguments))

    def _thought(self, text: str, signature: str, deltas: list[Delta]) -> None:
        key = self._number if self._open == "thought" else self._next("thought")
        delta = self._draft.thinking(key, text, signature=signature)
        deltas += [delta] if text else []
        self._open = "" if signature else "thought"

    def _text(self, text: str, signature: str, deltas: list[Delta]) -> None:
        """A text; a signed one stays a part of its own."""
        if not text:
            self._sign(signature, ALONE)
            return
        self._sign(signature, NEXT)
        key = self._number if self._open == "text" else self._next("text")
        deltas.append(self._draft.text(key, text))
        self._open = "" if signature else "text"

    def _sign(self, signature: str, place: JSONObject) -> None:
        if signature:
            self._draft.thinking(self._next("signature"), signature=signature, data=place)

    def _next(self, kind: str) -> JSON:
        self._number += 1
        self._open = kind
        return self._number

    def _end(self, reason: str, said: str) -> None:
        if not reason or reason == "FINISH_REASON_UNSPECIFIED":
            return
        if reason in _BROKEN or (reason in ("OTHER", "TOO_MANY_TOOL_CALLS") and self.empty):
            text = f"{self._model} gave up: finish reason {reason!r}{': ' + said if said else ''}"
            raise Failure(BadResponse(text, model=self._model), repeat=True)
        self._finish = "content_filter" if reason in _FILTERS else "length" if reason == "MAX_TOKENS" else "stop"

    def _count(self, usage: JSONObject) -> None:
        """Each chunk has the totals so far. Thoughts are counted beside the candidates."""
        given, used = a_number(usage.get("promptTokenCount")), a_number(usage.get("toolUsePromptTokenCount"))
        written, thought = a_number(usage.get("candidatesTokenCount")), a_number(usage.get("thoughtsTokenCount"))
        self._tally.note(
            input=None if given is None else given + (used or 0),
            output=None if written is None and thought is None else (written or 0) + (thought or 0),
            reasoning=thought,
            cached=a_number(usage.get("cachedContentTokenCount")),
        )
