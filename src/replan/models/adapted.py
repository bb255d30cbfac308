"""Models of other libraries: what their adapters share is settings, limits, time limits, and repeats."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Protocol

from replan.errors import ModelTimeout
from replan.messages import Assistant, Text, ToolResult, User
from replan.model import Delta, ModelProfile, ModelRequest
from replan.settings import ModelSettings

from .draft import characters
from .failures import Failure
from .limiter import limiter_for
from .options import completed
from .retry import Backoff, repeat
from .wire import Sent

__all__ = ["AdaptedModel", "Source", "sent"]


class Source(Protocol):
    """A model of another library. Used by several runs at once."""

    @property
    def name(self) -> str:
        """`provider:name`."""
        ...

    @property
    def base_url(self) -> str:
        """Where it is reached; empty where that is not known."""
        ...

    @property
    def profile(self) -> ModelProfile:
        """What it can do."""
        ...

    def attempt(self, request: ModelRequest, settings: ModelSettings) -> AsyncGenerator[Delta, None]:
        """One call, with the settings filled into the request. Raises `Failure`."""
        ...


class AdaptedModel:
    """A model of another library as ours."""

    def __init__(
        self, source: Source, settings: ModelSettings | None = None, *, backoff: Backoff | None = None
    ) -> None:
        self._source, self._settings = source, settings or ModelSettings()
        self._backoff = backoff or Backoff.of(self._settings)
        self._limiter = limiter_for(source.base_url, source.name, self._settings)

    def __repr__(self) -> str:
        return f"AdaptedModel({self.name!r})"

    @property
    def name(self) -> str:
        """`provider:name`."""
        return self._source.name

    @property
    def profile(self) -> ModelProfile:
        """What the model can do."""
        return self._source.profile

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Run one call; see `Model.stream`."""
        attempt = partial(self._attempt, completed(request, self._settings))
        return repeat(attempt, self._backoff, model=self.name)

    async def close(self) -> None:
        """Nothing to release: the model belongs to who made it."""

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        slot = nullcontext() if self._limiter is None else self._limiter.slot()
        async with slot, aclosing(self._source.attempt(request, self._settings)) as deltas:
            while True:
                clock = asyncio.timeout(self._settings.timeout)
                try:
                    async with clock:
                        delta = await anext(deltas, None)
                except TimeoutError:
                    if not clock.expired():
                        raise
                    raise self._silent() from None
                if delta is None:
                    return
                yield delta

    def _silent(self) -> Failure:
        text = f"{self.name}: no sign of life for {self._settings.timeout:g} s"
        return Failure(ModelTimeout(text, model=self.name), repeat=True)


def sent(request: ModelRequest) -> Sent:
    """What a reply must know of a request that another library writes."""
    messages = request.conversation.messages
    calls = {call.call_id for message in messages if isinstance(message, Assistant) for call in message.calls}
    return Sent(characters=partial(_characters, request), taken=calls.__contains__, first_number=len(messages) + 1)


def _characters(request: ModelRequest) -> int:
    """The length of the texts of a request."""
    total = len(request.instructions)
    for message in request.conversation.messages:
        match message:
            case User() | ToolResult():
                total += sum(len(part.text) for part in message.content if isinstance(part, Text))
            case Assistant():
                total += characters(message)
    return total
