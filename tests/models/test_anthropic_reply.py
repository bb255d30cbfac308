"""Replies of the Anthropic wire, beside the vendor's own reader of the same bytes."""

import json
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from hypothesis import given
from oracles import CUTS, model_at, play

from replan.encoding import encode
from replan.errors import BadResponse, Overloaded, RateLimited
from replan.messages import Assistant, Text, Thinking, ToolCall
from replan.model import Done, TextDelta, ThinkingDelta
from replan.models.anthropic import AnthropicWire
from replan.models.anthropic.reply import AnthropicReply
from replan.models.draft import FILTERED
from replan.models.failures import Failure
from replan.models.sse import EventParser
from replan.testing import HttpReply, ScriptedServer


def start(**usage: Any) -> dict[str, Any]:
    counts = {"input_tokens": 14, "output_tokens": 1, **usage}
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": counts,
    }  # fmt: skip
    return {"type": "message_start", "message": message}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str, output: int = 300, **more: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": output}}, {"type": "message_stop"}]


def sse(*events: dict[str, Any] | list[dict[str, Any]]) -> bytes:
    flat = [each for event in events for each in (event if isinstance(event, list) else [event])]
    return b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), encode(e)) for e in flat)


THOUGHT = block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "let me "},
    {"type": "thinking_delta", "thinking": "see"},
    {"type": "signature_delta", "signature": "c2ln"},
)
SAID = block(
    1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "I lo"}, {"type": "text_delta", "text": "ok ü."}
)
CALL = block(
    2,
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    {"type": "input_json_delta", "partial_json": ""},
    {"type": "input_json_delta", "partial_json": '{"key": '},
    {"type": "input_json_delta", "partial_json": '"a"}'},
)
SECOND = block(3, {"type": "tool_use", "id": "toolu_2", "name": "stop", "input": {}})

STREAMS = {
    "text": sse(
        start(),
        {"type": "ping"},
        block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "hello"}),
        end("end_turn"),
    ),
    "calls": sse(start(), THOUGHT, SAID, CALL, SECOND, end("tool_use")),
    "redacted": sse(
        start(),
        block(0, {"type": "redacted_thinking", "data": "ENC"}),
        block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "x"}),
        end("end_turn"),
    ),
    "cached": sse(
        start(cache_read_input_tokens=120_000, cache_creation_input_tokens=7), THOUGHT, SAID, end("max_tokens")
    ),
    "empty": sse(start(), end("end_turn", 1)),
}


def read(data: bytes, cuts: Any = ()) -> Done:
    return play(AnthropicReply("test:m"), EventParser(), data, cuts)


def whole(data: bytes) -> HttpReply:
    return HttpReply(headers={"content-type": "text/event-stream"}, chunks=(data,))


@pytest.mark.parametrize("name", STREAMS)
async def test_the_vendors_reader_finds_the_same(name: str):
    ours = read(STREAMS[name])
    async with ScriptedServer(whole(STREAMS[name])) as server:
        client = AsyncAnthropic(api_key="k", base_url=server.base_url.removesuffix("/v1"))
        async with (
            client,
            client.messages.stream(
                model="claude", max_tokens=10, messages=[{"role": "user", "content": "x"}]
            ) as stream,
        ):
            theirs = await stream.get_final_message()
    parts: list[Any] = []
    for part in theirs.content:
        match part.type:
            case "text":
                parts.append(Text(part.text))
            case "thinking":
                parts.append(Thinking(part.thinking, part.signature, "test:m"))
            case "redacted_thinking":
                parts.append(Thinking("", None, "test:m", part.to_dict()))
            case "tool_use":
                parts.append(ToolCall(part.id, part.name, part.input))  # type: ignore[arg-type]
    assert ours.message == Assistant(tuple(parts))
    usage = theirs.usage
    read_, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    assert ours.usage.input_tokens == usage.input_tokens + read_ + written
    assert ours.usage.output_tokens == usage.output_tokens
    assert (ours.usage.cached_input_tokens, ours.usage.cache_write_tokens) == (read_, written)
    reasons = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
    assert ours.finish == reasons[theirs.stop_reason or ""]


@given(CUTS)
def test_where_the_bytes_are_cut_changes_nothing(cuts: list[int]):
    for data in STREAMS.values():
        assert read(data, cuts) == read(data)


async def test_pieces_are_told_as_they_come(collect):
    async with ScriptedServer(whole(STREAMS["calls"])) as server:
        *deltas, done = await collect(model_at(server, AnthropicWire))
    assert [d.text for d in deltas if isinstance(d, ThinkingDelta)] == ["let me ", "see"]
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["I lo", "ok ü."]
    assert done.message.calls == (ToolCall("toolu_1", "look", {"key": "a"}), ToolCall("toolu_2", "stop", {}))


async def test_a_whole_answer_is_read_too(collect):
    content = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "7"},
               {"type": "tool_use", "id": "t", "name": "look", "input": {"key": "a"}}]  # fmt: skip
    message = {**start()["message"], "content": content, "stop_reason": "tool_use"}
    async with ScriptedServer(
        HttpReply(headers={"content-type": "application/json"}, chunks=(encode(message),))
    ) as server:
        *_, done = await collect(model_at(server, AnthropicWire))
    assert done.message == Assistant((Thinking("hm", "s", "test:m"), Text("7"), ToolCall("t", "look", {"key": "a"})))
    assert (done.usage.input_tokens, done.usage.output_tokens, done.finish) == (14, 1, "tool_calls")


async def test_a_whole_answer_may_be_an_error(collect):
    data = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    answer = HttpReply(headers={"content-type": "application/json"}, chunks=(encode(data),))
    async with ScriptedServer(otherwise=answer) as server:
        with pytest.raises(Overloaded, match="Overloaded"):
            await collect(model_at(server, AnthropicWire))


def test_totals_that_are_repeated_count_once():
    usage = {"input_tokens": 14, "cache_read_input_tokens": 120_000, "output_tokens": 300}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    done = read(sse(start(cache_read_input_tokens=120_000), SAID, last, {"type": "message_stop"}))
    assert (done.usage.input_tokens, done.usage.cached_input_tokens, done.usage.output_tokens) == (
        120_014,
        120_000,
        300,
    )


def test_thinking_is_counted_as_reasoning():
    usage = {"output_tokens": 300, "output_tokens_details": {"thinking_tokens": 200}}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    assert read(sse(start(), SAID, last, {"type": "message_stop"})).usage.reasoning_tokens == 200


@pytest.mark.parametrize(
    ("events", "refusal"),
    [
        ([start(), *end("refusal", 0)], "The model refused."),
        ([start(), *SAID, *end("refusal")], "I look ü."),
        (
            [start(), *end("refusal", stop_details={"type": "refusal", "explanation": "It is harmful."})],
            "It is harmful.",
        ),
    ],
)
def test_a_refusal_is_told_in_every_shape(events: list[dict[str, Any]], refusal: str):
    done = read(sse(events))
    assert (done.message.refusal, done.finish) == (refusal, "refusal")
    assert done.message.text == ""


@pytest.mark.parametrize(
    ("kind", "error", "repeat"),
    [("overloaded_error", Overloaded, True), ("rate_limit_error", RateLimited, True)],
)
def test_an_error_in_the_stream_is_sorted(kind: str, error: type, repeat: bool):
    event = {"type": "error", "error": {"type": kind, "message": "no very-secret-key"}}
    with pytest.raises(Failure) as caught:
        AnthropicReply("test:m", ("very-secret-key",)).events(EventParser().feed(sse(start(), SAID, event)))
    assert (type(caught.value.error), caught.value.repeat) == (error, repeat)
    assert "very-secret" not in str(caught.value)


async def test_a_broken_stream_is_repeated_and_nothing_is_doubled(collect):
    cut = STREAMS["calls"][: STREAMS["calls"].index(b"toolu_2")]
    async with ScriptedServer(whole(cut), whole(STREAMS["calls"])) as server:
        *deltas, done = await collect(model_at(server, AnthropicWire, retries=1))
    again = [type(d).__name__ for d in deltas].index("Retry")
    assert "".join(d.text for d in deltas[again:] if isinstance(d, TextDelta)) == "I look ü."
    assert done.message.text == "I look ü."


async def test_a_stream_that_stays_broken_is_an_error(collect):
    async with ScriptedServer(otherwise=whole(sse(start(), SAID))) as server:
        with pytest.raises(BadResponse, match="broke off"):
            await collect(model_at(server, AnthropicWire, retries=1))


@pytest.mark.parametrize(
    "odd",
    [{"type": None}, {"type": "content_block_delta"}, {"type": "new_event", "x": 1}, {"type": "message_delta"}, {}],
)
def test_what_is_not_known_is_passed_over(odd: Any):
    data = sse(start()) + b"data: %s\n\ndata:\n\n" % encode(odd) + sse(SAID, end("end_turn"))
    assert read(data).message.text == "I look ü."


def test_a_stream_may_end_as_those_of_other_formats_do():
    assert read(sse(start(), SAID) + b"data: [DONE]\n\n").message.text == "I look ü."


def test_an_error_without_a_type_is_one():
    data = sse(start(), SAID) + encode({"error": {"message": "overloaded", "code": 529}}).join((b"data: ", b"\n\n"))
    with pytest.raises(Failure) as caught:
        read(data)
    assert type(caught.value.error) is Overloaded


async def test_a_reply_that_the_filter_stopped_is_a_refusal(finish):
    message = "Output blocked by content filtering policy"
    event = {"type": "error", "error": {"details": None, "type": "invalid_request_error", "message": message}}
    async with ScriptedServer(whole(sse(start(), SAID, event))) as server:
        done = await finish(model_at(server, AnthropicWire))
    assert (done.finish, done.message.refusal) == ("content_filter", FILTERED)
    assert len(server.requests) == 1


def test_what_is_not_json_can_be_asked_again():
    with pytest.raises(Failure) as caught:
        AnthropicReply("test:m").events(EventParser().feed(b"data: {oops\n\n"))
    assert caught.value.repeat


def test_blocks_of_the_providers_own_tools_are_left_out():
    own = block(
        0,
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": "{}"},
    )
    assert read(sse(start(), own, SAID, end("end_turn"))).message == Assistant((Text("I look ü."),))


def test_ids_that_are_missing_or_repeated_are_made():
    twice = [
        block(n, {"type": "tool_use", "id": name, "name": "look", "input": {}}) for n, name in enumerate(["t", "t", ""])
    ]
    calls = read(sse(start(), *twice, end("tool_use"))).message.calls
    assert len({call.call_id for call in calls}) == 3


def numbered(blocks: list[list[dict[str, Any]]], index: Any) -> list[dict[str, Any]]:
    """The events of blocks, with this in the place of each index; without one for `...`."""
    bare = [{name: value for name, value in event.items() if name != "index"} for each in blocks for event in each]
    return bare if index is ... else [{**event, "index": index} for event in bare]


@pytest.mark.parametrize("index", [..., None, 0, "0", [0]])
def test_indices_may_be_missing_or_all_the_same(index: Any):
    events = numbered([THOUGHT, SAID, CALL, SECOND], index)
    assert read(sse(start(), events, end("tool_use"))).message == read(STREAMS["calls"]).message


def test_pieces_without_an_index_are_of_the_last_block():
    events = [each for part in (THOUGHT, SAID, CALL) for each in part]
    bare = [{k: v for k, v in each.items() if k != "index" or "delta" not in each} for each in events]
    expected = read(sse(start(), events, end("tool_use"))).message
    assert read(sse(start(), bare, end("tool_use"))).message == expected


def test_a_call_that_is_told_twice_is_one_call():
    calls = read(sse(start(), CALL[0], CALL, end("tool_use"))).message.calls
    assert calls == (ToolCall("toolu_1", "look", {"key": "a"}),)


def test_pieces_of_a_block_that_was_not_begun_are_read():
    assert read(sse(start(), SAID[1:], end("end_turn"))).message.text == "I look ü."


def test_a_stop_for_calls_without_calls_is_a_stop():
    assert read(sse(start(), SAID, end("tool_use"))).finish == "stop"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("a_new_one", "stop"),
    ],
)
def test_reasons_to_stop(reason: str, finish: str):
    assert read(sse(start(), SAID, end(reason))).finish == finish


def test_arguments_that_are_no_object_are_kept_as_they_are():
    bad = block(
        0,
        {"type": "tool_use", "id": "t", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"a": '},
    )
    (call,) = read(sse(start(), bad, end("max_tokens"))).message.calls
    assert (call.arguments, call.raw) == ({}, '{"a": ')
    assert json.dumps(call.raw)
