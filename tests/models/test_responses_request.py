"""Requests of the Responses wire, against the vendor's own types."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from oracles import CLOSED, PDF, PNG, TOOLS, endpoint, history, model_at, request
from pydantic import TypeAdapter, ValidationError

from replan.encoding import decode, encode
from replan.errors import BadRequest
from replan.messages import Assistant, File, Image, Text, Thinking, ToolCall, ToolResult, User, from_json, to_json, user
from replan.model import Conversation, ModelProfile, OutputSchema, ToolSpec
from replan.models.responses import ResponsesWire
from replan.models.responses.items import items_of
from replan.settings import PromptCaching
from replan.settings import Thinking as Ask
from replan.testing import HttpReply, ScriptedServer, error_reply

FULL = ModelProfile(images=True, files=True, result_images=True, thinking="reasoning", caching="key")
VENDOR = TypeAdapter(ResponseCreateParamsStreaming)


def listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: listed(each) for name, each in value.items()}
    if isinstance(value, str | bytes | int | float | bool | None):
        return value
    return [listed(each) for each in value]


def body(wire: ResponsesWire | None = None, off: Any = (), **fields: Any) -> dict[str, Any]:
    """The body of a request; it is what the vendor's types accept, and nothing in it is unknown."""
    made = decode((wire or ResponsesWire(endpoint(profile=FULL))).body(request(**fields), off).data)
    assert listed(VENDOR.validate_python(made)) == made
    return made


def test_a_plain_request_has_nothing_but_what_it_needs():
    wire = ResponsesWire(endpoint("https://a.b/v1?api-version=1"))
    assert body(wire) == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "hello"}],
        "stream": True,
        "store": False,
    }
    assert wire.url(request()) == "https://a.b/v1/responses?api-version=1"


@pytest.mark.parametrize("base_url", ["https://a.b/v1", "https://a.b/v1/", "https://a.b/v1/responses"])
def test_the_address_may_have_its_end_already(base_url: str):
    assert ResponsesWire(endpoint(base_url)).url(request()) == "https://a.b/v1/responses"


def test_a_model_that_thinks_gives_its_reasoning_encrypted():
    assert body()["include"] == ["reasoning.encrypted_content"]
    assert body(thinking=Ask(level="high"))["reasoning"] == {"effort": "high", "summary": "auto"}


def test_every_kind_of_message_is_what_the_vendor_accepts():
    items = body(messages=history("test:m"))["input"]
    see = items[0]["content"]
    assert [part["type"] for part in see] == [
        "input_text",
        "input_image",
        "input_text",
        "input_file",
        "input_text",
        "input_text",
    ]
    assert see[1]["image_url"] == "data:image/png;base64,iVBORw=="
    assert see[3]["filename"] == "a.pdf"
    assert see[4]["text"] == "[audio of type audio/wav, 4 bytes, not shown]"
    assert see[5]["text"] == "t.txt:\ntext"
    assert "of another" not in json.dumps(items)
    assert items[1] == {"type": "message", "role": "assistant", "content": "I look."}
    assert items[2] == {"type": "function_call", "call_id": "c1", "name": "bare", "arguments": '{"key":"ü"}'}
    assert [part["type"] for part in items[4]["output"]] == ["input_text", "input_text", "input_image"]
    assert items[5]["output"] == "Error: (empty)"
    calls = [item for item in items if item.get("type") in ("function_call", "function_call_output")]
    assert calls[-1]["call_id"] == calls[-2]["call_id"]
    assert len(calls[-1]["call_id"]) <= 64


def test_addresses_are_passed_on_and_paths_are_read(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    parts = (Image("image/png", url="https://a.b/c.png"), Image("image/png", url=str(tmp_path / "a.png")),
             File("application/pdf", url="https://a.b/c.pdf"), Image("image/png", url="/no/such.png"))  # fmt: skip
    content = body(messages=[User(parts)])["input"][0]["content"]
    assert content[0]["image_url"] == "https://a.b/c.png"
    assert content[1]["image_url"] == "data:image/png;base64,iVBORw=="
    assert content[2] == {"type": "input_file", "file_url": "https://a.b/c.pdf"}
    assert "no/such.png" in content[3]["text"]


def test_what_a_model_cannot_see_is_described():
    wire = ResponsesWire(endpoint(profile=ModelProfile()))
    content = body(wire, messages=[User((PNG, PDF))])["input"][0]["content"]
    assert (
        content
        == "[image of type image/png, 4 bytes, not shown]\n[file 'a.pdf' of type application/pdf, 6 bytes, not shown]"
    )


def test_awkward_tools_are_what_the_vendor_accepts():
    made = body(tools=TOOLS, tool_choice="required")
    assert [tool["name"] for tool in made["tools"]] == [tool.name for tool in TOOLS]
    assert all(tool["parameters"]["type"] == "object" for tool in made["tools"])
    assert made["tool_choice"] == "required"
    assert body(tools=TOOLS, tool_choice="none")["tool_choice"] == "none"
    assert "tool_choice" not in body(tools=TOOLS)
    assert "tool_choice" not in body(tool_choice="required")
    assert not any(tool["strict"] for tool in made["tools"])


def test_strict_is_said_where_the_schema_is():
    assert body(tools=(ToolSpec("a", "", CLOSED),))["tools"][0]["strict"] is True


# ---- reasoning

SUMMARY = [{"type": "summary_text", "text": "hm"}]
REASONED = Thinking("hm", "ENC", "test:m", {"id": "rs_1", "summary": SUMMARY})
ITEM = {"type": "reasoning", "id": "rs_1", "summary": SUMMARY, "encrypted_content": "ENC"}


def said(*parts: Any, model: str = "m") -> list[dict[str, Any]]:
    stored = from_json(decode(encode(to_json(Assistant(parts)))))
    wire = ResponsesWire(endpoint(model=model, profile=FULL))
    return body(wire, messages=[user("go"), stored])["input"][1:]


def test_reasoning_goes_back_as_it_came_before_what_came_after_it():
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    assert said(REASONED, ToolCall("c1", "look", {})) == [ITEM, call]
    assert said(REASONED, Text("x"), REASONED, ToolCall("c1", "look", {})) == [
        ITEM,
        {"type": "message", "role": "assistant", "content": "x"},
        ITEM,
        call,
    ]


def test_reasoning_that_nothing_follows_is_left_out():
    assert said(Text("x"), REASONED) == [{"type": "message", "role": "assistant", "content": "x"}]
    assert said(REASONED) == [{"type": "message", "role": "assistant", "content": "(no answer)"}]


def test_reasoning_of_another_model_or_without_its_content_is_left_out():
    assert said(REASONED, Text("x"), model="other") == [{"type": "message", "role": "assistant", "content": "x"}]
    assert said(Thinking("hm", None, "test:m", {"id": "rs_1", "summary": []}), Text("x")) == [
        {"type": "message", "role": "assistant", "content": "x"}
    ]


def test_a_phase_goes_back():
    phase = Thinking("", None, "test:m", {"phase": "final_answer"})
    assert said(phase, Text("x")) == [{"type": "message", "role": "assistant", "content": "x", "phase": "final_answer"}]


def test_a_phase_holds_for_the_texts_of_one_message():
    phase = Thinking("", None, "test:m", {"phase": "commentary"})
    comment = {"type": "message", "role": "assistant", "content": "x", "phase": "commentary"}
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    after = {"type": "message", "role": "assistant", "content": "y"}
    assert said(phase, Text("x"), Text("x"), ToolCall("c1", "look", {}), Text("y")) == [comment, comment, call, after]
    assert said(phase, Text("x"), REASONED, Text("y")) == [comment, ITEM, after]


def test_a_comment_among_the_thoughts_goes_back_as_the_message_that_it_was():
    comment = Thinking("x", None, "test:m", {"phase": "commentary"})
    answer = Thinking("", None, "test:m", {"phase": "final_answer"})
    assert said(REASONED, comment, answer, Text("y")) == [
        ITEM,
        {"type": "message", "role": "assistant", "content": "x", "phase": "commentary"},
        {"type": "message", "role": "assistant", "content": "y", "phase": "final_answer"},
    ]
    assert said(comment, Text("y"), model="other") == [{"type": "message", "role": "assistant", "content": "y"}]


def test_reasoning_with_its_content_goes_back_though_it_is_not_encrypted():
    content = [{"type": "reasoning_text", "text": "hm"}]
    thought = Thinking("hm", None, "test:m", {"id": "rs_1", "summary": [], "content": content})
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}
    assert said(thought, Text("x"))[0] == item


def test_reasoning_without_its_id_or_of_another_kind_is_no_broken_item():
    thought = Thinking("hm", "ENC", "test:m", {"summary": []})
    [made, _] = decode(encode(items_of(Assistant((thought, Text("x"))), "test:m", FULL)))
    assert made == {"type": "reasoning", "summary": [], "encrypted_content": "ENC"}
    assert len(said(Thinking("hm", "SIGNED", "test:m"), Text("x"))) == 1
    assert len(said(Thinking("hm", "SIGNED", "test:m", ["x"]), Text("x"))) == 1


def test_an_error_with_an_image_is_told_as_one():
    messages = [user("go"), Assistant((ToolCall("c1", "look", {}),)), ToolResult("c1", "look", (PNG,), is_error=True)]
    output = body(messages=messages)["input"][-1]["output"]
    assert output[0] == {"type": "input_text", "text": "Error:"}
    assert output[1]["type"] == "input_image"
    wire = ResponsesWire(endpoint(profile=ModelProfile(images=True)))
    described = body(wire, messages=messages)["input"][-1]["output"]
    assert described == "Error: [image of type image/png, 4 bytes, not shown]"


def test_a_conversation_is_encoded_for_each_kind_of_model():
    conversation = Conversation([User((PNG,))])
    for profile, kind in ((ModelProfile(images=True), list), (ModelProfile(), str)):
        asked = msgspec.structs.replace(request(), conversation=conversation)
        made = decode(ResponsesWire(endpoint(profile=profile)).body(asked, ()).data)
        assert isinstance(made["input"][0]["content"], kind)


# ---- settings


def test_a_schema_is_the_apis_own():
    form = body(output=OutputSchema("answer", CLOSED))["text"]["format"]
    assert form == {"type": "json_schema", "name": "answer", "schema": CLOSED, "strict": True}


def test_a_schema_is_put_so_that_it_is_strict():
    node = {"$ref": "#/$defs/x", "description": "d"}
    schema = {**CLOSED, "properties": {"a": node}, "$defs": {"x": {"type": "string"}}}
    wire, output = ResponsesWire(endpoint()), OutputSchema("answer", schema)
    forms = [body(wire, output=output)["text"]["format"] for _ in range(2)]
    assert forms[0]["strict"] is True
    assert forms[0]["schema"]["properties"]["a"] == {"anyOf": [{"$ref": "#/$defs/x"}], "description": "d"}
    assert forms[0] == forms[1]


def test_a_schema_that_cannot_be_strict_is_sent_as_it_is():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = body(output=OutputSchema("answer", schema))["text"]["format"]
    assert (form["schema"], form["strict"]) == (schema, False)


def test_a_tool_that_no_arguments_fulfil_is_left_out():
    never = ToolSpec("never", "", {"type": "string"})
    assert "tools" not in body(tools=(never,), tool_choice="required")
    assert "tool_choice" not in body(tools=(never,), tool_choice="required")
    assert [tool["name"] for tool in body(tools=(never, TOOLS[0]))["tools"]] == [TOOLS[0].name]


def test_a_refused_schema_is_put_in_words():
    made = body(off={"output"}, output=OutputSchema("answer", CLOSED), instructions="Be brief.")
    assert "text" not in made
    assert made["instructions"].startswith("Be brief.\n\nReply with one JSON value")


def test_settings_and_options():
    options = {"service_tier": "auto", "text": {"verbosity": "low"}, "reasoning": {"summary": "detailed"}}
    made = body(
        max_output_tokens=7, temperature=0.5, top_p=0.9, thinking=Ask(level="low"), options=options,
        output=OutputSchema("answer", CLOSED),
    )  # fmt: skip
    assert (made["max_output_tokens"], made["temperature"], made["top_p"]) == (7, 0.5, 0.9)
    assert made["reasoning"] == {"effort": "low", "summary": "detailed"}
    assert made["text"]["verbosity"] == "low"
    assert made["text"]["format"]["name"] == "answer"
    quiet = ResponsesWire(endpoint(profile=ModelProfile(sampling=False)))
    assert "temperature" not in body(quiet, temperature=0.5)


def test_the_cache_key_is_the_agents_and_stages_or_ones_own():
    assert body(prompt_caching=PromptCaching(), cache_key="agent:planner")["prompt_cache_key"] == "agent:planner"
    assert body(prompt_caching=PromptCaching(key="mine"), cache_key="agent:planner")["prompt_cache_key"] == "mine"
    assert len(body(prompt_caching=PromptCaching(), cache_key="x" * 100)["prompt_cache_key"]) == 64
    assert "prompt_cache_key" not in body(prompt_caching=False, cache_key="agent:planner")


def test_a_model_that_refuses_forced_calls_while_it_thinks_is_not_forced():
    profile = msgspec.structs.replace(FULL, forced_calls_while_thinking=False)
    wire = ResponsesWire(endpoint(profile=profile))
    assert "tool_choice" not in body(wire, tools=TOOLS, tool_choice="required", thinking=Ask())
    assert body(wire, tools=TOOLS, tool_choice="required")["tool_choice"] == "required"


def test_from_turn_to_turn_the_beginning_stays_the_same():
    wire, conversation = ResponsesWire(endpoint(profile=FULL)), Conversation([user("go")])
    bodies: list[bytes] = []
    for number in range(5):
        asked = msgspec.structs.replace(request(tools=TOOLS, instructions="Be brief."), conversation=conversation)
        bodies.append(wire.body(asked, ()).data)
        conversation.messages += [
            Assistant((REASONED, ToolCall(f"c{number}", "bare", {}))),
            ToolResult(f"c{number}", "bare", (Text("ok"),)),
        ]
    for before, after in itertools.pairwise(bodies):
        assert after.startswith(before[: before.rindex(b'],"stream"')])


async def refused(finish, words: str, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is sent first, and what after a server said that."""
    output = [{"type": "message", "content": [{"type": "output_text", "text": "{}"}]}]
    answer = encode({"object": "response", "status": "completed", "output": output})
    ok = HttpReply(headers={"content-type": "application/json"}, chunks=(answer,))
    async with ScriptedServer(error_reply(400, words), ok) as server:
        await finish(model_at(server, ResponsesWire, profile=FULL), **fields)
    first, again = (r.json for r in server.requests)
    return first, again


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("Encrypted content is not supported with this model.", "include"),
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "reasoning"),
        ("Unsupported parameter: 'temperature'", "temperature"),
        ("Unknown parameter: 'prompt_cache_key'", "prompt_cache_key"),
        ("Invalid value for text.format: json_schema is not supported", "text"),
        ("Unknown parameter: 'store'.", "store"),
    ],
)
async def test_what_a_server_refuses_is_left_out(finish, words: str, field: str):
    first, again = await refused(
        finish,
        words,
        output=OutputSchema("answer", CLOSED),
        temperature=0.1,
        thinking=Ask(),
        cache_key="a:b",
        prompt_caching=PromptCaching(),
    )
    assert set(first) - set(again) == {field}


def test_the_vendors_types_notice_what_is_wrong():
    with pytest.raises(ValidationError):
        listed(VENDOR.validate_python({"model": "m", "stream": True, "input": [{"role": "nobody", "content": "x"}]}))


async def test_summaries_that_are_refused_leave_the_effort(finish):
    words = "Your organization must be verified to generate reasoning summaries. (param: reasoning.summary)"
    first, again = await refused(finish, words, thinking=Ask(level="high"))
    assert first["reasoning"] == {"effort": "high", "summary": "auto"}
    assert again == {**first, "reasoning": {"effort": "high"}}


async def test_tools_that_are_refused_as_strict_are_not(finish):
    words = "Invalid schema for function 'a': In context=('properties', 'x'), schema must have a 'type' key."
    first, again = await refused(finish, words, tools=(ToolSpec("a", "", CLOSED), *TOOLS[:1]))
    assert [tool["strict"] for tool in first["tools"]] == [True, False]
    assert again == {**first, "tools": [{**tool, "strict": False} for tool in first["tools"]]}


@pytest.mark.parametrize(
    "words",
    [
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
        "The encrypted content gAAA...9w== could not be verified.",
        "The encrypted content for item rs_1 could not be verified. Reason: it could not be decrypted or parsed.",
    ],
)
async def test_a_conversation_whose_reasoning_is_refused_goes_on_without(finish, words: str):
    call = ToolCall("c1", "look", {})
    messages = [user("go"), Assistant((REASONED, call)), ToolResult("c1", "look", (Text("ok"),))]
    first, again = await refused(finish, words, conversation=Conversation(messages))
    assert [item["type"] for item in first["input"]] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert again == {**first, "input": [item for item in first["input"] if item["type"] != "reasoning"]}


@pytest.mark.parametrize(
    "words",
    [
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        "The encrypted content for item rs_1 could not be verified.",
    ],
)
async def test_an_error_about_what_is_in_a_field_is_no_refusal_of_the_field(finish, words: str):
    async with ScriptedServer(error_reply(400, words)) as server:
        with pytest.raises(BadRequest):
            await finish(model_at(server, ResponsesWire, profile=FULL), thinking=Ask())
    assert len(server.requests) == 1


async def test_what_is_refused_is_only_remembered_where_the_request_is_accepted_without(finish):
    words = "Unsupported parameter: 'temperature'"
    async with ScriptedServer(otherwise=error_reply(400, words)) as server:
        model = model_at(server, ResponsesWire, profile=FULL)
        for _ in range(2):
            with pytest.raises(BadRequest):
                await finish(model, temperature=0.1)
    assert ["temperature" in r.json for r in server.requests] == [True, False, True, False]
