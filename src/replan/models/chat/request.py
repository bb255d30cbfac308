"""Requests of the Chat Completions API (reference "Create chat completion")."""

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from replan.encoding import JSON, JSONObject, encode, is_list
from replan.errors import ConfigError
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
from replan.model import Conversation, ModelRequest, OutputSchema, ToolSpec
from replan.models.body import ToolList, object_bytes, tool_name
from replan.models.caching import cache_key
from replan.models.content import base64_text, data_url, described, loaded, written
from replan.models.options import merge_options
from replan.models.schemas import openai_output, openai_parameters, openai_strict
from replan.models.sse import EventParser
from replan.models.structured import form_of, schema_instructions
from replan.models.thinking import resolve_thinking
from replan.models.wire import Body, Endpoint, refusing

from .reply import ChatReply

__all__ = ["ChatWire", "endpoint_url", "wire_id"]

_ID_LENGTH = 40
_REFUSED = r"(unsupported|not supported|unrecogni[sz]ed|unknown|extra|permitted|invalid|does not support)"
_OWN = ("openai", "azure")
"""Providers whose own models are behind the wire: they know `max_completion_tokens`."""


class ChatWire:
    """`POST {base_url}/chat/completions`."""

    objections: Mapping[str, re.Pattern[str]] = {
        "stream_options": re.compile(r"stream_options|include_usage", re.I),
        "response_format": re.compile(r"response_format|json_schema|structured.?output", re.I),
        "tool_choice": re.compile(r"tool.?choice", re.I),
        "max_tokens": re.compile(rf"{_REFUSED}.*max_\w*tokens|max_\w*tokens.*{_REFUSED}", re.I | re.S),
        "thinking": refusing(r"reasoning|thinking"),
        "sampling": refusing(r"temperature|top_p"),
        "stop": refusing(r"'stop'|\bstop\b"),
        "prompt_cache_key": refusing("prompt_cache_key"),
    }
    server_wide = frozenset(["stream_options", "prompt_cache_key"])
    passing: Collection[str] = ()
    decoder = EventParser

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._profile = endpoint, endpoint.profile
        self._url = endpoint_url(endpoint.base_url, "/chat/completions")
        self._model = encode(endpoint.model)
        self._tools = ToolList(_tool)
        self._store = f"chat:{endpoint.name}:{int(self._profile.images)}"

    def url(self, request: ModelRequest) -> str:
        """Where the request goes."""
        return self._url

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """None of its own."""
        return {}

    def reply(self, request: ModelRequest) -> ChatReply:
        """What collects the reply."""
        names = self._tools.names(request.tools) if request.tools else frozenset[str]()
        return ChatReply(model=self._endpoint.name, tools=names, secrets=self._endpoint.auth.secrets)

    def taken(self, call_id: str, body: bytes) -> bool:
        """Whether the call id occurs in a request."""
        return b'"id":' + encode(wire_id(call_id)) in body

    def body(self, request: ModelRequest, off: Collection[str]) -> Body:
        """The request without the parts in `off`."""
        parts = self._parts(request) - set(off)
        fields = {"model": self._model, "messages": self._messages(request, parts)}
        if request.tools:
            fields["tools"] = self._tools.encoded(request.tools)
        if "tool_choice" in parts:
            fields["tool_choice"] = encode(request.tool_choice)
        if request.output is not None and "response_format" in parts:
            fields["response_format"] = form_of(request.output, _response_format)
        if request.max_output_tokens is not None:
            usual = (self._endpoint.provider in _OWN) == ("max_tokens" in parts)
            fields["max_completion_tokens" if usual else "max_tokens"] = encode(request.max_output_tokens)
        for name, value in self._settings(request, parts).items():
            fields[name] = encode(value)
        for name, value in request.options.items():
            merged = merge_options(_known(fields, name), {name: value})
            fields[name] = encode(merged[name])
        return Body(object_bytes(fields), frozenset(parts))

    def _parts(self, request: ModelRequest) -> set[str]:
        """Which of the parts that some servers refuse the request wants to have."""
        native = self._profile.structured_output == "native"
        parts = {
            "stream_options": True,
            "max_tokens": request.max_output_tokens is not None,
            "response_format": native and request.output is not None and request.output.schema.get("type") == "object",
            "tool_choice": bool(request.tools) and self._choice(request) != "auto",
            "thinking": bool(resolve_thinking(request.thinking, self._profile)),
            "sampling": self._profile.sampling and not (request.temperature is None and request.top_p is None),
            "stop": bool(request.stop),
            "prompt_cache_key": self._profile.caching == "key" and cache_key(request) is not None,
        }
        return {part for part, wanted in parts.items() if wanted}

    def _choice(self, request: ModelRequest) -> str:
        refused = request.thinking and request.thinking.wanted and not self._profile.forced_calls_while_thinking
        return "auto" if refused and request.tool_choice == "required" else request.tool_choice

    def _settings(self, request: ModelRequest, parts: Collection[str]) -> JSONObject:
        """The fields of settings, in the order in which they are sent."""
        found: JSONObject = {}
        if "sampling" in parts:
            found |= {"temperature": request.temperature, "top_p": request.top_p}
        if "stop" in parts:
            found["stop"] = list(request.stop)
        if "thinking" in parts:
            found |= resolve_thinking(request.thinking, self._profile)
        if "prompt_cache_key" in parts:
            found["prompt_cache_key"] = cache_key(request)
        found["stream"] = True
        if "stream_options" in parts:
            found["stream_options"] = {"include_usage": True}
        return {name: value for name, value in found.items() if value is not None}

    def _messages(self, request: ModelRequest, parts: Collection[str]) -> bytes:
        fragments = self._fragments(request.conversation)
        instructions = request.instructions
        if request.output is not None and "response_format" not in parts:
            instructions = schema_instructions(instructions, request.output)
        if instructions:
            fragments = [encode({"role": "system", "content": instructions}), *fragments]
        return b"[" + b",".join(fragments) + b"]"

    def _fragments(self, conversation: Conversation) -> list[bytes]:
        """The messages, encoded: those of earlier requests are taken from the conversation's store."""
        fragments = conversation.encoded.setdefault(self._store, [])
        for message in conversation.messages[len(fragments) :]:
            fragments.append(encode(self._message(message)))
        return fragments

    def _message(self, message: Message) -> JSONObject:
        match message:
            case User():
                return {"role": "user", "content": self._user_content(message.content)}
            case ToolResult():
                text = "\n".join(described(part) for part in message.content) or "(empty)"
                content = f"Error: {text}" if message.is_error else text  # the API has no field for it
                return {"role": "tool", "tool_call_id": wire_id(message.call_id), "content": content}
            case Assistant():
                return self._assistant(message)

    def _assistant(self, message: Assistant) -> JSONObject:
        text = "".join(part.text for part in message.content if isinstance(part, Text | Refusal))
        if calls := message.calls:
            said: JSONObject = {"role": "assistant", "content": text or None, "tool_calls": [_call(c) for c in calls]}
            return {**said, **self._thoughts(message)}
        return {"role": "assistant", "content": text or "(no answer)"}

    def _thoughts(self, message: Assistant) -> JSONObject:
        """Thoughts before calls, for a model that wants its own back: signed ones, and those of DeepSeek."""
        own = [p for p in message.content if isinstance(p, Thinking) and p.model == self._endpoint.name]
        if details := [part.data for part in own if is_list(part.data)]:
            return {"reasoning_details": details[0]}
        return {"reasoning_content": own[0].text} if own and self._profile.thinking == "switch" else {}

    def _user_content(self, content: tuple[Content, ...]) -> JSON:
        parts = [self._part(part) for part in content]
        if all(isinstance(part, str) for part in parts):
            return "\n".join(map(str, parts)) or "(empty)"
        return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]

    def _part(self, part: Content) -> JSON:
        """The part as the API takes it; a text where it does not, or the model cannot."""
        if isinstance(part, Text):
            return part.text
        if isinstance(part, File) and (text := written(part)) is not None:
            return text
        found = _MEDIA[type(part)](part) if getattr(self._profile, _CAN[type(part)]) else None
        return described(part) if found is None else found


def wire_id(call_id: str) -> str:
    """The id of a call as it goes to the provider, which takes at most 40 characters."""
    return call_id if len(call_id) <= _ID_LENGTH else f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


def endpoint_url(base_url: str, path: str) -> str:
    """The address of one of the API's resources, with the base URL's query. Raises `ConfigError` for no URL."""
    try:
        parts = urlsplit(base_url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(base_url)
    except ValueError:
        raise ConfigError(f"base URL {base_url!r} is none; give one such as 'https://api.example.com/v1'") from None
    start = parts.path.rstrip("/").removesuffix(path)
    return urlunsplit((parts.scheme, parts.netloc, f"{start}{path}", parts.query, ""))


def _known(fields: Mapping[str, bytes], name: str) -> JSONObject:
    """What the body has under that name, where an option can be merged into it."""
    import msgspec

    return {name: msgspec.json.decode(fields[name])} if fields.get(name, b"")[:1] == b"{" else {}


def _tool(tool: ToolSpec) -> JSONObject:
    function: JSONObject = {"name": tool.name, "parameters": openai_parameters(tool.parameters)}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _response_format(output: OutputSchema) -> bytes:
    schema = openai_output(output.schema)
    described = {"name": output.name, "schema": schema, "strict": openai_strict(schema)}
    return encode({"type": "json_schema", "json_schema": described})


def _call(call: ToolCall) -> JSONObject:
    function = {"name": tool_name(call.name), "arguments": encode(call.arguments).decode()}
    return {"id": wire_id(call.call_id), "type": "function", "function": function}


def _image(image: Image) -> JSON:
    found = loaded(image)
    if found is None:
        return f"{described(image)[:-1]}, which cannot be read]"
    url = found.url if found.data is None else data_url(found.mime, found.data)
    return {"type": "image_url", "image_url": {"url": url}}


def _file(file: File) -> JSON:
    found = loaded(file)
    if found is None or found.data is None:
        return None
    name = file.name or "file.pdf"
    return {"type": "file", "file": {"filename": name, "file_data": data_url(found.mime, found.data)}}


def _audio(audio: Audio) -> JSON:
    found, kind = loaded(audio), _AUDIO.get(audio.mime)
    if found is None or found.data is None or kind is None:
        return None
    return {"type": "input_audio", "input_audio": {"data": base64_text(found.data), "format": kind}}


_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_MEDIA: dict[type[Content], Any] = {Image: _image, File: _file, Audio: _audio}
_CAN: dict[type[Content], str] = {Image: "images", File: "files", Audio: "audio"}
