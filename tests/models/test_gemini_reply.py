"""Replies of the Gemini wire, beside the vendor's own reader of the same bytes."""

import base64
from typing import Any

import pytest
from google import genai
from google.genai import errors, types
from hypothesis import given
from hypothesis import strategies as st
from oracles import CUTS, endpoint, model_at, play, request

from replan.encoding import decode, encode
from replan.errors import BadRequest, BadResponse, Overloaded, RateLimited
from replan.messages import Assistant, Text, Thinking, ToolCall, from_json, to_json, user
from replan.model import Done, ModelProfile, TextDelta, ThinkingDelta
from replan.models.failures import Failure
from replan.models.gemini import GeminiWire
from replan.models.gemini.reply import GeminiReply
from replan.models.gemini.stream import GeminiDecoder
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
    return play(GeminiReply("test:m"), GeminiDecoder(), data, cuts)


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
        chunk({"text": "h", "thought": True}),
        chunk({"text": "hm", "thought": True, "thoughtSignature": "t"}),
        chunk({"text": "", "thought": True, "thoughtSignature": "u"}),
        chunk({"text": "a"}),
        chunk({"text": "b", "thoughtSignature": "s"}),
        chunk({"text": "c"}),
        chunk({"text": "", "thoughtSignature": "e"}, finish="STOP"),
    )
    assert read(data).message.content == (
        Thinking("h", None, "test:m"),
        Thinking("hm", "t", "test:m"),
        Thinking("", "u", "test:m", {"signs": "thought"}),
        Text("a"),
        Thinking("", "s", "test:m", {"signs": "next"}),
        Text("b"),
        Text("c"),
        Thinking("", "e", "test:m", {"signs": "nothing"}),
    )


def replayed(message: Assistant) -> list[dict[str, Any]]:
    """The parts that a stored reply is sent back as."""
    stored = from_json(decode(encode(to_json(message))))
    sent = GeminiWire(endpoint(profile=ModelProfile(thinking="gemini-budget"))).body(request([user("go"), stored]), ())
    return decode(sent.data)["contents"][1]["parts"]


def plain(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts as they go back: texts without signatures joined, thoughts without them left out, calls without ids."""
    found: list[dict[str, Any]] = []
    last: dict[str, Any] = {}
    for part in parts:
        signed = "thoughtSignature" in part
        if part.get("thought") and not signed:
            continue
        if "text" in part and not signed and last.keys() == {"text"}:
            last["text"] += part["text"]
        elif part != {"text": ""}:
            last = {name: dict(value) if isinstance(value, dict) else value for name, value in part.items()}
            last.get("functionCall", {}).pop("id", None)
            found.append(last)
    return found


SIGNED = st.sampled_from([{}, {"thoughtSignature": "QQ=="}, {"thoughtSignature": "Qg-_"}])
PARTS = st.one_of(
    st.builds(lambda text, signed: {"text": text, **signed}, st.sampled_from(["", "a", "ü"]), SIGNED),
    st.builds(lambda text, signed: {"text": text, "thought": True, **signed}, st.sampled_from(["", "t"]), SIGNED),
    st.builds(lambda signed: {"functionCall": {"name": "look", "args": {"key": "a"}}, **signed}, SIGNED),
)


@given(st.lists(PARTS, min_size=1, max_size=8), st.booleans())
def test_whatever_is_signed_goes_back_signed_in_its_place(parts: list[dict[str, Any]], apart: bool):
    chunks = [chunk(part) for part in parts] if apart else [chunk(*parts)]
    message = read(sse(*chunks, chunk(finish="STOP"))).message
    assert plain(replayed(message)) == (plain(parts) or [{"text": "(no answer)"}])


# ---- ends


@pytest.mark.parametrize("many", [True, False])
async def test_a_whole_answer_is_read_too(collect, many: bool):
    answer: Any = chunk({"text": "hi"}, call("look", key="a"), finish="STOP", usage=USAGE)
    reply = HttpReply(headers={"content-type": "application/json"}, chunks=(encode([answer] if many else answer),))
    async with ScriptedServer(reply) as server:
        *_, done = await collect(model_at(server, GeminiWire))
    assert (done.message.text, done.message.calls[0].arguments) == ("hi", {"key": "a"})
    assert done.usage.cached_input_tokens == 60


FILTERED = {
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR",
}  # fmt: skip
BROKEN = {
    "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE",
    "MISSING_THOUGHT_SIGNATURE",
}  # fmt: skip
LEFT = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length", "OTHER": "stop", "NO_IMAGE": "stop",
        "IMAGE_OTHER": "stop"}  # fmt: skip


def test_every_reason_of_the_vendor_is_sorted_here():
    known = {reason.value for reason in types.FinishReason} - {"FINISH_REASON_UNSPECIFIED"}
    assert known <= FILTERED | BROKEN | LEFT.keys()


@pytest.mark.parametrize("reason", sorted(FILTERED))
def test_a_filtered_reply_is_one(reason: str):
    done = read(sse(chunk({"text": "I"}), chunk(finish=reason), chunk(finish="STOP")))
    assert done.finish == "content_filter"
    assert done.message.refusal
    assert read(sse(chunk(finish=reason))).finish == "content_filter"


@pytest.mark.parametrize("reason", LEFT)
def test_a_reply_that_ends_otherwise_is_one(reason: str):
    done = read(sse(chunk({"text": "I"}), chunk(finish=reason)))
    assert (done.message.text, done.finish) == ("I", LEFT[reason])


@pytest.mark.parametrize("reason", ["SAFETY", "BLOCKED_BY_SOMETHING_NEW"])
def test_a_blocked_prompt_is_a_filtered_reply(reason: str):
    blocked = {"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 5}}
    done = read(sse(blocked, blocked))
    assert (done.finish, done.message.refusal) == ("content_filter", f"The prompt was blocked: {reason}.")
    assert done.usage.input_tokens == 5


def test_a_blocked_prompt_says_why_where_it_is_told():
    done = read(sse({"promptFeedback": {"blockReason": "MODEL_ARMOR", "blockReasonMessage": "policy 7"}}))
    assert done.message.refusal == "The prompt was blocked: MODEL_ARMOR: policy 7"


@pytest.mark.parametrize("reason", ["BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "", None])
def test_a_prompt_that_is_not_blocked_is_none(reason: Any):
    assert read(sse({"promptFeedback": {"blockReason": reason}}) + STREAMS["text"]).finish == "stop"


@pytest.mark.parametrize("reason", sorted(BROKEN))
def test_a_reply_that_the_model_broke_off_can_be_asked_again(reason: str):
    for said in ([], [chunk({"text": "I"})]):
        with pytest.raises(Failure, match=reason) as caught:
            read(sse(*said, chunk(finish=reason)))
        assert caught.value.repeat


@pytest.mark.parametrize("reason", ["OTHER", "NO_IMAGE", "SOMETHING_NEW"])
def test_nothing_at_all_can_be_asked_for_again(reason: str):
    with pytest.raises(Failure, match=reason) as caught:
        read(sse(chunk(finish=reason)))
    assert caught.value.repeat


def test_a_reason_that_is_not_given_is_no_end():
    reply = GeminiReply("test:m")
    reply.events(GeminiDecoder().feed(sse(chunk({"text": "I"}, finish="FINISH_REASON_UNSPECIFIED"))))
    assert not reply.finished


def test_only_the_first_candidate_counts():
    second = {"candidates": [{"index": 1, "content": {"parts": [{"text": "B"}]}, "finishReason": "SAFETY"}]}
    both = {"candidates": [*second["candidates"], *chunk({"text": "A"})["candidates"]]}
    assert read(sse(second, both, second, chunk(finish="STOP"))).message == Assistant((Text("A"),))


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


def bare(code: int, status: str, message: str) -> bytes:
    """An error as the API puts it into a stream that has begun: JSON on several lines, without `data:`."""
    return b'{\r\n  "error": {\r\n    "code": %d,\r\n    "message": %s,\r\n    "status": "%s"\r\n  }\r\n}\r\n' % (
        code,
        encode(message),
        status.encode(),
    )


@given(CUTS, st.booleans())
def test_an_error_without_the_form_of_an_event_is_one_too(cuts: list[int], listed: bool):
    data = bare(429, "RESOURCE_EXHAUSTED", "slow down")
    data = sse(chunk({"text": "x" * 9000})) + (b"[" + data + b"]" if listed else data)
    with pytest.raises(Failure, match="slow down") as caught:
        read(data, cuts)
    assert isinstance(caught.value.error, RateLimited)


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
async def test_the_vendors_reader_finds_such_an_error_too(collect):
    data = sse(chunk({"text": "I"})) + bare(400, "INVALID_ARGUMENT", "no such thing")
    async with ScriptedServer(otherwise=stream(data)) as server:
        with pytest.raises(BadRequest, match="no such thing"):
            await collect(model_at(server, GeminiWire, retries=1))
        assert len(server.requests) == 1
        options = types.HttpOptions(base_url=server.base_url.removesuffix("/v1"), api_version="v1beta")
        client = genai.Client(api_key="k", http_options=options)
        with pytest.raises(errors.APIError, match="no such thing"):
            async for _ in await client.aio.models.generate_content_stream(model="m", contents="x"):
                pass
        await client.aio.aclose()
        client.close()


async def test_an_error_behind_a_complete_reply_does_not_matter(collect):
    async with ScriptedServer(stream(STREAMS["text"] + bare(500, "INTERNAL", "late"))) as server:
        *_, done = await collect(model_at(server, GeminiWire))
    assert done.message.text == "I look ü."


@pytest.mark.parametrize("status", [200, 503])
async def test_a_list_of_errors_is_an_error(collect, status: int):
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    reply = HttpReply(status=status, headers={"content-type": "application/json"}, chunks=(encode([error]),))
    async with ScriptedServer(otherwise=reply) as server:
        with pytest.raises(Overloaded, match="model is overloaded"):
            await collect(model_at(server, GeminiWire, retries=1))
    assert len(server.requests) == 2


async def test_a_web_page_is_no_answer(collect):
    page = HttpReply(headers={"content-type": "text/html"}, chunks=(b"<!doctype html><html>hi</html>",))
    async with ScriptedServer(otherwise=page) as server:
        with pytest.raises(BadResponse, match="web page"):
            await collect(model_at(server, GeminiWire, retries=1))
    assert len(server.requests) == 1


async def test_a_broken_stream_is_an_error(collect):
    async with ScriptedServer(otherwise=stream(sse(chunk({"text": "I"})))) as server:
        with pytest.raises(BadResponse, match="broke off"):
            await collect(model_at(server, GeminiWire, retries=1))


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"candidates": None},
        {"candidates": [{}]},
        {"candidates": [{"content": {"parts": [{"x": 1}, None]}}]},
        {"error": None},
        {"candidates": [{"content": {"parts": [{"functionCall": None, "text": None}, {"functionCall": {}}]}}]},
    ],
)
def test_what_is_not_known_is_passed_over(odd: dict[str, Any]):
    assert read(sse(odd) + STREAMS["text"]).message == Assistant((Text("I look ü."),))


def test_fields_that_are_null_are_not_there():
    part = {"text": "hi", "functionCall": None, "thought": None, "thoughtSignature": None}
    assert read(sse({**chunk(part, finish="STOP"), "error": None})).message == Assistant((Text("hi"),))
