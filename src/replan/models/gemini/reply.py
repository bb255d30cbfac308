"""Replies of Gemini's `generateContent`, streamed or whole (reference "GenerateContentResponse")."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import cast

from replan.encoding import JSONObject, encode
from replan.errors import BadResponse
from replan.model import Delta, Done, FinishReason
from replan.models.draft import Draft, Tally
from replan.models.failures import Failure, event_failure
from replan.models.fields import a_number, a_text, an_object, load, load_object, objects
from replan.models.sse import Event
from replan.models.wire import Sent

from .arguments import Arguments
from .parts import ALONE, NEXT, OWN

__all__ = ["GeminiReply"]

_FINISHED: dict[str, FinishReason] = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length"}
_FILTERS = frozenset({
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
})  # fmt: skip
_BROKEN = frozenset({
    "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE",
    "MISSING_THOUGHT_SIGNATURE",
})  # fmt: skip
_NONE = frozenset(["FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"])


@dataclass(slots=True)
class _Call:
    """A call whose arguments are still coming. The part before it in the draft is for its signature."""

    number: int
    name: str
    call_id: str
    signed: bool = False
    arguments: Arguments = field(default_factory=Arguments)

    def goes_on(self, name: str, call_id: str) -> bool:
        """Whether a piece with this name and this id, either of which may be left out, is of this call."""
        return name in ("", self.name) and (not call_id or self.call_id in ("", call_id))


class GeminiReply:
    """Collects one reply. The stream has no end of its own: a reason why the candidate is finished is one."""

    __slots__ = ("_call", "_draft", "_finish", "_model", "_number", "_open", "_secrets", "_tally", "ended")

    def __init__(self, model: str, secrets: Collection[str] = ()) -> None:
        self._model, self._secrets = model, secrets
        self._draft, self._tally = Draft(model), Tally()
        self._finish: FinishReason | None = None
        self._number = 0
        self._open = ""
        self._call: _Call | None = None
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
                self._read(data, deltas)
        return deltas

    def whole(self, body: bytes) -> list[Delta]:
        """The deltas of an answer that is one response, or a list of its pieces."""
        deltas: list[Delta] = []
        self._read(body, deltas)
        return deltas

    def done(self, sent: Sent) -> Done:
        """The whole reply."""
        self._close()
        return self._draft.done(self._finish or "stop", self._tally, sent)

    def _read(self, data: bytes, deltas: list[Delta]) -> None:
        value = load(data)
        for chunk in objects(value) if isinstance(value, list) else [load_object(data, self._model)]:
            self._chunk(chunk, deltas)

    def _chunk(self, value: JSONObject, deltas: list[Delta]) -> None:
        if value.get("error"):
            raise event_failure(value, model=self._model, secrets=self._secrets)
        self._count(an_object(value.get("usageMetadata")))
        candidates = objects(value.get("candidates"))
        for candidate in [each for each in candidates if a_number(each.get("index")) in (None, 0)][:1]:
            for part in objects(an_object(candidate.get("content")).get("parts")):
                self._part(part, deltas)
            self._end(a_text(candidate.get("finishReason")), a_text(candidate.get("finishMessage")))
        if not candidates:
            self._blocked(an_object(value.get("promptFeedback")))

    def _blocked(self, feedback: JSONObject) -> None:
        reason, said = a_text(feedback.get("blockReason")), a_text(feedback.get("blockReasonMessage"))
        if reason and reason not in _NONE and not self._draft.said("blocked"):
            self._finish = "content_filter"
            self._draft.refusal("blocked", f"The prompt was blocked: {reason}{': ' + said if said else '.'}")

    def _part(self, part: JSONObject, deltas: list[Delta]) -> None:
        signature, text = a_text(part.get("thoughtSignature")), a_text(part.get("text"))
        call = part.get("functionCall")
        if isinstance(call, dict):
            self._called(cast("JSONObject", call), signature, deltas)
        elif part.get("thought"):
            self._thought(text, signature, deltas)
        elif text or signature:
            self._text(text, signature, deltas)

    def _called(self, call: JSONObject, signature: str, deltas: list[Delta]) -> None:
        """A call, whole or in pieces: the first has the name, the last does not say that it goes on."""
        name, call_id = a_text(call.get("name")), a_text(call.get("id"))
        if self._call is None and not call:
            self._sign(signature, ALONE)
            return
        if self._call is None or not self._call.goes_on(name, call_id):
            deltas += self._close()
            self._call = _Call(self._next("signature"), name, call_id)
            self._draft.thinking(self._call.number)
            self._next("call")
        self._take(self._call, call, signature)
        delta = self._draft.call(self._call.number + 1, name=name, call_id=call_id)
        deltas += [delta] if call.get("willContinue") is True else self._close()

    def _take(self, known: _Call, call: JSONObject, signature: str) -> None:
        if signature and not known.signed:
            known.signed = True
            self._draft.thinking(known.number, signature=signature, data=NEXT)
        if given := call.get("args"):
            known.arguments.value = given
        for piece in objects(call.get("partialArgs")):
            known.arguments.add(piece)

    def _close(self) -> list[Delta]:
        """The call that is open is complete."""
        call, self._call = self._call, None
        if call is None:
            return []
        return [self._draft.call(call.number + 1, arguments=encode(call.arguments.value).decode())]

    def _thought(self, text: str, signature: str, deltas: list[Delta]) -> None:
        """A piece of a thought; a signed one stays a part of its own."""
        key = self._number if self._open == "thought" and not signature else self._next("thought")
        delta = self._draft.thinking(key, text, signature=signature, data=OWN if signature and not text else None)
        deltas += [delta] if text else []
        self._open = "" if signature else "thought"

    def _text(self, text: str, signature: str, deltas: list[Delta]) -> None:
        """A piece of a text; a signed one stays a part of its own."""
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

    def _next(self, kind: str) -> int:
        self._number += 1
        self._open = kind
        return self._number

    def _end(self, reason: str, said: str) -> None:
        if not reason or reason in _NONE:
            return
        known = "content_filter" if reason in _FILTERS else _FINISHED.get(reason)
        if reason in _BROKEN or (known is None and self.empty):
            text = f"{self._model} gave up: finish reason {reason!r}{': ' + said if said else ''}"
            raise Failure(BadResponse(text, model=self._model), repeat=True)
        if self._finish in (None, "stop"):
            self._finish = known or "stop"

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
