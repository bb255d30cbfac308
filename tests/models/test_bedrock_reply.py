"""Replies of the Bedrock wire, beside botocore's own reader of the same bytes."""

import base64
import json
import struct
import timeit
import zlib
from contextlib import suppress
from typing import Any

import botocore.session
import pytest
from botocore.eventstream import EventStream, EventStreamError
from botocore.parsers import create_parser
from hypothesis import given
from hypothesis import strategies as st
from oracles import model_at, play

from replan.encoding import encode
from replan.errors import BadRequest, BadResponse, ContextTooLong, ModelTimeout, Overloaded, RateLimited
from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall
from replan.model import CallDelta, Done, TextDelta, ThinkingDelta
from replan.models.bedrock import BedrockWire
from replan.models.bedrock.eventstream import EventStreamDecoder
from replan.models.bedrock.reply import BedrockReply
from replan.models.failures import Failure
from replan.models.sse import Event
from replan.testing import HttpReply, ScriptedServer

SERVICE = botocore.session.Session().get_service_model("bedrock-runtime")
PARSER = create_parser("rest-json")
REASONS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


def header(name: str, value: Any) -> bytes:
    """A header of any of the types; numbers are given as (type, bytes)."""
    kind, data = (7, value.encode()) if isinstance(value, str) else value
    size = struct.pack(">H", len(data)) if kind in (6, 7) else b""
    return bytes([len(name)]) + name.encode() + bytes([kind]) + size + data


def frame(payload: bytes, **headers: Any) -> bytes:
    """A message; underscores in header names become dashes, and a colon comes before them."""
    head = b"".join(header(":" + name.replace("_", "-"), value) for name, value in headers.items())
    prelude = struct.pack(">II", len(payload) + len(head) + 16, len(head))
    data = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return data + struct.pack(">I", zlib.crc32(data))


def event(name: str, value: Any) -> bytes:
    padded = {**value, "p": "abcdefghij"}
    return frame(encode(padded), event_type=name, content_type="application/json", message_type="event")


def exception(name: str, value: Any) -> bytes:
    return frame(encode(value), exception_type=name, content_type="application/json", message_type="exception")


def piece(index: int, **delta: Any) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})


def block(index: int, *deltas: dict[str, Any], start: Any = None) -> bytes:
    first = event("contentBlockStart", {"contentBlockIndex": index, "start": start}) if start else b""
    last = event("contentBlockStop", {"contentBlockIndex": index})
    return first + b"".join(piece(index, **delta) for delta in deltas) + last


def call(index: int, call_id: str, name: str, *arguments: str) -> bytes:
    start = {"toolUse": {"toolUseId": call_id, "name": name}}
    return block(index, *({"toolUse": {"input": each}} for each in arguments), start=start)


def stop(reason: str) -> bytes:
    return event("messageStop", {"stopReason": reason})


def counts(**usage: int) -> bytes:
    usage = {"inputTokens": 14, "outputTokens": 300, "totalTokens": 314, **usage}
    return event("metadata", {"usage": usage, "metrics": {"latencyMs": 100}})


START = event("messageStart", {"role": "assistant"})
ENC = base64.b64encode(b"encrypted").decode()
THOUGHT = block(
    0,
    {"reasoningContent": {"text": "let me "}},
    {"reasoningContent": {"text": "see"}},
    {"reasoningContent": {"signature": "c2ln"}},
)
SAID = block(1, {"text": "I lo"}, {"text": "ok ü."})
REDACTED = block(0, {"reasoningContent": {"redactedContent": ENC}})
CALLS = call(2, "t1", "look", "", '{"key": ', '"a"}') + call(3, "t2", "go")
STREAMS = {
    "text": START + block(0, {"text": "hello"}) + stop("end_turn") + counts(),
    "calls": START + THOUGHT + SAID + CALLS + stop("tool_use") + counts(),
    "redacted": START + REDACTED + SAID + stop("end_turn") + counts(),
    "cached": START + SAID + stop("max_tokens") + counts(cacheReadInputTokens=120_000, cacheWriteInputTokens=7),
    "empty": START + stop("end_turn") + counts(outputTokens=1),
}


def read(data: bytes, cuts: Any = ()) -> Done:
    return play(BedrockReply("test:m"), EventStreamDecoder("test:m"), data, cuts)


def failed(data: bytes) -> Failure:
    with pytest.raises(Failure) as caught:
        read(data)
    return caught.value


def streamed(data: bytes, **more: Any) -> HttpReply:
    return HttpReply(headers={"content-type": "application/vnd.amazon.eventstream"}, chunks=(data,), **more)


# ---- beside botocore


class Raw:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def stream(self) -> Any:
        yield self.data


def theirs(data: bytes) -> list[dict[str, Any]]:
    shape = SERVICE.operation_model("ConverseStream").output_shape.members["stream"]
    return list(EventStream(Raw(data), shape, PARSER._event_stream_parser, "ConverseStream"))


def assembled(events: list[dict[str, Any]]) -> tuple[list[Any], str, dict[str, Any]]:
    """What botocore's events come to."""
    blocks: dict[int, list[Any]] = {}
    reason, usage = "", {}
    for each in events:
        if "contentBlockStart" in each:
            begun = each["contentBlockStart"]
            blocks[begun["contentBlockIndex"]] = [begun["start"]["toolUse"]]
        elif "contentBlockDelta" in each:
            blocks.setdefault(each["contentBlockDelta"]["contentBlockIndex"], []).append(
                each["contentBlockDelta"]["delta"]
            )
        reason = each.get("messageStop", {}).get("stopReason", reason)
        usage = each.get("metadata", {}).get("usage", usage)
    return [part(blocks[index]) for index in sorted(blocks)], reason, usage


def part(pieces: list[dict[str, Any]]) -> Any:
    if "toolUseId" in pieces[0]:
        text = "".join(each["toolUse"]["input"] for each in pieces[1:])
        return ToolCall(pieces[0]["toolUseId"], pieces[0]["name"], json.loads(text or "{}"))
    if "text" in pieces[0]:
        return Text("".join(each["text"] for each in pieces))
    thoughts = [each["reasoningContent"] for each in pieces]
    if "redactedContent" in thoughts[0]:
        data = base64.b64encode(thoughts[0]["redactedContent"]).decode()
        return Thinking("", None, "test:m", {"redactedContent": data})
    text, signature = ("".join(each.get(name, "") for each in thoughts) for name in ("text", "signature"))
    return Thinking(text, signature or None, "test:m")


@pytest.mark.parametrize("name", STREAMS)
def test_botocore_finds_the_same(name: str):
    ours = read(STREAMS[name])
    parts, reason, usage = assembled(theirs(STREAMS[name]))
    assert ours.message == Assistant(tuple(parts))
    assert ours.finish == REASONS[reason]
    cached, written = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
    assert ours.usage.input_tokens == usage["inputTokens"] + cached + written
    assert (ours.usage.cached_input_tokens, ours.usage.cache_write_tokens) == (cached, written)
    assert ours.usage.output_tokens == usage["outputTokens"]
    assert not ours.usage.estimated


WHOLE = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "let me see", "signature": "c2ln"}}},
                {"reasoningContent": {"redactedContent": ENC}},
                {"text": "I look ü."},
                {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"key": "a"}}},
                {"toolUse": {"toolUseId": "t2", "name": "go", "input": {}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 14, "outputTokens": 300, "totalTokens": 314, "cacheReadInputTokens": 5},
    "metrics": {"latencyMs": 1},
}


async def test_a_whole_answer_gives_what_botocore_reads_in_it(finish):
    async with ScriptedServer(HttpReply(chunks=(encode(WHOLE),))) as server:
        done = await finish(model_at(server, BedrockWire))
    shape = SERVICE.operation_model("Converse").output_shape
    their = PARSER.parse({"status_code": 200, "headers": {}, "body": encode(WHOLE)}, shape)
    content = their["output"]["message"]["content"]
    thought = content[0]["reasoningContent"]["reasoningText"]
    assert done.message.content == (
        Thinking(thought["text"], thought["signature"], "test:m"),
        Thinking("", None, "test:m", {"redactedContent": ENC}),
        Text(content[2]["text"]),
        *(ToolCall(c["toolUse"]["toolUseId"], c["toolUse"]["name"], c["toolUse"]["input"]) for c in content[3:]),
    )
    assert content[1]["reasoningContent"]["redactedContent"] == b"encrypted"
    assert done.finish == "tool_calls"
    assert (done.usage.input_tokens, done.usage.cached_input_tokens, done.usage.output_tokens) == (19, 5, 300)


# ---- pieces


@given(st.lists(st.integers(0, 3000), max_size=12))
def test_where_the_bytes_are_cut_changes_nothing(cuts: list[int]):
    for data in STREAMS.values():
        assert read(data, cuts) == read(data)


def test_byte_by_byte_is_the_same():
    data = STREAMS["calls"]
    assert read(data, range(len(data))) == read(data)


async def test_pieces_are_told_as_they_come(collect):
    async with ScriptedServer(streamed(STREAMS["calls"])) as server:
        *deltas, done = await collect(model_at(server, BedrockWire))
        assert server.open_connections == 1
    assert [d.text for d in deltas if isinstance(d, ThinkingDelta)] == ["let me ", "see"]
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["I lo", "ok ü."]
    assert [d for d in deltas if isinstance(d, CallDelta) and d.arguments] == [
        CallDelta("look", '{"key": '),
        CallDelta("look", '"a"}'),
    ]
    assert isinstance(done, Done)


def test_the_counts_behind_the_end_are_waited_for():
    reply, decoder = BedrockReply("test:m"), EventStreamDecoder("test:m")
    reply.events(decoder.feed(START + SAID + stop("end_turn")))
    assert (reply.finished, reply.ended, reply.empty) == (True, False, False)
    reply.events(decoder.feed(counts()))
    assert reply.ended


def test_counts_before_the_end_end_nothing():
    reply, decoder = BedrockReply("test:m"), EventStreamDecoder("test:m")
    reply.events(decoder.feed(START + SAID + counts()))
    assert (reply.finished, reply.ended) == (False, False)
    reply.events(decoder.feed(stop("end_turn") + counts()))
    assert (reply.finished, reply.ended) == (True, True)


def test_repeated_counts_are_not_added_up():
    done = read(START + SAID + counts(outputTokens=3) + stop("end_turn") + counts(outputTokens=5))
    assert (done.usage.input_tokens, done.usage.output_tokens) == (14, 5)


def test_without_counts_they_are_estimated():
    done = read(START + SAID + stop("end_turn"))
    assert done.usage.estimated
    assert done.usage.input_tokens == 100


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("something_new", "stop"),
    ],
)
def test_every_reason_for_the_end_is_known(reason: str, finish: str):
    done = read(START + SAID + stop(reason) + counts())
    assert done.finish == finish
    assert done.message.text == "I look ü."


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("guardrail_intervened", "content_filter"), ("content_filtered", "content_filter"), ("refusal", "refusal")],
)
@pytest.mark.parametrize("said", [SAID, b""])
def test_a_refusal_of_any_shape_is_one(reason: str, finish: str, said: bytes):
    done = read(START + said + stop(reason) + counts())
    assert done.finish == finish
    assert done.message.refusal


def test_what_was_refused_in_words_is_the_refusal():
    assert read(START + SAID + stop("refusal") + counts()).message.content == (Refusal("I look ü."),)


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_what_the_model_spoiled_is_asked_again(reason: str):
    failure = failed(START + SAID + stop(reason) + counts())
    assert (type(failure.error), failure.repeat) == (BadResponse, True)


def test_redacted_thoughts_in_pieces_are_one():
    half, rest = (base64.b64encode(each).decode() for each in (b"encry", b"pted"))
    data = block(0, {"reasoningContent": {"redactedContent": half}}, {"reasoningContent": {"redactedContent": rest}})
    (thought,) = read(START + data + stop("end_turn") + counts()).message.content
    assert thought == Thinking("", None, "test:m", {"redactedContent": ENC})


def test_a_thought_without_text_keeps_its_signature():
    data = START + block(0, {"reasoningContent": {"signature": "s"}}) + SAID + stop("end_turn") + counts()
    assert read(data).message.content[0] == Thinking("", "s", "test:m")


# ---- odd servers


def test_one_index_for_several_blocks_is_survived():
    same = START + b"".join(
        [
            piece(0, text="a"),
            event("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "x"}}}),
            piece(0, toolUse={"input": '{"n":1}'}),
            event("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t", "name": "y"}}}),
            piece(0, toolUse={"input": '{"n":2}'}),
            piece(0, reasoningContent={"text": "hm"}),
        ]
    )
    done = read(same + stop("tool_use") + counts())
    assert done.message.text == "a"
    assert [(c.name, c.arguments) for c in done.message.calls] == [("x", {"n": 1}), ("y", {"n": 2})]
    assert len({c.call_id for c in done.message.calls}) == 2


def test_missing_indices_and_ids_are_survived():
    data = START + b"".join(
        [
            event("contentBlockStart", {"start": {"toolUse": {"name": "x"}}}),
            event("contentBlockDelta", {"delta": {"toolUse": {"input": '{"n":1}'}}}),
            event("contentBlockStop", {}),
            event("contentBlockStart", {"start": {"toolUse": {"name": "y", "toolUseId": None}}}),
            event("contentBlockDelta", {"delta": {"toolUse": {"input": '{"n":2}'}}, "contentBlockIndex": [1]}),
        ]
    )
    done = read(data + stop("tool_use"))
    assert [(c.name, c.arguments, c.call_id) for c in done.message.calls] == [
        ("x", {"n": 1}, "call_2"),
        ("y", {"n": 2}, "call_3"),
    ]


def test_calls_that_the_server_runs_are_none_of_ours():
    start = {"toolUse": {"toolUseId": "t", "name": "nova_code_interpreter", "type": "server_tool_use"}}
    ran = block(0, {"toolUse": {"input": "{}"}}, start=start)
    result = block(1, {"toolResult": [{"json": {}}]}, start={"toolResult": {"toolUseId": "t"}})
    done = read(START + ran + result + block(2, {"text": "42"}) + stop("end_turn") + counts())
    assert done.message.content == (Text("42"),)


FIELDS = ["text", "toolUse", "input", "name", "toolUseId", "reasoningContent", "signature", "redactedContent", "type"]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "metadata", "newEvent", ""]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.dictionaries(
    st.sampled_from(["contentBlockIndex", "delta", "start", "usage", "role"]), JUNK)), max_size=6))  # fmt: skip
def test_fields_of_any_type_are_survived(junk: list[tuple[str, Any]]):
    odd = b"".join(event(name, value) for name, value in junk)
    done = read(START + odd + block(77, {"text": "the end"}) + stop("end_turn") + counts())
    assert done.message.text.endswith("the end")


@given(st.dictionaries(st.sampled_from(["output", "stopReason", "usage"]), JUNK))
def test_whole_answers_of_any_shape_are_read_or_refused(answer: dict[str, Any]):
    reply = BedrockReply("test:m")
    with suppress(Failure):
        reply.whole(encode(answer))
        assert reply.finished


def test_citations_are_read_as_the_text_that_they_carry():
    cited = {"citationsContent": {"content": [{"text": "so "}, {"text": "it says"}], "citations": [{"title": "t"}]}}
    reply = BedrockReply("test:m")
    deltas = reply.whole(encode({"output": {"message": {"content": [cited]}}}))
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["so ", "it says"]


# ---- errors


@pytest.mark.parametrize(
    ("name", "value", "kind", "repeat"),
    [
        ("throttlingException", {"message": "Too many requests"}, RateLimited, True),
        ("serviceUnavailableException", {"message": "Try later"}, Overloaded, True),
        ("internalServerException", {"message": "Oops"}, Overloaded, True),
        ("validationException", {"message": "Malformed input request"}, BadRequest, False),
        ("validationException", {"message": "Input is too long for requested model."}, ContextTooLong, False),
        ("modelTimeoutException", {"message": "Too slow"}, ModelTimeout, True),
        ("modelStreamErrorException", {"message": "The model broke"}, BadResponse, True),
        (
            "modelStreamErrorException",
            {"message": "m", "originalStatusCode": 503, "originalMessage": "Busy"},
            Overloaded,
            True,
        ),
        (
            "modelStreamErrorException",
            {"message": "m", "originalStatusCode": 424, "originalMessage": "It failed"},
            BadResponse,
            True,
        ),
    ],
)
def test_an_exception_in_the_stream_is_a_failure(name: str, value: dict[str, Any], kind: type, repeat: bool):
    data = START + SAID + exception(name, value)
    failure = failed(data)
    assert (type(failure.error), failure.repeat) == (kind, repeat)
    assert (value.get("originalMessage") or value["message"]) in str(failure.error)
    with pytest.raises(EventStreamError, match=None if name == "modelTimeoutException" else name):
        theirs(data)


def test_an_error_without_payload_is_told_by_its_headers():
    data = START + frame(b"", message_type="error", error_code="InternalError", error_message="It broke")
    failure = failed(data)
    assert "It broke" in str(failure.error)
    assert isinstance(failure.error, Overloaded)
    with pytest.raises(EventStreamError, match="It broke"):
        theirs(data)


async def test_an_exception_is_repeated_where_that_can_help(collect):
    broken = streamed(START + SAID + exception("throttlingException", {"message": "Slow down"}))
    async with ScriptedServer(broken, streamed(STREAMS["text"])) as server:
        *deltas, done = await collect(model_at(server, BedrockWire, retries=1))
    assert done.message.text == "hello"
    assert any("Slow down" in getattr(delta, "error", "") for delta in deltas)


async def test_secrets_stay_out_of_errors_in_the_stream(finish):
    data = START + exception("validationException", {"message": "bad very-secret-key"})
    async with ScriptedServer(streamed(data)) as server:
        with pytest.raises(BadRequest) as caught:
            await finish(model_at(server, BedrockWire))
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize("cut", [len(START), len(START + SAID) - 5, len(START + SAID)])
async def test_a_cut_stream_is_no_reply(finish, cut: int):
    async with ScriptedServer(streamed((START + SAID)[:cut])) as server:
        with pytest.raises(BadResponse, match=r"broke off|is empty"):
            await finish(model_at(server, BedrockWire))


async def test_a_connection_that_breaks_behind_the_end_does_not_matter(finish):
    async with ScriptedServer(streamed(START + SAID + stop("end_turn"), then="cut")) as server:
        assert (await finish(model_at(server, BedrockWire))).message.text == "I look ü."


@pytest.mark.parametrize("body", [b"<html>Login</html>", b"[1]", b'{"message": "no such operation"}', b"{"])
async def test_what_is_no_answer_is_told(finish, body: bytes):
    async with ScriptedServer(HttpReply(chunks=(body,))) as server:
        with pytest.raises(BadResponse):
            await finish(model_at(server, BedrockWire))


def test_an_answer_that_reports_an_error_says_what_it_is():
    with pytest.raises(Failure, match="UnknownOperationException"):
        BedrockReply("test:m").whole(b'{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"}}')


# ---- the decoder


def test_headers_of_every_type_are_read_over():
    kinds = [(0, b""), (1, b""), (2, b"1"), (3, b"12"), (4, b"1234"), (5, b"12345678"), (6, b"bytes"), (8, b"12345678"),
             (9, b"1" * 16)]  # fmt: skip
    odd = {f"h{number}": kind for number, kind in enumerate(kinds)}
    data = frame(b'{"a":1}', **odd, message_type="event", event_type="x")
    assert EventStreamDecoder("m").feed(data) == [Event(b"x", b'{"a":1}')]


@given(st.integers(0, len(STREAMS["text"]) - 1), st.integers(1, 255))
def test_a_damaged_byte_is_noticed(at: int, change: int):
    data = bytearray(STREAMS["text"])
    data[at] ^= change
    failure = failed(bytes(data))
    assert isinstance(failure.error, BadResponse)
    assert failure.repeat


def test_a_header_of_an_unknown_type_cannot_be_read_over():
    with pytest.raises(Failure, match="damaged"):
        EventStreamDecoder("m").feed(frame(b"{}", odd=(42, b"x"), event_type="x"))


def test_redacted_thoughts_that_are_not_base64_are_survived():
    data = START + block(0, {"reasoningContent": {"redactedContent": "é"}}) + SAID + stop("end_turn") + counts()
    assert read(data).message.text == "I look ü."


def test_events_before_the_damage_come_first():
    decoder = EventStreamDecoder("test:m")
    spoiled = bytearray(SAID)
    spoiled[-1] ^= 1
    found = decoder.feed(START + bytes(spoiled))
    assert [name for name, _ in found] == [b"messageStart", b"contentBlockDelta", b"contentBlockDelta"]
    with pytest.raises(Failure, match="damaged"):
        decoder.feed(b"")


def test_a_text_delta_costs_little():
    """Far from the 15 microseconds that are meant, so that a busy machine does not fail it."""
    data, reply, decoder = piece(0, text="hello ") * 1000, BedrockReply("test:m"), EventStreamDecoder("test:m")
    seconds = min(timeit.repeat(lambda: reply.events(decoder.feed(data)), number=1, repeat=5))
    assert seconds / 1000 < 100e-6
