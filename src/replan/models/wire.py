"""What all wires share: one API format is a `Wire`; `HttpModel` makes a model of it, with transport, retries and the
parts of a request that a server refuses.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from replan.errors import BadResponse
from replan.messages import Assistant, Audio, File, Image, Refusal, ToolResult, User
from replan.model import Delta, Done, ModelProfile, ModelRequest
from replan.settings import ModelSettings
from replan.usage import Usage

from .failures import Failure
from .http import drain, post_stream, public_url
from .limiter import Limiter, limiter_for
from .options import completed
from .retry import Backoff, repeat
from .sse import Event
from .structured import OutputTool

__all__ = ["Auth", "Body", "Decoder", "Endpoint", "HttpModel", "Reply", "Sent", "StaticAuth", "Wire", "refusing"]

_FILTERED = re.compile(
    r'"(code|type)"\s*:\s*"(content_filter|content_policy_violation)"|content filtering policy'
    r'|"invalid_prompt".{0,300}(flagged|usage policy)|(flagged|usage policy).{0,300}"invalid_prompt"',
    re.S,
)
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie", re.I)
_MEDIA_CHARACTERS = 4000


def refusing(name: str) -> re.Pattern[str]:
    """What recognises that a field is refused as such: its name (a regular expression) beside words for that. Errors
    about what is in the field do not have them.
    """
    words = (
        r"(unsupported|not supported|n't supported|does ?n.t support|not support|unrecogni[sz]ed|not valid for"
        r"|unknown (parameter|field|argument|name)|not permitted|extra (inputs|fields)|not (allowed|available|enabled)"
        r"|only supported)"
    )
    return re.compile(rf"{words}.{{0,120}}({name})|({name}).{{0,120}}{words}", re.I | re.S)


class Auth(Protocol):
    """What proves to a provider who asks."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not show up in an error."""
        ...

    async def headers(self, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """The headers to add to this request; a signature may cover all of it. Raises `AuthError`."""
        ...


@dataclass(frozen=True, slots=True)
class StaticAuth:
    """Headers that are the same for every request; none for a server that wants no key."""

    always: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    async def headers(self, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """The headers."""
        return self.always


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model with all that a wire needs to reach it.

    `headers` are added to each request. `options` are the provider's own ways of being reached (`region`, `project`,
    `api_version`, ...), by the names in the table of providers.
    """

    provider: str
    model: str
    base_url: str
    auth: Auth = field(default_factory=StaticAuth)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    settings: ModelSettings = field(default_factory=ModelSettings)
    profile: ModelProfile = field(default_factory=ModelProfile)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def name(self) -> str:
        """`provider:model`."""
        return f"{self.provider}:{self.model}"


class Body(NamedTuple):
    """The body of a request, and which of the wire's `objections` it has in it."""

    data: bytes
    parts: frozenset[str] = frozenset()


class Sent(NamedTuple):
    """What a reply must know of its request.

    `characters` gives the request's length, to estimate usage that was not reported. `taken` says whether a call id
    occurs in the conversation already; ids in its place are `call_<n>`, n from `first_number` on.
    """

    characters: Callable[[], int]
    taken: Callable[[str], bool]
    first_number: int


class Reply(Protocol):
    """Collects one reply: feed it events, or a whole answer, then ask for `done`."""

    @property
    def finished(self) -> bool:
        """Whether the reply is complete."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing follows that would have to be read."""
        ...

    @property
    def empty(self) -> bool:
        """Whether nothing of a reply has come yet."""
        ...

    def events(self, events: Iterable[Event]) -> list[Delta]:
        """The deltas of stream events. Raises `Failure` where one reports an error or cannot be read."""
        ...

    def whole(self, body: bytes) -> list[Delta]:
        """The deltas of an answer that is one JSON value. Raises `Failure` where it is none, as with a web page."""
        ...

    def done(self, sent: Sent) -> Done:
        """The whole reply."""
        ...


class Decoder(Protocol):
    """Turns the bytes of a stream, cut anywhere, into events."""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes."""
        ...

    def finish(self) -> list[Event]:
        """The events that the end of the stream completes."""
        ...


class Wire(Protocol):
    """How one API is spoken, to one endpoint. Used by several runs at once."""

    @property
    def objections(self) -> Mapping[str, re.Pattern[str]]:
        """Parts of a request that some servers refuse, each with how to recognise it in what they say. Such a request
        is sent again without, and that is remembered for the life of the process.
        """
        ...

    @property
    def server_wide(self) -> Collection[str]:
        """The parts that a server refuses whatever the model."""
        ...

    @property
    def passing(self) -> Collection[str]:
        """The parts whose refusal tells of one conversation or one schema: it is not remembered."""
        ...

    @property
    def decoder(self) -> Callable[[], Decoder]:
        """Makes what turns a stream's bytes into events."""
        ...

    def url(self, request: ModelRequest) -> str:
        """Where the request goes."""
        ...

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """Headers of the format itself, besides `Content-Type`."""
        ...

    def body(self, request: ModelRequest, off: Collection[str]) -> Body:
        """The request without the parts in `off`. Each message is encoded once in the life of its conversation."""
        ...

    def reply(self, request: ModelRequest) -> Reply:
        """What collects the reply to this request."""
        ...

    def taken(self, call_id: str, body: bytes) -> bool:
        """Whether the call id occurs in a request."""
        ...


_refused: set[tuple[str, str, str]] = set()
"""What was refused, for the life of the process: (base URL, model, part)."""


class HttpModel:
    """A model behind an HTTP API. Always streams; reads an answer that does not, too."""

    def __init__(self, endpoint: Endpoint, wire: Wire, *, backoff: Backoff | None = None) -> None:
        settings = endpoint.settings
        self._endpoint, self._wire, self._settings = endpoint, wire, settings
        self._backoff = backoff or Backoff.of(settings)
        self._headers = {"Content-Type": "application/json", **endpoint.headers}
        self._hidden = _secret_values(endpoint.headers)

    def __repr__(self) -> str:
        return f"HttpModel({self.name!r}, base_url={public_url(self._endpoint.base_url)!r})"

    @property
    def name(self) -> str:
        """`provider:model`."""
        return self._endpoint.name

    @property
    def profile(self) -> ModelProfile:
        """What the model can do."""
        return self._endpoint.profile

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Run one call; see `Model.stream`."""
        limiter = limiter_for(self._endpoint.base_url, self.name, self._settings)
        attempt = self._attempt if limiter is None else partial(self._held, limiter)
        return repeat(partial(attempt, completed(request, self._settings)), self._backoff, model=self.name)

    async def close(self) -> None:
        """Nothing to release: connections belong to the event loop."""

    async def _held(self, limiter: Limiter, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """One attempt, begun when the model's limits allow it; a repeat waits anew."""
        async with limiter.slot(), aclosing(self._attempt(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        tool = OutputTool.of(request, self.profile)
        wanted = request if tool is None else tool.request(request)
        try:
            body, first, chunks = await self._open(wanted)
        except Failure as failure:
            if failure.error.status != 400 or not _FILTERED.search(failure.text):
                raise
            yield _filtered(failure)
            return
        reply = self._wire.reply(wanted)
        async with aclosing(chunks), aclosing(_read(first, chunks, reply, self._wire.decoder())) as batches:
            async for batch in batches:
                for delta in batch:
                    yield delta if tool is None else tool.delta(delta)
        if not reply.finished:
            raise self._incomplete(reply)
        done = reply.done(
            Sent(
                characters=partial(_characters, wanted, body),
                taken=partial(self._wire.taken, body=body),
                first_number=len(request.conversation.messages) + 1,
            )
        )
        yield done if tool is None else tool.done(done)

    async def _open(self, request: ModelRequest) -> tuple[bytes, bytes, AsyncGenerator[bytes, None]]:
        """The body that the server accepted, the first bytes of the answer, and the rest of it."""
        off = {part for part in self._wire.objections if self._key(part) in _refused}
        learnt: set[str] = set()
        while True:
            body = self._wire.body(request, off)
            chunks = await self._post(request, body.data)
            try:
                first = piece = await anext(chunks, b"")
                while piece and not first.strip():
                    piece = await anext(chunks, b"")
                    first += piece
            except Failure as failure:
                part = self._objection(failure, body.parts - off)
                if part is None:
                    raise
                off.add(part)
                if part not in self._wire.passing and "invalid schema" not in failure.text.lower():
                    learnt.add(part)
            else:
                _refused.update(map(self._key, learnt))  # without them it was accepted
                return body.data, first, chunks

    async def _post(self, request: ModelRequest, body: bytes) -> AsyncGenerator[bytes, None]:
        url, auth = self._wire.url(request), self._endpoint.auth
        headers = {**self._headers, **self._wire.headers(request)}
        headers |= await auth.headers(url, headers, body)
        return post_stream(
            url, headers, body, timeout=self._settings.timeout, model=self.name, secrets=(*auth.secrets, *self._hidden)
        )

    def _objection(self, failure: Failure, parts: Collection[str]) -> str | None:
        """The part of the request that the server refuses, if that is what it says."""
        if failure.error.status not in (400, 403, 404, 415, 422, 501):
            return None
        words = self._wire.objections
        return next((part for part in words if part in parts and words[part].search(failure.text)), None)

    def _key(self, part: str) -> tuple[str, str, str]:
        return (self._endpoint.base_url, "" if part in self._wire.server_wide else self._endpoint.model, part)

    def _incomplete(self, reply: Reply) -> Failure:
        what = "is empty" if reply.empty else "broke off before its end"
        return Failure(BadResponse(f"{self.name}: the answer {what}", model=self.name), repeat=True)


async def _read(
    first: bytes, chunks: AsyncGenerator[bytes, None], reply: Reply, decoder: Decoder
) -> AsyncGenerator[list[Delta], None]:
    """The deltas of an answer as they come. What goes wrong after the reply is complete does not matter any more."""
    try:
        if first.lstrip()[:1] in (b"{", b"[", b"<"):
            yield reply.whole(first + b"".join([piece async for piece in chunks]))
            return
        piece = first
        while piece and not reply.ended:
            yield reply.events(decoder.feed(piece))
            piece = b"" if reply.ended else await anext(chunks, b"")
        yield reply.events(decoder.finish())
    except Failure:
        if not reply.finished:
            raise
    await drain(chunks)


def _filtered(failure: Failure) -> Done:
    """A request that the provider's filter stopped is a refusal, and not an error."""
    return Done(Assistant((Refusal(str(failure.error)),)), Usage(model_calls=1, estimated=True), "content_filter")


def _secret_values(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Values of headers that must not show up in errors; short ones are placeholders, and would black out words."""
    named = [value.removeprefix("Bearer ") for name, value in headers.items() if _SECRET_NAME.search(name)]
    return tuple(value for value in named if len(value) >= 8)


def _characters(request: ModelRequest, body: bytes) -> int:
    """The length of a request, with an image, a sound or a file counted as a page of text and not by its bytes."""
    messages = (message for message in request.conversation.messages if isinstance(message, User | ToolResult))
    media = [part for message in messages for part in message.content if isinstance(part, Image | Audio | File)]
    encoded = sum(len(part.data) * 4 // 3 for part in media if part.data is not None)
    return max(0, len(body) - encoded) + _MEDIA_CHARACTERS * len(media)
