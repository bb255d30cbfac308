"""The embedded model: no key, no network, one worker process with the weights for the whole program.

Output is held to the JSON schema token by token. Tools are offered as a choice between JSON objects, see `_local_turn`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from importlib.util import find_spec

from replan.encoding import JSONObject
from replan.errors import (
    BadRequest,
    BadResponse,
    ConfigError,
    ContextTooLong,
    MissingDependency,
    ModelError,
    ModelTimeout,
    NetworkError,
)
from replan.model import Delta, Done, ModelProfile, ModelRequest, Retry, TextDelta
from replan.settings import ModelSettings
from replan.usage import Usage

from ._local_client import Exchange, release, worker_for
from ._local_turn import Ask, Reply, first_ask, next_ask
from .weights import weights_path

__all__ = ["LocalModel"]

CONTEXT_WINDOW = 8192
"""Tokens of prompt and reply together: 230 MB of memory, and as much as two cores read in two minutes."""

MAX_OUTPUT_TOKENS = 1024
"""The cap of a reply where the request has none: a small model sometimes repeats itself without end."""


class LocalModel:
    """The embedded model, `local:qwen2.5-coder-1.5b`.

    All instances in a process share one worker, which takes one request at a time; `close` ends it when no other
    instance has used it. Raises `MissingDependency` without the engine and `ConfigError` without the weights.
    """

    def __init__(self, name: str, settings: ModelSettings | None = None) -> None:
        if find_spec("xllamacpp") is None:
            raise MissingDependency(
                "the embedded model needs its engine: pip install 'replan[local]' (or name another model, such as "
                "'openai:gpt-4.1-mini', or set OPENAI_API_KEY)"
            )
        weights = weights_path()
        if weights is None:
            raise ConfigError("the embedded model's weights (1.1 GB) are missing; fetch them once: replan model pull")
        self._weights = weights
        self._name = name
        self._settings = settings or ModelSettings()

    def __repr__(self) -> str:
        return f"LocalModel({self._name!r})"

    @property
    def name(self) -> str:
        """`local:` and the model's name."""
        return f"local:{self._name}"

    @property
    def profile(self) -> ModelProfile:
        """What the model can do."""
        return ModelProfile(context_window=CONTEXT_WINDOW, constrained=True)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Run one call; see `Model.stream`."""
        return self._stream(request)

    async def close(self) -> None:
        """End the worker, if no other model has used it."""
        await asyncio.to_thread(release, self)

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        from .http import check_allowed

        check_allowed(self.name)
        usage = Usage(model_calls=1)
        ask = first_ask(request)
        while True:
            reply = Reply(ask)
            async with aclosing(self._pieces(self._body(request, ask))) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Retry):
                        reply = Reply(ask)
                        yield piece
                    elif isinstance(piece, _End):
                        reply.length, usage = piece.length, usage + piece.usage
                    elif text := reply.feed(piece):
                        yield TextDelta(text)
                    if reply.refused or reply.echoed:
                        break
            again = next_ask(request, ask, reply)
            if again is None:
                break
            if reply.shown:
                yield Retry(1, "the reply did not keep to its schema", 0.0)
            ask = again
        if rest := reply.rest():
            yield TextDelta(rest)
        yield self._done(reply, usage)

    def _done(self, reply: Reply, usage: Usage) -> Done:
        if reply.refused:
            raise BadResponse(f"{self.name} did not keep to the JSON schema of the request", model=self.name)
        message, finish = reply.result()
        return Done(message, usage, finish)

    def _body(self, request: ModelRequest, ask: Ask) -> JSONObject:
        settings = self._settings
        limit = request.max_output_tokens or settings.max_output_tokens or MAX_OUTPUT_TOKENS
        temperature = settings.temperature if request.temperature is None else request.temperature
        body: JSONObject = {
            "messages": ask.messages(request),
            "max_tokens": limit,
            "temperature": temperature or 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_prompt": True,
            "return_progress": True,
        }
        top_p = settings.top_p if request.top_p is None else request.top_p
        body |= {} if top_p is None else {"top_p": top_p}
        if stop := request.stop or settings.stop:
            body["stop"] = list(stop)
        if ask.schema is not None:
            body["grammar"] = ask.grammar()
        return {**body, **settings.options, **request.options}

    async def _pieces(self, body: JSONObject) -> AsyncGenerator["str | Retry | _End", None]:
        """The engine's text, and its end; once more from the beginning when the worker dies of it."""
        failures = 0
        while True:
            exchange = Exchange(body)
            worker = worker_for(self._weights, CONTEXT_WINDOW, self)
            if not worker.submit(exchange):
                continue
            try:
                async for piece in self._received(exchange):
                    yield piece
            except _Lost as lost:
                failures += lost.blame
                if failures > 1 or lost.closed:
                    raise NetworkError(f"{self.name}: {lost}", model=self.name) from None
                retry = Retry(max(failures, 1), str(lost), 0.0)
            else:
                return
            finally:
                worker.cancel(exchange)
            yield retry

    async def _received(self, exchange: Exchange) -> AsyncGenerator["str | _End", None]:
        while True:
            try:
                message = await exchange.receive(self._settings.timeout)
            except TimeoutError:
                raise ModelTimeout(
                    f"{self.name} showed no sign of life for {self._settings.timeout:g} seconds", model=self.name
                ) from None
            if "text" in message:
                yield message["text"]
            elif "done" in message:
                yield _end(message["done"])
                return
            elif "lost" in message:
                raise _Lost(message)
            elif "error" in message or "fatal" in message:
                raise self._error(message)

    def _error(self, message: JSONObject) -> ModelError:
        if "fatal" in message:
            return BadRequest(
                f"{self.name}: the weights in {str(self._weights)!r} cannot be loaded ({message['fatal']})",
                model=self.name,
            )
        error = message["error"]
        text = f"{self.name}: {error.get('message', error)}"
        if error.get("type") == "exceed_context_size_error":
            return ContextTooLong(text, model=self.name)
        if error.get("code") == 400:
            return BadRequest(text, model=self.name, status=400)
        return BadResponse(text, model=self.name)


class _End:
    """The end of the engine's text: whether it was cut off, and what it cost."""

    __slots__ = ("length", "usage")

    def __init__(self, length: bool, usage: Usage) -> None:
        self.length, self.usage = length, usage


class _Lost(Exception):
    """The worker process ended before the request did."""

    def __init__(self, message: JSONObject) -> None:
        super().__init__(message["lost"])
        self.blame: bool = message["blame"]
        self.closed: bool = message["closed"]


def _end(done: JSONObject) -> _End:
    counts: JSONObject = done.get("usage") or {}
    details: JSONObject = counts.get("prompt_tokens_details") or {}
    usage = Usage(
        input_tokens=counts.get("prompt_tokens", 0),
        output_tokens=counts.get("completion_tokens", 0),
        cached_input_tokens=details.get("cached_tokens", 0),
        estimated=not counts,
    )
    return _End(done.get("finish") == "length", usage)
