"""Several models in the place of one: where one fails, the next answers."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from msgspec.structs import replace

from replan.errors import (
    BadResponse,
    ConfigError,
    ContentFiltered,
    ModelError,
    ModelTimeout,
    NetworkError,
    Overloaded,
    RateLimited,
)
from replan.model import Delta, Done, Model, ModelProfile, ModelRequest, Retry

__all__ = ["Fallback"]

_MOVES_ON = (RateLimited, Overloaded, ModelTimeout, NetworkError, BadResponse)


class Fallback:
    """A model made of a chain: the first that answers does.

        Agent(Fallback("openai:gpt-5-mini", "anthropic:claude-sonnet-4-5"))

    `on` are the errors after which the next model is asked; with `ContentFiltered` among them also after a refusal,
    once: the second model's refusal is the answer. A model that failed rests for `rest` seconds, in which it is asked
    only where all others rest too. Usage and prices are those of the model that answered.
    """

    def __init__(
        self,
        *models: str | Model,
        on: tuple[type[ModelError], ...] = _MOVES_ON,
        rest: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from .providers import resolve

        if not models:
            raise ConfigError("a fallback needs a model; give at least one, such as 'openai:gpt-4.1-mini'")
        self._models = tuple(resolve(model) for model in models)
        self._own = tuple(model for model, given in zip(self._models, models, strict=True) if isinstance(given, str))
        self._on, self._rest, self._clock = on, rest, clock
        self._resting: dict[int, float] = {}

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
        order = self._order()
        refused = False
        for number, model in enumerate(order, 1):
            last = number == len(order) or refused
            try:
                async with aclosing(_stream(model, request)) as deltas:
                    async for delta in deltas:
                        if type(delta) is Done:
                            if not last and delta.finish in ("refusal", "content_filter"):
                                self._raise_refusal(model, delta)
                            self._resting.pop(id(model), None)
                            delta = replace(delta, model=delta.model or model.name)  # noqa: PLW2901  # the same reply
                        yield delta
            except self._on as error:
                refused = refused or isinstance(error, ContentFiltered)
                if last:
                    raise
                if not isinstance(error, ContentFiltered):
                    self._resting[id(model)] = self._clock() + self._rest
                yield Retry(number, f"{error}; asking {order[number].name}", 0.0)
            else:
                return

    async def close(self) -> None:
        """Close the models that were made here."""
        for model in self._own:
            await model.close()

    def _order(self) -> list[Model]:
        """The models that do not rest, in the order of the chain, then those that do."""
        now = self._clock()
        return sorted(self._models, key=lambda model: self._resting.get(id(model), 0.0) > now)

    def _raise_refusal(self, model: Model, done: Done) -> None:
        if issubclass(ContentFiltered, self._on):
            raise ContentFiltered(f"{model.name} refused: {done.message.refusal or done.finish}", model=model.name)


async def _stream(model: Model, request: ModelRequest) -> AsyncGenerator[Delta, None]:
    stream = model.stream(request)
    try:
        async for delta in stream:
            yield delta
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
