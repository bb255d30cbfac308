"""The OpenAI Chat Completions wire, as OpenAI and the many servers compatible with it speak it."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from urllib.parse import urlsplit, urlunsplit

from replan.encoding import encode
from replan.errors import BadResponse, ConfigError
from replan.messages import Assistant, Image, Refusal, User
from replan.model import Delta, Done, ModelProfile, ModelRequest, ToolSpec
from replan.settings import ModelSettings
from replan.usage import Usage

from .chat_reply import ChatReply
from .chat_request import (
    message_fragments,
    object_bytes,
    response_format,
    schema_instructions,
    system_fragment,
    tool_list,
    wire_id,
)
from .failures import Failure
from .http import drain, post_stream
from .retry import Backoff, repeat
from .sse import EventParser

__all__ = ["OpenAIChat"]

_OBJECTIONS = {
    "stream_options": re.compile(r"stream_options|include_usage", re.I),
    "response_format": re.compile(r"response_format|json_schema|structured.?output", re.I),
    "tool_choice": re.compile(r"tool.?choice", re.I),
    "max_tokens": re.compile(
        r"(unsupported|not supported|unrecogni[sz]ed|unknown|extra|permitted).*max_\w*tokens"
        r"|max_\w*tokens.*(unsupported|not supported|unrecogni[sz]ed|unknown|extra|permitted)",
        re.I | re.S,
    ),
}
"""Parts of a request that some servers refuse, each with how to recognise it in what they say.

Such a request is sent again without.
"""

_FILTERED = re.compile(r'"(code|type)"\s*:\s*"(content_filter|content_policy_violation)"')
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie", re.I)
_IMAGE_CHARACTERS = 4000

_refused: set[tuple[str, str, str]] = set()
"""What was refused, for the life of the process: (base URL, model, part); usage is a matter of the server, whatever
the model.
"""


class OpenAIChat:
    """A model behind `POST {base_url}/chat/completions`. Always streams; reads an answer that does not, too.

    `provider` names the service in events and errors. `headers` are added to each request. A server that refuses usage
    reports, schemas or a forced tool choice is asked again without them, and that is remembered.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        provider: str = "openai",
        settings: ModelSettings | None = None,
        headers: Mapping[str, str] | None = None,
        profile: ModelProfile | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._model = model
        self._provider = provider
        self._settings = settings or ModelSettings()
        self._profile = profile or ModelProfile(images=True)
        self._backoff = backoff or Backoff(max_retries=self._settings.max_retries)
        self._base_url = base_url
        self._url = _endpoint(base_url)
        api_key = (api_key or "").strip()
        if not api_key.isprintable():
            raise ConfigError(f"the API key for {self.name!r} has a line break or another control character in it")
        authorization = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._headers = {"Content-Type": "application/json", **authorization, **(headers or {})}
        self._secrets = _secrets(api_key, headers or {})
        self._model_bytes = encode(model)
        self._tools: dict[int, tuple[tuple[ToolSpec, ...], bytes, frozenset[str]]] = {}

    def __repr__(self) -> str:
        return f"OpenAIChat({self.name!r}, base_url={self._url.removesuffix('/chat/completions')!r})"

    @property
    def name(self) -> str:
        """`provider:model`."""
        return f"{self._provider}:{self._model}"

    @property
    def profile(self) -> ModelProfile:
        """What the model can do."""
        return self._profile

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Run one call; see `Model.stream`."""
        return repeat(partial(self._attempt, request), self._backoff)

    async def close(self) -> None:
        """Nothing to release: connections belong to the event loop."""

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        try:
            body, first, chunks = await self._open(request)
        except Failure as failure:
            if failure.error.status != 400 or not _FILTERED.search(failure.text):
                raise
            yield Done(
                Assistant((Refusal(str(failure.error)),)), Usage(model_calls=1, estimated=True), "content_filter"
            )
            return
        names = self._offered(request.tools)[1] if request.tools else frozenset[str]()
        reply = ChatReply(model=self.name, provider=self._provider, tools=names, secrets=self._secrets)
        async with aclosing(chunks), aclosing(_read(first, chunks, reply)) as batches:
            async for batch in batches:
                for delta in batch:
                    yield delta
        if not reply.finished:
            raise self._incomplete(reply)
        yield reply.done(
            characters=partial(_characters, request, body),
            taken=lambda call_id: b'"id":' + encode(wire_id(call_id)) in body,
            first_number=len(request.conversation.messages) + 1,
        )

    async def _open(self, request: ModelRequest) -> tuple[bytes, bytes, AsyncGenerator[bytes, None]]:
        """The body that the server accepted, the first bytes of the answer, and the rest of it."""
        off: set[str] = set()
        while True:
            parts = self._parts(request, off)
            body = self._body(request, parts)
            chunks = post_stream(
                self._url,
                self._headers,
                body,
                timeout=self._settings.timeout,
                model=self.name,
                secrets=self._secrets,
            )
            try:
                first = piece = await anext(chunks, b"")
                while piece and not first.strip():
                    piece = await anext(chunks, b"")
                    first += piece
            except Failure as failure:
                part = _objection(failure, parts)
                if part is None or part in off:
                    raise
                off.add(part)
                if "invalid schema" not in failure.text.lower():
                    _refused.add(self._key(part))
            else:
                return body, first, chunks

    def _parts(self, request: ModelRequest, off: set[str]) -> set[str]:
        """Which of the parts that some servers refuse this request has."""
        parts = {"stream_options", "max_tokens"}
        if request.output is not None and self._profile.json_schema and request.output.schema.get("type") == "object":
            parts.add("response_format")
        if request.tools and request.tool_choice != "auto":
            parts.add("tool_choice")
        return {part for part in parts if part not in off and self._key(part) not in _refused}

    def _key(self, part: str) -> tuple[str, str, str]:
        return (self._base_url, "" if part == "stream_options" else self._model, part)

    def _body(self, request: ModelRequest, parts: set[str]) -> bytes:
        settings = self._settings
        instructions = request.instructions
        if request.output is not None and "response_format" not in parts:
            instructions = schema_instructions(instructions, request.output)
        messages = message_fragments(request.conversation, images=self._profile.images)
        if instructions:
            messages = [system_fragment(instructions), *messages]
        fields = {"model": self._model_bytes, "messages": b"[" + b",".join(messages) + b"]"}
        if request.tools:
            fields["tools"] = self._offered(request.tools)[0]
        if "tool_choice" in parts:
            fields["tool_choice"] = encode(request.tool_choice)
        if request.output is not None and "response_format" in parts:
            fields["response_format"] = response_format(request.output)
        limit = settings.max_output_tokens if request.max_output_tokens is None else request.max_output_tokens
        if limit is not None:
            usual = (self._provider == "openai") == ("max_tokens" in parts)
            fields["max_completion_tokens" if usual else "max_tokens"] = encode(limit)
        temperature = settings.temperature if request.temperature is None else request.temperature
        if temperature is not None:
            fields["temperature"] = encode(temperature)
        fields["stream"] = b"true"
        if "stream_options" in parts:
            fields["stream_options"] = b'{"include_usage":true}'
        for name, value in (*settings.options.items(), *request.options.items()):
            fields[name] = encode(value)
        return object_bytes(fields)

    def _offered(self, tools: tuple[ToolSpec, ...]) -> tuple[bytes, frozenset[str]]:
        """The encoded tools and their names, made once for each tuple."""
        known = self._tools.get(id(tools))
        if known is None:
            if len(self._tools) >= 64:
                self._tools.clear()
            known = self._tools[id(tools)] = (tools, tool_list(tools), frozenset(tool.name for tool in tools))
        return known[1], known[2]

    def _incomplete(self, reply: ChatReply) -> Failure:
        what = "is empty" if reply.empty else "broke off before its end"
        return Failure(BadResponse(f"{self.name}: the answer {what}", model=self.name), repeat=True)


async def _read(
    first: bytes, chunks: AsyncGenerator[bytes, None], reply: ChatReply
) -> AsyncGenerator[list[Delta], None]:
    """The deltas of an answer as they come. What goes wrong after the reply is complete does not matter any more."""
    try:
        if first.lstrip()[:1] in (b"{", b"[", b"<"):
            yield reply.whole(first + b"".join([piece async for piece in chunks]))
            return
        parser, piece = EventParser(), first
        while piece and not reply.ended:
            yield reply.events(parser.feed(piece))
            piece = b"" if reply.ended else await anext(chunks, b"")
        yield reply.events(parser.finish())
    except Failure:
        if not reply.finished:
            raise
    await drain(chunks)


def _objection(failure: Failure, parts: set[str]) -> str | None:
    """The part of the request that the server refuses, if that is what it says."""
    if failure.error.status not in (400, 404, 415, 422, 501):
        return None
    return next((part for part, words in _OBJECTIONS.items() if part in parts and words.search(failure.text)), None)


def _characters(request: ModelRequest, body: bytes) -> int:
    """The length of a request, with an image counted as a page of text and not by its bytes."""
    messages = (message for message in request.conversation.messages if isinstance(message, User))
    images = [part for message in messages for part in message.content if isinstance(part, Image)]
    encoded = sum(len(image.data) * 4 // 3 for image in images if image.data is not None)
    return max(0, len(body) - encoded) + _IMAGE_CHARACTERS * len(images)


def _secrets(api_key: str | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    """What must not show up in errors. Texts under eight characters are placeholders, and would black out words."""
    named = [value.removeprefix("Bearer ") for name, value in headers.items() if _SECRET_NAME.search(name)]
    return tuple(text for text in (api_key, *named) if text and len(text) >= 8)


def _endpoint(base_url: str) -> str:
    try:
        parts = urlsplit(base_url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(base_url)
    except ValueError:
        raise ConfigError(f"base URL {base_url!r} is none; give one such as 'https://api.example.com/v1'") from None
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/chat/completions", parts.query, ""))
