"""Several models in the place of one: where one fails, the next answers."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

from msgspec.structs import replace

from replan.errors import (
    BadRequest,
    BadResponse,
    ConfigError,
    ContentFiltered,
    ContextTooLong,
    ModelError,
    ModelTimeout,
    NetworkError,
    Overloaded,
    RateLimited,
)
from replan.messages import Assistant, Refusal
from replan.model import Delta, Done, Model, ModelProfile, ModelRequest, Retry
from replan.settings import ModelSettings
from replan.usage import Usage

from .providers import resolve

__all__ = ["Fallback"]

_MOVES_ON = (RateLimited, Overloaded, ModelTimeout, NetworkError, BadResponse)
_OF_THE_REQUEST = (BadRequest, ContentFiltered, ContextTooLong)
"""Errors that say nothing of how another request would fare."""


class Fallback:
    """A model made of a chain: the first that answers does.

        Agent(Fallback("openai:gpt-4.1-mini", "anthropic:claude-sonnet-4-5"))

    `on` are the errors after which the next model is asked, each model having made its own retries. With
    `ContentFiltered` among them a refusal moves on too, once: one more model is asked, and its refusal, or the first
    one where it fails, is the answer.

    A model that failed rests for `rest` seconds, or as long as it asked for: meanwhile it is asked only after the
    others. 0 lets none rest. Usage and prices are those of the model that answered, with the tokens of a refusal
    before it. `settings` are those of models given as `provider:name`.
    """

    def __init__(
        self,
        *models: str | Model,
        on: tuple[type[ModelError], ...] = _MOVES_ON,
        rest: float = 30.0,
        settings: ModelSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not models:
            raise ConfigError("a fallback needs a model; give at least one, such as 'openai:gpt-4.1-mini'")
        _check_kinds(on)
        self._models = tuple(resolve(model, settings=settings) for model in models)
        self._own = tuple(model for model, given in zip(self._models, models, strict=True) if isinstance(given, str))
        self._on, self._rest, self._clock = on, rest, clock
        self._until: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"Fallback({', '.join(repr(model.name) for model in self._models)})"

    @property
    def name(self) -> str:
        """The name of the first model."""
        return self._models[0].name

    @property
    def profile(self) -> ModelProfile:
        """What all models of the chain can do; how each is asked is its own matter."""
        profiles = [model.profile for model in self._models]
        caps = [profile.max_output_tokens for profile in profiles if profile.max_output_tokens is not None]
        return replace(
            profiles[0],
            context_window=min(profile.context_window for profile in profiles),
            max_output_tokens=min(caps, default=None),
            images=all(profile.images for profile in profiles),
            audio=all(profile.audio for profile in profiles),
            files=all(profile.files for profile in profiles),
            result_images=all(profile.result_images for profile in profiles),
            constrained=all(profile.constrained for profile in profiles),
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Run one call; see `Model.stream`. A `Retry` stands before each further model."""
        order, refused = self._order(), None
        for number, model in enumerate(order, 1):
            last = number == len(order) or refused is not None
            reason = ""
            try:
                async with aclosing(self._ask(model, request)) as deltas:
                    async for delta in deltas:
                        if type(delta) is not Done:
                            yield delta
                        elif last or not self._moves_on(delta):
                            yield delta if refused is None else replace(delta, usage=refused.usage + delta.usage)
                            return
                        else:
                            refused, reason = delta, f"{model.name} refused"
            except self._on as error:
                self._tire(model, error)
                if refused is not None:
                    yield refused
                    return
                if last:
                    raise
                reason = str(error)
            yield Retry(number, f"{reason}; asking {order[number].name}", 0.0)

    async def close(self) -> None:
        """Close the models that were made here, of strings."""
        for model in self._own:
            await model.close()

    async def _ask(self, model: Model, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """The deltas of one model, up to a `Done` that names it."""
        try:
            async with aclosing(_deltas(model, request)) as deltas:
                async for delta in deltas:
                    if type(delta) is Done:
                        self._until.pop(id(model), None)
                        yield replace(delta, model=delta.model or model.name)
                        return
                    yield delta
        except ContentFiltered as error:
            if not issubclass(ContentFiltered, self._on):
                raise
            message, usage = Assistant((Refusal(str(error)),)), Usage(model_calls=1, estimated=True)
            yield Done(message, usage, "content_filter", model.name)
        else:
            raise BadResponse(f"{model.name}: the answer broke off before its end", model=model.name)

    def _moves_on(self, done: Done) -> bool:
        return done.finish in ("refusal", "content_filter") and issubclass(ContentFiltered, self._on)

    def _order(self) -> list[Model]:
        """The models that do not rest, in the order of the chain, then those that do."""
        now = self._clock()
        return sorted(self._models, key=lambda model: self._until.get(id(model), now) > now)

    def _tire(self, model: Model, error: ModelError) -> None:
        """Let the model rest, unless the request was at fault."""
        if self._rest and not isinstance(error, _OF_THE_REQUEST):
            self._until[id(model)] = self._clock() + max(self._rest, error.retry_after or 0)


def _check_kinds(on: Any) -> None:
    if not isinstance(on, tuple) or not all(
        isinstance(kind, type) and issubclass(kind, ModelError) for kind in cast("tuple[Any, ...]", on)
    ):
        raise ConfigError(f"on is {on!r}; give a tuple of classes of model errors, such as (RateLimited,)")


async def _deltas(model: Model, request: ModelRequest) -> AsyncGenerator[Delta, None]:
    stream = model.stream(request)
    try:
        async for delta in stream:
            yield delta
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
