"""Parts of requests that servers of the Anthropic API refuse: known by their words, and left out."""

import json
from typing import Any

import pytest
from oracles import CLOSED, TOOLS, endpoint, model_at, request
from test_anthropic_reply import block, end, sse, start, whole
from test_anthropic_request import FULL, TURN, body, marks

from replan.encoding import encode
from replan.model import Conversation, ModelProfile, OutputSchema
from replan.models.anthropic import AnthropicWire
from replan.settings import ModelSettings, PromptCaching
from replan.settings import Thinking as Ask
from replan.testing import HttpReply, ScriptedServer, error_reply

REFUSALS = {
    "Thinking may not be enabled when tool_choice forces tool use.": "tool_choice",
    "tool_choice forces tool use is not compatible with this model": "tool_choice",
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".': "thoughts",
    "messages.1.content.0: Invalid `signature` in `thinking` block": "thoughts",
    "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
    "modified. These blocks must remain as they were in the original response.": "thoughts",
    "messages.1.content.0: When thinking is disabled, an `assistant` message in the final position cannot contain "
    "`thinking`. To use thinking blocks, enable `thinking` in your request.": "thoughts",
    "This model does not support the effort parameter.": "effort",
    "output_config.effort: Extra inputs are not permitted": "effort",
    "output_config: Extra inputs are not permitted": "effort",
    '"thinking.type.adaptive" is not supported for this model.': "thinking",
    "adaptive thinking is not supported on this model": "thinking",
    "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags": "thinking",
    "output_config.format: structured outputs are not supported for this model": "output",
    "output_format: Extra inputs are not permitted": "output",
    "cache_control: Extra inputs are not permitted": "cache",
    "`temperature` and `top_p` cannot both be specified for this model. Please use only one.": "top_p",
    "`temperature` is deprecated for this model.": "sampling",
    "top_p: Extra inputs are not permitted": "sampling",
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`": None,
    "messages: text content blocks must be non-empty": None,
    "temperature: Input should be less than or equal to 1": None,
    "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens": None,
    "prompt is too long: 210000 tokens > 200000 maximum": None,
}
ASKED: dict[str, Any] = {
    "messages": TURN,
    "tools": TOOLS,
    "tool_choice": "required",
    "output": OutputSchema("answer", CLOSED),
    "prompt_caching": PromptCaching(),
    "temperature": 0.5,
    "top_p": 0.5,
}
STILL = ModelProfile(caching="marks", thinking="adaptive")


@pytest.mark.parametrize("said", REFUSALS)
def test_what_a_server_refuses_is_known_by_what_it_says(said: str):
    wire = AnthropicWire(endpoint(profile=STILL))
    parts = wire.body(request(**ASKED), ()).parts | wire.body(request(**ASKED, thinking=Ask()), ()).parts
    assert parts == wire.objections.keys() - {"undeclared"}
    text = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": said}})
    found = [part for part, words in wire.objections.items() if part in parts and words.search(text)]
    assert next(iter(found), None) == REFUSALS[said]


@pytest.mark.parametrize(
    ("part", "gone", "kept"),
    [
        ("tool_choice", {"tool_choice"}, {"tools", "thinking", "output_config"}),
        ("thinking", {"thinking"}, {"output_config", "tool_choice"}),
        ("top_p", {"top_p"}, {"temperature"}),
        ("sampling", {"temperature", "top_p"}, set[str]()),
    ],
)
def test_what_is_refused_is_left_out_and_nothing_else(part: str, gone: set[str], kept: set[str]):
    wire = AnthropicWire(endpoint(profile=STILL))
    thinking = None if "temperature" in gone | kept else Ask()
    made = body(wire, (part,), **ASKED, thinking=thinking)
    assert not gone & made.keys()
    assert kept <= made.keys()
    assert part not in wire.body(request(**ASKED, thinking=thinking), (part,)).parts


def test_a_refused_effort_leaves_thinking_on_and_the_schema():
    made = body(AnthropicWire(endpoint(profile=STILL)), ("effort",), **ASKED, thinking=Ask())
    assert made["thinking"]["type"] == "adaptive"
    assert made["output_config"].keys() == {"format"}


def test_refused_marks_are_left_out():
    assert marks(body(AnthropicWire(endpoint(profile=STILL)), ("cache",), **ASKED)) == 0


async def test_refused_thoughts_are_left_out(finish):
    said = "Invalid `signature` in `thinking` block. The block is bound to a different conversation."
    answer = whole(sse(start(), block(0, {"type": "text", "text": "ok"}), end("end_turn")))
    async with ScriptedServer(error_reply(400, said), answer) as server:
        model = model_at(server, AnthropicWire, profile=FULL, settings=ModelSettings(thinking=Ask()))
        done = await finish(model, Conversation(list(TURN)))
    assert done.message.text == "ok"
    first, second = (each.json for each in server.requests)
    assert json.dumps(first).count("sig1") == 1
    assert [part["type"] for part in second["messages"][1]["content"]] == ["tool_use"]
    assert "thinking" not in second


async def test_tools_of_earlier_calls_are_declared_where_they_must_be(finish):
    refused = error_reply(400, "Requests which include `tool_use` or `tool_result` blocks must define tools.")
    answer = whole(sse(start(), block(0, {"type": "text", "text": "ok"}), end("end_turn")))
    async with ScriptedServer(refused, answer, answer) as server:
        model = model_at(server, AnthropicWire)
        await finish(model, Conversation(list(TURN)))
        await finish(model)
    first, second, third = (each.json for each in server.requests)
    assert "tools" not in first
    assert second["tools"] == [{"name": "bare", "input_schema": {"type": "object"}}]
    assert second["tool_choice"] == {"type": "none"}
    assert not {"tools", "tool_choice"} & third.keys()


async def test_a_refused_schema_is_put_in_words_and_that_is_remembered(finish):
    ok = {"type": "message", "content": [{"type": "text", "text": "{}"}], "stop_reason": "end_turn"}
    refused = error_reply(400, "output_config: structured outputs are not supported")
    answer = HttpReply(headers={"content-type": "application/json"}, chunks=(encode(ok),))
    async with ScriptedServer(refused, answer, answer) as server:
        model = model_at(server, AnthropicWire)
        for _ in range(2):
            await finish(model, output=OutputSchema("answer", CLOSED))
    assert ["output_config" in r.json for r in server.requests] == [True, False, False]
