"""Replies of the Gemini wire, beside the vendor's own reader of the same bytes."""

import base64
from typing import Any

import pytest
from google import genai
from google.genai import types
from hypothesis import given
from oracles import CUTS, model_at, play

from replan.encoding import encode
from replan.errors import BadResponse, Overloaded
from replan.messages import Assistant, Text, Thinking, ToolCall
from replan.model import Done, TextDelta, ThinkingDelta
from replan.models.failures import Failure
from replan.models.gemini import GeminiWire
from replan.models.gemini.reply import GeminiReply
from replan.models.sse import EventParser
from replan.testing import HttpReply, ScriptedServer

SIGN = base64.b64encode(b"signature").decode()
USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 30,
    "totalTokenCount": 150,
}


def chunk(*parts: dict[str, Any], finish: str | None = None, usage: dict[str, int] | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": usage or {"promptTokenCount": 100, "totalTokenCount": 100}}


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: %s\r\n\r\n" % encode(each) for each in chunks)


def call(name: str, signature: str = "", **args: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": args}}
    return {**part, "thoughtSignature": signature} if signature else part


STREAMS = {
    "text": sse(chunk({"text": "I lo"}), chunk({"text": "ok ü."}), chunk({"text": ""}, finish="STOP", usage=USAGE)),
    "calls": sse(
        chunk({"text": "let me ", "thought": True}),
        chunk({"text": "see", "thought": True}),
        chunk({"text": "I look ü."}),
        chunk(call("look", SIGN, key="a"), call("stop"), finish="STOP", usage=USAGE),
    ),
    "cut": sse(chunk({"text": "I look ü."}, finish="MAX_TOKENS", usage=USAGE)),
    "empty": sse(chunk(finish="STOP", usage={"promptTokenCount": 100, "totalTokenCount": 100})),
}


def read(data: bytes, cuts: Any = ()) -> Done:
    return play(GeminiReply("test:m"), EventParser(), data, cuts)


def stream(data: bytes) -> HttpReply:
    return HttpReply(headers={"content-type": "text/event-stream"}, chunks=(data,))


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
@pytest.mark.parametrize("name", STREAMS)
async def test_the_vendors_reader_finds_the_same(name: str):
    ours = read(STREAMS[name])
    texts, calls, thoughts, last = [], [], [], None
    async with ScriptedServer(stream(STREAMS[name])) as server:
        options = types.HttpOptions(base_url=server.base_url.removesuffix("/v1"), api_version="v1beta")
        client = genai.Client(api_key="k", http_options=options)
        async for piece in await client.aio.models.generate_content_stream(model="m", contents="x"):
            last = piece
            for part in (piece.candidates or [])[0].content.parts or []:  # type: ignore[union-attr]
                if part.function_call:
                    calls.append((part.function_call.name, part.function_call.args))
                elif part.thought:
                    thoughts.append(part.text or "")
                else:
                    texts.append(part.text or "")
        await client.aio.aclose()
        client.close()
    assert last
    assert last.usage_metadata
    assert ours.message.text == "".join(texts)
    assert [(each.name, each.arguments) for each in ours.message.calls] == calls
    assert "".join(part.text for part in ours.message.content if isinstance(part, Thinking)) == "".join(thoughts)
    used = last.usage_metadata
    assert ours.usage.input_tokens == used.prompt_token_count
    written = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
    assert ours.usage.output_tokens == written
    assert ours.usage.cached_input_tokens == (used.cached_content_token_count or 0)
    assert ours.usage.reasoning_tokens == (used.thoughts_token_count or 0)
    reason = (last.candidates or [])[0].finish_reason
    assert (ours.finish == "length") == (reason == types.FinishReason.MAX_TOKENS)


@given(CUTS)
def test_where_the_bytes_are_cut_changes_nothing(cuts: list[int]):
    for data in STREAMS.values():
        assert read(data, cuts) == read(data)


async def test_pieces_are_told_as_they_come(collect):
    async with ScriptedServer(stream(STREAMS["calls"])) as server:
        *deltas, done = await collect(model_at(server, GeminiWire))
    assert [d.text for d in deltas if isinstance(d, ThinkingDelta)] == ["let me ", "see"]
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["I look ü."]
    assert done.finish == "tool_calls"
    assert len({each.call_id for each in done.message.calls} - {""}) == 2


def test_a_signature_stands_before_what_it_signs():
    content = read(STREAMS["calls"]).message.content
    assert content[0] == Thinking("let me see", None, "test:m")
    assert content[1] == Text("I look ü.")
    assert content[2] == Thinking("", SIGN, "test:m", {"signs": "next"})
    assert isinstance(content[3], ToolCall)


def test_signed_parts_stay_apart():
    data = sse(
        chunk({"text": "hm", "thought": True, "thoughtSignature": "t"}),
        chunk({"text": "a"}),
        chunk({"text": "b", "thoughtSignature": "s"}),
        chunk({"text": "c"}),
        chunk({"text": "", "thoughtSignature": "e"}, finish="STOP"),
    )
    assert read(data).message.content == (
        Thinking("hm", "t", "test:m"),
        Text("a"),
        Thinking("", "s", "test:m", {"signs": "next"}),
        Text("b"),
        Text("c"),
        Thinking("", "e", "test:m", {"signs": "nothing"}),
    )


@pytest.mark.parametrize("many", [True, False])
async def test_a_whole_answer_is_read_too(collect, many: bool):
    answer: Any = chunk({"text": "hi"}, call("look", key="a"), finish="STOP", usage=USAGE)
    reply = HttpReply(headers={"content-type": "application/json"}, chunks=(encode([answer] if many else answer),))
    async with ScriptedServer(reply) as server:
        *_, done = await collect(model_at(server, GeminiWire))
    assert (done.message.text, done.message.calls[0].arguments) == ("hi", {"key": "a"})
    assert done.usage.cached_input_tokens == 60


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"])
def test_a_filtered_reply_is_one(reason: str):
    done = read(sse(chunk({"text": "I"}), chunk(finish=reason)))
    assert done.finish == "content_filter"
    assert done.message.refusal


def test_a_blocked_prompt_is_a_filtered_reply():
    done = read(sse({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 5}}))
    assert (done.finish, done.message.refusal) == ("content_filter", "The prompt was blocked: SAFETY.")
    assert done.usage.input_tokens == 5


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER"])
def test_a_reply_that_the_model_broke_off_can_be_asked_again(reason: str):
    with pytest.raises(Failure, match=reason) as caught:
        read(sse(chunk(finish=reason)))
    assert caught.value.repeat


def test_totals_in_each_piece_count_once():
    data = sse(*[chunk({"text": "x"}, usage=USAGE) for _ in range(5)], chunk(finish="STOP", usage=USAGE))
    used = read(data).usage
    assert (used.input_tokens, used.output_tokens, used.reasoning_tokens) == (100, 50, 30)


def test_an_error_in_the_stream_is_sorted():
    error = {"error": {"code": 503, "message": "overloaded very-secret-key", "status": "UNAVAILABLE"}}
    with pytest.raises(Failure) as caught:
        GeminiReply("test:m", ("very-secret-key",)).events(EventParser().feed(sse(error)))
    assert (type(caught.value.error), caught.value.repeat) == (Overloaded, True)
    assert "very-secret" not in str(caught.value)


async def test_a_broken_stream_is_an_error(collect):
    async with ScriptedServer(otherwise=stream(sse(chunk({"text": "I"})))) as server:
        with pytest.raises(BadResponse, match="broke off"):
            await collect(model_at(server, GeminiWire, retries=1))


@pytest.mark.parametrize(
    "odd", [{}, {"candidates": None}, {"candidates": [{}]}, {"candidates": [{"content": {"parts": [{"x": 1}, None]}}]}]
)
def test_what_is_not_known_is_passed_over(odd: dict[str, Any]):
    assert read(sse(odd) + STREAMS["text"]).message == Assistant((Text("I look ü."),))
