"""Thinking on the Anthropic wire: asked for, replayed, and what it rules out."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from oracles import TOOLS, endpoint, play, request
from test_anthropic_reply import block, end, sse, start
from test_anthropic_request import ADAPTIVE, ALWAYS, FULL, TURN, body

from replan.encoding import decode, encode
from replan.messages import (
    Assistant,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    from_json,
    to_json,
    user,
)
from replan.model import ModelProfile
from replan.models.anthropic import AnthropicWire
from replan.models.anthropic.reply import AnthropicReply
from replan.models.sse import EventParser
from replan.settings import PromptCaching
from replan.settings import Thinking as Ask


def test_signed_thoughts_go_back_as_they_came_also_after_being_stored():
    stored = [from_json(decode(encode(to_json(message)))) for message in TURN]
    (said,) = [message["content"] for message in body(messages=stored)["messages"] if message["role"] == "assistant"]
    assert said == [
        {"type": "thinking", "thinking": "first", "signature": "sig1"},
        {"type": "thinking", "thinking": "", "signature": "sig2"},
        {"type": "redacted_thinking", "data": "ENC"},
        {"type": "tool_use", "id": "c1", "name": "bare", "input": {}},
    ]


def test_thoughts_of_a_reply_go_back_byte_for_byte():
    blocks = [
        {"type": "thinking", "thinking": "lét me", "signature": "c2ln/+=="},
        {"type": "thinking", "thinking": "", "signature": "c2ln2"},
        {"type": "redacted_thinking", "data": "ENC+/="},
        {"type": "tool_use", "id": "toolu_1", "name": "bare", "input": {"key": "ä", "n": 1.5}},
        {"type": "thinking", "thinking": "between", "signature": "c2ln3"},
        {"type": "tool_use", "id": "toolu_2", "name": "bare", "input": {}},
    ]
    events = [start(), *(each for at, content in enumerate(blocks) for each in streamed(at, content)), *end("tool_use")]
    said = play(AnthropicReply("test:m"), EventParser(), sse(events)).message
    stored: list[Message] = [user("go"), from_json(decode(encode(to_json(said))))]
    stored += [ToolResult(call.call_id, call.name, (Text("ok"),)) for call in said.calls]
    made = AnthropicWire(endpoint(profile=FULL)).body(request(stored), ()).data
    assert b'"content":' + encode(blocks) in made
    other = AnthropicWire(endpoint(model="other", profile=FULL)).body(request(stored), ()).data
    assert b'"content":' + encode([each for each in blocks if each["type"] == "tool_use"]) in other


def streamed(at: int, content: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a block."""
    match content["type"]:
        case "thinking":
            pieces = [{"type": "thinking_delta", "thinking": each} for each in content["thinking"]]
            signed = {"type": "signature_delta", "signature": content["signature"]}
            return block(at, {"type": "thinking", "thinking": "", "signature": ""}, *pieces, signed)
        case "tool_use":
            arguments = {"type": "input_json_delta", "partial_json": encode(content["input"]).decode()}
            return block(at, {**content, "input": {}}, arguments)
        case _:
            return block(at, content)


def test_a_reply_does_not_end_with_a_thought():
    made = body(messages=[user("go"), Assistant((Thinking("t", "s", "test:m"),))], prompt_caching=PromptCaching())
    thought, text = made["messages"][1]["content"]
    assert thought == {"type": "thinking", "thinking": "t", "signature": "s"}
    assert text == {"type": "text", "text": "(no answer)", "cache_control": {"type": "ephemeral"}}


def test_a_thought_without_signature_goes_back_to_models_that_do_not_sign():
    reply = Assistant((Thinking("t", None, "test:m"), Text("x")))
    assert body(messages=[user("go"), reply, user("y")])["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "t",
        "signature": "",
    }
    claude = AnthropicWire(endpoint(model="claude-x", profile=FULL))
    reply = Assistant((Thinking("t", None, "test:claude-x"), Text("x")))
    messages = body(claude, messages=[user("go"), reply, user("y")])["messages"]
    assert messages[1]["content"] == [{"type": "text", "text": "x"}]


def test_data_of_another_format_is_no_thought():
    foreign = Thinking("", None, "test:m", {"type": "reasoning", "id": "rs_1"})
    said = body(messages=[user("go"), Assistant((foreign, Text("x"))), user("y")])["messages"][1]["content"]
    assert said == [{"type": "text", "text": "x"}]


def test_thoughts_of_another_model_are_left_out():
    other = AnthropicWire(endpoint(model="other", profile=FULL))
    (said,) = [m["content"] for m in body(other, messages=TURN)["messages"] if m["role"] == "assistant"]
    assert [part["type"] for part in said] == ["tool_use"]


def test_a_budget_is_below_the_cap_of_the_reply():
    made = body(thinking=Ask(budget_tokens=3000), max_output_tokens=1000)
    assert (made["thinking"]["budget_tokens"], made["max_tokens"]) == (3000, 4000)
    made = body(thinking=Ask(budget_tokens=100_000))
    assert (made["thinking"]["budget_tokens"], made["max_tokens"]) == (63_999, 64_000)
    made = body(thinking=Ask(budget_tokens=1), max_output_tokens=10)
    assert (made["thinking"]["budget_tokens"], made["max_tokens"]) == (1024, 1034)


def test_a_thinking_model_is_not_forced_and_has_no_temperature():
    made = body(thinking=Ask(), tools=TOOLS, tool_choice="required", temperature=0.5)
    assert "tool_choice" not in made
    assert "temperature" not in made
    made = body(tools=TOOLS, tool_choice="required", temperature=0.5)
    assert (made["tool_choice"], made["temperature"]) == ({"type": "any"}, 0.5)


def test_a_turn_that_began_without_thoughts_goes_on_without():
    cold = [user("go"), Assistant((ToolCall("c1", "bare", {}),)), ToolResult("c1", "bare", (Text("ok"),))]
    assert "thinking" not in body(messages=cold, thinking=Ask())
    assert "thinking" in body(messages=[*cold, user("more")], thinking=Ask())
    assert "thinking" in body(messages=TURN, thinking=Ask())
    assert "thinking" in body(AnthropicWire(endpoint(profile=ADAPTIVE)), messages=cold, thinking=Ask())


def test_a_turn_after_a_reply_without_thoughts_may_think():
    plain = [user("go"), Assistant((Text("hi"),))]
    assert "thinking" in body(messages=plain, thinking=Ask())
    assert "thinking" in body(messages=[*plain, *TURN[1:]], thinking=Ask())


def test_a_turn_that_began_with_thoughts_goes_on_thinking():
    more = [Assistant((ToolCall("c2", "bare", {}),)), ToolResult("c2", "bare", (Text("ok"),))]
    assert "thinking" in body(messages=[*TURN, *more], thinking=Ask())


def test_a_model_that_always_thinks_is_not_forced():
    always, able = (AnthropicWire(endpoint(profile=profile)) for profile in (ALWAYS, ADAPTIVE))
    assert "tool_choice" not in body(always, tools=TOOLS, tool_choice="required", temperature=0.5)
    assert body(always, tools=TOOLS, tool_choice="none")["tool_choice"] == {"type": "none"}
    assert "temperature" not in body(always, temperature=0.5)
    assert body(able, tools=TOOLS, tool_choice="required", thinking=Ask())["tool_choice"] == {"type": "any"}


def test_thinking_that_an_option_asks_for_counts_too():
    options = {"thinking": {"type": "enabled", "budget_tokens": 5000}}
    made = body(options=options, tools=TOOLS, tool_choice="required", temperature=0.5, max_output_tokens=100)
    assert (made["max_tokens"], made["thinking"]["budget_tokens"]) == (5100, 5000)
    assert not {"tool_choice", "temperature"} & made.keys()


BUDGETS = st.integers(0, 200_000)


@given(st.none() | BUDGETS, st.none() | st.integers(1, 200_000), st.none() | st.integers(2048, 128_000))
def test_the_cap_is_always_above_the_budget(budget: int | None, limit: int | None, most: int | None):
    wire = AnthropicWire(endpoint(profile=ModelProfile(thinking="budget", max_output_tokens=most)))
    made = decode(wire.body(request(thinking=Ask(budget_tokens=budget), max_output_tokens=limit), ()).data)
    if made["thinking"]["type"] == "enabled":
        assert 1024 <= made["thinking"]["budget_tokens"] < made["max_tokens"]
    assert made["max_tokens"] >= (limit or 0)
    assert most is None or made["max_tokens"] <= max(most, limit or 0)
