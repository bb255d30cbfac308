"""Requests of the Gemini wire, against the vendor's own types."""

import base64
import itertools
import json
from typing import Any

import msgspec
import pytest
from google.genai import types
from oracles import CLOSED, PDF, PNG, TOOLS, WAV, endpoint, history, model_at, request
from pydantic import ConfigDict, ValidationError, create_model

from replan.encoding import decode, encode
from replan.messages import Assistant, File, Image, Text, Thinking, ToolCall, ToolResult, User, from_json, to_json, user
from replan.model import Conversation, ModelProfile, OutputSchema
from replan.models.gemini import GeminiWire
from replan.settings import Thinking as Ask
from replan.testing import HttpReply, ScriptedServer, error_reply

FULL = ModelProfile(images=True, files=True, audio=True, thinking="gemini-budget", caching="automatic")
NEWEST = msgspec.structs.replace(FULL, thinking="gemini-level", result_images=True)

VENDOR: Any = create_model(
    "Body",
    __config__=ConfigDict(extra="forbid"),
    contents=(list[types.Content], ...),
    systemInstruction=(types.Content | None, None),
    tools=(list[types.Tool] | None, None),
    toolConfig=(types.ToolConfig | None, None),
    generationConfig=(types.GenerationConfig | None, None),
    safetySettings=(list[types.SafetySetting] | None, None),
)


def body(wire: GeminiWire | None = None, off: Any = (), **fields: Any) -> dict[str, Any]:
    """The body of a request; it is what the vendor's types accept, and nothing in it is unknown: they forbid that."""
    made = decode((wire or GeminiWire(endpoint(profile=FULL))).body(request(**fields), off).data)
    VENDOR.model_validate(made)
    return made


def test_a_plain_request_has_nothing_but_what_it_needs():
    wire = GeminiWire(endpoint("https://a.b/v1beta/", model="gemini-2.5-flash"))
    assert body(wire) == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    assert wire.url(request()) == "https://a.b/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    tuned = GeminiWire(endpoint("https://a.b/v1beta", model="tunedModels/x"))
    assert tuned.url(request()) == "https://a.b/v1beta/tunedModels/x:streamGenerateContent?alt=sse"


def test_every_kind_of_message_is_what_the_vendor_accepts():
    contents = body(messages=history("test:m"))["contents"]
    assert [content["role"] for content in contents] == ["user", "model"] * 4 + ["user"]
    see = contents[0]["parts"]
    assert see[1] == {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"\x89PNG").decode()}}
    assert [next(iter(part)) for part in see] == ["text", "inlineData", "text", "inlineData", "inlineData", "text"]
    assert see[5] == {"text": "t.txt:\ntext"}
    assert contents[1]["parts"][1] == {"functionCall": {"id": "c1", "name": "bare", "args": {"key": "ü"}}}
    assert contents[1]["parts"][2]["functionCall"]["name"] == "odd_name_"
    results = [part["functionResponse"] for part in contents[2]["parts"] if "functionResponse" in part]
    assert results[0]["response"] == {"output": "one\ntwo\n[image of type image/png, 4 bytes, not shown]"}
    assert results[1]["response"] == {"error": "(empty)"}
    assert "of another" not in json.dumps(contents)


def test_the_newest_models_see_images_in_results():
    results = body(GeminiWire(endpoint(profile=NEWEST)), messages=history("test:m"))["contents"][2]["parts"]
    assert results[0]["functionResponse"]["response"] == {"output": "one\ntwo"}
    assert results[0]["functionResponse"]["parts"][0]["inlineData"]["mimeType"] == "image/png"


def test_on_vertex_calls_have_no_ids():
    wire = GeminiWire(endpoint("https://a.b/v1/projects/p/locations/l", vertex=True, profile=FULL))
    made = body(wire, messages=history("test:m"))
    assert '"id"' not in json.dumps(made)
    assert wire.url(request()).endswith("/locations/l/publishers/google/models/m:streamGenerateContent?alt=sse")


def test_addresses_are_passed_on():
    parts = body(
        messages=[User((Image("image/png", url="https://a.b/c.png"), File("application/pdf", url="gs://x/y")))]
    )
    shown = parts["contents"][0]["parts"]
    assert shown[0] == {"fileData": {"mimeType": "image/png", "fileUri": "https://a.b/c.png"}}


def test_what_a_model_cannot_see_is_described():
    wire = GeminiWire(endpoint(profile=ModelProfile()))
    shown = body(wire, messages=[User((PNG, PDF, WAV))])["contents"][0]["parts"]
    assert all("not shown" in part["text"] for part in shown)


def test_awkward_tools_are_what_the_vendor_accepts():
    made = body(tools=TOOLS, tool_choice="required")
    functions = made["tools"][0]["functionDeclarations"]
    assert [each["name"] for each in functions] == [tool.name for tool in TOOLS]
    assert "$ref" not in json.dumps(functions)
    assert "parametersJsonSchema" not in next(each for each in functions if each["name"] == "bare")
    assert made["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert body(tools=TOOLS, tool_choice="none")["toolConfig"]["functionCallingConfig"]["mode"] == "NONE"
    assert "toolConfig" not in body(tools=TOOLS)


# ---- thoughts

SIGNED = Assistant(
    (
        Thinking("hm", "dA==", "test:m"),
        Thinking("unsigned", None, "test:m"),
        Thinking("", "cw==", "test:m", {"signs": "next"}),
        ToolCall("c1", "look", {}),
        ToolCall("c2", "look", {}),
        Text("a"),
        Thinking("", "ZQ==", "test:m", {"signs": "nothing"}),
    )
)


def said(message: Assistant, model: str = "m", profile: ModelProfile = FULL) -> list[dict[str, Any]]:
    stored = from_json(decode(encode(to_json(message))))
    return body(GeminiWire(endpoint(model=model, profile=profile)), messages=[user("go"), stored])["contents"][1][
        "parts"
    ]


def test_signatures_go_back_on_what_they_signed_also_after_being_stored():
    assert said(SIGNED) == [
        {"text": "hm", "thought": True, "thoughtSignature": "dA=="},
        {"functionCall": {"id": "c1", "name": "look", "args": {}}, "thoughtSignature": "cw=="},
        {"functionCall": {"id": "c2", "name": "look", "args": {}}},
        {"text": "a"},
        {"text": "", "thoughtSignature": "ZQ=="},
    ]


def test_signatures_of_another_model_are_left_out_and_the_newest_are_told_to_do_without():
    assert "thoughtSignature" not in json.dumps(said(SIGNED, "other"))
    calls = [part for part in said(SIGNED, "other", NEWEST) if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in calls] == [
        base64.b64encode(b"skip_thought_signature_validator").decode(),
        None,
    ]
    own = [part for part in said(SIGNED, profile=NEWEST) if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in own] == ["cw==", None]


def test_thinking_is_asked_for_in_the_models_own_way():
    assert body(thinking=Ask(budget_tokens=3000))["generationConfig"]["thinkingConfig"] == {
        "thinkingBudget": 3000,
        "includeThoughts": True,
    }
    level = body(GeminiWire(endpoint(profile=NEWEST)), thinking=Ask(level="high"))["generationConfig"]["thinkingConfig"]
    assert level["thinkingLevel"].lower() == "high"


# ---- settings


def test_a_schema_is_the_apis_own():
    config = body(output=OutputSchema("answer", CLOSED))["generationConfig"]
    assert (config["responseMimeType"], config["responseJsonSchema"]) == ("application/json", CLOSED)


async def test_a_schema_beside_tools_that_is_refused_is_put_in_words(finish):
    ok = {"candidates": [{"content": {"parts": [{"text": "{}"}]}, "finishReason": "STOP"}]}
    answer = HttpReply(headers={"content-type": "application/json"}, chunks=(encode(ok),))
    words = "Function calling with a response mime type: 'application/json' is unsupported"
    async with ScriptedServer(error_reply(400, words), answer) as server:
        await finish(model_at(server, GeminiWire, profile=FULL), output=OutputSchema("answer", CLOSED), tools=TOOLS)
    refused, again = (r.json for r in server.requests)
    assert "responseJsonSchema" in refused["generationConfig"]
    assert "generationConfig" not in again
    assert "JSON schema" in again["systemInstruction"]["parts"][0]["text"]


def test_a_model_without_a_place_for_instructions_is_told_them_first():
    made = body(off={"instructions"}, instructions="Be brief.")
    assert made["contents"][0]["parts"] == [{"text": "Be brief."}, {"text": "hello"}]


def test_settings_and_options():
    options = {
        "generationConfig": {"seed": 7},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    }
    made = body(
        max_output_tokens=7, temperature=0.5, top_p=0.9, stop=("END",), instructions="Be brief.", options=options
    )
    assert made["generationConfig"] == {
        "maxOutputTokens": 7,
        "temperature": 0.5,
        "topP": 0.9,
        "stopSequences": ["END"],
        "seed": 7,
    }
    assert made["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert made["safetySettings"] == options["safetySettings"]


def test_from_turn_to_turn_the_beginning_stays_the_same():
    wire, conversation = GeminiWire(endpoint(profile=FULL)), Conversation([user("go")])
    bodies: list[bytes] = []
    for number in range(5):
        asked = msgspec.structs.replace(request(tools=TOOLS, instructions="Be brief."), conversation=conversation)
        bodies.append(wire.body(asked, ()).data)
        calls = (ToolCall(f"a{number}", "bare", {}), ToolCall(f"b{number}", "bare", {}))
        conversation.messages += [Assistant(calls), *(ToolResult(c.call_id, "bare", (Text("ok"),)) for c in calls)]
    for before, after in itertools.pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}]}"))


def test_the_vendors_types_notice_what_is_wrong():
    with pytest.raises(ValidationError):
        VENDOR.model_validate({"contents": [{"role": "user", "pieces": []}]})
