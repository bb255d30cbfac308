"""Messages as the parts of Gemini's contents (reference "Content"; guides "Thought signatures", "Function calling").

Gemini signs any part of a reply. A signature is kept as a `Thinking` without text before the part that it belongs to
(`{"signs": "next"}`), alone (`{"signs": "nothing"}`), or on a thought that is nothing else (`{"signs": "thought"}`),
and goes back there.
"""

from dataclasses import dataclass

from replan.encoding import JSONObject
from replan.messages import (
    Assistant,
    Audio,
    Content,
    File,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from replan.model import ModelProfile
from replan.models.body import tool_name
from replan.models.content import base64_text, described, loaded, written

__all__ = ["ALONE", "NEXT", "OWN", "UNSIGNED", "UNSIGNED_PLAIN", "Parts"]

NEXT: JSONObject = {"signs": "next"}
ALONE: JSONObject = {"signs": "nothing"}
OWN: JSONObject = {"signs": "thought"}

UNSIGNED_PLAIN = "skip_thought_signature_validator"
"""What Gemini 3 takes in place of the signature of a call that it has not made, as the guide has it."""

UNSIGNED = base64_text(UNSIGNED_PLAIN.encode())
"""The same as bytes are on the wire."""

_SEEN_IN_RESULTS = ("image/", "application/pdf")


@dataclass(frozen=True, slots=True)
class Parts:
    """Makes the parts of messages.

    Signatures go back only to `thinker` (`provider:model`); `unsigned` is what the first call of a reply has that has
    none. On Vertex AI, calls and results have no ids, and files may lie in Cloud Storage.
    """

    thinker: str
    profile: ModelProfile
    vertex: bool = False
    unsigned: str = ""

    def of(self, message: Message) -> list[JSONObject]:
        """The parts of a message."""
        match message:
            case User():
                parts = [self._content(part) for part in message.content if _told(part)]
                return parts or [{"text": "(empty)"}]
            case ToolResult():
                return self._results(message)
            case Assistant():
                return self._said(message) or [{"text": "(no answer)"}]

    def _said(self, message: Assistant) -> list[JSONObject]:
        parts: list[JSONObject] = []
        pending: JSONObject = {}
        for part in message.content:
            if isinstance(part, Thinking):
                signed, after = self._signed(part)
                if signed or after:
                    parts += [*_alone(pending), *signed]
                    pending = after
            elif isinstance(part, ToolCall):
                parts.append({**self._call(part), **pending})
                pending = {}
            elif part.text:
                parts.append({"text": part.text, **pending})
                pending = {}
        return self._marked([*parts, *_alone(pending)])

    def _signed(self, part: Thinking) -> tuple[list[JSONObject], JSONObject]:
        """What a thought is sent as, and the signature that it has for the part behind it."""
        if part.model != self.thinker or part.signature is None:
            return [], {}
        own: JSONObject = {"thoughtSignature": part.signature}
        if part.text or part.data == OWN:
            return [{"text": part.text, "thought": True, **own}], {}
        return (_alone(own), {}) if part.data == ALONE else ([], own)

    def _marked(self, parts: list[JSONObject]) -> list[JSONObject]:
        """The parts, with the first call signed where the model refuses one that is not."""
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None and self.unsigned:
            first.setdefault("thoughtSignature", self.unsigned)
        return parts

    def _call(self, call: ToolCall) -> JSONObject:
        return {"functionCall": {**self._id(call.call_id), "name": tool_name(call.name), "args": call.arguments}}

    def _id(self, call_id: str) -> JSONObject:
        return {} if self.vertex else {"id": call_id}

    def _results(self, message: ToolResult) -> list[JSONObject]:
        """The result, with what is to be seen inside it, or behind it for models before Gemini 3."""
        inside = self.profile.thinking == "gemini-level"
        texts: list[str] = []
        media: list[JSONObject] = []
        for part in message.content:
            shown = self._shown(part, inside=inside)
            if shown is not None:
                media.append(shown)
            elif _told(part):
                texts.append((written(part) if isinstance(part, File) else None) or described(part))
        response = {"error" if message.is_error else "output": "\n".join(texts) or "(empty)"}
        found = {**self._id(message.call_id), "name": tool_name(message.name), "response": response}
        if media and inside:
            return [{"functionResponse": {**found, "parts": media}}]
        return [{"functionResponse": found}, *media]

    def _shown(self, part: Content, *, inside: bool) -> JSONObject | None:
        """An image or a document in a result; inside one, only Vertex AI takes addresses."""
        if isinstance(part, Text) or not self.profile.result_images or not self._sees(part):
            return None
        if not part.mime.startswith(_SEEN_IN_RESULTS):
            return None
        found = self._data(part)
        return None if found and inside and not self.vertex and "fileData" in found else found

    def _content(self, part: Content) -> JSONObject:
        if isinstance(part, Text):
            return {"text": part.text}
        if isinstance(part, File) and (text := written(part)) is not None:
            return {"text": text} if text else {"text": described(part)}
        return (self._data(part) if self._sees(part) else None) or {"text": described(part)}

    def _sees(self, part: Image | Audio | File) -> bool:
        return bool(getattr(self.profile, _CAN[type(part)]))

    def _data(self, part: Image | Audio | File) -> JSONObject | None:
        """The bytes, or where they lie."""
        if self.vertex and (part.url or "").startswith("gs://"):
            return {"fileData": {"mimeType": part.mime, "fileUri": part.url}}
        found = loaded(part)
        if found is None:
            return None
        if found.data is None:
            return {"fileData": {"mimeType": found.mime, "fileUri": found.url}}
        return {"inlineData": {"mimeType": found.mime, "data": base64_text(found.data)}}


def _told(part: Content) -> bool:
    return not isinstance(part, Text) or bool(part.text)


def _alone(signature: JSONObject) -> list[JSONObject]:
    """A signature with nothing that it belongs to."""
    return [{"text": "", **signature}] if signature else []


_CAN: dict[type[Content], str] = {Image: "images", File: "files", Audio: "audio"}
