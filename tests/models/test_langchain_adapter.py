import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from langchain_core import exceptions
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import BaseModel, Field

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
from replan.models.langchain import from_langchain
from replan.models.retry import Backoff
from replan.settings import ModelSettings

Collect = Callable[..., Awaitable[list[Delta]]]
Finish = Callable[..., Awaitable[Done]]
LOOKUP = ToolSpec("lookup", "Look up.", {"type": "object", "properties": {"key": {"type": "string"}}})
CITY = OutputSchema("city", {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
ONCE = ModelSettings(max_retries=0)


class Whole(BaseChatModel):
    """A model of theirs that does not stream: gives its replies in turn, and keeps what it was asked."""

    replies: list[Any]
    seen: list[Any] = Field(default_factory=list)
    given: list[Any] = Field(default_factory=list)
    model: str = "m"

    @property
    def _llm_type(self) -> str:
        return "whole"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self.seen.append(messages)
        self.given.append({"stop": stop, **kwargs})
        reply = self.replies[min(len(self.seen), len(self.replies)) - 1]
        if isinstance(reply, BaseException):
            raise reply
        message = AIMessage(reply) if isinstance(reply, str) else reply
        return ChatResult(generations=[ChatGeneration(message=message)])


class Asked(Whole):
    """One that can be given tools."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)


class Streamed(Asked):
    """One that streams: its replies are the pieces of a single reply."""

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        self.seen.append(messages)
        for reply in self.replies:
            if isinstance(reply, BaseException):
                raise reply
            if callable(reply):
                waits: Any = reply
                await waits()
                continue
            message = AIMessageChunk(content=reply) if isinstance(reply, str) else reply
            yield ChatGenerationChunk(message=message)


def asked(*replies: Any, **options: Any) -> tuple[Any, Model]:
    model = Asked(replies=list(replies) or ["fine"], profile=options.pop("theirs", None))
    return model, from_langchain(model, **options)


def streamed(*pieces: Any) -> Model:
    return from_langchain(Streamed(replies=list(pieces)), settings=ONCE)


def piece(index: int | None, name: str | None = None, args: str | None = None, call_id: str | None = None) -> Any:
    return AIMessageChunk(content="", tool_call_chunks=[{"index": index, "name": name, "args": args, "id": call_id}])


# ---- requests


async def test_the_conversation_becomes_theirs(finish: Finish):
    theirs, model = asked()
    conversation = Conversation(
        [
            user("hello"),
            Assistant((Thinking("hm", model="other:m"), Text("I look."), ToolCall("c1", "look up!", {"key": "a"}))),
            ToolResult("c1", "look up!", (Text("no"),), is_error=True),
        ]
    )
    await finish(model, conversation, instructions="Be brief.")
    system, first, reply, result = theirs.seen[0]
    assert (type(system), system.content) == (SystemMessage, "Be brief.")
    assert (type(first), first.content) == (HumanMessage, "hello")
    assert (type(reply), reply.content) == (AIMessage, "I look.")
    assert reply.tool_calls == [{"name": "look_up_", "args": {"key": "a"}, "id": "c1", "type": "tool_call"}]
    assert (type(result), result.content, result.tool_call_id) == (ToolMessage, "no", "c1")
    assert result.status == "error"


async def test_messages_are_made_once(finish: Finish):
    theirs, model = asked()
    conversation = Conversation([user("hello")])
    await finish(model, conversation)
    conversation.messages += [Assistant((Text("fine"),)), user("more")]
    await finish(model, conversation)
    assert conversation.encoded["langchain:asked:m"][0] is theirs.seen[0][0]
    assert len(theirs.seen[1]) == 3


async def test_images_sounds_and_files_go_along(finish: Finish):
    profile = {"image_inputs": True, "audio_inputs": True, "pdf_inputs": True, "image_tool_message": True}
    theirs, model = asked(theirs=profile)
    parts = (
        Text("see"),
        Image("image/png", b"123"),
        Image("image/png", url="https://example.com/a.png"),
        Audio("audio/wav", b"123"),
        File("application/pdf", "a.pdf", b"123"),
    )
    conversation = Conversation(
        [
            User(parts),
            Assistant((ToolCall("c1", "draw", {}),)),
            ToolResult("c1", "draw", (Text("here"), Image("image/png", b"123"))),
        ]
    )
    await finish(model, conversation)
    picture = {"type": "image", "mime_type": "image/png", "base64": "MTIz"}
    assert conversation.encoded["langchain:asked:m"][0].content == [
        {"type": "text", "text": "see"},
        picture,
        {"type": "image", "mime_type": "image/png", "url": "https://example.com/a.png"},
        {"type": "audio", "mime_type": "audio/wav", "base64": "MTIz"},
        {"type": "file", "mime_type": "application/pdf", "base64": "MTIz", "extras": {"filename": "a.pdf"}},
    ]
    assert theirs.seen[0][2].content == [{"type": "text", "text": "here"}, picture]


async def test_what_the_model_is_not_known_to_take_is_described(finish: Finish):
    theirs, model = asked()
    await finish(model, Conversation([User((Text("see"), Image("image/png", b"12345")))]))
    assert theirs.seen[0][0].content[1] == {
        "type": "text",
        "text": "[image of type image/png, 5 bytes, not shown]",
    }


async def test_tools_and_settings_go_along(finish: Finish):
    own = ModelSettings(max_output_tokens=50, temperature=0.5, options={"seed": 1})
    theirs, model = asked(settings=own)
    await finish(model, tools=(LOOKUP,), tool_choice="required", temperature=0.1, stop=("END",), options={"k": 2})
    function = {"name": "lookup", "description": "Look up.", "parameters": LOOKUP.parameters}
    assert theirs.given == [
        {
            "tools": [{"type": "function", "function": function}],
            "tool_choice": "any",
            "stop": ["END"],
            "max_tokens": 50,
            "temperature": 0.1,
            "seed": 1,
            "k": 2,
        }
    ]


async def test_tools_are_bound_once(finish: Finish, monkeypatch: pytest.MonkeyPatch):
    _, model = asked()
    bound: list[Any] = []
    own = Asked.bind_tools
    monkeypatch.setattr(Asked, "bind_tools", lambda self, tools, **more: (bound.append(tools), own(self, tools))[1])
    tools = (LOOKUP,)
    await finish(model, tools=tools)
    await finish(model, tools=tools)
    assert len(bound) == 1


async def test_what_must_be_called_is_said_anew_in_each_call(finish: Finish):
    theirs, model = asked()
    tools = (LOOKUP,)
    for choice in ("auto", "required", "auto"):
        await finish(model, tools=tools, tool_choice=choice)
    assert [given.get("tool_choice") for given in theirs.given] == [None, "any", None]


def test_the_profile_is_what_theirs_says():
    theirs = {
        "max_input_tokens": 5000,
        "max_output_tokens": 100,
        "image_inputs": True,
        "pdf_inputs": True,
        "tool_calling": True,
    }
    assert asked(theirs=theirs)[1].profile == ModelProfile(
        context_window=5000, max_output_tokens=100, structured_output="tool", images=True, files=True
    )
    assert asked()[1].profile == ModelProfile(structured_output="tool")
    assert from_langchain(Whole(replies=[])).profile.structured_output == "prompted"
    own = ModelProfile(context_window=9)
    assert asked(profile=own)[1].profile is own


def test_the_name_is_theirs_or_given():
    class ChatMistralAI(Whole):
        def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
            return {"ls_provider": "mistralai", "ls_model_name": "large"}

    assert from_langchain(ChatMistralAI(replies=[])).name == "mistral:large"
    assert asked()[1].name == "asked:m"
    assert asked(name="mine:own")[1].name == "mine:own"
    assert isinstance(asked()[1], Model)


async def test_an_output_schema_is_a_tool(finish: Finish):
    reply = AIMessage("", tool_calls=[{"name": "city", "args": {"name": "Rome"}, "id": "c1"}])
    theirs, model = asked(reply)
    done = await finish(model, output=CITY)
    assert theirs.given[0]["tool_choice"] == "any"
    assert (done.message.content, done.finish) == ((Text('{"name":"Rome"}'),), "stop")


async def test_an_output_schema_is_said_in_words_to_a_model_without_tools(finish: Finish):
    theirs = Whole(replies=['{"name": "Rome"}'])
    done = await finish(from_langchain(theirs), output=CITY, instructions="Be brief.")
    said = theirs.seen[0][0].content
    assert said.startswith("Be brief.")
    assert '"required":["name"]' in said
    assert done.message.text == '{"name": "Rome"}'


# ---- replies


async def test_a_whole_reply_is_read(collect: Collect):
    reply = AIMessage(
        "I look.",
        tool_calls=[{"name": "lookup", "args": {"key": "a"}, "id": "c9"}],
        invalid_tool_calls=[{"name": "lookup", "args": "{bro", "id": "c10", "error": None}],
        usage_metadata={
            "input_tokens": 10,
            "output_tokens": 5,
            "total_tokens": 15,
            "input_token_details": {"cache_read": 3, "cache_creation": 2},
            "output_token_details": {"reasoning": 1},
        },
        response_metadata={"finish_reason": "tool_calls"},
    )
    *deltas, done = await collect(asked(reply)[1])
    assert deltas == [TextDelta("I look."), CallDelta("lookup", '{"key":"a"}'), CallDelta("lookup", "{bro")]
    assert isinstance(done, Done)
    assert done.message.content == (
        Text("I look."),
        ToolCall("c9", "lookup", {"key": "a"}),
        ToolCall("c10", "lookup", {}, "{bro"),
    )
    usage = done.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens) == (10, 5, 3)
    assert (usage.cache_write_tokens, usage.reasoning_tokens, usage.estimated) == (2, 1, False)
    assert done.finish == "tool_calls"


async def test_a_stream_is_read(collect: Collect):
    *deltas, done = await collect(
        streamed(
            AIMessageChunk(content=[{"type": "reasoning", "reasoning": "h", "index": 0}]),
            AIMessageChunk(content=[{"type": "reasoning", "reasoning": "m", "index": 0}]),
            AIMessageChunk(content=[{"type": "text", "text": "I ", "index": 1}]),
            AIMessageChunk(content=[{"type": "text", "text": "look.", "index": 1}]),
            piece(2, "lookup", '{"key":', "c9"),
            piece(2, None, '"a"}'),
            piece(3, "lookup", "{bro", "c10"),
        )
    )
    assert deltas == [
        ThinkingDelta("h"),
        ThinkingDelta("m"),
        TextDelta("I "),
        TextDelta("look."),
        CallDelta("lookup", '{"key":'),
        CallDelta("lookup", '"a"}'),
        CallDelta("lookup", "{bro"),
    ]
    assert isinstance(done, Done)
    thought, kept, *rest = sorted(done.message.content, key=lambda part: not isinstance(part, Thinking))
    assert isinstance(thought, Thinking)
    assert isinstance(kept, Thinking)
    assert (thought.text, thought.model) == ("hm", "streamed:m")
    assert rest == [Text("I look."), ToolCall("c9", "lookup", {"key": "a"}), ToolCall("c10", "lookup", {}, "{bro")]


async def test_usage_that_is_not_reported_is_estimated(finish: Finish):
    done = await finish(streamed("some ", "words"), instructions="x" * 400)
    assert done.usage.estimated
    assert done.usage.input_tokens >= 100
    assert done.usage.output_tokens == 3


async def test_thoughts_beside_the_content_are_read(finish: Finish):
    reply = AIMessage("fine", additional_kwargs={"reasoning_content": "hm"})
    done = await finish(asked(reply)[1])
    assert done.message.text == "fine"
    assert [part.text for part in done.message.content if isinstance(part, Thinking)] == ["hm", ""]


@pytest.mark.parametrize(
    ("metadata", "finish_reason"),
    [
        ({}, "stop"),
        ({"finish_reason": "stop"}, "stop"),
        ({"finish_reason": "STOP"}, "stop"),
        ({"stop_reason": "end_turn"}, "stop"),
        ({"finish_reason": "lengthlength"}, "length"),
        ({"finish_reason": "MAX_TOKENS"}, "length"),
        ({"stopReason": "max_tokens"}, "length"),
        ({"incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"finish_reason": "content_filter"}, "content_filter"),
        ({"finish_reason": "SAFETY"}, "content_filter"),
        ({"stop_reason": "refusal"}, "refusal"),
        ({"stop_reason": "tool_use"}, "stop"),
    ],
)
async def test_finish_reasons(finish: Finish, metadata: dict[str, Any], finish_reason: str):
    assert (await finish(asked(AIMessage("fine", response_metadata=metadata))[1])).finish == finish_reason


@pytest.mark.parametrize(
    "reply",
    [
        AIMessage("", additional_kwargs={"refusal": "I won't."}),
        AIMessage([{"type": "refusal", "refusal": "I won't."}], response_metadata={"output_version": "v1"}),
    ],
)
async def test_refusals_are_told(finish: Finish, reply: AIMessage):
    done = await finish(asked(reply)[1])
    assert (done.message.refusal, done.finish) == ("I won't.", "refusal")
    assert [part for part in done.message.content if isinstance(part, Refusal)] == [Refusal("I won't.")]


async def test_what_the_model_sent_goes_back_to_it_as_it_came_with_our_ids(finish: Finish):
    content: list[Any] = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {"key": "a"}},
    ]
    reply = AIMessage(
        content,
        tool_calls=[{"name": "lookup", "args": {"key": "a"}, "id": "toolu_1"}],
        additional_kwargs={"signatures": {"toolu_1": "x"}},
        response_metadata={"model_provider": "none-such", "stop_reason": "tool_use"},
    )
    theirs, model = asked(reply)
    done = await finish(model)
    own = [ToolCall("call_9", "lookup", {"key": "a"}) if isinstance(p, ToolCall) else p for p in done.message.content]
    kept = from_json(to_json(Assistant(tuple(own))))
    conversation = [user("hello"), kept, ToolResult("call_9", "lookup", (Text("7"),))]
    await finish(model, Conversation([*conversation]))
    again = theirs.seen[1][1]
    assert again.content == [*content[:2], {**content[2], "id": "call_9"}]
    assert again.additional_kwargs == {"signatures": {"call_9": "x"}}
    assert again.response_metadata == {"model_provider": "none-such"}
    assert again.tool_calls[0]["id"] == "call_9"
    await finish(from_langchain(theirs, name="other:m"), Conversation([*conversation]))
    assert theirs.seen[2][1].content == "I look."


async def test_a_reply_that_was_changed_since_is_made_anew(finish: Finish):
    content: list[Any] = [{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "text", "text": "one"}]
    theirs, model = asked(AIMessage(content))
    done = await finish(model)
    changed = Assistant(tuple(Text("two") if isinstance(part, Text) else part for part in done.message.content))
    await finish(model, Conversation([user("hello"), changed, user("more")]))
    assert theirs.seen[1][1].content == "two"


async def test_an_empty_answer_is_an_error(collect: Collect):
    with pytest.raises(BadResponse, match="streamed:m: No generation"):
        await collect(streamed())


async def test_an_empty_answer_is_asked_for_again(finish: Finish):
    theirs = Streamed(replies=[])

    async def sleep(seconds: float) -> None:
        theirs.replies = ["fine"]

    source = cast("Any", from_langchain(theirs))._source
    assert (await finish(AdaptedModel(source, backoff=Backoff(sleep=sleep)))).message.text == "fine"


# ---- errors, limits, time


class StatusError(Exception):
    def __init__(self, status: int, message: str, body: Any = None) -> None:
        super().__init__(message)
        self.status_code, self.body = status, body
        self.response: Any = None


class ClientError(Exception):
    @property
    def response(self) -> Any:
        return {"ResponseMetadata": {"HTTPStatusCode": 429}}


class APIConnectionError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StatusError(429, "slow"), RateLimited),
        (StatusError(401, "no key"), AuthError),
        (StatusError(400, "no", {"error": {"message": "prompt is too long"}}), ContextTooLong),
        (StatusError(400, "no"), BadRequest),
        (StatusError(503, "busy"), Overloaded),
        (ClientError("slow"), RateLimited),
        (exceptions.ModelRateLimitError("slow"), RateLimited),
        (exceptions.ModelAuthenticationError("no"), AuthError),
        (exceptions.ModelPermissionDeniedError("no"), AuthError),
        (exceptions.ContextOverflowError("long"), ContextTooLong),
        (exceptions.ModelInvalidRequestError("no"), BadRequest),
        (exceptions.ModelTimeoutError("slow"), ModelTimeout),
        (exceptions.ModelConnectionError("gone"), NetworkError),
        (exceptions.ModelAPIError("broken"), Overloaded),
        (APIConnectionError("gone"), NetworkError),
        (ConnectionResetError("gone"), NetworkError),
        (TimeoutError("slow"), ModelTimeout),
        (KeyError("odd"), BadResponse),
    ],
)
async def test_errors_become_ours(collect: Collect, error: Exception, kind: type[ModelError]):
    with pytest.raises(ModelError) as caught:
        await collect(streamed(error))
    assert type(caught.value) is kind
    assert caught.value.model == "streamed:m"


async def test_the_wait_that_a_provider_asks_for_is_kept(collect: Collect):
    error = StatusError(429, "slow")
    error.response = SimpleNamespace(headers={"Retry-After": "7.5"})
    with pytest.raises(RateLimited) as caught:
        await collect(streamed(error))
    assert caught.value.retry_after == 7.5


async def test_a_model_without_tools_that_is_given_some_is_an_error(collect: Collect):
    with pytest.raises(BadRequest, match="whole:m"):
        await collect(from_langchain(Whole(replies=["fine"])), tools=(LOOKUP,))


async def test_a_failed_call_is_repeated_and_what_it_streamed_is_void(collect: Collect):
    theirs = Streamed(replies=["half", StatusError(503, "busy")])
    deltas: list[Delta] = []
    async for delta in from_langchain(theirs, settings=ModelSettings(retry_delay=0, max_retries=1)).stream(
        ModelRequest(conversation=Conversation([user("hello")]))
    ):
        deltas.append(delta)
        theirs.replies = ["half"]
    assert isinstance(deltas[1], Retry)
    assert isinstance(deltas[-1], Done)
    assert len(theirs.seen) == 2


async def test_a_silent_model_is_given_up(collect: Collect):
    async def wait() -> None:
        await asyncio.Event().wait()

    settings = ModelSettings(timeout=0.05, max_retries=0)
    with pytest.raises(ModelTimeout, match="no sign of life"):
        await collect(from_langchain(Streamed(replies=["half", wait]), settings=settings))


async def test_closing_the_stream_closes_theirs():
    ended: list[bool] = []

    class Endless(Streamed):
        async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
            try:
                while True:
                    yield ChatGenerationChunk(message=AIMessageChunk(content="more"))
            finally:
                ended.append(True)

    deltas: Any = from_langchain(Endless(replies=[])).stream(ModelRequest(conversation=Conversation([user("hello")])))
    assert await anext(deltas) == TextDelta("more")
    await deltas.aclose()
    assert ended == [True]


# ---- whole runs


def lookup(key: str) -> str:
    """Look up a key."""
    return f"{key} is 7"


class City(BaseModel):
    name: str


async def test_an_agent_runs_on_their_fake_model():
    model = GenericFakeChatModel(messages=iter(["It is 7."]))
    result = await Agent(from_langchain(model)).run("What is a?")
    assert result.text == "It is 7."


async def test_an_agent_runs_on_their_model_with_tools():
    look = AIMessage("", tool_calls=[{"name": "lookup", "args": {"key": "a"}, "id": "c1"}])
    theirs, model = asked(look, "It is 7.")
    result = await Agent(model, system_prompt="Be brief.", tools=[lookup]).run("What is a?")
    assert result.text == "It is 7."
    assert [type(message) for message in theirs.seen[1]] == [SystemMessage, HumanMessage, AIMessage, ToolMessage]
    assert theirs.seen[1][3].content == "a is 7"
    assert theirs.seen[1][3].tool_call_id == theirs.seen[1][2].tool_calls[0]["id"]
    assert list(result.usage_by_model) == ["asked:m"]


async def test_an_agent_runs_on_their_model_to_a_typed_output():
    theirs = Whole(replies=['{"name": "Rome"}'])
    assert (await Agent(from_langchain(theirs), output_type=City).run("Which city?")).output == City(name="Rome")


async def test_a_planning_agent_runs_on_their_model():
    step = {"id": "s1", "description": "look up a", "call": {"tool": "lookup", "arguments": {"key": "a"}}}
    theirs = Whole(replies=[json.dumps({"thought": "Look.", "steps": [step]}), "It is 7."])
    result = await PlanningAgent(from_langchain(theirs), tools=[tool(lookup, read_only=True)]).run("What is a?")
    assert result.text == "It is 7."
    assert any("a is 7" in str(message.content) for message in theirs.seen[1])


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "replan.models.langchain")
    monkeypatch.setitem(sys.modules, "langchain_core.messages", None)
    with pytest.raises(MissingDependency, match="pip install langchain-core"):
        importlib.import_module("replan.models.langchain")
