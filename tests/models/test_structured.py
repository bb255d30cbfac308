"""Structured output as a tool of the model, and in words."""

import json

import pytest

from replan.errors import ConfigError
from replan.messages import Assistant, Text, Thinking, ToolCall, user
from replan.model import (
    CallDelta,
    Conversation,
    Done,
    ModelProfile,
    ModelRequest,
    OutputSchema,
    TextDelta,
    ToolSpec,
)
from replan.models.structured import OutputTool, schema_instructions
from replan.settings import ModelSettings, PromptCaching
from replan.settings import Thinking as ThinkingSetting
from replan.testing import ScriptedServer, call, error_reply
from replan.usage import Usage

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
AS_TOOL = ModelProfile(structured_output="tool")


def request(**fields: object) -> ModelRequest:
    return ModelRequest(conversation=Conversation([user("go")]), output=OutputSchema("answer", SCHEMA), **fields)  # type: ignore[arg-type]


def test_the_output_is_a_tool_that_must_be_called():
    tool = OutputTool.of(request(tools=(LOOK,)), AS_TOOL)
    assert tool
    asked = tool.request(request(tools=(LOOK,)))
    assert [spec.name for spec in asked.tools] == ["look", "answer"]
    assert (asked.tool_choice, asked.output, asked.instructions) == ("required", None, "")


def test_a_model_that_refuses_forced_calls_while_it_thinks_is_asked_in_words():
    profile = ModelProfile(structured_output="tool", forced_calls_while_thinking=False)
    thinking = request(instructions="Be brief.", thinking=ThinkingSetting())
    tool = OutputTool.of(thinking, profile)
    assert tool
    asked = tool.request(thinking)
    assert (asked.tool_choice, asked.thinking) == ("auto", ThinkingSetting())
    assert asked.instructions == "Be brief.\n\nGive the final answer by calling the tool 'answer'."
    assert OutputTool.of(request(), profile).request(request()).tool_choice == "required"  # type: ignore[union-attr]


def test_a_tool_of_the_same_name_does_not_hide_the_output():
    taken = (ToolSpec("answer", "", SCHEMA), ToolSpec("answer_out", "", SCHEMA))
    tool = OutputTool.of(request(tools=taken), AS_TOOL)
    assert tool
    assert tool.spec.name == "answer_out_out"


@pytest.mark.parametrize("style", ["native", "prompted"])
def test_other_models_have_no_such_tool(style: str):
    assert OutputTool.of(request(), ModelProfile(structured_output=style)) is None  # type: ignore[arg-type]


def test_the_call_becomes_the_text_of_the_reply():
    tool = OutputTool.of(request(), AS_TOOL)
    assert tool
    said = Assistant((Thinking("hm"), Text("Here it is."), ToolCall("c", "answer", {"a": 7})))
    done = tool.done(Done(said, Usage(1, 2), "tool_calls"))
    assert done == Done(Assistant((Thinking("hm"), Text('{"a":7}'))), Usage(1, 2), "stop")
    assert tool.delta(CallDelta("answer", '{"a"')) == TextDelta('{"a"')
    assert tool.delta(CallDelta("look", "{}")) == CallDelta("look", "{}")


def test_other_calls_beside_the_output_come_first():
    tool = OutputTool.of(request(tools=(LOOK,)), AS_TOOL)
    assert tool
    look = ToolCall("c1", "look", {})
    done = tool.done(Done(Assistant((look, ToolCall("c2", "answer", {"a": 7}))), Usage(), "tool_calls"))
    assert (done.message, done.finish) == (Assistant((look,)), "tool_calls")


def test_an_answer_in_text_is_taken_as_it_is():
    tool = OutputTool.of(request(), AS_TOOL)
    done = Done(Assistant((Text('{"a": 7}'),)), Usage(), "stop")
    assert tool
    assert tool.done(done) is done


def test_the_schema_in_words():
    text = schema_instructions("Be brief.", OutputSchema("answer", SCHEMA))
    assert text.startswith("Be brief.\n\n")
    assert json.loads(text.splitlines()[-1]) == SCHEMA


async def test_a_model_without_schemas_is_forced_over_the_wire(chat, collect):
    async with ScriptedServer(call("answer", a=7)) as server:
        *deltas, done = await collect(chat(server, profile=AS_TOOL), output=OutputSchema("answer", SCHEMA))
    body = server.requests[0].json
    assert (body["tool_choice"], [tool["function"]["name"] for tool in body["tools"]]) == ("required", ["answer"])
    assert "response_format" not in body
    assert (done.message.text, done.finish) == ('{"a":7}', "stop")
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == '{"a":7}'


@pytest.mark.parametrize(
    "words", ["Thinking does not allow this tool_choice", "tool_choice 'required' is not supported with reasoning"]
)
async def test_a_refused_tool_choice_is_left_out_and_thinking_stays_on(chat, finish, words: str):
    profile = ModelProfile(structured_output="tool", thinking="effort")
    settings = ModelSettings(thinking="high")
    async with ScriptedServer(error_reply(400, words), '{"a": 7}', '{"a": 8}') as server:
        model = chat(server, profile=profile, settings=settings, provider=f"p{len(words)}")
        first = await finish(model, output=OutputSchema("answer", SCHEMA))
        second = await finish(model, output=OutputSchema("answer", SCHEMA))
    assert [first.message.text, second.message.text] == ['{"a": 7}', '{"a": 8}']
    refused, again, later = (body.json for body in server.requests)
    assert refused["tool_choice"] == "required"
    assert "tool_choice" not in again
    assert "tool_choice" not in later
    assert [body["reasoning_effort"] for body in (refused, again, later)] == ["high"] * 3


def test_settings_that_are_none_are_refused():
    with pytest.raises(ConfigError, match="'very'"):
        ModelSettings(thinking="very")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'2h'"):
        PromptCaching(ttl="2h")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'max_retries'"):
        ModelSettings(max_retries=-1)


def test_the_tools_of_each_turn_are_the_same_object():
    asked = request(tools=(LOOK,))
    first, second = OutputTool.of(asked, AS_TOOL), OutputTool.of(asked, AS_TOOL)
    assert first
    assert second
    assert first.request(asked).tools is second.request(asked).tools
