"""What the tests of model wires share."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from replan.messages import user
from replan.model import Conversation, Delta, Done, Model, ModelProfile, ModelRequest
from replan.models.chat import ChatWire
from replan.models.retry import Backoff
from replan.models.wire import Endpoint, HttpModel, StaticAuth
from replan.settings import ModelSettings
from replan.testing import ScriptedServer

Collect = Callable[..., Awaitable[list[Delta]]]


@pytest.fixture
def waits() -> list[float]:
    """The seconds that retries asked to sleep, instead of sleeping."""
    return []


@pytest.fixture
def chat(waits: list[float]) -> Callable[..., HttpModel]:
    """Make a model that talks to a scripted server; its retries do not wait."""

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    def make(
        server: ScriptedServer,
        *,
        retries: int = 2,
        timeout: float = 5.0,
        api_key: str = "sk-very-secret",
        provider: str = "test",
        profile: ModelProfile | None = None,
        settings: ModelSettings | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpModel:
        endpoint = Endpoint(
            provider=provider,
            model="m",
            base_url=server.base_url,
            auth=StaticAuth({"Authorization": f"Bearer {api_key}"}, (api_key,)) if api_key else StaticAuth(),
            headers=headers or {},
            settings=settings or ModelSettings(timeout=timeout),
            profile=profile or ModelProfile(images=True),
        )
        backoff = Backoff(max_retries=retries, sleep=sleep, chance=lambda: 1.0)
        return HttpModel(endpoint, ChatWire(endpoint), backoff=backoff)

    return make


@pytest.fixture
def collect() -> Collect:
    """All deltas of one call; a conversation of one message where none is given."""

    async def run(model: Model, conversation: Conversation | None = None, **request: object) -> list[Delta]:
        conversation = conversation or Conversation([user("hello")])
        stream: AsyncIterator[Delta] = model.stream(ModelRequest(conversation=conversation, **request))  # type: ignore[arg-type]
        return [delta async for delta in stream]

    return run


@pytest.fixture
def finish(collect: Collect) -> Callable[..., Awaitable[Done]]:
    """The last delta of one call, which must be the only `Done`."""

    async def run(model: Model, conversation: Conversation | None = None, **request: object) -> Done:
        *deltas, last = await collect(model, conversation, **request)
        assert isinstance(last, Done)
        assert not any(isinstance(delta, Done) for delta in deltas)
        return last

    return run
