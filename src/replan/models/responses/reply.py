"""Replies of the OpenAI Responses API, streamed or whole (reference "Streaming events")."""

from collections.abc import Collection, Hashable, Iterable

from replan.encoding import JSON, JSONObject
from replan.errors import BadResponse
from replan.model import Delta, Done, FinishReason
from replan.models.draft import Draft, Tally
from replan.models.failures import Failure, event_failure
from replan.models.fields import a_list, a_number, a_text, an_object, load_object, objects
from replan.models.sse import Event
from replan.models.wire import Sent

__all__ = ["ResponsesReply"]

_BETWEEN = "\n\n"
"""Between the parts of a summary."""


class ResponsesReply:
    """Collects one reply. Each item may come in pieces, whole at its end, or only in the final response."""

    __slots__ = ("_draft", "_finish", "_model", "_secrets", "_signed", "_tally", "ended")

    def __init__(self, model: str, secrets: Collection[str] = ()) -> None:
        self._model, self._secrets = model, secrets
        self._draft, self._tally = Draft(model), Tally()
        self._finish: FinishReason | None = None
        self._signed: set[Hashable] = set()
        self.ended = False
        """Whether the final response was read: nothing follows."""

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
        if value.get("error") and value.get("object") != "response":
            raise self._error(value)
        self._final(value, deltas)
        return deltas

    def done(self, sent: Sent) -> Done:
        """The whole reply."""
        return self._draft.done(self._finish or "stop", self._tally, sent)

    def _event(self, kind: str, value: JSONObject, deltas: list[Delta]) -> None:
        at, draft = a_number(value.get("output_index")), self._draft
        match kind:
            case "response.output_text.delta":
                if text := a_text(value.get("delta")):
                    deltas.append(draft.text((at, a_number(value.get("content_index"))), text))
            case "response.function_call_arguments.delta":
                if text := a_text(value.get("delta")):
                    deltas.append(draft.call((at, "call"), arguments=text))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._thought(value, deltas)
            case "response.refusal.delta":
                draft.refusal((at, a_number(value.get("content_index"))), a_text(value.get("delta")))
            case "response.output_item.added":
                self._begin(at, an_object(value.get("item")), deltas)
            case "response.output_item.done":
                self._complete(at, an_object(value.get("item")), deltas)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._final(an_object(value.get("response")), deltas)
            case "error":
                raise self._error(value)
            case _:
                pass  # beginnings and ends of parts, and what is not known yet

    def _thought(self, value: JSONObject, deltas: list[Delta]) -> None:
        """A piece of a summary; its parts are paragraphs."""
        at = a_number(value.get("output_index"))
        part = a_number(value.get("summary_index", value.get("content_index")))
        text = a_text(value.get("delta"))
        key = (at, "reasoning")
        if part and (at, part) not in self._signed:
            self._signed.add((at, part))
            text = _BETWEEN + text if self._draft.said(key) else text
        if text:
            deltas.append(self._draft.thinking(key, text))

    def _begin(self, at: JSON, item: JSONObject, deltas: list[Delta]) -> None:
        match a_text(item.get("type")):
            case "function_call":
                name, call_id = a_text(item.get("name")), a_text(item.get("call_id"))
                deltas.append(self._draft.call((at, "call"), name=name, call_id=call_id))
            case "reasoning":
                self._draft.thinking((at, "reasoning"))
            case "message" if item.get("phase") and not self._draft.said((at, 0)):
                self._draft.thinking((at, "phase"), data={"phase": item["phase"]})
            case _:
                pass  # items of tools that the provider runs itself

    def _complete(self, at: JSON, item: JSONObject, deltas: list[Delta]) -> None:
        """An item at its end: what has not come in pieces is taken from it."""
        self._begin(at, item, []) if not self._known(at, item) else None
        match a_text(item.get("type")):
            case "function_call" if not self._draft.said((at, "call")):
                deltas.append(self._draft.call((at, "call"), arguments=a_text(item.get("arguments"))))
            case "message":
                for index, part in enumerate(objects(item.get("content"))):
                    self._part((at, index), part, deltas)
            case "reasoning":
                self._reasoning(at, item, deltas)
            case _:
                pass

    def _known(self, at: JSON, item: JSONObject) -> bool:
        return item.get("type") == "reasoning" and bool(self._draft.said((at, "reasoning")))

    def _part(self, key: tuple[JSON, int], part: JSONObject, deltas: list[Delta]) -> None:
        if self._draft.said(key):
            return
        if refusal := a_text(part.get("refusal")):
            self._draft.refusal(key, refusal)
        elif text := a_text(part.get("text")):
            deltas.append(self._draft.text(key, text))

    def _reasoning(self, at: JSON, item: JSONObject, deltas: list[Delta]) -> None:
        """What of reasoning goes back: its id, its summary as it was, and the encrypted content."""
        key = (at, "reasoning")
        parts = objects(item.get("summary")) or objects(item.get("content"))
        text = _BETWEEN.join(a_text(part.get("text")) for part in parts)
        if text and not self._draft.said(key):
            deltas.append(self._draft.thinking(key, text))
        data: JSONObject = {"id": item.get("id"), "summary": a_list(item.get("summary"))}
        if content := a_list(item.get("content")):
            data["content"] = content
        signature = "" if (at, "signed") in self._signed else a_text(item.get("encrypted_content"))
        if signature:
            self._signed.add((at, "signed"))
        self._draft.thinking(key, signature=signature, data=data)

    def _final(self, response: JSONObject, deltas: list[Delta]) -> None:
        self.ended = True
        self._count(an_object(response.get("usage")))
        for index, item in enumerate(objects(response.get("output"))):
            self._complete(index, item, deltas)
        status = a_text(response.get("status")) or "completed"
        reason = a_text(an_object(response.get("incomplete_details")).get("reason"))
        if status == "failed":
            raise self._error(response)
        if status == "incomplete":
            self._finish = "content_filter" if reason == "content_filter" else "length"
        elif status == "completed":
            self._finish = "stop"
        else:
            raise Failure(BadResponse(f"{self._model} ended as {status!r}", model=self._model), repeat=True)

    def _count(self, usage: JSONObject) -> None:
        inputs, outputs = an_object(usage.get("input_tokens_details")), an_object(usage.get("output_tokens_details"))
        self._tally.note(
            input=a_number(usage.get("input_tokens")),
            output=a_number(usage.get("output_tokens")),
            reasoning=a_number(outputs.get("reasoning_tokens")),
            cached=a_number(inputs.get("cached_tokens")),
            written=a_number(inputs.get("cache_write_tokens")),
        )

    def _error(self, value: JSONObject) -> Failure:
        return event_failure(value, model=self._model, secrets=self._secrets)
