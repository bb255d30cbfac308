import asyncio
import importlib
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import exceptions
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from replan import Agent, PlanningAgent, tool
from replan.errors import (
    AuthError,
    BadRequest,
    BadResponse,
    ContextTooLong,
    MissingDependency,
    ModelError,
    ModelTimeout,
    NetworkError,
    Overloaded,
    RateLimited,
)
from replan.messages import (
    Assistant,
    Audio,
    File,
    Image,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    from_json,
    to_json,
    user,
)
from replan.model import (
    CallDelta,
    Conversation,
    Delta,
    Done,
    Model,
    ModelProfile,
    ModelRequest,
    OutputSchema,
    Retry,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from replan.models.adapted import AdaptedModel
from replan.models.pydantic_ai import from_pydantic_ai
from replan.models.retry import Backoff
from replan.settings import ModelSettings, PromptCaching
from replan.settings import Thinking as ThinkingSetting
from replan.testing import ScriptedServer, call, error_reply

Collect = Callable[..., Awaitable[list[Delta]]]
Finish = Callable[..., Awaitable[Done]]
LOOKUP = ToolSpec("lookup", "Look up.", {"type": "object", "properties": {"key": {"type": "string"}}})
CITY = OutputSchema("city", {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
ONCE = ModelSettings(max_retries=0)


class Asked:
    """A model of theirs that keeps what it was asked, and replies with these parts."""

    def __init__(self, *parts: Any, **response: Any) -> None:
        self.messages: list[Any] = []
        self.info: Any = None
        self.calls = 0
        self._response = {"parts": list(parts) or [TextPart("fine")], "finish_reason": "stop", **response}

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.messages, self.info = messages, info
        self.calls += 1
        return ModelResponse(**self._response)

    def model(self, **options: Any) -> Model:
        profile = options.pop("theirs", None)
        return from_pydantic_ai(FunctionModel(self, model_name="f", profile=profile), **options)


def streaming(*items: Any) -> Model:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for item in items:
            if isinstance(item, BaseException):
                raise item
            yield item

    return from_pydantic_ai(FunctionModel(stream_function=stream, model_name="f"), settings=ONCE)


@asynccontextmanager
async def openai(*replies: Any, **options: Any) -> AsyncGenerator[tuple[ScriptedServer, Model]]:
    async with ScriptedServer(*replies) as server, AsyncOpenAI(base_url=server.base_url, api_key="sk-test") as client:
        model = OpenAIChatModel("gpt-4.1-mini", provider=OpenAIProvider(openai_client=client))
        yield server, from_pydantic_ai(model, **options)


# ---- requests


async def test_the_conversation_becomes_theirs_and_neighbours_are_one_request(finish: Finish):
    asked = Asked()
    conversation = Conversation(
        [
            user("hello"),
            Assistant((Text("I look."), ToolCall("c1", "lookup", {"key": "a"}), ToolCall("c2", "look up!", {}, "{b"))),
            ToolResult("c1", "lookup", (Text("7"),)),
            ToolResult("c2", "look up!", (Text("no"),), is_error=True),
            user("and now?"),
        ]
    )
    await finish(asked.model(), conversation, instructions="Be brief.")
    first, reply, last = asked.messages
    assert isinstance(reply, ModelResponse)
    assert [part.content for part in first.parts] == ["hello"]
    assert [(type(part), getattr(part, "args", None)) for part in reply.parts] == [
        (TextPart, None),
        (ToolCallPart, {"key": "a"}),
        (ToolCallPart, "{b"),
    ]
    assert [part.tool_name for part in reply.parts if isinstance(part, ToolCallPart)] == ["lookup", "look_up_"]
    returns = [part for part in last.parts if isinstance(part, ToolReturnPart)]
    assert [(part.tool_call_id, part.content, part.outcome) for part in returns] == [
        ("c1", "7", "success"),
        ("c2", "no", "failed"),
    ]
    assert isinstance(last.parts[-1], UserPromptPart)
    assert asked.info.instructions == "Be brief."


async def test_messages_are_made_once(finish: Finish):
    asked = Asked()
    model, conversation = asked.model(), Conversation([user("hello")])
    await finish(model, conversation)
    first = asked.messages[0].parts[0]
    conversation.messages += [Assistant((Text("fine"),)), user("more")]
    await finish(model, conversation)
    assert asked.messages[0].parts[0] is first
    assert len(asked.messages) == 3


async def test_neighbours_stay_apart_in_what_is_kept(finish: Finish):
    asked = Asked()
    model, conversation = asked.model(), Conversation([user("hello"), user("again")])
    for _ in range(2):
        await finish(model, conversation)
        assert [part.content for part in asked.messages[0].parts] == ["hello", "again"]


async def test_images_sounds_and_files_go_along(finish: Finish):
    asked = Asked()
    parts = (
        Text("see"),
        Image("image/png", b"\x89PNG"),
        Image("image/png", url="https://example.com/a.png"),
        Audio("audio/wav", b"RIFF"),
        File("application/pdf", "a.pdf", b"%PDF"),
        File("text/plain", "gone.txt", url="/nowhere/gone.txt"),
    )
    await finish(asked.model(), Conversation([User(parts)]))
    content = asked.messages[0].parts[0].content
    assert content == [
        "see",
        BinaryContent(b"\x89PNG", media_type="image/png"),
        ImageUrl("https://example.com/a.png", media_type="image/png"),
        BinaryContent(b"RIFF", media_type="audio/wav"),
        BinaryContent(b"%PDF", media_type="application/pdf"),
        "[file 'gone.txt' of type text/plain at /nowhere/gone.txt, not shown]",
    ]


async def test_what_the_model_cannot_take_is_described(finish: Finish):
    asked = Asked()
    model = asked.model(theirs={"supports_image_input": False, "supports_audio_file_input": False})
    conversation = Conversation(
        [
            User((Image("image/png", b"12345"), Audio("audio/wav", b"1"))),
            Assistant((ToolCall("c1", "draw", {}),)),
            ToolResult("c1", "draw", (Image("image/png", b"12345"),)),
        ]
    )
    await finish(model, conversation)
    shown = "[image of type image/png, 5 bytes, not shown]"
    assert asked.messages[0].parts[0].content == [shown, "[audio of type audio/wav, 1 bytes, not shown]"]
    assert asked.messages[2].parts[0].content == shown


async def test_results_have_images_where_the_model_takes_them(finish: Finish):
    asked = Asked()
    conversation = Conversation(
        [
            user("draw"),
            Assistant((ToolCall("c1", "draw", {}),)),
            ToolResult("c1", "draw", (Text("here"), Image("image/png", b"12345"))),
        ]
    )
    await finish(asked.model(), conversation)
    assert asked.messages[2].parts[0].content == ["here", BinaryContent(b"12345", media_type="image/png")]


async def test_a_reply_of_nothing_is_left_out(finish: Finish):
    asked = Asked()
    await finish(asked.model(), Conversation([user("a"), Assistant(()), user("b")]))
    assert [part.content for part in asked.messages[0].parts] == ["a", "b"]
    assert len(asked.messages) == 1


async def test_tools_and_settings_go_along(finish: Finish):
    asked = Asked()
    own = ModelSettings(max_output_tokens=50, temperature=0.5, top_p=0.9, timeout=7, options={"seed": 1})
    model = asked.model(settings=own, theirs={"supports_thinking": True, "supports_cache": True})
    await finish(
        model,
        tools=(LOOKUP,),
        tool_choice="required",
        temperature=0.1,
        stop=("END",),
        thinking=ThinkingSetting(level="high"),
        prompt_caching=PromptCaching(ttl="1h"),
        options={"user": "u"},
    )
    tool = asked.info.function_tools[0]
    assert (tool.name, tool.description, tool.parameters_json_schema) == LOOKUP.__reduce__()[1]
    parameters = asked.info.model_request_parameters
    assert parameters.thinking == "high"
    given = asked.info.model_settings
    assert given == given | {
        "max_tokens": 50,
        "temperature": 0.1,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "tool_choice": "required",
        "timeout": 7,
        "extra_body": {"seed": 1, "user": "u"},
    }


@pytest.mark.parametrize(
    ("setting", "sent"),
    [
        (ThinkingSetting(level="none"), False),
        (ThinkingSetting(level="xhigh"), "xhigh"),
        (ThinkingSetting(budget_tokens=2000), "low"),
        (ThinkingSetting(budget_tokens=0), False),
        (ThinkingSetting(level="provider-default"), None),
        (False, None),
        (None, None),
    ],
)
async def test_how_much_to_think_is_said_in_levels(finish: Finish, setting: Any, sent: Any):
    asked = Asked()
    await finish(asked.model(theirs={"supports_thinking": True}), thinking=setting)
    assert asked.info.model_request_parameters.thinking == sent


async def test_nothing_is_said_of_thinking_to_a_model_that_does_not(finish: Finish):
    asked = Asked()
    await finish(asked.model(), thinking=ThinkingSetting())
    assert asked.info.model_request_parameters.thinking is None


def test_the_profile_is_what_theirs_says():
    theirs = {
        "context_window": 5000,
        "supports_json_schema_output": False,
        "supports_image_input": False,
        "supports_thinking": True,
        "supports_cache": True,
    }
    model = Asked().model(theirs=theirs)
    assert model.profile == ModelProfile(
        context_window=5000, structured_output="tool", audio=True, files=True, thinking="effort", caching="automatic"
    )
    assert Asked().model().profile.structured_output == "native"
    assert Asked().model(theirs={"supports_tools": False}).profile.structured_output == "prompted"
    own = ModelProfile(context_window=9)
    assert Asked().model(profile=own).profile is own


def test_the_name_is_theirs_or_given():
    assert Asked().model().name == "function:f"
    assert Asked().model(name="mine:own").name == "mine:own"
    assert isinstance(Asked().model(), Model)
    assert repr(Asked().model()) == "AdaptedModel('function:f')"


# ---- structured output


async def test_an_output_schema_is_native_where_theirs_can(finish: Finish):
    asked = Asked(TextPart('{"name": "Rome"}'))
    done = await finish(asked.model(), output=CITY, tools=(LOOKUP,))
    parameters = asked.info.model_request_parameters
    assert (parameters.output_mode, parameters.output_object.json_schema) == ("native", CITY.schema)
    assert done.message.text == '{"name": "Rome"}'


async def test_an_output_schema_is_a_tool_where_theirs_has_nothing_else(finish: Finish):
    asked = Asked(ToolCallPart("city", {"name": "Rome"}), finish_reason="tool_call")
    done = await finish(asked.model(theirs={}), output=CITY, tools=(LOOKUP,))
    parameters = asked.info.model_request_parameters
    assert (parameters.output_mode, parameters.allow_text_output) == ("tool", False)
    assert [tool.name for tool in parameters.output_tools] == ["city"]
    assert (done.message.content, done.finish) == ((Text('{"name":"Rome"}'),), "stop")


async def test_an_output_schema_is_said_in_words_else(finish: Finish):
    asked = Asked()
    await finish(asked.model(theirs={"supports_tools": False}), output=CITY, instructions="Be brief.")
    assert asked.info.model_request_parameters.output_mode == "prompted"
    assert asked.info.instructions.startswith("Be brief.")
    assert '"required"' in asked.info.instructions


async def test_a_schema_that_is_no_object_is_said_in_words(finish: Finish):
    asked = Asked()
    await finish(asked.model(), output=OutputSchema("n", {"type": "array", "minItems": 3}))
    assert asked.info.model_request_parameters.output_mode == "text"
    assert '"minItems":3' in asked.info.instructions


# ---- replies


async def test_a_whole_reply_is_read(finish: Finish):
    asked = Asked(
        ThinkingPart("hm", signature="sig", provider_name="function"),
        TextPart("I look."),
        ToolCallPart("lookup", '{"key": "a"}', "c9"),
        usage=RequestUsage(
            input_tokens=10, output_tokens=5, cache_read_tokens=3, cache_write_tokens=2, output_reasoning_tokens=1
        ),
        finish_reason="tool_call",
    )
    done = await finish(asked.model())
    thought, text, asked_for = done.message.content
    assert isinstance(thought, Thinking)
    assert (thought.text, thought.signature, thought.model) == ("hm", "sig", "function:f")
    assert (text, asked_for) == (Text("I look."), ToolCall("c9", "lookup", {"key": "a"}))
    usage = done.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens) == (10, 5, 3)
    assert (usage.cache_write_tokens, usage.reasoning_tokens, usage.model_calls) == (2, 1, 1)
    assert done.finish == "tool_calls"
    assert done.model is None


async def test_a_stream_is_read(collect: Collect):
    model = streaming(
        {0: DeltaThinkingPart(content="h")},
        {0: DeltaThinkingPart(content="m", signature="sig")},
        "I ",
        "look.",
        {2: DeltaToolCall("lookup", '{"key":', tool_call_id="c9")},
        {2: DeltaToolCall(json_args='"a"}')},
    )
    *deltas, done = await collect(model)
    assert deltas == [
        ThinkingDelta("h"),
        ThinkingDelta("m"),
        TextDelta("I "),
        TextDelta("look."),
        CallDelta("lookup", '{"key":'),
        CallDelta("lookup", '"a"}'),
    ]
    assert isinstance(done, Done)
    thought, text, asked_for = done.message.content
    assert isinstance(thought, Thinking)
    assert (thought.text, thought.signature) == ("hm", "sig")
    assert (text, asked_for) == (Text("I look."), ToolCall("c9", "lookup", {"key": "a"}))
    assert done.finish == "tool_calls"


async def test_a_model_that_does_not_stream_is_asked_whole_from_then_on(finish: Finish):
    asked = Asked()
    model = asked.model()
    for calls in (1, 2):
        assert (await finish(model)).message.text == "fine"
        assert asked.calls == calls


async def test_that_a_model_does_not_stream_is_found_out_once(finish: Finish):
    tried: list[bool] = []

    class Whole(FunctionModel):
        @asynccontextmanager
        async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
            tried.append(True)
            raise NotImplementedError("no streamed requests")
            yield

    model = from_pydantic_ai(Whole(Asked()))
    assert [(await finish(model)).message.text for _ in range(2)] == ["fine", "fine"]
    assert tried == [True]


async def test_arguments_that_are_none_are_kept_raw(finish: Finish):
    done = await finish(Asked(ToolCallPart("lookup", "{bro", "c9")).model())
    assert done.message.calls == (ToolCall("c9", "lookup", {}, "{bro"),)


async def test_call_ids_that_occur_already_are_replaced(finish: Finish):
    conversation = Conversation(
        [user("a"), Assistant((ToolCall("c9", "lookup", {}),)), ToolResult("c9", "lookup", (Text("7"),))]
    )
    done = await finish(Asked(ToolCallPart("lookup", "{}", "c9")).model(), conversation)
    assert done.message.calls[0].call_id == "call_4"


@pytest.mark.parametrize(
    ("reason", "finish_reason"), [("stop", "stop"), ("length", "length"), (None, "stop"), ("tool_call", "tool_calls")]
)
async def test_finish_reasons(finish: Finish, reason: str | None, finish_reason: str):
    assert (await finish(Asked(finish_reason=reason).model())).finish == finish_reason


async def test_refusals_and_filters_are_told(finish: Finish):
    refused = Asked(TextPart(""), finish_reason="content_filter", provider_details={"refusal": "I won't."})
    done = await finish(refused.model())
    assert (done.message.refusal, done.finish) == ("I won't.", "refusal")
    filtered = await finish(Asked(TextPart("half"), finish_reason="content_filter").model())
    assert filtered.finish == "content_filter"
    assert filtered.message.refusal
    stopped = await finish(streaming(exceptions.ContentFilterError("not that")))
    assert (stopped.message.content, stopped.finish) == ((Refusal("not that"),), "content_filter")


@pytest.mark.parametrize("response", [{"finish_reason": "error"}, {"finish_reason": None, "state": "incomplete"}])
async def test_a_reply_that_broke_off_is_an_error(finish: Finish, response: dict[str, Any]):
    with pytest.raises(BadResponse, match="broke off"):
        await finish(Asked(TextPart("half"), **response).model(settings=ONCE))


async def test_what_was_signed_goes_back_to_the_same_model_only(finish: Finish):
    asked = Asked(
        ThinkingPart("hm", id="t1", signature="sig", provider_name="function", provider_details={"k": 1}),
        TextPart("I look.", id="m1", provider_name="function"),
        ToolCallPart("lookup", "{}", "c9", id="f1", provider_name="function", provider_details={"thought": "x"}),
        finish_reason="tool_call",
    )
    model = asked.model()
    done = await finish(model)
    assert done.message.text == "I look."
    kept = from_json(to_json(done.message))
    conversation = [user("hello"), kept, ToolResult("c9", "lookup", (Text("7"),))]
    await finish(model, Conversation([*conversation]))
    thought, text, asked_for = cast("list[Any]", asked.messages[1].parts)
    assert (thought.content, thought.id, thought.signature) == ("hm", "t1", "sig")
    assert (thought.provider_name, thought.provider_details) == ("function", {"k": 1})
    assert (text.content, text.id) == ("I look.", "m1")
    assert (asked_for.id, asked_for.provider_details) == ("f1", {"thought": "x"})
    await finish(asked.model(name="other:m"), Conversation([*conversation]))
    text, asked_for = cast("list[Any]", asked.messages[1].parts)
    assert (text.id, asked_for.id, asked_for.provider_details) == (None, None, None)


async def test_a_router_says_who_answered(finish: Finish):
    def broken(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise exceptions.ModelHTTPError(500, "a")

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "two"

    async def no_stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        raise exceptions.ModelHTTPError(500, "a")
        yield ""

    first = FunctionModel(broken, stream_function=no_stream, model_name="a")
    second = FunctionModel(stream_function=stream, model_name="b")
    done = await finish(from_pydantic_ai(FallbackModel(first, second), settings=ONCE))
    assert done.message.text == "two"
    assert done.model is not None
    assert done.model.endswith(":b")


# ---- errors, limits, time


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ModelHTTPError(429, "m", {"error": {"message": "slow"}}), RateLimited),
        (exceptions.ModelHTTPError(401, "m", "no key"), AuthError),
        (exceptions.ModelHTTPError(400, "m", {"error": {"message": "prompt is too long"}}), ContextTooLong),
        (exceptions.ModelHTTPError(400, "m", None), BadRequest),
        (exceptions.ModelHTTPError(503, "m", None), Overloaded),
        (exceptions.ModelRateLimitError("m", "slow"), RateLimited),
        (exceptions.ModelOverloadedError("m", "busy"), Overloaded),
        (exceptions.ModelTimeoutError("m", "slow"), ModelTimeout),
        (exceptions.ModelRequestTimeout("m", 3), ModelTimeout),
        (exceptions.ModelAuthenticationError("m", "no"), AuthError),
        (exceptions.ModelContextWindowExceededError("m", "long"), ContextTooLong),
        (exceptions.ModelRequestRejectedError("m", "no"), BadRequest),
        (exceptions.ModelConnectionError("m", "gone"), NetworkError),
        (exceptions.ModelAPIError("m", "gone"), NetworkError),
        (exceptions.UnexpectedModelBehavior("odd"), BadResponse),
        (exceptions.UserError("wrong"), BadRequest),
        (exceptions.ConcurrencyLimitExceeded("many"), BadResponse),
        (exceptions.FallbackExceptionGroup("all", [exceptions.ModelHTTPError(401, "m")]), AuthError),
    ],
)
async def test_errors_become_ours(collect: Collect, error: Exception, kind: type[ModelError]):
    with pytest.raises(ModelError) as caught:
        await collect(streaming(error))
    assert type(caught.value) is kind
    assert caught.value.model == "function:f"


async def test_other_errors_stay_what_they_are(collect: Collect):
    with pytest.raises(ZeroDivisionError):
        await collect(streaming(ZeroDivisionError()))
    with pytest.raises(AssertionError, match="mine"):
        await collect(streaming(AssertionError("mine")))
    with pytest.raises(TimeoutError, match="its own"):
        await collect(streaming(TimeoutError("its own")))


async def test_a_failed_call_is_repeated_and_what_it_streamed_is_void(collect: Collect):
    fails = [exceptions.ModelHTTPError(503, "m", None)]

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "half"
        if fails:
            raise fails.pop()

    settings = ModelSettings(retry_delay=0, max_retries=1)
    deltas = await collect(from_pydantic_ai(FunctionModel(stream_function=stream), settings=settings))
    assert isinstance(deltas[1], Retry)
    assert [type(delta) for delta in deltas] == [TextDelta, Retry, TextDelta, Done]


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ModelRateLimitError("m", "slow", retry_after=7.5),
        exceptions.ModelHTTPError(429, "m", None, headers={"retry-after": "7.5"}),
        exceptions.ModelHTTPError(429, "m", None, retry_after=7.5),
    ],
)
async def test_the_wait_that_a_provider_asks_for_is_kept(collect: Collect, error: Exception):
    with pytest.raises(RateLimited) as caught:
        await collect(streaming(error))
    assert caught.value.retry_after == 7.5


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ModelRateLimitError("m", "slow", retry_after=3600),
        exceptions.ModelHTTPError(429, "m", retry_after=3600),
    ],
)
async def test_no_wait_is_longer_than_a_minute(collect: Collect, error: Exception):
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    source = cast("Any", streaming(error))._source
    with pytest.raises(RateLimited) as caught:
        await collect(AdaptedModel(source, backoff=Backoff(max_retries=1, sleep=sleep)))
    assert slept == [60.0]
    assert caught.value.retry_after == 3600


async def test_a_silent_model_is_given_up(collect: Collect):
    ended: list[bool] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "half"
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    settings = ModelSettings(timeout=0.05, max_retries=0)
    with pytest.raises(ModelTimeout, match=r"no sign of life for 0\.05 s"):
        await collect(from_pydantic_ai(FunctionModel(stream_function=stream), settings=settings))
    assert ended == [True]


async def test_limits_hold_for_it_too(finish: Finish):
    under_way = most = 0

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return ModelResponse(parts=[TextPart("fine")])

    settings = ModelSettings(max_concurrent_calls=2)
    model = from_pydantic_ai(FunctionModel(answer, model_name="limited"), settings=settings)
    await asyncio.gather(*(finish(model) for _ in range(6)))
    assert most == 2


async def test_closing_the_stream_closes_theirs():
    ended: list[bool] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        try:
            while True:
                yield "more"
        finally:
            ended.append(True)

    model = from_pydantic_ai(FunctionModel(stream_function=stream))
    deltas: Any = model.stream(ModelRequest(conversation=Conversation([user("hello")])))
    assert await anext(deltas) == TextDelta("more")
    await deltas.aclose()
    assert ended == [True]
    await model.close()


# ---- over the wire, and in whole runs


async def test_its_openai_model_sends_everything_and_is_not_asked_twice(collect: Collect):
    replies = ([Thinking("hm"), call("lookup", key="a")], error_reply(500), error_reply(500))
    async with openai(*replies, settings=ONCE) as (server, model):
        *deltas, done = await collect(model, instructions="Be brief.", tools=(LOOKUP,), max_output_tokens=9)
        assert isinstance(done, Done)
        with pytest.raises(Overloaded):
            await collect(model)
        assert len(server.requests) == 2
    body = server.requests[0].json
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert (body["model"], body["max_completion_tokens"], body["stream"]) == ("gpt-4.1-mini", 9, True)
    assert body["tools"][0]["function"]["name"] == "lookup"
    assert done.message.calls[0].arguments == {"key": "a"}
    assert ThinkingDelta("hm") in deltas
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.estimated) == (100, 10, False)
    assert (model.name, done.finish) == ("openai:gpt-4.1-mini", "tool_calls")


def lookup(key: str) -> str:
    """Look up a key."""
    return f"{key} is 7"


class City(BaseModel):
    name: str


async def test_an_agent_runs_on_their_openai_model_with_tools():
    async with openai(call("lookup", key="a"), "It is 7.") as (server, model):
        result = await Agent(model, system_prompt="Be brief.", tools=[lookup]).run("What is a?")
    assert result.text == "It is 7."
    assert result.usage_by_model["openai:gpt-4.1-mini"].input_tokens == 200
    roles = [message["role"] for message in server.requests[1].json["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]


async def test_an_agent_runs_on_their_openai_model_to_a_typed_output():
    async with openai('{"name": "Rome"}') as (server, model):
        result = await Agent(model, output_type=City).run("Which city?")
    assert result.output == City(name="Rome")
    assert server.requests[0].json["response_format"]["type"] == "json_schema"


async def test_an_agent_runs_on_their_test_model():
    agent = Agent(from_pydantic_ai(TestModel(custom_output_text="It is 7.")), tools=[lookup])
    result = await agent.run("What is a?")
    assert result.text == "It is 7."
    assert result.tool_calls == 1


async def test_a_planning_agent_runs_on_their_openai_model():
    step = {"id": "s1", "description": "look up a", "call": {"tool": "lookup", "arguments": {"key": "a"}}}
    plan = json.dumps({"thought": "Look.", "steps": [step]})
    async with openai(plan, "It is 7.") as (server, model):
        result = await PlanningAgent(model, tools=[tool(lookup, read_only=True)]).run("What is a?")
    assert result.text == "It is 7."
    assert server.requests[0].json["response_format"]["type"] == "json_schema"
    assert "a is 7" in server.requests[1].body.decode()


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "replan.models.pydantic_ai")
    monkeypatch.setitem(sys.modules, "pydantic_ai.models", None)
    with pytest.raises(MissingDependency, match="pip install 'pydantic-ai-slim"):
        importlib.import_module("replan.models.pydantic_ai")
