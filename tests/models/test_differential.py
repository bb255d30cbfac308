"""The same conversation through our wires and through pydantic-ai's models: the bodies that arrive differ in nothing
but what `MEANT` says, and the same bytes are read as the same reply.

Compared are whole bodies; fields that are null count as left out, and Gemini's names in snake case as those in camel
case (the API takes both).
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import ANY

import pytest
import test_anthropic_reply as anthropic
import test_bedrock_reply as bedrock
import test_gemini_reply as gemini
import test_responses_reply as responses
from differential import CASES, LOOK, WIRES, bodies, our_reply, their_reply
from pydantic_ai import messages as theirs

from replan.messages import Thinking
from replan.testing import HttpReply, sse_reply


class Meant(NamedTuple):
    """A difference that is meant: on these wires, in these fields (`*` for anything). None: not sent."""

    wires: str
    field: str
    ours: Any
    theirs: Any
    why: str


OPENAI = "chat responses"
PLAIN = "chat responses anthropic bedrock"
INLINED = "anthropic bedrock gemini"
ALL = "chat responses anthropic bedrock gemini"
SCHEMA = "*arameters*"
MEANT = [
    # how a reply is asked for
    Meant("chat responses anthropic", "stream", True, False, "we always stream"),
    Meant("chat", "stream_options", {"include_usage": True}, None, "a stream counts tokens only where asked to"),
    Meant("responses", "store", False, None, "nothing is to be kept at the provider"),
    Meant("gemini", "generationConfig.responseModalities", None, ["TEXT"], "text is what all models send anyway"),
    # tool choice
    Meant(OPENAI, "tool_choice", None, "auto", "what an API does anyway is not sent"),
    Meant("anthropic", "tool_choice", None, {"type": "auto"}, "what an API does anyway is not sent"),
    Meant("bedrock", "toolConfig.toolChoice", None, {"auto": {}}, "what an API does anyway is not sent"),
    Meant("gemini", "toolConfig", None, {"functionCallingConfig": {"mode": "VALIDATED"}},
          "arguments are checked here, and `auto` is not sent"),
    # messages and results
    Meant("responses", "input.*.type", "message", None, "the default of an item, said"),
    Meant("responses", "input.*.output", "Error: two", '{"error":"two"}', "an error in words, the same for all wires"),
    Meant("gemini", "systemInstruction.role", None, "user", "instructions have no role in the reference"),
    Meant("gemini", "*functionResponse.response.output", ANY, None, "Google's guide names it `output`"),
    Meant("gemini", "*functionResponse.response.return_value", None, ANY, "Google's guide names it `output`"),
    Meant("gemini", "*thoughtSignature", None, "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
          "what stands for a signature is only for models that refuse a call without one (Gemini 3)"),
    Meant("anthropic", "messages.*.is_error", None, False, "the default"),
    Meant("bedrock", "messages.*.toolResult.status", None, "success", "the default, and only for Claude and Nova"),
    # files
    Meant("chat", "*file.filename", "a.pdf", "filename.pdf", "a file keeps its name"),
    Meant("responses", "*.filename", "a.pdf", "filename.pdf", "a file keeps its name"),
    Meant("anthropic", "messages.*.title", "a.pdf", None, "a file keeps its name"),
    Meant("bedrock", "messages.*.document.name", "document-1-3", "Document 1", "a name that is unique in the request"),
    Meant("bedrock", "messages.0.content.3", {"text": "(document-1-3 is the file 'a.pdf'.)"}, None,
          "a file keeps its name, which the field may not hold"),
    # caching
    Meant("anthropic", "tools.0.cache_control", None, ANY, "the mark behind the instructions covers the tools"),
    Meant("anthropic", "*cache_control.ttl", None, "5m", "the default"),
    Meant("bedrock", "toolConfig.tools.1", None, {"cachePoint": {"type": "default"}},
          "the mark behind the instructions covers the tools"),
    # schemas
    Meant(OPENAI, f"tools{SCHEMA}additionalProperties", None, False, "an object that is open stays open"),
    Meant(OPENAI, "tools*items.properties", None, {}, "an object that is open stays open"),
    Meant("chat", "tools.*.strict", None, True, "strict is only what the schema says already"),
    Meant("responses", "tools.*.strict", False, True, "strict is only what the schema says already"),
    Meant(PLAIN, "tool*.[48].*.type", "object", None, "a root that is no plain object is refused"),
    Meant(PLAIN, "tool*.[348].*.properties", ANY, None, "a root that is no plain object is refused"),
    Meant(PLAIN, "tool*.8.*.oneOf", None, ANY, "a root that is no plain object is refused"),
    Meant(ALL, "tool*.at.prefixItems", ANY, None, "a tuple as in draft 2020-12"),
    Meant(ALL, "tool*.at.items", ANY, [{"type": "number"}] * 2,
          "a tuple as in draft 2020-12"),
    Meant(INLINED, "tool*.$ref", None, ANY, "references are put in: one form for all models"),
    Meant(INLINED, "tool*.$defs", None, ANY, "references are put in: one form for all models"),
    Meant(INLINED, "tool*.0.*.tree.*", ANY, None, "references are put in: one form for all models"),
    Meant("gemini", "tool*.level.type", ["integer", "null"], None, "a union of types is a list of types"),
    Meant("gemini", "tool*.level.anyOf", ANY, ANY, "a union of types is a list of types; an enum is of one type"),
    Meant("gemini", "tool*.level.enum", None, ["low", None, 3], "an enum is of one type"),
    Meant("gemini", "tool*.parametersJsonSchema", None, ANY, "a function without arguments has no schema"),
    Meant("gemini", "tool*.8.parametersJsonSchema.*", ANY, ANY, "a root that is no plain object is refused"),
    Meant("gemini", "generationConfig.responseJsonSchema.title", None, "answer", "a title says nothing to the model"),
    Meant("chat", "messages.*.content", "Error: two", '{"error":"two"}', "an error is told in words"),
    Meant("anthropic", "max_tokens", 3024, 2000, "a budget for thoughts comes on top of the cap"),
    Meant("bedrock", "inferenceConfig.maxTokens", 3024, 2000, "a budget for thoughts comes on top of the cap"),
]  # fmt: skip
NOT_THERE = {("chat", "caching"), ("responses", "caching"), ("gemini", "caching"), ("responses", "stop")}
PAIRS = [(wire, case) for wire in WIRES for case in CASES if (wire, case) not in NOT_THERE]
SNAKE = {
    "parameters_json_schema": "parametersJsonSchema", "mime_type": "mimeType", "thinking_budget": "thinkingBudget",
    "include_thoughts": "includeThoughts", "thought_signature": "thoughtSignature",
}  # fmt: skip


def renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {SNAKE.get(name, name): renamed(each) for name, each in value.items()}
    return [renamed(each) for each in value] if isinstance(value, list) else value


def differences(ours: Any, theirs: Any, field: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The fields that are not the same, with what is in both."""
    if isinstance(ours, list) and isinstance(theirs, list):
        ours, theirs = dict(enumerate(ours)), dict(enumerate(theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in {**ours, **theirs}:
            yield from differences(ours.get(name), theirs.get(name), f"{field}.{name}" if field else str(name))
    elif ours != theirs:
        yield field, ours, theirs


def meant(wire: str, field: str, ours: Any, theirs: Any) -> Meant | None:
    for row in MEANT:
        if wire in row.wires.split() and fnmatchcase(field, row.field) and (row.ours, row.theirs) == (ours, theirs):
            return row
    return None


@cache
def sent(wire: str, case: str) -> tuple[Any, Any]:
    ours, theirs = bodies(wire, CASES[case](wire))
    return (renamed(ours), renamed(theirs)) if wire == "gemini" else (ours, theirs)


@pytest.mark.parametrize(("wire", "case"), PAIRS)
def test_a_conversation_is_sent_as_the_other_library_sends_it(wire: str, case: str):
    found = list(differences(*sent(wire, case)))
    assert [each for each in found if not meant(wire, *each)] == []


@pytest.mark.parametrize("wire", WIRES)
def test_every_difference_that_is_meant_is_there(wire: str):
    cases = [case for each, case in PAIRS if each == wire]
    used = {id(meant(wire, *each)) for case in cases for each in differences(*sent(wire, case))}
    assert [row for row in MEANT if wire in row.wires.split() and id(row) not in used] == []


# ---- what has no field


def test_a_failed_result_is_told_where_the_api_has_no_field_for_it():
    assert sent("chat", "error")[0]["messages"][-1]["content"] == "Error: two"


# ---- replies


def stream(data: bytes) -> HttpReply:
    return HttpReply(headers={"content-type": "text/event-stream"}, chunks=(data,))


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [choice]}


def asked(index: int, call_id: str | None, **function: str) -> dict[str, Any]:
    named = {"id": call_id, "type": "function"} if call_id else {}
    return {"index": index, **named, "function": function}


COUNTS = {
    **chunk(), "choices": [],
    "usage": {
        "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 30},
    },
}  # fmt: skip
BOTH = [
    asked(0, "a", name="look", arguments=""),
    asked(0, None, arguments='{"key": '),
    asked(0, None, arguments='"ü"}'),
    asked(1, "b", name="look", arguments='{"key": "b"}'),
]
SECOND = {**responses.CALL, "id": "fc_2", "call_id": "call_b"}
PIECES = [{"type": "response.function_call_arguments.delta", "delta": text} for text in ('{"key": ', '"a"}')]


def completed(*items: dict[str, Any], pieces: list[list[dict[str, Any]]], **more: Any) -> HttpReply:
    end = {"type": "response.incomplete" if more else "response.completed"}
    flat = [event for each in pieces for event in each]
    return stream(responses.numbered(responses.START, *flat, {**end, "response": responses.response(*items, **more)}))


REPLIES: dict[str, HttpReply] = {
    "chat text": sse_reply(chunk(content="I lo"), chunk(content="ok ü."), chunk("stop"), COUNTS),
    "chat calls": sse_reply(*(chunk(tool_calls=[each]) for each in BOTH), chunk("tool_calls"), COUNTS),
    "chat thought": sse_reply(
        chunk(reasoning_content="hm"), *(chunk(tool_calls=[each]) for each in BOTH[:3]), chunk("tool_calls"), COUNTS
    ),
    "chat cut": sse_reply(chunk(content="I lo"), chunk("length"), COUNTS),
    "responses text": stream(responses.STREAMS["text"]),
    "responses calls": completed(
        responses.CALL, SECOND,
        pieces=[responses.pieces(0, responses.CALL, *PIECES), responses.pieces(1, SECOND, *PIECES)],
    ),
    "responses thought": stream(responses.STREAMS["all"]),
    "responses cut": stream(responses.STREAMS["cut"]),
    "anthropic text": stream(anthropic.STREAMS["text"]),
    "anthropic calls": stream(
        anthropic.sse(anthropic.start(), anthropic.CALL, anthropic.SECOND, anthropic.end("tool_use"))
    ),
    "anthropic thought": stream(anthropic.STREAMS["calls"]),
    "anthropic cut": stream(anthropic.STREAMS["cached"]),
    "gemini text": stream(gemini.STREAMS["text"]),
    "gemini calls": stream(
        gemini.sse(gemini.chunk(gemini.call("look", key="a"), gemini.call("stop"), finish="STOP", usage=gemini.USAGE))
    ),
    "gemini thought": stream(gemini.STREAMS["calls"]),
    "gemini cut": stream(gemini.STREAMS["cut"]),
    "bedrock text": bedrock.streamed(bedrock.STREAMS["text"]),
    "bedrock calls": bedrock.streamed(bedrock.START + bedrock.CALLS + bedrock.stop("tool_use") + bedrock.counts()),
    "bedrock thought": bedrock.streamed(bedrock.STREAMS["calls"]),
    "bedrock cut": bedrock.streamed(bedrock.STREAMS["cached"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_is_read_as_the_other_library_reads_it(name: str):
    wire = name.partition(" ")[0]
    ours = await our_reply(wire, REPLIES[name], LOOK)
    other = await their_reply(wire, REPLIES[name], LOOK)
    assert ours.message.text == "".join(part.content for part in other.parts if isinstance(part, theirs.TextPart))
    calls = [part for part in other.parts if isinstance(part, theirs.ToolCallPart)]
    assert [(c.name, c.arguments) for c in ours.message.calls] == [(c.tool_name, c.args_as_dict()) for c in calls]
    thoughts = [part for part in ours.message.content if isinstance(part, Thinking)]
    found = [part for part in other.parts if isinstance(part, theirs.ThinkingPart)]
    assert "".join(part.text for part in thoughts) == "\n\n".join(part.content for part in found)
    signed = [part.signature for part in found] + [
        (call.provider_details or {}).get("thought_signature") for call in calls
    ]
    assert [part.signature for part in thoughts if part.signature] == [each for each in signed if each]
    assert ours.finish == ("tool_calls" if calls else other.finish_reason)
    used = (ours.usage.input_tokens, ours.usage.output_tokens)
    assert used == (other.usage.input_tokens, other.usage.output_tokens)
    kept = (ours.usage.cached_input_tokens, ours.usage.cache_write_tokens)
    assert kept == (other.usage.cache_read_tokens, other.usage.cache_write_tokens)
    details = other.usage.details
    assert ours.usage.reasoning_tokens == details.get("reasoning_tokens", details.get("thoughts_tokens", 0))
