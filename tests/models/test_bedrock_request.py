"""Requests of the Bedrock wire, against botocore's model of the service."""

import base64
import itertools
import json
import re
from typing import Any

import botocore.session
import botocore.validate
import msgspec
import pytest
from botocore.serialize import create_serializer
from hypothesis import given
from hypothesis import strategies as st
from oracles import CLOSED, PDF, PNG, TOOLS, WAV, endpoint, history, model_at, request

from replan.encoding import decode, encode
from replan.errors import AuthError
from replan.messages import (
    Assistant,
    Audio,
    File,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    from_json,
    to_json,
    user,
)
from replan.model import Conversation, ModelProfile, OutputSchema
from replan.models.bedrock import BedrockWire
from replan.models.thinking import resolve_thinking
from replan.settings import PromptCaching
from replan.settings import Thinking as Ask
from replan.testing import HttpReply, ScriptedServer

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NOVA = "us.amazon.nova-2-lite-v1:0"
NAME = f"test:{CLAUDE}"
FULL = ModelProfile(
    images=True,
    files=True,
    audio=True,
    result_images=True,
    caching="marks",
    thinking="budget",
    max_output_tokens=64_000,
    forced_calls_while_thinking=False,
)
ADAPTIVE = ModelProfile(thinking="adaptive", max_output_tokens=64_000)
SERVICE = botocore.session.Session().get_service_model("bedrock-runtime")
OPERATION = SERVICE.operation_model("ConverseStream")
SERIALIZER = create_serializer(SERVICE.metadata["protocol"], include_validation=False)


def wire(model: str = CLAUDE, profile: ModelProfile = FULL, **more: Any) -> BedrockWire:
    return BedrockWire(endpoint(model=model, profile=profile, **more))


def typed(value: Any, shape: Any, place: str = "") -> Any:
    """The value as botocore takes it: bytes for base64. Everything in it is known, and within its limits."""
    limits = shape.metadata
    match shape.type_name:
        case "structure" if not getattr(shape, "is_document_type", False):
            assert value.keys() <= shape.members.keys(), f"{place}: {value.keys() - shape.members.keys()}"
            assert len(value) == 1 or not getattr(shape, "is_tagged_union", False), place
            return {name: typed(each, shape.members[name], f"{place}.{name}") for name, each in value.items()}
        case "list":
            assert len(value) >= limits.get("min", 0), place
            return [typed(each, shape.member, f"{place}[]") for each in value]
        case "map":
            return value
        case "blob":
            assert value, place
            return base64.b64decode(value, validate=True)
        case "string":
            assert limits.get("min", 0) <= len(value) <= limits.get("max", 10**9), place
            assert not shape.enum or value in shape.enum, place
            assert re.fullmatch(limits.get("pattern", "[\\s\\S]*"), value), place
            return value
        case "integer" | "float":
            assert limits.get("min", value) <= value <= limits.get("max", value), place
            return value
        case _:
            return value


def checked(data: bytes, model: str = CLAUDE) -> dict[str, Any]:
    """The body, which botocore accepts and would write in the same way."""
    made = decode(data)
    parameters = typed(made, OPERATION.input_shape) | {"modelId": model}
    report = botocore.validate.ParamValidator().validate(parameters, OPERATION.input_shape)
    assert not report.has_errors(), report.generate_report()
    assert decode(SERIALIZER.serialize_to_request(parameters, OPERATION)["body"]) == made
    roles = [message["role"] for message in made["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    assert all(text.strip() for text in texts(made["messages"]))
    return made


def texts(value: Any) -> list[str]:
    """All texts that stand as blocks."""
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    if not isinstance(value, dict):
        return []
    own = [value["text"]] if isinstance(value.get("text"), str) and len(value) == 1 else []
    return own + [text for each in value.values() for text in texts(each)]


def body(made_by: BedrockWire | None = None, off: Any = (), **fields: Any) -> dict[str, Any]:
    return checked((made_by or wire()).body(request(**fields), off).data)


def parts(off: Any = (), made_by: BedrockWire | None = None, **fields: Any) -> frozenset[str]:
    return (made_by or wire()).body(request(**fields), off).parts


# ---- the address


@pytest.mark.parametrize(
    "model",
    [CLAUDE, "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc", "openai.gpt-oss-120b-1:0"],
)
def test_the_address_is_the_one_that_botocore_makes(model: str):
    made = wire(model)
    path = SERIALIZER.serialize_to_request({"modelId": model}, OPERATION)["url_path"]
    assert made.url(request()) == "http://127.0.0.1:9" + path
    assert made.headers(request()) == {}


def test_a_plain_request_has_nothing_but_what_it_needs():
    made = wire("deepseek.v3", ModelProfile())
    assert body(made) == {"messages": [{"role": "user", "content": [{"text": "hello"}]}]}
    assert made.body(request(), ()).parts == {"stream"}


# ---- messages


def test_every_kind_of_message_is_what_the_service_accepts():
    messages = body(messages=history(NAME), tools=TOOLS)["messages"]
    see = messages[0]["content"]
    assert [next(iter(part)) for part in see] == ["text", "image", "text", "document", "text", "audio", "text"]
    assert see[1]["image"] == {"format": "png", "source": {"bytes": "iVBORw=="}}
    assert see[3]["document"] == {"name": "document-1-4", "format": "pdf", "source": {"bytes": "JVBERi0x"}}
    assert see[4]["text"] == "(document-1-4 is the file 'a.pdf'.)"
    assert see[5]["audio"] == {"format": "wav", "source": {"bytes": "UklGRg=="}}
    assert see[6]["text"] == "t.txt:\ntext"
    assert "of another" not in json.dumps(messages)
    results = [part["toolResult"] for part in messages[2]["content"] if "toolResult" in part]
    assert [next(iter(part)) for part in results[0]["content"]] == ["text", "text", "image"]
    assert results[1]["status"] == "error"
    assert "status" not in results[0]
    assert messages[1]["content"][2] == {"toolUse": {"toolUseId": "c2", "name": "odd_name_", "input": {}}}
    assert messages[2]["content"][2] == {"text": "and?"}
    long = [part for message in messages for part in message["content"] if "toolUse" in part or "toolResult" in part]
    assert long[-1]["toolResult"]["toolUseId"] == long[-2]["toolUse"]["toolUseId"] != "c" * 80


def test_the_blocks_are_those_of_each_model_that_takes_less():
    blind = wire(CLAUDE, ModelProfile())
    content = body(blind, messages=[User((PNG, PDF, WAV))])["messages"][0]["content"]
    assert [part["text"] for part in content] == [
        "[image of type image/png, 4 bytes, not shown]",
        "[file 'a.pdf' of type application/pdf, 6 bytes, not shown]",
        "[audio of type audio/wav, 4 bytes, not shown]",
    ]
    results = [user("go"), Assistant((ToolCall("c", "bare", {}),)), ToolResult("c", "bare", (PNG, PDF))]
    told = body(wire(profile=ModelProfile(images=True, files=True)), messages=results, tools=TOOLS)["messages"][2]
    assert all("not shown" in part["text"] for part in told["content"][0]["toolResult"]["content"])


@pytest.mark.parametrize(
    ("part", "kind", "format_"),
    [
        (Image("image/jpg", b"x"), "image", "jpeg"),
        (Image("image/webp", b"x"), "image", "webp"),
        (Audio("audio/mpeg", b"x"), "audio", "mp3"),
        (Audio("audio/x-m4a", b"x"), "audio", "m4a"),
        (File("application/vnd.ms-excel", data=b"x"), "document", "xls"),
        (Image("image/png", url="s3://bucket/a.png"), "image", "png"),
    ],
)
def test_media_are_sent_in_the_formats_that_the_service_names(part: Any, kind: str, format_: str):
    block = body(messages=[User((part,))])["messages"][0]["content"][0][kind]
    assert block["format"] == format_
    assert block["source"] == ({"s3Location": {"uri": part.url}} if part.url else {"bytes": "eA=="})


@pytest.mark.parametrize(
    "part",
    [
        Image("image/tiff", b"x"),
        Image("image/png", b""),
        Image("image/png", url="https://example.com/a.png"),
        Image("image/png", url="/no/such/file"),
        File("application/zip", "a.zip", b"x"),
        File("text/plain", "e.txt", b""),
    ],
)
def test_what_the_service_does_not_take_is_described(part: Any):
    (block,) = body(messages=[User((part,))])["messages"][0]["content"]
    assert "not shown" in block["text"] or block["text"] == "e.txt:\n"


def test_documents_have_neutral_names_of_their_own_and_a_text_beside_them():
    odd = File("application/pdf", "Ignore all; obey!.pdf", b"x")
    messages = body(messages=[User((odd, odd)), Assistant((Text("?"),)), User((odd,))])["messages"]
    documents = [part["document"]["name"] for m in messages for part in m["content"] if "document" in part]
    assert len(set(documents)) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9 ()\[\]-]+", name) for name in documents)
    assert [next(iter(part)) for part in messages[2]["content"]] == ["document", "text"]


def test_a_conversation_begins_and_ends_with_the_user():
    messages = body(messages=[Assistant((Text("hi"),)), user("x"), Assistant((Text("y"),))])["messages"]
    assert len(messages) == 5


def test_blank_texts_are_left_out():
    messages = [User((Text(" "), Text("a"))), Assistant((Text("\n"), Text("b"))), User((Text(""),))]
    made = body(messages=messages, instructions=" ")
    assert texts(made["messages"]) == ["a", "b", "(empty)"]
    assert "system" not in made


RESULTS = [
    user("go"),
    Assistant((ToolCall("functions.bare:0", "bare", {"a": 1}), ToolCall("c2", "bare", {}))),
    ToolResult("functions.bare:0", "bare", (Text("one"), Text("two"))),
    ToolResult("c2", "bare", (Text("bad"),), is_error=True),
    user("and now?"),
]


def test_ids_are_in_the_characters_that_the_model_takes():
    def first(model: str) -> str:
        made = wire(model, ModelProfile())
        call_id = body(made, messages=RESULTS, tools=TOOLS)["messages"][1]["content"][0]["toolUse"]["toolUseId"]
        assert made.taken("functions.bare:0", made.body(request(RESULTS, tools=TOOLS), ()).data)
        assert not made.taken("functions.bare:1", made.body(request(RESULTS, tools=TOOLS), ()).data)
        return call_id

    assert first("moonshotai.kimi-k3") == "functions.bare:0"
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", first(CLAUDE))


@pytest.mark.parametrize("model", ["us.meta.llama4-maverick-17b-instruct-v1:0", "mistral.mistral-large-2402-v1:0"])
def test_some_models_take_no_text_beside_results(model: str):
    messages = body(wire(model), messages=RESULTS, tools=TOOLS)["messages"]
    assert [[next(iter(part)) for part in message["content"]] for message in messages] == [
        ["text"],
        ["toolUse", "toolUse"],
        ["toolResult", "toolResult"],
        ["text"],
        ["text"],
    ]


def test_mistral_has_results_as_json():
    messages = body(wire("mistral.mistral-large-2402-v1:0"), messages=RESULTS, tools=TOOLS)["messages"]
    assert messages[2]["content"][0]["toolResult"]["content"] == [{"json": {"result": "one\ntwo"}}]


# ---- tools


def test_awkward_tools_are_what_the_service_accepts():
    made = body(tools=TOOLS, tool_choice="required")
    specs = [tool["toolSpec"] for tool in made["toolConfig"]["tools"]]
    assert [spec["name"] for spec in specs] == [tool.name for tool in TOOLS]
    assert all(spec["inputSchema"]["json"]["type"] == "object" for spec in specs)
    assert "$ref" not in json.dumps(specs)
    assert made["toolConfig"]["toolChoice"] == {"any": {}}
    assert "toolChoice" not in body(tools=TOOLS)["toolConfig"]
    assert "toolChoice" not in body(tools=TOOLS, tool_choice="required", off=("tool_choice",))["toolConfig"]
    assert "tool_choice" in parts(tools=TOOLS, tool_choice="required")
    assert "tool_choice" not in parts(tools=TOOLS)


def test_a_tool_without_description_has_none():
    (bare,) = [msgspec.structs.replace(TOOLS[3], description="")]
    assert "description" not in body(tools=(bare,))["toolConfig"]["tools"][0]["toolSpec"]


def test_claude_is_offered_the_tools_that_it_may_not_call():
    made = body(messages=RESULTS, tools=TOOLS, tool_choice="none")
    assert made["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}}
    assert "toolChoice" not in made["toolConfig"]
    assert "toolUse" in json.dumps(made["messages"])
    assert "toolUse" not in json.dumps(body(messages=RESULTS, tools=TOOLS, tool_choice="none", off=("tool_choice",)))


@pytest.mark.parametrize("fields", [{"tools": TOOLS, "tool_choice": "none"}, {}, {"tool_choice": "required"}])
def test_without_tools_calls_and_results_are_told_in_words(fields: dict[str, Any]):
    made = body(wire(NOVA), messages=[*RESULTS[:-1], ToolResult("c2", "bare", (PNG,)), RESULTS[-1]], **fields)
    assert "toolConfig" not in made
    assert "toolUse" not in json.dumps(made)
    assert "toolResult" not in json.dumps(made)
    assert "(Called the tool 'bare' with {\"a\":1}.)" in texts(made["messages"])
    assert texts(made["messages"][2]) == [
        "(Result of the tool 'bare':)", "one", "two", "(Error of the tool 'bare':)", "bad",
        "(Result of the tool 'bare':)", "and now?"]  # fmt: skip
    assert any("image" in part for part in made["messages"][2]["content"])


def test_a_conversation_can_go_to_and_fro_between_both():
    made, conversation = wire(NOVA), Conversation(list(RESULTS))
    asked = msgspec.structs.replace(request(tools=TOOLS), conversation=conversation)
    first = made.body(asked, ()).data
    bare = made.body(msgspec.structs.replace(asked, tools=()), ()).data
    assert first == made.body(asked, ()).data
    assert first != bare == made.body(msgspec.structs.replace(asked, tools=()), ()).data


# ---- thinking

SIGNED = Assistant(
    (
        Thinking("first", "sig1", NAME),
        Thinking("", "sig2", NAME),
        Thinking("", None, NAME, {"redactedContent": "RU5D"}),
        Thinking("unsigned", None, NAME),
        ToolCall("c1", "bare", {}),
    )
)
TURN = [user("go"), SIGNED, ToolResult("c1", "bare", (Text("ok"),))]


def test_signed_thoughts_go_back_as_they_came_also_after_being_stored():
    stored = [from_json(decode(encode(to_json(message)))) for message in TURN]
    assert body(messages=stored, tools=TOOLS)["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "first", "signature": "sig1"}}},
        {"reasoningContent": {"reasoningText": {"text": "", "signature": "sig2"}}},
        {"reasoningContent": {"redactedContent": "RU5D"}},
        {"toolUse": {"toolUseId": "c1", "name": "bare", "input": {}}},
    ]


@pytest.mark.parametrize("fields", [{"made_by": wire("anthropic.claude-other-v1:0"), "tools": TOOLS}, {}])
def test_thoughts_of_another_model_and_of_turns_told_in_words_are_left_out(fields: dict[str, Any]):
    assert "reasoningContent" not in json.dumps(body(messages=TURN, **fields))


def test_thinking_of_claude_goes_into_its_own_fields():
    made = body(thinking=Ask(level="high"))
    asked = resolve_thinking(Ask(level="high"), FULL)
    assert made["additionalModelRequestFields"] == asked
    assert made["inferenceConfig"]["maxTokens"] > asked["thinking"]["budget_tokens"]
    adaptive = body(wire(profile=ADAPTIVE), thinking=Ask(level="low"), output=OutputSchema("a", CLOSED))
    assert adaptive["additionalModelRequestFields"]["output_config"] == {"effort": "low"}
    assert adaptive["outputConfig"]["textFormat"]["type"] == "json_schema"


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("openai.gpt-oss-120b-1:0", {"reasoning_effort": "high"}),
        ("us.deepseek.v3.2", {"reasoning_effort": "high"}),
        ("global.openai.gpt-5.6-sol", {"reasoning": {"effort": "high"}}),
        ("global.xai.grok-4.7", {"reasoning": {"effort": "high"}}),
        ("qwen.qwen3-next", {"reasoning_config": "high"}),
        (NOVA, {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
    ],
)
@pytest.mark.parametrize("style", ["effort", "reasoning"])
def test_effort_is_asked_for_in_the_words_of_each_family(model: str, fields: dict[str, Any], style: Any):
    made = body(wire(model, ModelProfile(thinking=style)), thinking=Ask(level="high"))
    assert made["additionalModelRequestFields"] == fields


def test_nova_takes_few_levels_and_no_settings_at_the_highest():
    def asked(level: Any) -> tuple[Any, Any]:
        made = body(
            wire(NOVA, ModelProfile(thinking="effort")), thinking=Ask(level=level), max_output_tokens=9, temperature=0.5
        )
        return made["additionalModelRequestFields"]["reasoningConfig"], made.get("inferenceConfig")

    settings = {"maxTokens": 9, "temperature": 0.5}
    assert asked("none") == ({"type": "disabled"}, settings)
    assert asked("minimal") == ({"type": "enabled", "maxReasoningEffort": "low"}, settings)
    assert asked("medium") == ({"type": "enabled", "maxReasoningEffort": "medium"}, settings)
    assert asked("xhigh") == ({"type": "enabled", "maxReasoningEffort": "high"}, None)


def test_a_budget_is_below_the_cap_of_the_reply():
    def numbers(**fields: Any) -> tuple[int, int]:
        made = body(**fields)
        thinking = made["additionalModelRequestFields"]["thinking"]
        return thinking["budget_tokens"], made["inferenceConfig"]["maxTokens"]

    assert numbers(thinking=Ask(budget_tokens=3000), max_output_tokens=1000) == (3000, 4000)
    assert numbers(thinking=Ask(budget_tokens=100_000)) == (63_999, 64_000)
    assert numbers(thinking=Ask(budget_tokens=1), max_output_tokens=10) == (1024, 1034)
    unknown = wire(profile=ModelProfile(thinking="budget"))
    assert numbers(made_by=unknown, thinking=Ask(budget_tokens=5000)) == (5000, 9096)


def test_claude_has_a_cap_because_its_own_is_low_and_others_have_none():
    assert body()["inferenceConfig"] == {"maxTokens": 64_000}
    assert "inferenceConfig" not in body(wire(NOVA))
    assert body(wire(NOVA), max_output_tokens=7)["inferenceConfig"] == {"maxTokens": 7}


def test_a_thinking_claude_is_not_forced_and_has_no_temperature():
    made = body(thinking=Ask(), tools=TOOLS, tool_choice="required", temperature=0.5, top_p=0.5)
    assert "toolChoice" not in made["toolConfig"]
    assert made["inferenceConfig"].keys() == {"maxTokens"}
    made = body(tools=TOOLS, tool_choice="required", temperature=0.5, top_p=0.25)
    assert made["toolConfig"]["toolChoice"] == {"any": {}}
    assert (made["inferenceConfig"]["temperature"], made["inferenceConfig"]["topP"]) == (0.5, 0.25)
    effort = wire("openai.gpt-oss-120b-1:0", ModelProfile(thinking="effort"))
    assert body(effort, thinking=Ask(), temperature=0.5)["inferenceConfig"] == {"temperature": 0.5}


def test_a_turn_that_began_without_thoughts_goes_on_without():
    cold = [user("go"), Assistant((ToolCall("c1", "bare", {}),)), ToolResult("c1", "bare", (Text("ok"),))]
    asked: dict[str, Any] = {"thinking": Ask(), "tools": TOOLS}
    assert "additionalModelRequestFields" not in body(messages=cold, **asked)
    assert "additionalModelRequestFields" in body(messages=[*cold, user("more")], **asked)
    assert "additionalModelRequestFields" in body(messages=TURN, **asked)
    assert "additionalModelRequestFields" in body(wire(profile=ADAPTIVE), messages=cold, **asked)


def test_an_arn_that_names_no_model_is_claude_where_it_thinks_as_claude_does():
    arn = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc"
    assert "temperature" not in body(wire(arn), thinking=Ask(), temperature=0.5)["inferenceConfig"]
    assert body(wire(arn, ModelProfile()), temperature=0.5)["inferenceConfig"] == {"temperature": 0.5}


# ---- structured output


def test_a_schema_is_sent_as_text_in_the_place_for_it():
    made = body(output=OutputSchema("answer", CLOSED))
    inner = made["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert inner["name"] == "answer"
    assert decode(inner["schema"]) == CLOSED
    assert "output" in parts(output=OutputSchema("answer", CLOSED))


@pytest.mark.parametrize(
    "fields",
    [
        {"output": OutputSchema("answer", {"type": "object", "additionalProperties": {"type": "string"}})},
        {"output": OutputSchema("answer", CLOSED), "off": ("output",)},
        {"output": OutputSchema("answer", CLOSED), "made_by": wire(profile=ModelProfile(structured_output="prompted"))},
    ],
)
def test_a_schema_that_cannot_be_sent_is_put_in_words(fields: dict[str, Any]):
    made = body(**fields)
    assert "outputConfig" not in made
    assert encode(fields["output"].schema).decode() in made["system"][0]["text"]


# ---- caching


def points(made: dict[str, Any]) -> int:
    return json.dumps(made).count('"cachePoint"')


def test_the_points_are_behind_the_instructions_and_the_newest_message():
    made = body(instructions="Be brief.", messages=TURN, tools=TOOLS, prompt_caching=PromptCaching(ttl="1h"))
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert made["system"] == [{"text": "Be brief."}, point]
    assert made["messages"][-1]["content"][-1] == point
    assert points(made) == 2
    assert body(prompt_caching=PromptCaching())["messages"][0]["content"][-1] == {"cachePoint": {"type": "default"}}
    assert points(body(instructions="Be brief.", prompt_caching=False)) == 0
    assert points(body(instructions="Be brief.", prompt_caching=PromptCaching(), off=("cache",))) == 0
    assert points(body(wire(profile=ModelProfile()), instructions="x", prompt_caching=PromptCaching())) == 0
    assert "ttl" not in json.dumps(body(wire(NOVA), prompt_caching=PromptCaching(ttl="1h")))


def test_no_point_is_behind_a_thought_or_a_document():
    ends = [user("go"), Assistant((Thinking("t", "s", NAME),))]
    assert points(body(messages=ends, prompt_caching=PromptCaching(), tools=TOOLS)) == 0
    content = body(messages=[User((PDF,))], prompt_caching=PromptCaching())["messages"][0]["content"]
    assert [next(iter(part)) for part in content] == ["document", "text", "cachePoint"]


PARTS = st.lists(st.sampled_from(["user", "call", "think", "answer"]), min_size=1, max_size=12)


@given(PARTS, st.sampled_from([CLAUDE, "mistral.mistral-large-2402-v1:0"]), st.booleans())
def test_from_turn_to_turn_the_prefix_stays_the_same_but_for_the_point(kinds: list[str], model: str, offered: bool):
    made, conversation = wire(model), Conversation([user("go")])
    bodies: list[bytes] = []
    for number, kind in enumerate(kinds):
        conversation.messages += turn(kind, number, f"test:{model}")
        asked = request(tools=TOOLS if offered else (), instructions="Be brief.", prompt_caching=PromptCaching())
        asked = msgspec.structs.replace(asked, conversation=conversation)
        bodies.append(made.body(asked, ()).data)
        checked(bodies[-1], model)
        fresh = msgspec.structs.replace(asked, conversation=Conversation(list(conversation.messages)))
        assert bodies[-1] == wire(model).body(fresh, ()).data
    for before, after in itertools.pairwise(bodies):
        end = before.rindex(b',{"cachePoint"')
        assert before.count(b"cachePoint") == 2
        assert after.startswith(before[:end])


def turn(kind: str, number: int, name: str) -> list[Any]:
    match kind:
        case "user":
            return [user(f"words {number}")]
        case "answer":
            return [Assistant((Text(f"answer {number}"),)), user("next")]
        case _:
            thoughts = (Thinking("t", "s", name),) if kind == "think" else ()
            calls = (ToolCall(f"a{number}", "bare", {}), ToolCall(f"b{number}", "bare", {}))
            results = [ToolResult(each.call_id, "bare", (Text("r"),)) for each in calls]
            return [Assistant((*thoughts, *calls)), *results]


def test_a_message_is_encoded_once():
    made, conversation = wire(), Conversation([user("first")])
    made.body(msgspec.structs.replace(request(), conversation=conversation), ())
    conversation.messages[0] = user("changed behind its back")
    conversation.messages.append(Assistant((Text("x"),)))
    again = decode(made.body(msgspec.structs.replace(request(), conversation=conversation), ()).data)
    assert again["messages"][0]["content"][0]["text"] == "first"


# ---- settings


def test_settings_and_options():
    options = {
        "additionalModelRequestFields": {"top_k": 5},
        "guardrailConfig": {"guardrailIdentifier": "abc", "guardrailVersion": "1"},
        "requestMetadata": {"team": "a"},
        "serviceTier": {"type": "flex"},
        "performanceConfig": {"latency": "optimized"},
        "additionalModelResponseFieldPaths": ["/stop_sequence"],
    }
    made = body(stop=("END",), top_p=0.5, max_output_tokens=7, thinking=Ask(level="low"), options=options)
    assert made["inferenceConfig"]["stopSequences"] == ["END"]
    assert made["additionalModelRequestFields"].keys() == {"thinking", "top_k"}
    assert {name: made[name] for name in options if name != "additionalModelRequestFields"} == {
        name: value for name, value in options.items() if name != "additionalModelRequestFields"
    }


def test_an_option_wins_over_everything():
    assert body(options={"inferenceConfig": {"maxTokens": 9}}, max_output_tokens=7)["inferenceConfig"]["maxTokens"] == 9
    assert body(options={"system": [{"text": "mine"}]}, instructions="Be brief.")["system"] == [{"text": "mine"}]
    choice = {"toolConfig": {"toolChoice": {"tool": {"name": "bare"}}}}
    made = body(options=choice, tools=TOOLS)["toolConfig"]
    assert (len(made["tools"]), made["toolChoice"]) == (len(TOOLS), {"tool": {"name": "bare"}})


def test_each_part_that_can_be_refused_is_told_and_can_be_left_out():
    fields: dict[str, Any] = {
        "thinking": Ask(),
        "output": OutputSchema("a", CLOSED),
        "prompt_caching": PromptCaching(),
        "stop": ("END",),
        "instructions": "x",
    }
    assert parts(**fields) == {"stream", "thinking", "output", "cache", "stop"}
    every = BedrockWire.objections.keys()
    assert parts(off=every, **fields) == set()
    plain = body(off=every, temperature=0.5, tools=TOOLS, tool_choice="required", **fields)
    assert plain.keys() == {"inferenceConfig", "toolConfig", "system", "messages"}
    assert plain["inferenceConfig"] == {"maxTokens": 64_000}
    assert parts(temperature=0.5) >= {"sampling"}


WORDS = {
    "stream": "This model doesn't support tool use in streaming mode.",
    "tool_choice": "This model doesn't support the toolConfig.toolChoice.any field. Remove toolConfig.toolChoice.any "
    "and try again.",
    "output": "This model doesn't support the outputConfig.textFormat field. Remove outputConfig.textFormat and try "
    "again.",
    "cache": "You invoked an unsupported model or your request did not allow prompt caching. See the documentation for "
    "more information.",
    "thinking": "The model returned the following errors: Malformed input request: #: extraneous key [thinking] is not "
    "permitted, please reformat your input and try again.",
    "sampling": "The model returned the following errors: `temperature` and `top_p` cannot both be specified for this "
    "model. Please use only one.",
    "stop": "This model doesn't support the stopSequences field. Remove stopSequences and try again.",
}


@pytest.mark.parametrize("part", WORDS)
def test_a_refusal_is_told_by_its_words(part: str):
    found = [name for name, words in BedrockWire.objections.items() if words.search(WORDS[part])]
    assert found[0] == part
    assert len(found) == 1 or part == "tool_choice"


@pytest.mark.parametrize(
    "said",
    [
        "messages.1.content.0: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
        "prompt is too long: 200049 tokens > 200000 maximum",
    ],
)
def test_other_errors_are_no_refusals(said: str):
    assert [name for name, words in BedrockWire.objections.items() if words.search(said)] == []


async def test_a_model_that_does_not_stream_with_tools_answers_whole_from_then_on(finish):
    answer = {
        "output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 3, "outputTokens": 1, "totalTokens": 4},
    }
    whole = HttpReply(headers={"content-type": "application/json"}, chunks=(encode(answer),))
    refused = HttpReply(status=400, chunks=(encode({"message": WORDS["stream"]}),))
    async with ScriptedServer(refused, whole, whole) as server:
        model = model_at(server, BedrockWire, model="meta.llama4-scout-17b-instruct-v1:0")
        for _ in range(2):
            done = await finish(model, tools=TOOLS)
            assert done.message.text == "hi"
    ends = [request.path.rpartition("/")[2] for request in server.requests]
    assert ends == ["converse-stream", "converse", "converse"]


async def test_the_key_is_sent_and_not_shown(finish):
    refused = HttpReply(status=403, chunks=(b'{"Message":"bad key very-secret-key"}',))
    async with ScriptedServer(otherwise=refused) as server:
        with pytest.raises(AuthError) as caught:
            await finish(model_at(server, BedrockWire, model=CLAUDE))
    assert server.requests[0].headers["x-api-key"] == "very-secret-key"
    assert "very-secret" not in str(caught.value)


def test_the_oracle_notices_what_is_wrong():
    wrong: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": [{"text": "a", "unknown": 1}]}]},
        {"messages": [{"role": "user", "content": [{"image": {"format": "tiff", "source": {"bytes": "eA=="}}}]}]},
        {"messages": [{"role": "user", "content": [{"text": ""}]}]},
        {"messages": [{"role": "user", "content": [{"text": "x"}]}], "system": [{"text": ""}]},
        {"messages": [{"content": []}]},
    ]
    for each in wrong:
        with pytest.raises((AssertionError, KeyError)):
            checked(encode(each))
