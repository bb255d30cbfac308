"""Replies of the OpenAI Responses API, streamed or whole (reference "Streaming events")."""

import itertools
import re
from collections.abc import Collection, Iterable

from replan.encoding import JSONObject, encode, is_list
from replan.errors import BadResponse
from replan.model import CallDelta, Delta, Done, FinishReason, TextDelta, ThinkingDelta
from replan.models.draft import Draft, Tally
from replan.models.failures import Failure, event_failure
from replan.models.fields import a_list, a_number, a_text, an_object, load_object, objects
from replan.models.sse import Event
from replan.models.wire import Sent

from .output import Item, Output

__all__ = ["ResponsesReply"]

_PIECES = {
    "response.output_text.delta": ("message", "text", "delta"),
    "response.output_text.done": ("message", "text", "text"),
    "response.refusal.delta": ("message", "refusal", "delta"),
    "response.refusal.done": ("message", "refusal", "refusal"),
    "response.function_call_arguments.delta": ("function_call", "arguments", "delta"),
    "response.function_call_arguments.done": ("function_call", "arguments", "arguments"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary", "delta"),
    "response.reasoning_summary_text.done": ("reasoning", "summary", "text"),
    "response.reasoning_text.delta": ("reasoning", "content", "delta"),
    "response.reasoning_text.done": ("reasoning", "content", "text"),
}
"""Events with a piece of an item: the item's kind, which of its texts it is, and the field that it is in."""

_ENDS = ("completed", "incomplete", "failed", "cancelled")
_LAST = {**{f"response.{end}": end for end in _ENDS}, "response.done": "completed"}
_KEPT = ("message", "function_call", "reasoning")
"""Items that go back; those of tools that the provider runs do not."""

_STOPPED = re.compile(r"content_filter|content_policy|_policy\b|_policy_violation|responsible_?ai", re.I)
_FLAGGED = re.compile(r"usage polic|content (management )?polic|flagged", re.I)
_REQUEST = re.compile(r"^(invalid|unsupported|image|empty|failed_to_download|data_residency)_")
"""Codes of errors that lie in the request: a repeat cannot help."""


class ResponsesReply:
    """Collects one reply. Each item may come in pieces, whole at its end, or only in the final response."""

    __slots__ = ("_finish", "_model", "_output", "_secrets", "_tally", "ended")

    def __init__(self, model: str, secrets: Collection[str] = ()) -> None:
        self._model, self._secrets = model, secrets
        self._output, self._tally = Output(), Tally()
        self._finish: FinishReason | None = None
        self.ended = False
        """Whether the final response was read: nothing follows."""

    @property
    def finished(self) -> bool:
        """Whether the reply is complete."""
        return self._finish is not None

    @property
    def empty(self) -> bool:
        """Whether nothing of a reply has come yet."""
        return not self._output.items

    def events(self, events: Iterable[Event]) -> list[Delta]:
        """The deltas of stream events. Raises `Failure` where one reports an error or cannot be read."""
        deltas: list[Delta] = []
        for name, data in events:
            if not data or data.isspace():
                continue
            if data == b"[DONE]":
                self.ended = True
            else:
                value = load_object(data, self._model)
                self._event(a_text(value.get("type")) or name.decode("ascii", "replace"), value, deltas)
            if self.ended:
                break
        return deltas

    def whole(self, body: bytes) -> list[Delta]:
        """The deltas of an answer that is one response."""
        value = load_object(body, self._model)
        deltas: list[Delta] = []
        status = a_text(value.get("status")) or ("completed" if is_list(value.get("output")) else "")
        if value.get("error") and status not in _ENDS:
            self._failed(value)
        elif status in _ENDS:
            self._final(status, value, deltas)
        else:
            raise self._bad(f"is no reply (status {status!r})")
        return deltas

    def done(self, sent: Sent) -> Done:
        """The whole reply. Comments beside a final answer stand among the thoughts, and not in the answer."""
        draft, items = Draft(self._model), self._output.items
        calls = any(item.kind == "function_call" for item in items)
        aside = not calls and any(item.phase == "final_answer" and item.said("text") for item in items)
        for item, after in itertools.zip_longest(items, items[1:]):
            match item.kind:
                case "message":
                    _put_message(item, draft, aside=aside and item.phase == "commentary")
                case "function_call":
                    arguments = item.said("arguments")
                    draft.call(item, name=item.name, call_id=item.call_id, arguments=arguments)
                case "reasoning":
                    _put_reasoning(item, draft, goes_back=after is None or after.kind in _KEPT)
                case _:
                    pass
        return draft.done(self._finish or "stop", self._tally, sent)

    def _event(self, kind: str, value: JSONObject, deltas: list[Delta]) -> None:
        if found := _PIECES.get(kind):
            self._piece(*found, value, deltas)
        elif end := _LAST.get(kind):
            self._final(end, an_object(value.get("response")), deltas)
        elif kind == "response.output_item.added":
            self._begin(value, deltas)
        elif kind == "response.output_item.done":
            fields = an_object(value.get("item"))
            item = self._output.ended(a_number(value.get("output_index")), fields)
            self._complete(item, fields, deltas)
        elif kind == "error" or (value.get("error") and "type" not in value):
            self._failed(value)

    def _piece(self, kind: str, source: str, field: str, value: JSONObject, deltas: list[Delta]) -> None:
        if text := a_text(value.get(field)):
            index = a_number(value.get("summary_index" if source == "summary" else "content_index")) or 0
            item = self._output.of(kind, value)
            _tell(item, source, item.hear(source, index, text, whole=field != "delta"), deltas)

    def _begin(self, value: JSONObject, deltas: list[Delta]) -> None:
        fields = an_object(value.get("item"))
        item = self._output.begun(a_number(value.get("output_index")), fields)
        item.take(fields)
        if item.kind == "function_call":
            deltas.append(CallDelta(item.name, ""))

    def _complete(self, item: Item, fields: JSONObject, deltas: list[Delta]) -> None:
        """An item at its end: what has not come in pieces is taken from it."""
        item.take(fields)
        item.closed = True
        for source, parts in _texts(item.kind, fields).items():
            _tell(item, source, item.rest(source, parts), deltas)
        if item.kind == "reasoning":
            item.signature = a_text(fields.get("encrypted_content")) or item.signature
            item.own = _own(fields) or item.own

    def _final(self, end: str, response: JSONObject, deltas: list[Delta]) -> None:
        self.ended = True
        self._count(an_object(response.get("usage")))
        output = objects(a_list(response.get("output")))
        for item, fields in zip(self._output.final(output), output, strict=True):
            self._complete(item, fields, deltas)
        status = a_text(response.get("status"))
        status = status if status in _ENDS else end
        if status == "failed":
            self._failed(response)
        elif status == "incomplete":
            reason = an_object(response.get("incomplete_details")).get("reason")
            self._finish = "content_filter" if reason == "content_filter" else "length"
        elif status == "completed":
            self._finish = "stop"
        else:
            raise self._bad(f"ended as {status!r}")

    def _count(self, usage: JSONObject) -> None:
        inputs, outputs = an_object(usage.get("input_tokens_details")), an_object(usage.get("output_tokens_details"))
        self._tally.note(
            input=a_number(usage.get("input_tokens")),
            output=a_number(usage.get("output_tokens")),
            reasoning=a_number(outputs.get("reasoning_tokens")),
            cached=a_number(inputs.get("cached_tokens")),
            written=a_number(inputs.get("cache_write_tokens")),
        )

    def _failed(self, value: JSONObject) -> None:
        """An error ends the reply: as a refusal where the provider's policy stopped it, else as a `Failure`."""
        error = an_object(value.get("error")) or value
        code = f"{a_text(error.get('code'))} {a_text(error.get('type'))}".strip()
        known = {**value, "status": 400} if _REQUEST.match(code) else value
        failure = event_failure(known, model=self._model, secrets=self._secrets)
        if not (_STOPPED.search(code) or (code.startswith("invalid_prompt") and _FLAGGED.search(failure.text))):
            raise failure
        self._output.new("message", None).hear("refusal", 0, failure.text)
        self._finish, self.ended = "content_filter", True

    def _bad(self, what: str) -> Failure:
        return Failure(BadResponse(f"{self._model}: the answer {what}", model=self._model), repeat=True)


def _tell(item: Item, source: str, text: str, deltas: list[Delta]) -> None:
    if not text or source == "refusal":
        return
    if source == "arguments":
        deltas.append(CallDelta(item.name, text))
    else:
        deltas.append(TextDelta(text) if source == "text" else ThinkingDelta(text))


def _texts(kind: str, fields: JSONObject) -> dict[str, list[str]]:
    """The texts of an item that is complete, by their sources, in parts."""
    parts = objects(a_list(fields.get("content")))
    if kind == "message":
        refusals = [text for part in parts if (text := a_text(part.get("refusal")))]
        return {"text": [a_text(part.get("text")) for part in parts], "refusal": refusals}
    if kind == "function_call":
        arguments = fields.get("arguments")
        return {"arguments": [encode(arguments).decode() if isinstance(arguments, dict) else a_text(arguments)]}
    if kind == "reasoning":
        summary = objects(a_list(fields.get("summary")))
        return {"summary": [a_text(part.get("text")) for part in summary],
                "content": [a_text(part.get("text")) for part in parts]}  # fmt: skip
    return {}


def _own(fields: JSONObject) -> JSONObject:
    """What goes back of reasoning: its id, and its summary and content as they were."""
    own: JSONObject = {"summary": a_list(fields.get("summary"))}
    if item_id := a_text(fields.get("id")):
        own["id"] = item_id
    if content := a_list(fields.get("content")):
        own["content"] = content
    return own


def _put_message(item: Item, draft: Draft, *, aside: bool) -> None:
    text, refusal = item.said("text"), item.said("refusal")
    if item.phase and (text or refusal):
        draft.thinking((item, "phase"), text if aside else "", data={"phase": item.phase})
    if text and not aside:
        draft.text(item, text)
    if refusal:
        draft.refusal((item, "refusal"), refusal)


def _put_reasoning(item: Item, draft: Draft, *, goes_back: bool) -> None:
    """Reasoning goes back only before the item that it led to, and only where it is whole."""
    goes_back = goes_back and bool(item.signature or item.own.get("content"))
    if goes_back:
        draft.thinking(item, item.thought(), signature=item.signature, data=item.own)
    else:
        draft.thinking(item, item.thought())
