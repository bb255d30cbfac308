"""Requests of the Gemini wire, against the vendor's own types."""

import base64
import itertools
import json
from typing import Any

import msgspec
import pytest
from google import genai
from google.genai import types
from oracles import CLOSED, PDF, PNG, TOOLS, WAV, endpoint, history, model_at, request
from pydantic import ConfigDict, ValidationError, create_model

from replan.encoding import decode, encode
from replan.messages import Assistant, File, Image, Text, ToolCall, ToolResult, User, user
from replan.model import Conversation, ModelProfile, ModelRequest, OutputSchema, ToolSpec
from replan.models.gemini import GeminiWire
from replan.models.gemini.parts import Parts
from replan.settings import Thinking as Ask
from replan.testing import HttpReply, ScriptedServer, error_reply

FULL = ModelProfile(images=True, files=True, audio=True, thinking="gemini-budget", caching="automatic")
NEWEST = msgspec.structs.replace(FULL, thinking="gemini-level", result_images=True)

OK = {"candidates": [{"content": {"parts": [{"text": "{}"}]}, "finishReason": "STOP"}]}
ANSWER = HttpReply(headers={"content-type": "application/json"}, chunks=(encode(OK),))

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


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
@pytest.mark.parametrize("model", ["gemini-x", "models/gemini-x", "tunedModels/x"])
async def test_a_model_is_where_the_vendor_looks_for_it(model: str):
    async with ScriptedServer(ANSWER) as server:
        base = server.base_url.removesuffix("/v1")
        client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=base, api_version="v1beta"))
        async for _ in await client.aio.models.generate_content_stream(model=model, contents="x"):
            pass
        await client.aio.aclose()
        client.close()
    assert GeminiWire(endpoint(f"{base}/v1beta", model=model)).url(request()) == base + server.requests[0].path


BASE = "https://a.b/v1/projects/p/locations/l"


@pytest.mark.parametrize(
    ("model", "address"),
    [
        ("gemini-x", f"{BASE}/publishers/google/models/gemini-x"),
        ("meta/llama-x", f"{BASE}/publishers/meta/models/llama-x"),
        ("publishers/google/models/x", f"{BASE}/publishers/google/models/x"),
        ("endpoints/7", f"{BASE}/endpoints/7"),
        ("projects/q/locations/m/endpoints/7", "https://a.b/v1/projects/q/locations/m/endpoints/7"),
    ],
)
def test_a_model_on_vertex_is_of_a_publisher_or_of_its_own(model: str, address: str):
    wire = GeminiWire(endpoint(BASE, model=model, vertex=True))
    assert wire.url(request()) == f"{address}:streamGenerateContent?alt=sse"


def test_every_kind_of_message_is_what_the_vendor_accepts():
    contents = body(messages=history("test:m"))["contents"]
    assert [content["role"] for content in contents] == ["user", "model"] * 4 + ["user"]
    assert contents[3]["parts"] == [{"text": "no"}]
    assert contents[5]["parts"] == [{"text": "(no answer)"}]
    assert contents[6]["parts"] == [{"text": "(empty)"}]
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


def in_result(*parts: Any, vertex: bool = False, **can: Any) -> list[dict[str, Any]]:
    """The parts of a result with these in it, to a model that can do this."""
    profile = msgspec.structs.replace(FULL, result_images=True, **can)
    wire = GeminiWire(endpoint(vertex=vertex, profile=profile))
    made = body(wire, messages=[user("go"), Assistant((ToolCall("c", "look", {}),)), ToolResult("c", "look", parts)])
    return made["contents"][2]["parts"]


FAR = Image("image/png", url="https://a.b/c.png")


def test_a_model_before_gemini_3_sees_images_behind_the_result():
    result, image = in_result(Text("one"), PNG, File("text/plain", name="t.txt", data=b"x"), WAV)
    assert result == {
        "functionResponse": {
            "id": "c",
            "name": "look",
            "response": {"output": "one\nt.txt:\nx\n[audio of type audio/wav, 4 bytes, not shown]"},
        }
    }
    assert image["inlineData"]["mimeType"] == "image/png"
    assert in_result(FAR)[1] == {"fileData": {"mimeType": "image/png", "fileUri": "https://a.b/c.png"}}


def test_documents_are_seen_in_results_and_addresses_only_on_vertex():
    (result,) = in_result(PDF, FAR, thinking="gemini-level")
    assert [each["inlineData"]["mimeType"] for each in result["functionResponse"]["parts"]] == ["application/pdf"]
    assert "https://a.b/c.png, not shown" in result["functionResponse"]["response"]["output"]
    (result,) = in_result(FAR, thinking="gemini-level", vertex=True)
    assert result["functionResponse"]["parts"] == [
        {"fileData": {"mimeType": "image/png", "fileUri": "https://a.b/c.png"}}
    ]


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


@pytest.mark.parametrize("vertex", [True, False])
def test_files_in_cloud_storage_are_taken_on_vertex(vertex: bool):
    wire = GeminiWire(endpoint(vertex=vertex, profile=FULL))
    (part,) = body(wire, messages=[User((File("application/pdf", url="gs://x/y"),))])["contents"][0]["parts"]
    given = {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://x/y"}}
    assert part == (given if vertex else {"text": "[file of type application/pdf at gs://x/y, not shown]"})


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


def test_a_tool_need_not_be_called_while_the_model_thinks_where_that_is_refused():
    profile = msgspec.structs.replace(FULL, forced_calls_while_thinking=False)
    wire = GeminiWire(endpoint(profile=profile))
    thinking = body(wire, tools=TOOLS, tool_choice="required", thinking=Ask(level="high"))
    assert "toolConfig" not in thinking
    assert thinking["generationConfig"]["thinkingConfig"]["thinkingBudget"] > 0
    assert "toolConfig" in body(wire, tools=TOOLS, tool_choice="required")
    assert "toolConfig" in body(wire, tools=TOOLS, tool_choice="required", thinking=Ask(level="none"))


def test_tools_that_nothing_can_call_are_not_there(caplog: pytest.LogCaptureFixture):
    made = body(tools=(ToolSpec("never", "", {"type": "string"}),), tool_choice="required")
    assert made.keys() == {"contents"}
    assert "'never' is left out" in caplog.text


async def test_a_server_that_knows_no_json_schema_is_told_less(finish):
    words = "Invalid JSON payload received. Unknown name \"parametersJsonSchema\" at 'tools[0]': Cannot find field."
    async with ScriptedServer(error_reply(400, words), ANSWER, ANSWER) as server:
        model = model_at(server, GeminiWire, profile=FULL)
        await finish(model, tools=TOOLS)
        await finish(model, tools=TOOLS)
    refused, *again = (r.json["tools"][0]["functionDeclarations"] for r in server.requests)
    assert "parametersJsonSchema" in json.dumps(refused)
    for functions in again:
        assert "parametersJsonSchema" not in json.dumps(functions)
        assert [each["name"] for each in functions] == [tool.name for tool in TOOLS]
        for each in functions:
            types.FunctionDeclaration.model_validate(each)
    parts = {each["name"]: each.get("parameters", {}).get("properties", {}) for each in again[0]}
    assert parts["types"]["map"] == {"type": "OBJECT", "nullable": True}
    value = parts["union"]["value"]
    assert value["nullable"] is True
    assert [each["type"] for each in value["anyOf"]] == ["STRING", "ARRAY"]
    assert value["anyOf"][1]["items"] == {"type": "OBJECT"}
    assert parts["const"]["kind"] == {"type": "STRING", "enum": ["a"]}
    assert parts["tuple"]["at"]["items"]["type"]
    assert parts["draft"]["n"] == {"type": "INTEGER"}
    assert parts["bare"] == {}


# ---- settings


def test_a_schema_is_the_apis_own():
    config = body(output=OutputSchema("answer", CLOSED))["generationConfig"]
    assert (config["responseMimeType"], config["responseJsonSchema"]) == ("application/json", CLOSED)


async def test_a_schema_beside_tools_that_is_refused_is_put_in_words(finish):
    words = "Function calling with a response mime type: 'application/json' is unsupported"
    async with ScriptedServer(error_reply(400, words), ANSWER) as server:
        await finish(model_at(server, GeminiWire, profile=FULL), output=OutputSchema("answer", CLOSED), tools=TOOLS)
    refused, again = (r.json for r in server.requests)
    assert "responseJsonSchema" in refused["generationConfig"]
    assert "generationConfig" not in again
    assert "JSON schema" in again["systemInstruction"]["parts"][0]["text"]


def test_a_model_without_a_place_for_instructions_is_told_them_first():
    made = body(off={"instructions"}, instructions="Be brief.")
    assert made["contents"][0]["parts"] == [{"text": "Be brief."}, {"text": "hello"}]
    began = body(off={"instructions"}, instructions="Be brief.", messages=[Assistant((Text("hi"),)), user("go")])
    assert [content["parts"][0]["text"] for content in began["contents"]] == ["Be brief.", "hi", "go"]


def test_the_user_has_the_first_and_the_last_word():
    def words(*messages: Any) -> list[str]:
        asked = ModelRequest(conversation=Conversation(list(messages)))
        made = decode(GeminiWire(endpoint()).body(asked, ()).data)
        VENDOR.model_validate(made)
        assert [each["role"] for each in made["contents"]] == (["user", "model"] * 9)[: len(made["contents"])]
        return [part["text"] for content in made["contents"] for part in content["parts"]]

    hello, answer = user("hello"), Assistant((Text("hi"),))
    assert words() == ["(The conversation begins.)"]
    assert words(answer) == ["(The conversation begins.)", "hi", "(Go on.)"]
    assert words(hello, answer) == ["hello", "hi", "(Go on.)"]
    assert words(hello, answer, answer, hello, hello) == ["hello", "hi", "(Go on.)", "hi", "hello", "hello"]


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


def test_each_message_is_encoded_once(monkeypatch: pytest.MonkeyPatch):
    seen: list[Any] = []
    of = Parts.of
    monkeypatch.setattr(Parts, "of", lambda self, message: seen.append(message) or of(self, message))
    wire, conversation = GeminiWire(endpoint(profile=FULL)), Conversation(history("test:m"))
    asked = ModelRequest(conversation=conversation)
    for _ in range(3):
        wire.body(asked, ())
        conversation.messages.append(user("more"))
    wire.body(asked, ())
    assert len(seen) == len(conversation.messages)


def test_the_vendors_types_notice_what_is_wrong():
    with pytest.raises(ValidationError):
        VENDOR.model_validate({"contents": [{"role": "user", "pieces": []}]})
