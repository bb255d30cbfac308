"""Messages as the content blocks of Amazon Bedrock (API reference "ContentBlock")."""

import hashlib
import re
from dataclasses import dataclass

from replan.encoding import JSONObject, encode, is_object
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

from .families import Family

__all__ = ["Blocks", "text_block", "wire_id"]

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
_AUDIO = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/flac": "flac",
    "audio/aac": "aac",
    "audio/x-aac": "x-aac",
    "audio/mp4": "mp4",
    "audio/m4a": "m4a",
    "audio/x-m4a": "m4a",
    "audio/webm": "webm",
    "audio/pcm": "pcm",
}
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_CLAUDE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def text_block(text: str) -> JSONObject:
    """A text."""
    return {"text": text}


def wire_id(call_id: str, family: Family) -> str:
    """The id of a call in the characters and the length that the model takes."""
    if (_CLAUDE_ID if family.claude else _ID).match(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Blocks:
    """How messages are written for the model `name` (`provider:model`).

    Calls and their results are refused in a request that offers no tools: with `words` they are told in texts.
    """

    name: str
    profile: ModelProfile
    family: Family
    words: bool

    def of(self, message: Message, number: int) -> list[JSONObject]:
        """The blocks of the message, which is that of this number in the conversation."""
        place = f"document-{number + 1}"
        match message:
            case User():
                return self._contents(message.content, place) or [text_block("(empty)")]
            case ToolResult():
                return self._told_result(message, place) if self.words else [self._result(message, place)]
            case Assistant():
                blocks = [block for part in message.content for block in self._said(part)]
                return blocks or [text_block("(no answer)")]

    def _said(self, part: Text | Thinking | Refusal | ToolCall) -> list[JSONObject]:
        match part:
            case Thinking():
                return _thought(part) if part.model == self.name and not self.words else []
            case ToolCall() if self.words:
                return [text_block(f"(Called the tool {part.name!r} with {encode(part.arguments).decode()}.)")]
            case ToolCall():
                call: JSONObject = {"toolUseId": wire_id(part.call_id, self.family), "name": tool_name(part.name)}
                return [{"toolUse": {**call, "input": part.arguments}}]
            case _:
                return [text_block(part.text)] if part.text.strip() else []

    def _told_result(self, message: ToolResult, place: str) -> list[JSONObject]:
        what = "Error" if message.is_error else "Result"
        return [text_block(f"({what} of the tool {message.name!r}:)"), *self._contents(message.content, place)]

    def _result(self, message: ToolResult, place: str) -> JSONObject:
        content = self._contents(message.content, place, in_result=True) or [text_block("(empty)")]
        if self.family.json_results:
            texts = [block["text"] for block in content if "text" in block]
            content = [{"json": {"result": "\n".join(texts)}}, *(block for block in content if "text" not in block)]
        result: JSONObject = {"toolUseId": wire_id(message.call_id, self.family), "content": content}
        return {"toolResult": {**result, "status": "error"} if message.is_error else result}

    def _contents(self, content: tuple[Content, ...], place: str, *, in_result: bool = False) -> list[JSONObject]:
        found: list[JSONObject] = []
        for number, part in enumerate(content):
            found += self._content(part, f"{place}-{number + 1}", in_result=in_result)
        return found

    def _content(self, part: Content, place: str, *, in_result: bool) -> list[JSONObject]:
        """The part as blocks; a text that says what it is where it cannot be one."""
        profile = self.profile
        allowed = profile.result_images or not in_result
        block: JSONObject | None = None
        match part:
            case Text():
                return [text_block(part.text)] if part.text.strip() else []
            case Image() if profile.images and allowed:
                block = _media("image", part, _IMAGES)
            case Audio() if profile.audio and not in_result:
                block = _media("audio", part, _AUDIO)
            case File():
                text = written(part)
                if text is not None and text.strip():
                    return [text_block(text)]
                if profile.files and allowed and (found := _media("document", part, _DOCUMENTS)):
                    return [_named(found, place), text_block(_label(part, place))]
            case _:
                pass
        return [block or text_block(described(part))]


def _thought(part: Thinking) -> list[JSONObject]:
    """The thought as it came; one without signature is not taken back."""
    if is_object(part.data):
        return [{"reasoningContent": part.data}]
    if part.signature is None:
        return []
    return [{"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}]


def _media(kind: str, part: Image | Audio | File, formats: dict[str, str]) -> JSONObject | None:
    """The block of a part with its bytes, or with its place in S3."""
    if part.mime not in formats:
        return None
    if (part.url or "").startswith("s3://"):
        source: JSONObject = {"s3Location": {"uri": part.url}}
    else:
        found = loaded(part)
        if found is None or not found.data:
            return None
        source = {"bytes": base64_text(found.data)}
    return {kind: {"format": formats[part.mime], "source": source}}


def _named(block: JSONObject, place: str) -> JSONObject:
    """A document under a neutral name: models may take names for instructions, and two must not have the same."""
    return {"document": {"name": place, **block["document"]}}


def _label(part: File, place: str) -> str:
    """The text that has to stand beside a document; behind it, because a cache point cannot follow a document."""
    return f"({place} is the file {part.name!r}.)" if part.name else f"({place} is a file.)"
