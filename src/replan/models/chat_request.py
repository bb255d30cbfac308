"""A request as the bytes of a Chat Completions body. Each message is encoded once in the life of its conversation."""

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from replan.encoding import JSONObject, encode
from replan.messages import Assistant, Audio, Content, File, Image, Message, Refusal, Text, ToolCall, ToolResult, User
from replan.model import Conversation, OutputSchema, ToolSpec

from .chat_schema import plain_parameters, strict_schema

__all__ = [
    "message_fragments",
    "object_bytes",
    "response_format",
    "schema_instructions",
    "system_fragment",
    "tool_list",
]

_ID_LENGTH = 40
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")


def message_fragments(conversation: Conversation, *, images: bool) -> list[bytes]:
    """The messages, encoded: those of earlier requests are taken from the conversation's store."""
    fragments = conversation.encoded.setdefault("openai-chat+images" if images else "openai-chat", [])
    for message in conversation.messages[len(fragments) :]:
        fragments.append(encode(_message(message, images=images)))
    return fragments


def system_fragment(instructions: str) -> bytes:
    """The system message."""
    return encode({"role": "system", "content": instructions})


def tool_list(tools: tuple[ToolSpec, ...]) -> bytes:
    """The `tools` of a request."""
    return encode([{"type": "function", "function": _function(tool)} for tool in tools])


def response_format(output: OutputSchema) -> bytes:
    """The `response_format` of a request; strict where the schema is within what strict mode accepts."""
    described = {"name": output.name, "schema": output.schema, "strict": strict_schema(output.schema)}
    return encode({"type": "json_schema", "json_schema": described})


def schema_instructions(instructions: str, output: OutputSchema) -> str:
    """The instructions with the schema in words, for models that do not take one."""
    schema = encode(output.schema).decode()
    asked = f"Reply with one JSON value that fulfils this JSON schema, and with nothing else:\n{schema}"
    return f"{instructions}\n\n{asked}" if instructions else asked


def object_bytes(fields: dict[str, bytes]) -> bytes:
    """A JSON object of values that are encoded already."""
    return b"{" + b",".join(b"%s:%s" % (encode(name), value) for name, value in fields.items()) + b"}"


def wire_id(call_id: str) -> str:
    """The id of a call as it goes to the provider, which takes at most 40 characters."""
    return call_id if len(call_id) <= _ID_LENGTH else f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


def _function(tool: ToolSpec) -> JSONObject:
    described: JSONObject = {"name": tool.name, "parameters": plain_parameters(tool.parameters)}
    return {**described, "description": tool.description} if tool.description else described


def _message(message: Message, *, images: bool) -> JSONObject:
    match message:
        case User():
            return {"role": "user", "content": _user_content(message.content, images=images)}
        case ToolResult():
            text = "\n".join(_as_text(part) for part in message.content)
            return {"role": "tool", "tool_call_id": wire_id(message.call_id), "content": text or "(empty)"}
        case Assistant():
            return _assistant(message)


def _assistant(message: Assistant) -> JSONObject:
    text = "".join(part.text for part in message.content if isinstance(part, Text | Refusal))
    if calls := message.calls:
        return {"role": "assistant", "content": text or None, "tool_calls": [_call(call) for call in calls]}
    return {"role": "assistant", "content": text or "(no answer)"}


def _call(call: ToolCall) -> JSONObject:
    """Name and arguments are what a provider accepts, whatever the model wrote."""
    name = _NOT_IN_NAME.sub("_", call.name)[:64] or "unnamed"
    function = {"name": name, "arguments": encode(call.arguments).decode()}
    return {"id": wire_id(call.call_id), "type": "function", "function": function}


def _user_content(content: tuple[Content, ...], *, images: bool) -> Any:
    if not (images and any(isinstance(part, Image) for part in content)):
        return "\n".join(_as_text(part) for part in content) or "(empty)"
    return [_image(part) if isinstance(part, Image) else _text_part(_as_text(part)) for part in content]


def _text_part(text: str) -> JSONObject:
    return {"type": "text", "text": text}


def _image(image: Image) -> JSONObject:
    url = image.url
    if image.data is not None:
        url = _data_url(image.mime, image.data)
    elif url and not url.startswith(("http://", "https://", "data:")):
        try:
            url = _data_url(image.mime, Path(url).read_bytes())
        except (OSError, ValueError):
            return _text_part(f"{_as_text(image)[:-1]}, which cannot be read]")
    return {"type": "image_url", "image_url": {"url": url}} if url else _text_part(_as_text(image))


def _data_url(mime: str, data: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def _as_text(part: Content) -> str:
    """The part as text: other than text, its description, so that the model knows that there is something."""
    if isinstance(part, Text):
        return part.text
    kind = {Image: "image", Audio: "audio", File: "file"}[type(part)]
    name = f" {part.name!r}" if isinstance(part, File) and part.name else ""
    size = f", {len(part.data)} bytes" if part.data is not None else ""
    place = f" at {part.url}" if part.url and not part.url.startswith("data:") else ""
    return f"[{kind}{name} of type {part.mime}{size}{place}, not shown]"
