"""Replies of the Responses wire, beside the vendor's own reader of the same bytes."""

from typing import Any

import pytest
from hypothesis import given
from openai import AsyncOpenAI
from oracles import CUTS, model_at, play

from replan.encoding import decode, encode
from replan.errors import BadRequest, BadResponse, ContextTooLong, Overloaded, RateLimited
from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall
from replan.model import CallDelta, Done, TextDelta, ThinkingDelta
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


@pytest.mark.parametrize("name", STREAMS)
async def test_the_vendors_collector_tells_the_same_pieces(name: str):
    ours = ResponsesReply("test:m").events(EventParser().feed(STREAMS[name]))
    texts: list[str] = []
    arguments: list[str] = []
    async with ScriptedServer(stream(STREAMS[name])) as server:
        client = AsyncOpenAI(api_key="k", base_url=server.base_url)
        async with client.responses.stream(model="m", input="x") as theirs:
            async for event in theirs:
                if event.type == "response.output_text.delta":
                    texts.append(event.delta)
                elif event.type == "response.function_call_arguments.delta":
                    arguments.append(event.delta)
        await client.close()
    assert [delta.text for delta in ours if isinstance(delta, TextDelta)] == texts
    assert [delta.arguments for delta in ours if isinstance(delta, CallDelta) and delta.arguments] == arguments


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


# ---- servers that speak nearly as the API does

OTHER = {**CALL, "id": "fc_2", "call_id": "call_b", "arguments": '{"key": "b"}'}
BOTH = [ToolCall("call_a", "look", {"key": "a"}), ToolCall("call_b", "look", {"key": "b"})]


def without(field: str, *events: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: value for name, value in event.items() if name != field} for event in events]


def the_end(*output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.completed", "response": response(*output)}


def test_items_without_numbers_are_told_apart_by_their_names():
    call, other = ({n: v for n, v in item.items() if n != "id"} for item in (CALL, OTHER))
    deltas = [{**delta, "item_id": item["call_id"]} for item in (call, other) for delta in asks(item["arguments"])]
    events = without(
        "output_index",
        *pieces(0, REASONING, *summary(0, "First."), *summary(1, "Then.")),
        *pieces(1, MESSAGE, *without("content_index", *says("I look ü."))),
        {"type": "response.output_item.added", "item": {**call, "arguments": ""}},
        {"type": "response.output_item.added", "item": {**other, "arguments": ""}},
        *deltas,
        {"type": "response.output_item.done", "item": call},
        {"type": "response.output_item.done", "item": other},
    )
    for end in (the_end(), the_end(REASONING, MESSAGE, call, other)):
        assert list(read(numbered(*events, end)).message.content) == [*ALL.content[:2], *BOTH]


def test_pieces_without_number_or_name_belong_to_the_newest_item():
    events = without("output_index", *without("item_id", *pieces(0, CALL, *asks('{"key": ', '"a"}'))))
    assert list(read(numbered(*events, *without("output_index", *pieces(0, OTHER)), the_end())).message.calls) == BOTH


def test_items_with_one_number_are_told_apart():
    one, two = pieces(0, CALL, *asks(CALL["arguments"])), pieces(0, OTHER, *asks(OTHER["arguments"]))
    said = pieces(0, MESSAGE, *says("I look ü."))
    for events in ([*said, *one, *two], [*said, *one[:-1], *two, one[-1]]):
        for end in (the_end(), the_end(MESSAGE, CALL, OTHER)):
            assert list(read(numbered(*events, end)).message.content) == [Text("I look ü."), *BOTH]


def test_arguments_that_come_late_belong_to_their_call():
    one, two = pieces(0, CALL), pieces(0, OTHER)
    assert list(read(numbered(one[0], two[0], one[1], two[1], the_end())).message.calls) == BOTH
    assert list(read(numbered(one[0], two[0], the_end(OTHER, CALL))).message.calls) == BOTH[::-1]


def test_names_that_change_with_every_event_do_not_matter():
    count = iter(range(1000))

    def renamed(event: dict[str, Any]) -> dict[str, Any]:
        event = {**event, "item_id": f"x{next(count)}"} if "item_id" in event else event
        return {**event, "item": {**event["item"], "id": f"x{next(count)}"}} if "item" in event else event

    last = [{**item, "id": f"y{item['id']}"} for item in (REASONING, MESSAGE, CALL)]
    done = read(numbered(START, *map(renamed, ITEMS), the_end(*last)))
    thought, *rest = done.message.content
    assert isinstance(thought, Thinking)
    assert (thought.text, thought.signature) == ("First.\n\nThen.", "ENC")
    assert rest == list(ALL.content[1:])


def test_ends_of_parts_are_enough():
    events = [
        {"type": "response.reasoning_summary_text.done", "output_index": 0, "summary_index": 0, "text": "First."},
        {"type": "response.reasoning_summary_text.done", "output_index": 0, "summary_index": 1, "text": "Then."},
        {"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "I look ü."},
        {"type": "response.output_item.added", "output_index": 2, "item": {**CALL, "arguments": ""}},
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": CALL["arguments"]},
        {"type": "response.refusal.done", "output_index": 3, "content_index": 0, "refusal": "No."},
    ]
    done = read(numbered(START, *events, the_end()))
    assert done.message.content == (Thinking("First.\n\nThen.", None, "test:m"), *ALL.content[1:], Refusal("No."))


def test_ends_of_parts_that_came_in_pieces_add_nothing():
    ends = [
        {"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "I look ü. "},
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": CALL["arguments"]},
        {"type": "response.reasoning_summary_text.done", "output_index": 0, "summary_index": 1, "text": "Then."},
    ]
    assert read(numbered(START, *ITEMS, *ends, END)).message == ALL


def test_the_rest_of_a_text_is_taken_from_its_item():
    half = [e for e in ITEMS if e.get("delta") not in ("ok ü.", ': "a"}', "Then.")]
    assert read(numbered(START, *half, END)).message == ALL


def test_the_order_is_that_of_the_final_response():
    events = pieces(1, MESSAGE, *says("I look ü."))[1:-1]
    assert read(numbered(*events, the_end(REASONING, MESSAGE))).message.content == ALL.content[:2]


def test_arguments_may_be_an_object():
    done = read(numbered(START, the_end({**CALL, "arguments": {"key": "a"}})))
    assert done.message.calls[0].arguments == {"key": "a"}


def test_another_name_of_the_last_event():
    assert read(numbered(START, *ITEMS, {**END, "type": "response.done"})).message == ALL


# ---- reasoning, comments, tools of the provider

SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}


def test_reasoning_that_led_to_a_tool_of_the_provider_does_not_go_back():
    second = {**REASONING, "id": "rs_2", "encrypted_content": "ENC2"}
    streamed = [*pieces(0, REASONING), *pieces(1, SEARCH), *pieces(2, second), *pieces(3, MESSAGE)]
    for events in (streamed, []):
        done = read(numbered(START, *events, the_end(REASONING, SEARCH, second, MESSAGE)))
        first, then, text = done.message.content
        assert first == Thinking("First.\n\nThen.", None, "test:m")
        assert isinstance(then, Thinking)
        assert (then.signature, text) == ("ENC2", Text("I look ü."))


def test_reasoning_in_full_is_told_and_kept():
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [],
                 "content": [{"type": "reasoning_text", "text": "hm, ok"}]}  # fmt: skip
    deltas = [{"type": "response.reasoning_text.delta", "content_index": 0, "delta": d} for d in ("hm", ", ok")]
    done = read(numbered(START, *pieces(0, reasoning, *deltas), *pieces(1, MESSAGE), the_end(reasoning, MESSAGE)))
    own = {"id": "rs_1", "summary": [], "content": reasoning["content"]}
    assert done.message.content[0] == Thinking("hm, ok", None, "test:m", own)


def test_of_reasoning_and_its_summary_what_comes_first_is_told():
    reasoning = {**REASONING, "content": [{"type": "reasoning_text", "text": "hm"}]}
    told = [*summary(0, "First."), {"type": "response.reasoning_text.delta", "content_index": 0, "delta": "hm"},
            *summary(1, "Then.")]  # fmt: skip
    data = numbered(START, *pieces(0, reasoning, *told), the_end(reasoning, MESSAGE))
    deltas = ResponsesReply("test:m").events(EventParser().feed(data))
    assert [delta.text for delta in deltas if isinstance(delta, ThinkingDelta)] == ["First.", "\n\nThen."]
    thought = read(data).message.content[0]
    assert isinstance(thought, Thinking)
    assert thought.text == "First.\n\nThen."
    assert thought.data["content"] == reasoning["content"]


def test_reasoning_that_says_nothing_and_cannot_go_back_is_left_out():
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": None}
    assert read(numbered(START, the_end(reasoning, MESSAGE))).message.content == (Text("I look ü."),)


def test_a_phase_that_is_told_late_stands_before_the_text():
    late = [*pieces(0, MESSAGE, *says("I look ü."))[:-1], the_end({**MESSAGE, "phase": "commentary"}, CALL)]
    phase, text, call = read(numbered(START, *late)).message.content
    assert phase == Thinking("", None, "test:m", {"phase": "commentary"})
    assert (text, call) == (Text("I look ü."), ALL.content[2])


def test_a_comment_beside_the_answer_is_no_part_of_it():
    comment = {**MESSAGE, "phase": "commentary"}
    answer = {**MESSAGE, "id": "msg_2", "phase": "final_answer", "content": [{**TEXT, "text": '{"a": 1}'}]}
    done = read(numbered(START, the_end(comment, answer)))
    assert done.message.text == '{"a": 1}'
    assert done.message.content[0] == Thinking("I look ü.", None, "test:m", {"phase": "commentary"})


# ---- ends


@pytest.mark.parametrize("code", ["content_filter", "image_content_policy_violation", "bio_policy", "invalid_prompt"])
async def test_what_a_policy_stops_in_the_stream_is_a_refusal(collect, code: str):
    error = {"code": code, "message": "It was flagged by the usage policy."}
    for event in (
        {"type": "response.failed", "response": response(status="failed", error=error)},
        {"type": "error", **error, "param": None},
        {"type": "error", "error": error},
    ):
        async with ScriptedServer(stream(numbered(START, event))) as server:
            *_, done = await collect(model_at(server, ResponsesWire))
        assert (done.message, done.finish) == (Assistant((Refusal(error["message"]),)), "content_filter")


@pytest.mark.parametrize("code", ["invalid_image", "image_too_large", "unsupported_image_media_type", "invalid_prompt"])
async def test_an_error_of_the_request_is_not_repeated(collect, code: str):
    event = {"type": "response.failed", "response": response(status="failed", error={"code": code, "message": "no"})}
    async with ScriptedServer(otherwise=stream(numbered(START, event))) as server:
        with pytest.raises(BadRequest, match="no"):
            await collect(model_at(server, ResponsesWire, retries=2))
    assert len(server.requests) == 1


async def test_a_conversation_that_is_too_long_is_told_in_the_stream_too(collect):
    error = {"type": "invalid_request_error", "code": "context_length_exceeded", "message": "too long"}
    async with ScriptedServer(stream(numbered(START, {"type": "error", "error": error}))) as server:
        with pytest.raises(ContextTooLong):
            await collect(model_at(server, ResponsesWire))


def test_an_error_without_a_type_is_one():
    with pytest.raises(Failure, match="oops"):
        read(b'data: {"error": {"message": "oops"}}\n\n')


@pytest.mark.parametrize(("kind", "finish"), [("completed", "stop"), ("incomplete", "length")])
def test_the_event_tells_the_end_where_the_status_does_not(kind: str, finish: str):
    for status in (None, "in_progress"):
        last = {"type": f"response.{kind}", "response": {**response(MESSAGE), "status": status}}
        assert read(numbered(START, last)).finish == finish


def test_a_call_that_was_cut_off_keeps_what_was_written():
    cut = {**CALL, "arguments": '{"key": "', "status": "incomplete"}
    last = {
        "type": "response.incomplete",
        "response": response(cut, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    }
    done = read(numbered(START, *pieces(0, cut, *asks('{"key": "')), last))
    assert done.finish == "length"
    assert done.message.calls == (ToolCall("call_a", "look", {}, '{"key": "'),)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"<!doctype html><title>Hi</title>", BadResponse),
        (b'{"error": {"code": "rate_limit_exceeded", "message": "slow down"}}', RateLimited),
        (b'{"object": "response", "status": "in_progress", "output": []}', BadResponse),
        (b'{"object": "response", "status": "cancelled", "output": []}', BadResponse),
        (b'{"detail": "?"}', BadResponse),
        (b"[]", BadResponse),
    ],
)
async def test_an_answer_that_is_no_reply_is_an_error(collect, answer: bytes, error: type):
    reply = HttpReply(headers={"content-type": "application/json"}, chunks=(answer,))
    async with ScriptedServer(reply) as server:
        with pytest.raises(error):
            await collect(model_at(server, ResponsesWire))


def test_usage_that_comes_several_times_is_not_added_up():
    early = {"type": "response.in_progress", "response": response(status="in_progress")}
    usage = read(numbered(START, early, early, *ITEMS, END)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.model_calls) == (100, 50, 1)


def test_tokens_written_to_the_cache_are_counted():
    usage = {**USAGE, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}}
    last = {"type": "response.completed", "response": response(MESSAGE, usage=usage)}
    assert read(numbered(last)).usage.cache_write_tokens == 30


def test_usage_that_is_missing_is_estimated():
    last = {"type": "response.completed", "response": response(MESSAGE, usage=None)}
    assert read(numbered(last)).usage.estimated
