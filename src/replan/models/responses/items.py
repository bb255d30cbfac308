"""Messages as the input items of the OpenAI Responses API."""

from collections.abc import Callable, Iterable
from typing import Any

from replan.encoding import JSON, JSONObject, encode, is_object
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
from replan.models.chat.request import wire_id
from replan.models.content import data_url, described, loaded, written

__all__ = ["items_of"]


def items_of(message: Message, name: str, profile: ModelProfile, *, reasoning: bool = True) -> list[JSONObject]:
    """The items of a message to the model `name` (`provider:model`), with its own `reasoning` or without."""
    match message:
        case User():
            content = [_content(part, profile) for part in message.content if _told(part)]
            return [{"type": "message", "role": "user", "content": _plain(content) or "(empty)"}]
        case ToolResult():
            return [_output(message, profile)]
        case Assistant():
            own = tuple(part for part in message.content if not isinstance(part, Thinking) or part.model == name)
            return _said(own, reasoning=reasoning) or [_text("(no answer)", {})]


def _told(part: Content) -> bool:
    return not isinstance(part, Text) or bool(part.text)


def _plain(content: list[JSONObject]) -> JSON:
    """A text where the content is nothing else, its parts on lines of their own."""
    if all(part["type"] == "input_text" for part in content):
        return "\n".join(part["text"] for part in content)
    return content


def _output(message: ToolResult, profile: ModelProfile) -> JSONObject:
    content = [_content(part, profile, in_result=True) for part in message.content if _told(part)]
    output = _plain(content) or "(empty)"
    if message.is_error:
        output = f"Error: {output}" if isinstance(output, str) else [{"type": "input_text", "text": "Error:"}, *output]
    return {"type": "function_call_output", "call_id": wire_id(message.call_id), "output": output}


def _said(parts: Iterable[Text | Thinking | Refusal | ToolCall], *, reasoning: bool) -> list[JSONObject]:
    """The items of a reply. Reasoning is refused without the item that came after it; a phase holds for one message,
    which may have several texts.
    """
    items: list[JSONObject] = []
    waiting: list[JSONObject] = []
    phase: JSONObject = {}
    for part in parts:
        item: JSONObject | None = None
        if isinstance(part, Thinking):
            own = part.data if is_object(part.data) else {}
            phase = {"phase": own["phase"]} if "phase" in own else {}
            if part.text and phase:
                item = _text(part.text, phase)
            elif reasoning and not phase:
                waiting += _reasoning(part, own)
        elif isinstance(part, ToolCall):
            item, phase = _call(part), {}
        elif part.text:
            item = _text(part.text, phase)
        if item is not None:
            items += [*waiting, item]
            waiting = []
    return items


def _reasoning(thought: Thinking, own: JSONObject) -> list[JSONObject]:
    """The thought as it came, where the provider can read it without having stored it."""
    if "summary" not in own or not (thought.signature or own.get("content")):
        return []
    encrypted = {"encrypted_content": thought.signature} if thought.signature else {}
    return [{"type": "reasoning", **own, **encrypted}]


def _text(text: str, phase: JSONObject) -> JSONObject:
    return {"type": "message", "role": "assistant", "content": text, **phase}


def _call(call: ToolCall) -> JSONObject:
    arguments = encode(call.arguments).decode()
    return {
        "type": "function_call",
        "call_id": wire_id(call.call_id),
        "name": tool_name(call.name),
        "arguments": arguments,
    }


def _content(part: Content, profile: ModelProfile, *, in_result: bool = False) -> JSONObject:
    """The part as the API takes it; a text that says what it is where it cannot."""
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    can = getattr(profile, _CAN[type(part)]) and (profile.result_images or not in_result)
    found = _MEDIA[type(part)](part) if can else None
    if found is None and isinstance(part, File) and (text := written(part)) is not None:
        found = {"type": "input_text", "text": text}
    return found or {"type": "input_text", "text": described(part)}


def _image(part: Image) -> JSONObject | None:
    found = loaded(part)
    if found is None:
        return None
    url = found.url if found.data is None else data_url(found.mime, found.data)
    return {"type": "input_image", "detail": "auto", "image_url": url}


def _file(part: File) -> JSONObject | None:
    found = loaded(part)
    if found is None or found.mime != "application/pdf":
        return None
    if found.data is None:
        return {"type": "input_file", "file_url": found.url}
    data = data_url(found.mime, found.data)
    return {"type": "input_file", "filename": part.name or "file.pdf", "file_data": data}


def _audio(part: Audio) -> JSONObject | None:
    """The Responses API takes no sounds in messages."""
    return None


_MEDIA: dict[type[Content], Callable[[Any], JSONObject | None]] = {Image: _image, File: _file, Audio: _audio}
_CAN: dict[type[Content], str] = {Image: "images", File: "files", Audio: "audio"}
