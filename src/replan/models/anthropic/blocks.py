"""Messages as the content blocks of the Anthropic Messages API."""

import hashlib
import re
from dataclasses import dataclass

from replan.encoding import JSONObject, is_object
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

__all__ = ["THOUGHTS", "Blocks", "text_block", "wire_id"]

THOUGHTS = ("thinking", "redacted_thinking")
"""Types of blocks that are thoughts."""

_IMAGES = frozenset(["image/png", "image/jpeg", "image/gif", "image/webp"])
_SAME = {"image/jpg": "image/jpeg"}
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def text_block(text: str) -> JSONObject:
    """A text."""
    return {"type": "text", "text": text}


def wire_id(call_id: str) -> str:
    """The id of a call in the characters and the length that the API takes."""
    return call_id if _ID.match(call_id) else f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Blocks:
    """Makes the blocks of messages.

    Thoughts go back only to `thinker` (`provider:model`), without a signature only where `unsigned` says so. With
    `urls` false the server does not fetch images and files itself.
    """

    thinker: str
    profile: ModelProfile
    urls: bool = True
    unsigned: bool = False

    def of(self, message: Message) -> list[JSONObject]:
        """The blocks of a message; at least one."""
        match message:
            case User():
                content = [self._content(part) for part in message.content if _told(part)]
                return content or [text_block("(empty)")]
            case ToolResult():
                return [self._result(message)]
            case Assistant():
                return self._reply(message)

    def _reply(self, message: Assistant) -> list[JSONObject]:
        """The reply, with a text at its end where the API would refuse a thought there."""
        blocks = [block for part in message.content for block in self._said(part)]
        return blocks if blocks and blocks[-1]["type"] not in THOUGHTS else [*blocks, text_block("(no answer)")]

    def _said(self, part: Text | Thinking | Refusal | ToolCall) -> list[JSONObject]:
        match part:
            case Thinking():
                return self._thought(part) if part.model == self.thinker else []
            case ToolCall():
                call = {"type": "tool_use", "id": wire_id(part.call_id), "name": tool_name(part.name)}
                return [{**call, "input": part.arguments}]
            case _:
                return [text_block(part.text)] if part.text.strip() else []

    def _thought(self, part: Thinking) -> list[JSONObject]:
        """The thought as it came."""
        data = part.data
        if is_object(data):
            return [{"type": data["type"], **data}] if data.get("type") in THOUGHTS else []
        if part.signature is None and not (self.unsigned and part.text):
            return []
        return [{"type": "thinking", "thinking": part.text, "signature": part.signature or ""}]

    def _result(self, message: ToolResult) -> JSONObject:
        """The result. The API takes nothing but texts in one that is an error."""
        seen = self.profile.result_images and not message.is_error
        content = [self._content(part, seen=seen) for part in message.content if _told(part)]
        result: JSONObject = {"type": "tool_result", "tool_use_id": wire_id(message.call_id)}
        result["content"] = content or [text_block("(empty)")]
        return {**result, "is_error": True} if message.is_error else result

    def _content(self, part: Content, *, seen: bool = True) -> JSONObject:
        """The part as a block; a text that says what it is where it cannot be one."""
        match part:
            case Text():
                return text_block(part.text)
            case Image() if self.profile.images and seen:
                block = self._image(part)
            case File() if self.profile.files and seen:
                block = self._document(part)
            case File():
                text = written(part)
                block = None if text is None else text_block(text)
            case Image() | Audio():
                block = None
        return block or text_block(described(part))

    def _image(self, part: Image) -> JSONObject | None:
        found = loaded(part)
        if found is None:
            return None
        mime = _SAME.get(found.mime, found.mime)
        known = mime in _IMAGES or (found.data is None and (mime == "image/*" or not mime.startswith("image/")))
        source = self._source(found.data, found.url, mime)
        return {"type": "image", "source": source} if known and source else None

    def _document(self, part: File) -> JSONObject | None:
        title = {"title": part.name} if part.name else {}
        text = written(File(part.mime, data=part.data, url=part.url))
        if text is not None:
            source: JSONObject | None = {"type": "text", "media_type": "text/plain", "data": text}
            return {"type": "document", "source": source, **title} if text.strip() else None
        found = loaded(part)
        if found is None or found.mime != "application/pdf":
            return None
        source = self._source(found.data, found.url, found.mime)
        return {"type": "document", "source": source, **title} if source else None

    def _source(self, data: bytes | None, url: str | None, mime: str) -> JSONObject | None:
        if data is not None:
            return {"type": "base64", "media_type": mime, "data": base64_text(data)}
        return {"type": "url", "url": url} if self.urls else None


def _told(part: Content) -> bool:
    return not isinstance(part, Text) or bool(part.text.strip())
