"""Messages as the parts of Gemini's contents.

Gemini signs any part of a reply. A signature is kept as a `Thinking` without text before the part that it belongs to
(`{"signs": "next"}`), or alone (`{"signs": "nothing"}`), and goes back on that part.
"""

from replan.encoding import JSONObject
from replan.messages import (
    Assistant,
    Audio,
    Content,
    File,
    Image,
    Message,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from replan.model import ModelProfile
from replan.models.body import tool_name
from replan.models.content import base64_text, described, loaded, written

__all__ = ["ALONE", "NEXT", "Parts"]

NEXT: JSONObject = {"signs": "next"}
ALONE: JSONObject = {"signs": "nothing"}

_UNSIGNED = base64_text(b"skip_thought_signature_validator")
"""What Gemini 3 takes in place of the signature of a call that it has not made (guide "Thought signatures"); bytes are
base64 on the wire.
"""


class Parts:
    """Makes the parts of messages to one model. With `ids`, calls and results carry the ids of the calls."""

    def __init__(self, name: str, profile: ModelProfile, *, ids: bool) -> None:
        self._name, self._profile, self._ids = name, profile, ids

    def of(self, message: Message) -> list[JSONObject]:
        """The parts of a message."""
        match message:
            case User():
                parts = [self._content(part) for part in message.content if _told(part)]
                return parts or [{"text": "(empty)"}]
            case ToolResult():
                return [self._result(message)]
            case Assistant():
                return self._said(message) or [{"text": "(no answer)"}]

    def _said(self, message: Assistant) -> list[JSONObject]:
        parts: list[JSONObject] = []
        signature: JSONObject = {}
        for part in message.content:
            match part:
                case Thinking() if part.model != self._name or part.signature is None:
                    pass
                case Thinking(text=""):
                    own = {"thoughtSignature": part.signature}
                    if part.data == ALONE:
                        parts.append({"text": "", **own})
                    else:
                        signature = own
                case Thinking():
                    parts.append({"text": part.text, "thought": True, "thoughtSignature": part.signature})
                case ToolCall():
                    parts.append({**self._call(part), **signature})
                    signature = {}
                case Text() | Refusal() if part.text or signature:
                    parts.append({"text": part.text, **signature})
                    signature = {}
                case _:
                    pass
        return self._signed(parts)

    def _signed(self, parts: list[JSONObject]) -> list[JSONObject]:
        """The parts, with the first call of the turn signed where the model refuses one that is not."""
        if self._profile.thinking == "gemini-level":
            first = next((part for part in parts if "functionCall" in part), None)
            if first is not None:
                first.setdefault("thoughtSignature", _UNSIGNED)
        return parts

    def _call(self, call: ToolCall) -> JSONObject:
        own = {"id": call.call_id} if self._ids else {}
        return {"functionCall": {**own, "name": tool_name(call.name), "args": call.arguments}}

    def _result(self, message: ToolResult) -> JSONObject:
        shown = [self._media(part) for part in message.content] if self._profile.result_images else []
        media = [part for part in shown if part is not None]
        texts = [described(p) for p in message.content if _told(p) and not (media and isinstance(p, Image))]
        response = {"error" if message.is_error else "output": "\n".join(texts) or "(empty)"}
        own: JSONObject = {"id": message.call_id} if self._ids else {}
        found: JSONObject = {**own, "name": tool_name(message.name), "response": response}
        return {"functionResponse": {**found, "parts": media} if media else found}

    def _media(self, part: Content) -> JSONObject | None:
        return _data(part) if isinstance(part, Image) else None

    def _content(self, part: Content) -> JSONObject:
        if isinstance(part, Text):
            return {"text": part.text}
        found = _data(part) if getattr(self._profile, _CAN[type(part)]) else None
        if found is None and isinstance(part, File) and (text := written(part)) is not None:
            found = {"text": text}
        return found or {"text": described(part)}


def _told(part: Content) -> bool:
    return not isinstance(part, Text) or bool(part.text)


def _data(part: Image | Audio | File) -> JSONObject | None:
    """The bytes, or where they lie. Of files, text is put as text."""
    if isinstance(part, File) and (text := written(part)) is not None:
        return {"text": text} if text else None
    found = loaded(part)
    if found is None:
        return None
    if found.data is None:
        return {"fileData": {"mimeType": found.mime, "fileUri": found.url}}
    return {"inlineData": {"mimeType": found.mime, "data": base64_text(found.data)}}


_CAN: dict[type[Content], str] = {Image: "images", File: "files", Audio: "audio"}
