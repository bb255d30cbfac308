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
from replan.model import Conversation, ModelProfile, OutputSchema
from replan.models.responses import ResponsesWire
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
        "input": [{"role": "user", "content": "hello"}],
        "stream": True,
        "store": False,
    }
    assert wire.url(request()) == "https://a.b/v1/responses?api-version=1"


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
    assert items[1] == {"role": "assistant", "content": "I look."}
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
    assert not any(tool["strict"] for tool in made["tools"])


def test_strict_is_said_where_the_schema_is():
    from replan.model import ToolSpec

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
        {"role": "assistant", "content": "x"},
        ITEM,
        call,
    ]


def test_reasoning_that_nothing_follows_is_left_out():
    assert said(Text("x"), REASONED) == [{"role": "assistant", "content": "x"}]
    assert said(REASONED) == [{"role": "assistant", "content": "(no answer)"}]


def test_reasoning_of_another_model_or_without_its_content_is_left_out():
    assert said(REASONED, Text("x"), model="other") == [{"role": "assistant", "content": "x"}]
    assert said(Thinking("hm", None, "test:m", {"id": "rs_1", "summary": []}), Text("x")) == [
        {"role": "assistant", "content": "x"}
    ]


def test_a_phase_goes_back():
    phase = Thinking("", None, "test:m", {"phase": "final_answer"})
    assert said(phase, Text("x")) == [{"role": "assistant", "content": "x", "phase": "final_answer"}]


# ---- settings


def test_a_schema_is_the_apis_own():
    form = body(output=OutputSchema("answer", CLOSED))["text"]["format"]
    assert form == {"type": "json_schema", "name": "answer", "schema": CLOSED, "strict": True}


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
    ok = {
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "{}"}]}],
    }
    answer = HttpReply(headers={"content-type": "application/json"}, chunks=(encode(ok),))
    async with ScriptedServer(error_reply(400, words), answer) as server:
        await finish(
            model_at(server, ResponsesWire, profile=FULL),
            output=OutputSchema("answer", CLOSED),
            temperature=0.1,
            thinking=Ask(),
            cache_key="a:b",
            prompt_caching=PromptCaching(),
        )
    refused, again = (r.json for r in server.requests)
    assert set(refused) - set(again) == {field}


def test_the_vendors_types_notice_what_is_wrong():
    with pytest.raises(ValidationError):
        listed(VENDOR.validate_python({"model": "m", "stream": True, "input": [{"role": "nobody", "content": "x"}]}))


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
