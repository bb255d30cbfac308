"""Replies of the Responses wire, beside the vendor's own reader of the same bytes."""

from typing import Any

import pytest
from hypothesis import given
from openai import AsyncOpenAI
from oracles import CUTS, model_at, play

from replan.encoding import decode, encode
from replan.errors import BadResponse, Overloaded, RateLimited
from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall
from replan.model import Done, TextDelta, ThinkingDelta
from replan.models.failures import Failure
from replan.models.responses import ResponsesWire
from replan.models.responses.reply import ResponsesReply
from replan.models.sse import EventParser
from replan.testing import HttpReply, ScriptedServer

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 30},
    "total_tokens": 150,
}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": "ENC",
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_a",
    "name": "look",
    "arguments": '{"key": "a"}',
    "status": "completed",
}
TEXT = {"type": "output_text", "text": "I look ü.", "annotations": []}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [TEXT]}


def response(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "output": list(output),
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": USAGE, **more,
    }  # fmt: skip


def numbered(*events: dict[str, Any]) -> bytes:
    rows = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return b"".join(b"event: %s\ndata: %s\n\n" % (row["type"].encode(), encode(row)) for row in rows)


def pieces(at: int, item: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    empty = {**item, "summary": [], "encrypted_content": None} if item["type"] == "reasoning" else item
    empty = (
        {**empty, "arguments": ""} if "arguments" in item else {**empty, "content": []} if "content" in item else empty
    )
    ids = {"output_index": at, "item_id": item["id"]}
    return [
        {"type": "response.output_item.added", "output_index": at, "item": empty},
        *({**ids, **delta} for delta in deltas),
        {"type": "response.output_item.done", "output_index": at, "item": item},
    ]


def summary(part: int, text: str) -> list[dict[str, Any]]:
    return [
        {
            "type": "response.reasoning_summary_part.added",
            "summary_index": part,
            "part": {"type": "summary_text", "text": ""},
        },
        {"type": "response.reasoning_summary_text.delta", "summary_index": part, "delta": text},
    ]


def says(*texts: str) -> list[dict[str, Any]]:
    part = {"type": "output_text", "text": "", "annotations": []}
    head = {"type": "response.content_part.added", "content_index": 0, "part": part}
    return [
        head,
        *({"type": "response.output_text.delta", "content_index": 0, "delta": text, "logprobs": []} for text in texts),
    ]


def asks(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "response.function_call_arguments.delta", "delta": text} for text in texts]


START = {"type": "response.created", "response": response(status="in_progress", usage=None)}
ITEMS = [
    *pieces(0, REASONING, *summary(0, "First."), *summary(1, "Then.")),
    *pieces(1, MESSAGE, *says("I lo", "ok ü.")),
    *pieces(2, CALL, *asks('{"key"', ': "a"}')),
]
END = {"type": "response.completed", "response": response(REASONING, MESSAGE, CALL)}
CUT = {
    "type": "response.incomplete",
    "response": response(MESSAGE, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
}
STREAMS = {
    "all": numbered(START, *ITEMS, END),
    "text": numbered(
        START, *pieces(0, MESSAGE, *says("I look ü.")), {"type": "response.completed", "response": response(MESSAGE)}
    ),
    "cut": numbered(START, *pieces(0, MESSAGE, *says("I look ü.")), CUT),
}
ALL = Assistant(
    (
        Thinking("First.\n\nThen.", "ENC", "test:m", {"id": "rs_1", "summary": REASONING["summary"]}),
        Text("I look ü."),
        ToolCall("call_a", "look", {"key": "a"}),
    )
)


def read(data: bytes, cuts: Any = ()) -> Done:
    return play(ResponsesReply("test:m"), EventParser(), data, cuts)


def stream(data: bytes) -> HttpReply:
    return HttpReply(headers={"content-type": "text/event-stream"}, chunks=(data,))


@pytest.mark.parametrize("name", STREAMS)
async def test_the_vendors_reader_finds_the_same(name: str):
    ours = read(STREAMS[name])
    async with ScriptedServer(stream(STREAMS[name])) as server:
        client = AsyncOpenAI(api_key="k", base_url=server.base_url)
        theirs: Any = None
        async for event in await client.responses.create(model="m", input="x", stream=True):
            theirs = getattr(event, "response", theirs)
        await client.close()
    assert ours.message.text == theirs.output_text
    calls = [
        (item.call_id, item.name, decode(item.arguments)) for item in theirs.output if item.type == "function_call"
    ]
    assert [(call.call_id, call.name, call.arguments) for call in ours.message.calls] == calls
    assert theirs.usage
    assert ours.usage.input_tokens == theirs.usage.input_tokens
    assert ours.usage.output_tokens == theirs.usage.output_tokens
    assert ours.usage.cached_input_tokens == theirs.usage.input_tokens_details.cached_tokens
    assert ours.usage.reasoning_tokens == theirs.usage.output_tokens_details.reasoning_tokens
    assert (ours.finish == "length") == (theirs.status == "incomplete")


@given(CUTS)
def test_where_the_bytes_are_cut_changes_nothing(cuts: list[int]):
    for data in STREAMS.values():
        assert read(data, cuts) == read(data)


def test_reasoning_keeps_what_goes_back():
    assert read(STREAMS["all"]).message == ALL


async def test_pieces_are_told_as_they_come(collect):
    async with ScriptedServer(stream(STREAMS["all"])) as server:
        *deltas, done = await collect(model_at(server, ResponsesWire))
    assert [d.text for d in deltas if isinstance(d, ThinkingDelta)] == ["First.", "\n\nThen."]
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["I lo", "ok ü."]
    assert done.message == ALL
    assert done.finish == "tool_calls"


@pytest.mark.parametrize(
    "events",
    [
        [END],
        [START, END],
        [START, *[e for e in ITEMS if e["type"] == "response.output_item.done"], END],
        [START, *[e for e in ITEMS if e["type"] != "response.output_item.added"], END],
        [START, *ITEMS, {"type": "response.completed", "response": response()}],
    ],
    ids=["final", "started", "done", "no-added", "no-output"],
)
def test_items_may_come_in_any_of_their_ways(events: list[dict[str, Any]]):
    assert read(numbered(*events)).message == ALL


async def test_a_whole_answer_is_read_too(collect):
    answer = HttpReply(headers={"content-type": "application/json"}, chunks=(encode(END["response"]),))
    async with ScriptedServer(answer) as server:
        *_, done = await collect(model_at(server, ResponsesWire))
    assert done.message == ALL
    assert done.usage.cached_input_tokens == 60


def test_a_message_keeps_its_phase():
    message = {**MESSAGE, "phase": "final_answer"}
    done = read(
        numbered(
            START,
            *pieces(0, message, *says("I look ü.")),
            {"type": "response.completed", "response": response(message)},
        )
    )
    assert done.message.content == (Thinking("", None, "test:m", {"phase": "final_answer"}), Text("I look ü."))


REFUSAL = {**MESSAGE, "content": [{"type": "refusal", "refusal": "I will not."}]}


@pytest.mark.parametrize(
    "events",
    [
        [*pieces(0, REFUSAL, {"type": "response.refusal.delta", "content_index": 0, "delta": "I will "},
                 {"type": "response.refusal.delta", "content_index": 0, "delta": "not."})],
        pieces(0, REFUSAL),
        [],
    ],
)  # fmt: skip
def test_a_refusal_is_told_in_every_shape(events: list[dict[str, Any]]):
    done = read(numbered(START, *events, {"type": "response.completed", "response": response(REFUSAL)}))
    assert (done.message, done.finish) == (Assistant((Refusal("I will not."),)), "refusal")


def test_a_filtered_reply_is_one():
    end = response(status="incomplete", incomplete_details={"reason": "content_filter"})
    done = read(numbered(START, {"type": "response.incomplete", "response": end}))
    assert done.finish == "content_filter"
    assert done.message.refusal


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "slow down, very-secret-key", "param": None},
            RateLimited,
        ),
        (
            {
                "type": "response.failed",
                "response": response(status="failed", error={"code": "server_error", "message": "oops"}),
            },
            Overloaded,
        ),
    ],
)
def test_an_error_in_the_stream_is_sorted(event: dict[str, Any], error: type):
    with pytest.raises(Failure) as caught:
        ResponsesReply("test:m", ("very-secret-key",)).events(EventParser().feed(numbered(START, event)))
    assert (type(caught.value.error), caught.value.repeat) == (error, True)
    assert "very-secret" not in str(caught.value)


async def test_a_broken_stream_is_an_error(collect):
    cut = STREAMS["all"][: STREAMS["all"].index(b"response.completed") - 20]
    async with ScriptedServer(otherwise=stream(cut)) as server:
        with pytest.raises(BadResponse, match=r"broke off|not JSON"):
            await collect(model_at(server, ResponsesWire, retries=1))


@pytest.mark.parametrize(
    "odd",
    [{"type": "response.new_thing", "delta": 1}, {"type": "response.output_text.delta"}, {"x": 1}, {"type": None}],
)
def test_what_is_not_known_is_passed_over(odd: dict[str, Any]):
    data = numbered(START) + b"data: %s\n\n" % encode(odd) + numbered(*ITEMS, END)
    assert read(data).message == ALL
