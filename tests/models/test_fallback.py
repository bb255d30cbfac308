import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from replan import Agent
from replan.errors import (
    AuthError,
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
from replan.messages import Assistant, Refusal, Text
from replan.model import Conversation, Delta, Done, Model, ModelProfile, ModelRequest, Retry, TextDelta
from replan.models import Fallback, resolve
from replan.settings import ModelSettings
from replan.testing import ScriptedModel, ScriptedServer, call, error_reply
from replan.usage import Usage

Collect = Callable[..., Awaitable[list[Delta]]]


def a(*replies: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(*replies, name="one:a", **options)


def b(*replies: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(*replies, name="two:b", **options)


def refusal(tokens: int = 5) -> Done:
    return Done(Assistant((Refusal("no"),)), Usage(tokens, 1, model_calls=1), "refusal")


async def test_the_first_model_that_works_answers(collect: Collect):
    second = b("two")
    deltas = await collect(Fallback(a("one"), second))
    assert [delta.text for delta in deltas[:-1] if isinstance(delta, TextDelta)] == ["one"]
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].model == "one:a"
    assert second.requests == []


@pytest.mark.parametrize("kind", [RateLimited, Overloaded, ModelTimeout, NetworkError, BadResponse])
async def test_the_next_model_is_asked_after_an_error_that_may_be_the_models(collect: Collect, kind: type[ModelError]):
    deltas = await collect(Fallback(a(kind("down")), b("two")))
    assert deltas[0] == Retry(1, "down; asking two:b", 0.0)
    assert isinstance(deltas[-1], Done)
    assert (deltas[-1].message.text, deltas[-1].model) == ("two", "two:b")


@pytest.mark.parametrize("kind", [AuthError, BadRequest, ContextTooLong])
async def test_other_errors_are_raised(collect: Collect, kind: type[ModelError]):
    second = b("two")
    with pytest.raises(kind, match="no"):
        await collect(Fallback(a(kind("no")), second))
    assert second.requests == []


async def test_which_errors_move_on_can_be_chosen(collect: Collect):
    deltas = await collect(Fallback(a(AuthError("no key")), b("two"), on=(AuthError,)))
    assert deltas[0] == Retry(1, "no key; asking two:b", 0.0)
    with pytest.raises(RateLimited):
        await collect(Fallback(a(RateLimited("slow")), b("two"), on=(AuthError,)))


async def test_the_last_error_is_raised_when_all_fail(collect: Collect):
    with pytest.raises(NetworkError, match="two is gone"):
        await collect(Fallback(a(RateLimited("slow")), b(NetworkError("two is gone"))))


async def test_what_was_streamed_before_the_error_is_made_void(collect: Collect):
    def cut() -> Model:
        class Cut(ScriptedModel):
            async def stream(self, request: ModelRequest):
                yield TextDelta("half")
                raise NetworkError("cut")

        return Cut(name="one:a")

    deltas = await collect(Fallback(cut(), b("two")))
    assert deltas[:3] == [TextDelta("half"), Retry(1, "cut; asking two:b", 0.0), TextDelta("two")]


async def test_of_a_chain_in_a_chain_the_model_that_answered_is_named(collect: Collect):
    chain = Fallback(a(Overloaded("busy")), b("two"))
    done = (await collect(Fallback(chain, ScriptedModel("three", name="three:c"))))[-1]
    assert isinstance(done, Done)
    assert (done.message.text, done.model) == ("two", "two:b")


async def test_a_stream_without_an_end_moves_on(collect: Collect):
    deltas = await collect(Fallback(a([TextDelta("half")]), b("two")))
    assert deltas[1] == Retry(1, "one:a: the answer broke off before its end; asking two:b", 0.0)
    with pytest.raises(BadResponse, match="one:a"):
        await collect(Fallback(a([TextDelta("half")])))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_model_that_failed_rests_and_is_asked_again_afterwards(collect: Collect):
    clock = Clock()
    first, second = a(Overloaded("down"), "one"), b(otherwise="two")
    model = Fallback(first, second, clock=clock)
    for moment, asked in ((100.0, 1), (129.0, 1), (130.0, 2)):
        clock.now = moment
        await collect(model)
        assert len(first.requests) == asked
    assert len(second.requests) == 2


async def test_a_model_rests_as_long_as_it_asked_for(collect: Collect):
    clock = Clock()
    first = a(RateLimited("slow", retry_after=90.0), "one")
    model = Fallback(first, b(otherwise="two"), clock=clock)
    for moment, asked in ((100.0, 1), (189.0, 1), (190.0, 2)):
        clock.now = moment
        await collect(model)
        assert len(first.requests) == asked


async def test_without_rest_the_first_is_asked_each_time(collect: Collect):
    first = a(otherwise=Overloaded("down"))
    model = Fallback(first, b(otherwise="two"), rest=0)
    for asked in (1, 2, 3):
        await collect(model)
        assert len(first.requests) == asked


async def test_when_all_rest_they_are_asked_in_their_order(collect: Collect):
    first, second = a(Overloaded("down"), "one"), b(Overloaded("down"))
    model = Fallback(first, second)
    with pytest.raises(Overloaded):
        await collect(model)
    deltas = await collect(model)
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].model == "one:a"


async def test_resting_models_are_still_asked_when_the_others_fail(collect: Collect):
    first, second = a(Overloaded("down"), "one again"), b("two", Overloaded("down too"))
    model = Fallback(first, second)
    await collect(model)
    deltas = await collect(model)
    assert deltas[0] == Retry(1, "down too; asking one:a", 0.0)
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].message.text == "one again"


async def test_a_model_that_answered_rests_no_longer(collect: Collect):
    first = a(Overloaded("down"), otherwise="one")
    model = Fallback(first, b("two", ContextTooLong("too long"), "two"), on=(Overloaded, ContextTooLong))
    for asked in (1, 2, 3):
        await collect(model)
        assert len(first.requests) == asked


async def test_a_fault_of_the_request_lets_no_model_rest(collect: Collect):
    first = a(ContextTooLong("too long"), "one")
    model = Fallback(first, b(otherwise="two"), on=(ContextTooLong,))
    await collect(model)
    await collect(model)
    assert len(first.requests) == 2


async def test_a_refusal_is_an_answer(collect: Collect):
    second = b("two")
    done = (await collect(Fallback(a(refusal()), second)))[-1]
    assert isinstance(done, Done)
    assert (done.finish, done.model) == ("refusal", "one:a")
    assert second.requests == []


@pytest.mark.parametrize("reply", [refusal(), ContentFiltered("stopped")])
async def test_a_refusal_moves_on_where_that_is_asked_for(collect: Collect, reply: Any):
    deltas = await collect(Fallback(a(reply), b("two"), on=(ContentFiltered,)))
    assert deltas[-3] == Retry(1, "one:a refused; asking two:b", 0.0)
    done = deltas[-1]
    assert isinstance(done, Done)
    assert (done.message.content, done.model) == ((Text("two"),), "two:b")
    assert done.usage.model_calls == 2


async def test_a_filter_is_raised_where_it_is_not_to_move_on(collect: Collect):
    second = b("two")
    with pytest.raises(ContentFiltered, match="stopped"):
        await collect(Fallback(a(ContentFiltered("stopped")), second))
    assert second.requests == []


async def test_refusals_move_on_once(collect: Collect):
    third = ScriptedModel("three", name="three:c")
    done = (await collect(Fallback(a(refusal(5)), b(refusal(7)), third, on=(ContentFiltered,))))[-1]
    assert isinstance(done, Done)
    assert (done.finish, done.model, done.usage.input_tokens) == ("refusal", "two:b", 12)
    assert third.requests == []


async def test_a_refusal_stands_where_the_next_model_fails(collect: Collect):
    done = (await collect(Fallback(a(refusal()), b(RateLimited("slow")), on=(ContentFiltered, RateLimited))))[-1]
    assert isinstance(done, Done)
    assert (done.finish, done.model) == ("refusal", "one:a")


async def test_the_last_models_refusal_is_the_answer(collect: Collect):
    done = (await collect(Fallback(a(refusal()), on=(ContentFiltered,))))[-1]
    assert isinstance(done, Done)
    assert done.finish == "refusal"


def test_the_profile_is_what_all_can_do():
    wide = ModelProfile(context_window=200_000, max_output_tokens=None, images=True, constrained=True, audio=True)
    small = ModelProfile(context_window=8_000, max_output_tokens=2_000, images=True, files=True)
    profile = Fallback(a(profile=wide), b(profile=small)).profile
    assert (profile.context_window, profile.max_output_tokens) == (8_000, 2_000)
    assert (profile.images, profile.audio, profile.files, profile.constrained) == (True, False, False, False)


def test_its_name_is_the_first_models():
    model = Fallback(a(), b())
    assert model.name == "one:a"
    assert repr(model) == "Fallback('one:a', 'two:b')"
    assert isinstance(model, Model)


@pytest.mark.parametrize("on", [RateLimited, (ValueError,), ["x"], ("RateLimited",)])
def test_what_is_no_tuple_of_error_classes_is_refused(on: Any):
    with pytest.raises(ConfigError, match="on is"):
        Fallback(a(), on=on)


def test_a_chain_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="at least one"):
        Fallback()


async def test_closing_the_stream_ends_the_call_under_way():
    ended: list[bool] = []

    class Endless(ScriptedModel):
        async def stream(self, request: ModelRequest):
            try:
                while True:
                    yield TextDelta("more")
            finally:
                ended.append(True)

    stream: Any = Fallback(Endless()).stream(ModelRequest(conversation=Conversation()))
    assert await anext(stream) == TextDelta("more")
    await stream.aclose()
    assert ended == [True]


async def test_cancelling_is_not_taken_for_a_failure():
    waiting = asyncio.Event()

    async def wait(_: ModelRequest) -> str:
        waiting.set()
        await asyncio.Event().wait()
        return ""

    second = b("two")

    async def consume() -> None:
        async for _ in Fallback(a(wait), second).stream(ModelRequest(conversation=Conversation())):
            pass

    task = asyncio.ensure_future(consume())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert second.requests == []


async def test_models_given_as_strings_are_made_with_the_settings_and_closed(
    monkeypatch: pytest.MonkeyPatch, collect: Collect
):
    async with ScriptedServer(error_reply(500), "from the server") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        model = Fallback("openai:gpt-4.1", "openai:gpt-4.1-mini", settings=ModelSettings(max_retries=0, top_p=0.5))
        done = (await collect(model))[-1]
        await model.close()
    assert isinstance(done, Done)
    assert (done.message.text, done.model) == ("from the server", "openai:gpt-4.1-mini")
    assert [request.json["model"] for request in server.requests] == ["gpt-4.1", "gpt-4.1-mini"]
    assert server.requests[1].json["top_p"] == 0.5


async def test_an_agents_run_goes_on_with_the_next_model_and_its_usage_goes_to_it():
    def lookup(key: str) -> str:
        """Look up."""
        return f"{key} is 7"

    async with ScriptedServer(error_reply(503), error_reply(503), otherwise="It is 7.") as server:
        dead = resolve("openai-compatible:dead", base_url=server.base_url, settings=ModelSettings(max_retries=0))
        model = Fallback(dead, b("It is 7."))
        result = await Agent(model, tools=[lookup]).run("What is a?")
    assert result.text == "It is 7."
    assert list(result.usage_by_model) == ["two:b"]


async def test_each_model_of_a_run_has_the_usage_of_its_own_calls():
    def lookup(key: str) -> str:
        """Look up."""
        return f"{key} is 7"

    first, second = a(call("lookup", key="a"), Overloaded("busy")), b("It is 7.")
    result = await Agent(Fallback(first, second), tools=[lookup]).run("What is a?")
    assert result.text == "It is 7."
    assert {name: usage.model_calls for name, usage in result.usage_by_model.items()} == {"one:a": 1, "two:b": 1}
    assert len(second.requests[0].conversation.messages) == 3
