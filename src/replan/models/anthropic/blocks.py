"""Messages as the content blocks of the Anthropic Messages API."""

import hashlib
import re

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

__all__ = ["blocks_of", "text_block", "wire_id"]

_IMAGES = frozenset(["image/png", "image/jpeg", "image/gif", "image/webp"])
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def blocks_of(message: Message, name: str, profile: ModelProfile) -> list[JSONObject]:
    """The blocks of a message to the model `name` (`provider:model`)."""
    match message:
        case User():
            return [_content(part, profile) for part in message.content if _told(part)] or [text_block("(empty)")]
        case ToolResult():
            return [_result(message, profile)]
        case Assistant():
            blocks = [block for part in message.content for block in _said(part, name)]
            return blocks or [text_block("(no answer)")]


def text_block(text: str) -> JSONObject:
    """A text."""
    return {"type": "text", "text": text}


def wire_id(call_id: str) -> str:
    """The id of a call in the characters and the length that the API takes."""
    return call_id if _ID.match(call_id) else f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


def _told(part: Content) -> bool:
    return not isinstance(part, Text) or bool(part.text.strip())


def _said(part: Text | Thinking | Refusal | ToolCall, name: str) -> list[JSONObject]:
    match part:
        case Thinking():
            return _thought(part) if part.model == name else []
        case ToolCall():
            call = {"type": "tool_use", "id": wire_id(part.call_id), "name": tool_name(part.name)}
            return [{**call, "input": part.arguments}]
        case _:
            return [text_block(part.text)] if part.text.strip() else []


def _thought(part: Thinking) -> list[JSONObject]:
    """The thought as it came; one without signature is not taken back."""
    if is_object(part.data):
        return [part.data]
    if part.signature is None:
        return []
    return [{"type": "thinking", "thinking": part.text, "signature": part.signature}]


def _result(message: ToolResult, profile: ModelProfile) -> JSONObject:
    content = [_content(part, profile, in_result=True) for part in message.content if _told(part)]
    result: JSONObject = {"type": "tool_result", "tool_use_id": wire_id(message.call_id)}
    result["content"] = content or [text_block("(empty)")]
    return {**result, "is_error": True} if message.is_error else result


def _content(part: Content, profile: ModelProfile, *, in_result: bool = False) -> JSONObject:
    """The part as a block; a text that says what it is where it cannot be one."""
    allowed = profile.result_images or not in_result
    match part:
        case Text():
            return text_block(part.text)
        case Image() if profile.images and allowed:
            block = _image(part)
        case File() if profile.files and allowed:
            block = _document(part)
        case File():
            text = written(part)
            block = None if text is None else text_block(text)
        case Image() | Audio():
            block = None
    return block or text_block(described(part))


def _image(part: Image) -> JSONObject | None:
    found = loaded(part)
    if found is None or (found.data is not None and found.mime not in _IMAGES):
        return None
    return {"type": "image", "source": _source(found.data, found.url, found.mime)}


def _document(part: File) -> JSONObject | None:
    title = {"title": part.name} if part.name else {}
    text = written(File(part.mime, data=part.data, url=part.url))
    if text is not None:
        source: JSONObject = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "source": source, **title} if text.strip() else None
    found = loaded(part)
    if found is None or found.mime != "application/pdf":
        return None
    return {"type": "document", "source": _source(found.data, found.url, found.mime), **title}


def _source(data: bytes | None, url: str | None, mime: str) -> JSONObject:
    if data is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": mime, "data": base64_text(data)}
