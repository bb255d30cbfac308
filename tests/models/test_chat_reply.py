"""Answers, good and broken, read over real sockets."""

import asyncio
import itertools
import json
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from replan.errors import (
    AuthError,
    BadRequest,
    BadResponse,
    ContextTooLong,
    ModelTimeout,
    NetworkError,
    Overloaded,
    RateLimited,
)
from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall, user
from replan.model import CallDelta, Conversation, Done, ModelRequest, Retry, TextDelta, ThinkingDelta, ToolSpec
from replan.models.chat.reply import ChatReply
from replan.models.sse import EventParser
from replan.models.wire import Sent
from replan.testing import HttpReply, ScriptedServer, call, error_reply, sse_reply
from replan.usage import Usage

TOOLS = (ToolSpec("look", "Look.", {"type": "object", "properties": {}}),)


def chunk(delta: dict | None = None, finish: str | None = None, **more: object) -> dict:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def usage(prompt: int, completion: int, **more: object) -> dict:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}}


def raw(*chunks: bytes, then: str = "end", kind: str = "text/event-stream") -> HttpReply:
    return HttpReply(headers={"content-type": kind}, chunks=chunks, then=then)  # type: ignore[arg-type]


async def test_text_is_streamed_and_comes_whole_with_the_reported_usage(chat, collect):
    async with ScriptedServer("one two three") as server:
        deltas = await collect(chat(server))
    assert deltas[:-1] == [TextDelta("one"), TextDelta(" two"), TextDelta(" three")]
    assert deltas[-1] == Done(
        Assistant((Text("one two three"),)), Usage(input_tokens=100, output_tokens=10, model_calls=1), "stop"
    )


async def test_calls_are_streamed_for_display_and_come_whole(chat, collect):
    async with ScriptedServer(["I look.", call("look", key="a b"), call("look", key="c")]) as server:
        deltas = await collect(chat(server), tools=TOOLS)
    assert deltas[-1].finish == "tool_calls"
    assert deltas[-1].message.content == (
        Text("I look."),
        ToolCall("call_1", "look", {"key": "a b"}),
        ToolCall("call_2", "look", {"key": "c"}),
    )
    shown = "".join(d.arguments for d in deltas if isinstance(d, CallDelta))
    assert shown == '{"key":"a b"}{"key":"c"}'


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_thoughts_are_kept_apart_and_marked(chat, collect, name: str):
    reply = sse_reply(chunk({name: "let me"}), chunk({name: " see"}), chunk({"content": "7"}), chunk({}, "stop"))
    async with ScriptedServer(reply) as server:
        deltas = await collect(chat(server))
    assert deltas[:2] == [ThinkingDelta("let me"), ThinkingDelta(" see")]
    assert deltas[-1].message.content == (Thinking("let me see", model="test:m"), Text("7"))


WHOLE = b"".join(
    [
        b': comment\r\n\r\ndata:{"choices":[{"delta":{"role":"assistant","content":""}}]}\r\n\r\n',
        'data: {"choices":[{"index":0,"delta":{"content":"caf\u00e9 \u2603"}}]}\n\n'.encode(),
        b'data: {"choices":[{"delta":{"tool_calls":[{"id":"a",',
        b'"function":{"name":"look","arguments":"{\\"k\\""}}]}}]}\n\n',
        'data: {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":":\\"\u00fc\\"}"}}]}}]}\n\n'.encode(),
        b'data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}',
    ]
)


@given(st.lists(st.integers(0, len(WHOLE)), max_size=10))
def test_where_the_bytes_are_cut_makes_no_difference(cuts: list[int]):
    places = [0, *sorted(cuts), len(WHOLE)]
    parser, reply, deltas = EventParser(), ChatReply(model="m"), []
    for a, b in itertools.pairwise(places):
        deltas += reply.events(parser.feed(WHOLE[a:b]))
    deltas += reply.events(parser.finish())
    assert deltas == [TextDelta("café ☃"), CallDelta("look", '{"k"'), CallDelta("look", ':"ü"}')]
    done = reply.done(Sent(characters=lambda: 0, taken=lambda _: False, first_number=1))
    assert done.message == Assistant((Text("café ☃"), ToolCall("a", "look", {"k": "ü"})))
    assert done.usage == Usage(input_tokens=5, output_tokens=2, model_calls=1)


async def test_cuts_inside_characters_arrive_whole_over_a_socket(chat, finish):
    async with ScriptedServer(raw(*[WHOLE[i : i + 7] for i in range(0, len(WHOLE), 7)])) as server:
        done = await finish(chat(server))
    assert done.message.text == "café ☃"


REPLIES = [
    "plain words and more",
    ["text and", call("look", key="x"), call("look", key="y z")],
    [Refusal("I will not")],
    [call("look")],
    "",
]


@pytest.mark.parametrize("script", REPLIES)
async def test_the_vendor_client_reads_the_same_from_the_same_bytes(chat, finish, script):
    async with ScriptedServer(script, script) as server:
        ours = await finish(chat(server), tools=TOOLS)
        async with AsyncOpenAI(base_url=server.base_url, api_key="k") as api:
            text, refusal, finish_reason, calls, tokens = "", "", None, {}, None
            options = {"stream": True, "stream_options": {"include_usage": True}}
            async for piece in await api.chat.completions.create(model="m", messages=[], **options):
                tokens = piece.usage or tokens
                for choice in piece.choices:
                    text += choice.delta.content or ""
                    refusal += choice.delta.refusal or ""
                    finish_reason = choice.finish_reason or finish_reason
                    for part in choice.delta.tool_calls or []:
                        known = calls.setdefault(part.index, {"name": "", "arguments": ""})
                        known["name"] += part.function.name or ""
                        known["arguments"] += part.function.arguments or ""
    assert ours.message.text == text
    assert (ours.message.refusal or "") == refusal
    assert [{"name": c.name, "arguments": c.arguments} for c in ours.message.calls] == [
        {"name": c["name"], "arguments": json.loads(c["arguments"])} for c in calls.values()
    ]
    assert ours.finish == ("refusal" if refusal else finish_reason)
    assert (ours.usage.input_tokens, ours.usage.output_tokens) == (tokens.prompt_tokens, tokens.completion_tokens)


@pytest.mark.parametrize("script", REPLIES)
async def test_an_answer_that_is_not_streamed_reads_the_same(chat, finish, script):
    async with ScriptedServer(script, script) as server:
        streamed = await finish(chat(server), tools=TOOLS)
    async with ScriptedServer(script) as server:
        whole = await finish(chat(server), tools=TOOLS, options={"stream": False})
    assert (whole.message, whole.usage, whole.finish) == (streamed.message, streamed.usage, streamed.finish)


async def test_content_parts_objects_for_arguments_and_texts_for_numbers_are_understood(chat, finish):
    message = {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "text", "text": "he"},
            "llo",
        ],
        "tool_calls": [{"id": 7, "index": "0", "function": {"name": "look", "arguments": {"k": 1}}}],
    }
    counts = {"prompt_tokens": "12", "completion_tokens": 3.0, "prompt_tokens_details": None}
    async with ScriptedServer(sse_reply(chunk(message), chunk({}, "tool_calls", usage=counts))) as server:
        done = await finish(chat(server))
    assert done.message == Assistant((Thinking("hm", model="test:m"), Text("hello"), ToolCall("7", "look", {"k": 1})))
    assert done.usage == Usage(input_tokens=12, output_tokens=3, model_calls=1)


async def test_nulls_everywhere_are_nothing(chat, finish):
    events = [
        {"choices": None},
        {"choices": [{"delta": None, "finish_reason": None}], "usage": None, "error": None},
        {"choices": [{"delta": {"content": None, "tool_calls": None, "refusal": None, "function_call": None}}]},
        chunk({"content": "x", "tool_calls": []}),
        {},
        chunk({}, "stop"),
    ]
    async with ScriptedServer(sse_reply(*events)) as server:
        assert (await finish(chat(server))).message.text == "x"


async def test_only_the_first_alternative_is_read(chat, finish):
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]}
    async with ScriptedServer(sse_reply(chunk({"content": "one"}), other, chunk({}, "stop"))) as server:
        assert (await finish(chat(server))).message.text == "one"


async def test_the_old_function_call_is_a_call(chat, finish):
    events = [
        chunk({"function_call": {"name": "look", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"k":1}'}}),
        chunk({}, "function_call"),
    ]
    async with ScriptedServer(sse_reply(*events)) as server:
        done = await finish(chat(server))
    assert done.finish == "tool_calls"
    assert [(c.name, c.arguments) for c in done.message.calls] == [("look", {"k": 1})]


async def test_bytes_that_are_no_utf8_are_replaced(chat, finish):
    events = b'data: {"choices":[{"delta":{"content":"a\xffb"},"finish_reason":"stop"}]}\n\n'
    async with ScriptedServer(raw(events)) as server:
        assert (await finish(chat(server))).message.text == "a\ufffdb"


# --- ids


async def test_an_id_of_an_earlier_turn_is_replaced_and_a_new_one_kept(chat, finish):
    conversation = Conversation([user("go")])
    calls = [ToolCall("call_0", "look", {})], [ToolCall("call_0", "look", {}), ToolCall("fresh", "look", {})]
    async with ScriptedServer(*calls) as server:
        model = chat(server)
        first = await finish(model, conversation, tools=TOOLS)
        conversation.messages.append(first.message)
        second = await finish(model, conversation, tools=TOOLS)
    ids = [c.call_id for c in second.message.calls]
    assert first.message.calls[0].call_id == "call_0"
    assert ids[1] == "fresh"
    assert len({"call_0", *ids}) == 3


async def test_an_id_that_only_occurs_in_a_text_is_not_taken(chat, finish):
    conversation = Conversation([user('the id is "id":"call_0" here')])
    async with ScriptedServer([ToolCall("call_0", "look", {})]) as server:
        assert (await finish(chat(server), conversation)).message.calls[0].call_id == "call_0"


async def test_missing_ids_stay_unique_over_turns(chat, finish):
    piece = chunk({"tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}, "tool_calls")
    conversation = Conversation([user("go")])
    async with ScriptedServer(otherwise=sse_reply(piece)) as server:
        for _ in range(3):
            conversation.messages.append((await finish(chat(server), conversation)).message)
    ids = [c.call_id for message in conversation.messages[1:] for c in message.calls]
    assert len(set(ids)) == 3
    assert all(call_id.startswith("call_") for call_id in ids)


# --- ends


@pytest.mark.parametrize(
    ("reason", "finish_is"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
        ("refusal", "refusal"),
        ("end_turn", "stop"),
        ("something new", "stop"),
    ],
)
async def test_reasons_for_the_end(chat, finish, reason: str, finish_is: str):
    async with ScriptedServer(sse_reply(chunk({"content": "x"}), chunk({}, reason))) as server:
        assert (await finish(chat(server))).finish == finish_is


@pytest.mark.parametrize(("reason", "finish_is"), [("stop", "tool_calls"), ("length", "length"), ("odd", "tool_calls")])
async def test_calls_with_other_reasons(chat, finish, reason: str, finish_is: str):
    piece = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"k'}}]})
    async with ScriptedServer(sse_reply(piece, chunk({}, reason))) as server:
        done = await finish(chat(server))
    assert done.finish == finish_is
    assert done.message.calls == (ToolCall("a", "look", {}, '{"k'),)


async def test_calls_announced_but_not_sent_are_a_stop(chat, finish):
    async with ScriptedServer(sse_reply(chunk({"content": "x"}), chunk({}, "tool_calls"))) as server:
        assert (await finish(chat(server))).finish == "stop"


async def test_a_refusal_comes_in_pieces(chat, finish):
    events = [chunk({"refusal": "I can"}), chunk({"refusal": "not"}), chunk({}, "stop")]
    async with ScriptedServer(sse_reply(*events)) as server:
        done = await finish(chat(server))
    assert (done.finish, done.message) == ("refusal", Assistant((Refusal("I cannot"),)))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_filtered_reply_without_text_says_so(chat, finish, stream: bool):
    body = {"choices": [{"index": 0, "message": {"content": None}, "finish_reason": "content_filter"}]}
    reply = sse_reply(chunk({}, "content_filter")) if stream else raw(json.dumps(body).encode())
    async with ScriptedServer(reply) as server:
        done = await finish(chat(server))
    assert done.finish == "content_filter"
    assert "filter" in done.message.refusal


async def test_a_prompt_that_the_filter_refuses_is_no_error(chat, finish):
    async with ScriptedServer(error_reply(400, "the prompt was filtered", code="content_filter")) as server:
        done = await finish(chat(server))
    assert done.finish == "content_filter"
    assert "the prompt was filtered" in done.message.refusal


async def test_a_stream_without_reason_is_complete_when_it_says_that_it_is_done(chat, finish):
    async with ScriptedServer(sse_reply(chunk({"content": "x"}), done=True)) as server:
        assert (await finish(chat(server))).message.text == "x"


async def test_nothing_after_done_is_waited_for(chat, finish):
    async with ScriptedServer(sse_reply(chunk({"content": "x"}), chunk({}, "stop"), then="hang")) as server:
        async with asyncio.timeout(3):
            assert (await finish(chat(server, timeout=60.0))).message.text == "x"


@pytest.mark.parametrize("then", ["cut", "end"])
async def test_a_break_after_the_reason_loses_nothing(chat, finish, then: str):
    async with ScriptedServer(sse_reply(chunk({"content": "x"}, "stop"), done=False, then=then)) as server:  # type: ignore[arg-type]
        done = await finish(chat(server))
    assert done.message.text == "x"
    assert len(server.requests) == 1


async def test_an_error_after_the_reason_loses_nothing(chat, finish):
    events = [chunk({"content": "x"}, "stop"), {"error": {"message": "late"}}]
    async with ScriptedServer(sse_reply(*events)) as server:
        assert (await finish(chat(server))).message.text == "x"


# --- usage


async def test_running_totals_are_not_added(chat, finish):
    details = {"prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 3}}
    events = [
        chunk({"content": "a"}, usage={"prompt_tokens": 14, "completion_tokens": 1}),
        chunk({"content": "b"}, "stop", usage={"prompt_tokens": 14, "completion_tokens": 9, **details}),
        usage(0, 300),
    ]
    async with ScriptedServer(sse_reply(*events)) as server:
        counted = (await finish(chat(server))).usage
    assert counted == Usage(
        input_tokens=14, output_tokens=300, reasoning_tokens=3, cached_input_tokens=8, model_calls=1
    )


async def test_reasoning_counted_beside_the_output_is_added_to_it(chat, finish):
    counts = usage(10, 5, total_tokens=45, completion_tokens_details={"reasoning_tokens": 30})
    async with ScriptedServer(sse_reply(chunk({"content": "x"}, "stop"), counts)) as server:
        assert (await finish(chat(server))).usage.output_tokens == 35


async def test_usage_inside_the_choice_is_read(chat, finish):
    event = {
        "choices": [
            {"delta": {"content": "x"}, "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
        ]
    }
    async with ScriptedServer(sse_reply(event)) as server:
        assert (await finish(chat(server))).usage == Usage(input_tokens=3, output_tokens=1, model_calls=1)


@pytest.mark.parametrize("counts", [[], [usage(0, 0)], [{"choices": [], "usage": None}]])
async def test_usage_that_is_not_reported_is_estimated(chat, finish, counts: list):
    async with ScriptedServer(sse_reply(chunk({"content": "x" * 400}, "stop"), *counts)) as server:
        counted = (await finish(chat(server), Conversation([user("y" * 4000)]))).usage
    assert counted.estimated
    assert 1000 < counted.input_tokens < 1200
    assert counted.output_tokens == 100


async def test_a_server_that_knows_no_usage_option_is_asked_without_it_from_then_on(chat, finish):
    def reply(request):
        refuses = "stream_options" in request.json
        return error_reply(400, "Unrecognized request argument: stream_options") if refuses else "fine"

    async with ScriptedServer(otherwise=reply) as server:
        assert (await finish(chat(server))).message.text == "fine"
        await finish(chat(server))
    assert ["stream_options" in request.json for request in server.requests] == [True, False, False]


async def test_a_refusal_of_the_usage_option_worded_as_a_validation_error_is_understood(chat, finish):
    body = b'{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}'
    refusal = HttpReply(status=422, headers={"content-type": "application/json"}, chunks=(body,))
    async with ScriptedServer(refusal, "fine") as server:
        assert (await finish(chat(server))).message.text == "fine"


# --- faults


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_passing_errors_are_repeated(chat, collect, waits, status: int):
    async with ScriptedServer(error_reply(status), error_reply(status), "up again") as server:
        deltas = await collect(chat(server))
    assert [(d.attempt, d.delay) for d in deltas if isinstance(d, Retry)] == [(1, 0.5), (2, 1.0)]
    assert waits == [0.5, 1.0]
    assert deltas[-1].message.text == "up again"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadRequest),
        (401, AuthError),
        (403, AuthError),
        (404, BadRequest),
        (422, BadRequest),
        (413, ContextTooLong),
    ],
)
async def test_lasting_errors_are_not(chat, collect, status: int, error: type):
    async with ScriptedServer(error_reply(status, "because of that")) as server:
        with pytest.raises(error, match="because of that") as caught:
            await collect(chat(server))
    assert (caught.value.status, caught.value.model) == (status, "test:m")
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "error"), [(429, RateLimited), (503, Overloaded), (408, ModelTimeout)])
async def test_retries_end_with_the_error(chat, collect, status: int, error: type):
    async with ScriptedServer(otherwise=error_reply(status)) as server:
        with pytest.raises(error):
            await collect(chat(server, retries=2))
    assert len(server.requests) == 3


async def test_a_broken_stream_is_repeated_and_what_came_is_void(chat, collect):
    cut = sse_reply(chunk({"content": "half of"}), done=False, then="cut")
    async with ScriptedServer(cut, "the whole") as server:
        deltas = await collect(chat(server))
    assert deltas[0] == TextDelta("half of")
    assert isinstance(deltas[1], Retry)
    assert deltas[-1].message.text == "the whole"


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(sse_reply(chunk({"content": "half"}), done=False), id="ends early"),
        pytest.param(raw(b""), id="empty body"),
        pytest.param(raw(b"\n\n"), id="blank body"),
        pytest.param(sse_reply({"choices": []}), id="no choices"),
        pytest.param(sse_reply(), id="only the end"),
        pytest.param(raw(b'data: {"choices":[{"delta":{"cont\n\n'), id="cut json"),
        pytest.param(raw(b"{}"), id="empty object"),
        pytest.param(
            sse_reply(
                chunk({"tool_calls": [{"id": "a", "function": {"name": "look", "arguments": "{}"}}]}), done=False
            ),
            id="call without an end",
        ),
    ],
)
async def test_answers_without_an_end_are_repeated_then_reported(chat, collect, reply: HttpReply):
    async with ScriptedServer(otherwise=reply) as server:
        with pytest.raises(BadResponse):
            await collect(chat(server, retries=1))
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("event", "error", "requests"),
    [
        ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, RateLimited, 2),
        ({"error": {"message": "slow down", "code": 429}}, RateLimited, 2),
        ({"error": {"message": "oops", "type": "server_error"}}, Overloaded, 2),
        ({"error": {"message": "too long", "code": "context_length_exceeded"}}, ContextTooLong, 1),
        ({"error": {"message": "no such thing", "type": "invalid_request_error"}}, BadRequest, 1),
        ({"error": "just a text"}, BadResponse, 2),
        ({"object": "error", "message": "engine died", "code": 500}, Overloaded, 2),
        ({"detail": "a framework's words"}, BadResponse, 2),
        (b"event: error\ndata: plain words\n\n", BadResponse, 2),
        (b'event: error\ndata: {"message":"named","type":"overloaded_error"}\n\n', Overloaded, 2),
        (chunk({}, "error"), Overloaded, 2),
    ],
)
async def test_errors_inside_the_stream(chat, collect, event, error: type, requests: int):
    async with ScriptedServer(otherwise=sse_reply(chunk({"content": "so far"}), event)) as server:
        with pytest.raises(error):
            await collect(chat(server, retries=1))
    assert len(server.requests) == requests


async def test_a_web_page_is_reported_by_its_title_and_not_repeated(chat, collect):
    page = b"<!DOCTYPE html><html><head><title>Welcome to it</title></head>" + b"<p>x</p>" * 5000
    async with ScriptedServer(raw(page, kind="text/html")) as server:
        with pytest.raises(BadResponse, match="base URL"):
            await collect(chat(server))
    assert len(server.requests) == 1


async def test_a_web_page_with_an_error_status_is_cut_to_its_title(chat, collect):
    page = b"<html><head><title>502 Bad Gateway</title></head><body>" + b"<p>x</p>" * 5000
    async with ScriptedServer(otherwise=HttpReply(status=502, chunks=(page,))) as server:
        with pytest.raises(Overloaded, match="502 Bad Gateway") as caught:
            await collect(chat(server, retries=0))
    assert len(str(caught.value)) < 300


async def test_silence_is_a_timeout(chat, collect):
    async with ScriptedServer(otherwise=sse_reply(chunk({"content": "x"}), done=False, then="hang")) as server:
        with pytest.raises(ModelTimeout, match="nothing came"):
            await collect(chat(server, retries=1, timeout=0.15))
    assert len(server.requests) == 2


async def test_a_server_that_is_not_there_is_a_network_error(chat, collect, waits):
    async with ScriptedServer() as server:
        pass
    with pytest.raises(NetworkError, match=r"cannot connect to 127\.0\.0\.1"):
        await collect(chat(server, retries=2))
    assert len(waits) == 2


async def test_a_redirect_is_not_followed(chat, collect):
    async with ScriptedServer("never") as other:
        away = HttpReply(status=307, headers={"location": f"{other.base_url}/chat/completions"})
        async with ScriptedServer(away) as server:
            with pytest.raises(BadRequest, match="redirects to 'http"):
                await collect(chat(server))
    assert other.requests == []


async def test_the_key_is_in_no_error(chat, collect):
    async with ScriptedServer(error_reply(401, "wrong key: sk-very-secret!")) as server:
        model = chat(server)
        with pytest.raises(AuthError) as caught:
            await collect(model)
    assert "very-secret" not in str(caught.value)
    assert "[key]" in str(caught.value)
    assert "very-secret" not in repr(model)
    assert caught.value.__cause__ is None


async def test_stopping_early_releases_the_connection(chat):
    async with ScriptedServer(sse_reply(chunk({"content": "x"}), done=False, then="hang")) as server:
        async with aclosing(chat(server).stream(ModelRequest(conversation=Conversation([user("hi")])))) as deltas:
            assert await anext(deltas) == TextDelta("x")
            assert server.open_connections == 1
        async with asyncio.timeout(5):
            while server.open_connections:
                await asyncio.sleep(0.001)


async def test_cancelling_ends_the_request(chat, collect):
    async with ScriptedServer(HttpReply(then="hang")) as server:
        task = asyncio.ensure_future(collect(chat(server)))
        while not server.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            while server.open_connections:
                await asyncio.sleep(0.001)


async def test_turns_share_one_connection(chat, finish):
    async with ScriptedServer(otherwise="again") as server:
        model = chat(server)
        for _ in range(3):
            await finish(model)
        assert server.open_connections == 1


async def test_many_calls_at_once_do_not_mix(chat, finish):
    def echo(request):
        return request.json["messages"][0]["content"]

    async with ScriptedServer(otherwise=echo) as server:
        model = chat(server)
        texts = [f"text {n}" for n in range(20)]
        dones = await asyncio.gather(*(finish(model, Conversation([user(text)])) for text in texts))
    assert [done.message.text for done in dones] == texts
