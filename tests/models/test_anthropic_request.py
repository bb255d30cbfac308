"""Requests of the Anthropic wire, against the vendor's own types."""

import itertools
import json
import re
from typing import Any

import msgspec
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from hypothesis import given
from hypothesis import strategies as st
from oracles import CLOSED, PDF, PNG, TOOLS, endpoint, history, model_at, request
from pydantic import TypeAdapter, ValidationError

from replan.encoding import decode, encode
from replan.errors import AuthError
from replan.messages import (
    Assistant,
    File,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    user,
)
from replan.model import Conversation, ModelProfile, OutputSchema
from replan.models.anthropic import AnthropicWire
from replan.models.anthropic.blocks import wire_id
from replan.settings import ModelSettings, PromptCaching
from replan.settings import Thinking as Ask
from replan.testing import ScriptedServer, error_reply

FULL = ModelProfile(
    images=True,
    files=True,
    result_images=True,
    caching="marks",
    thinking="budget",
    max_output_tokens=64_000,
    forced_calls_while_thinking=False,
)
ADAPTIVE = ModelProfile(images=True, thinking="adaptive", caching="marks")
ALWAYS = ModelProfile(thinking="adaptive", thinking_levels=("low", "high"), forced_calls_while_thinking=False)
OLDER = ("temperature", "top_p")
"""What the vendor's types have no more, and models before the newest take."""
VENDOR = TypeAdapter(MessageCreateParamsStreaming)


SIGNED = Assistant(
    (
        Thinking("first", "sig1", "test:m"),
        Thinking("", "sig2", "test:m"),
        Thinking("", None, "test:m", {"type": "redacted_thinking", "data": "ENC"}),
        ToolCall("c1", "bare", {}),
    )
)
TURN = [user("go"), SIGNED, ToolResult("c1", "bare", (Text("ok"),))]


def listed(value: Any) -> Any:
    """The validated value, its lazy lists read, so that what is in them is validated too."""
    if isinstance(value, dict):
        return {name: listed(each) for name, each in value.items()}
    if isinstance(value, str | bytes | int | float | bool | None):
        return value
    return [listed(each) for each in value]


def body(wire: AnthropicWire | None = None, off: Any = (), **fields: Any) -> dict[str, Any]:
    """The body of a request; it is what the vendor's types accept, and nothing in it is unknown."""
    made = decode((wire or AnthropicWire(endpoint(profile=FULL))).body(request(**fields), off).data)
    known = {name: value for name, value in made.items() if name not in OLDER}
    assert listed(VENDOR.validate_python(known)) == known
    return made


def marks(made: dict[str, Any]) -> int:
    return json.dumps(made).count('"cache_control"')


def test_a_plain_request_has_nothing_but_what_it_needs():
    wire = AnthropicWire(endpoint())
    assert body(wire) == {
        "model": "m",
        "max_tokens": 4096,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    }
    assert wire.url(request()) == "http://127.0.0.1:9/v1/messages"
    assert wire.headers(request()) == {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("base", ["https://a.b", "https://a.b/", "https://a.b/v1", "https://a.b/v1/messages"])
def test_a_base_url_may_end_in_several_ways(base: str):
    assert AnthropicWire(endpoint(base)).url(request()) == "https://a.b/v1/messages"


def test_betas_and_version_are_headers():
    wire = AnthropicWire(endpoint(betas=["a", "b"], anthropic_version="2024-01-01"))
    assert wire.headers(request()) == {"anthropic-beta": "a,b", "anthropic-version": "2024-01-01"}


def test_on_vertex_the_version_is_in_the_body_and_the_model_in_the_address():
    wire = AnthropicWire(endpoint("https://a.b/v1/projects/p/locations/l", vertex=True))
    made = decode(wire.body(request(), ()).data)
    assert made["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in made
    assert wire.url(request()).endswith("/locations/l/publishers/anthropic/models/m:streamRawPredict")
    assert wire.headers(request()) == {}


def test_every_kind_of_message_is_what_the_vendor_accepts():
    messages = body(messages=history("test:m"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"] * 1 + [
        "user", "assistant", "user", "assistant", "user"]  # fmt: skip
    see = messages[0]["content"]
    assert [part["type"] for part in see] == ["text", "image", "text", "document", "text", "document"]
    assert see[1]["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert see[3]["title"] == "a.pdf"
    assert see[4]["text"] == "[audio of type audio/wav, 4 bytes, not shown]"
    assert see[5]["source"] == {"type": "text", "media_type": "text/plain", "data": "text"}
    assert "of another" not in json.dumps(messages)
    results = messages[2]["content"]
    assert [part["type"] for part in results] == ["tool_result", "tool_result", "text"]
    assert [part["type"] for part in results[0]["content"]] == ["text", "text", "image"]
    assert results[1]["is_error"] is True
    assert messages[1]["content"][2] == {"type": "tool_use", "id": "c2", "name": "odd_name_", "input": {}}
    ids = [part for message in messages for part in message["content"] if part["type"] in ("tool_use", "tool_result")]
    assert ids[-1]["tool_use_id"] == ids[-2]["id"] != "c" * 80


def test_what_a_model_cannot_see_is_described():
    blind = ModelProfile()
    wire = AnthropicWire(endpoint(profile=blind))
    content = body(wire, messages=[User((PNG, PDF))])["messages"][0]["content"]
    assert [part["text"] for part in content] == [
        "[image of type image/png, 4 bytes, not shown]",
        "[file 'a.pdf' of type application/pdf, 6 bytes, not shown]",
    ]


def test_awkward_tools_are_what_the_vendor_accepts():
    made = body(tools=TOOLS, tool_choice="required")
    assert len(made["tools"]) == len(TOOLS)
    assert all(tool["input_schema"]["type"] == "object" for tool in made["tools"])
    assert "$ref" not in json.dumps(made["tools"])
    assert made["tool_choice"] == {"type": "any"}
    assert body(tools=TOOLS, tool_choice="none")["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in body(tools=TOOLS)


def test_a_conversation_that_begins_with_a_reply_has_a_word_before_it():
    messages = body(messages=[Assistant((Text("hi"),)), user("x")])["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]


def test_a_conversation_that_ends_with_a_reply_goes_on_and_that_stays_in_it():
    said = [user("x"), Assistant((Text("hi "),))]
    asked = body(messages=said)["messages"]
    assert [message["role"] for message in asked] == ["user", "assistant", "user"]
    after = body(messages=[*said, Assistant((Text("more"),)), user("y")])["messages"]
    assert after[:3] == asked
    assert [message["role"] for message in after[3:]] == ["assistant", "user"]


def test_an_error_has_nothing_but_texts():
    content = (Text("failed"), PNG, File("text/plain", name="log.txt", data=b"trace"))
    results = [ToolResult(name, "bare", content, is_error=name == "c1") for name in ("c1", "c2")]
    calls = Assistant((ToolCall("c1", "bare", {}), ToolCall("c2", "bare", {})))
    failed, fine = body(messages=[user("go"), calls, *results])["messages"][-1]["content"]
    assert [part["type"] for part in failed["content"]] == ["text", "text", "text"]
    assert failed["content"][2]["text"] == "log.txt:\ntrace"
    assert [part["type"] for part in fine["content"]] == ["text", "image", "document"]


def test_addresses_are_sent_where_the_server_fetches_them():
    content = (
        Image("image/png", url="https://a.b/c.png"),
        Image("image/svg+xml", url="https://a.b/c.svg"),
        Image("image/jpg", data=b"jpg"),
        File("application/pdf", name="d.pdf", url="https://a.b/d.pdf"),
        File("application/zip", name="e.zip", data=b"zip"),
    )
    parts = body(messages=[User(content)])["messages"][0]["content"]
    assert parts[0]["source"] == {"type": "url", "url": "https://a.b/c.png"}
    assert parts[1]["text"] == "[image of type image/svg+xml at https://a.b/c.svg, not shown]"
    assert parts[2]["source"]["media_type"] == "image/jpeg"
    assert (parts[3]["source"]["url"], parts[3]["title"]) == ("https://a.b/d.pdf", "d.pdf")
    assert parts[4]["text"] == "[file 'e.zip' of type application/zip, 3 bytes, not shown]"
    vertex = AnthropicWire(endpoint(profile=FULL, vertex=True))
    made = decode(vertex.body(request([User(content)]), ()).data)["messages"][0]["content"]
    assert [part["type"] for part in made] == ["text", "text", "image", "text", "text"]
    assert made[3]["text"] == "[file 'd.pdf' of type application/pdf at https://a.b/d.pdf, not shown]"


def test_what_cannot_be_read_is_described():
    content = (Image("image/png", url="gone.png"), File("text/plain", name="a.txt", data=b" \n"))
    parts = body(messages=[User(content)])["messages"][0]["content"]
    assert [part["text"] for part in parts] == [
        "[image of type image/png at gone.png, not shown]",
        "[file 'a.txt' of type text/plain, 2 bytes, not shown]",
    ]


IDS = st.text(min_size=1, max_size=80)


@given(IDS, IDS)
def test_ids_are_what_the_api_takes_and_stay_apart(one: str, two: str):
    found = [wire_id(each) for each in (one, two)]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each) for each in found)
    assert (found[0] == found[1]) == (one == two)
    assert found == [wire_id(each) for each in (one, two)]


# ---- structured output


def test_a_schema_is_the_apis_own_and_stands_beside_the_effort():
    wire = AnthropicWire(endpoint(profile=ADAPTIVE))
    made = body(wire, output=OutputSchema("answer", CLOSED), thinking=Ask(level="high"))
    assert made["output_config"]["format"] == {"type": "json_schema", "schema": CLOSED}
    assert made["output_config"]["effort"] == "high"


def test_a_schema_that_cannot_be_expressed_is_put_in_words():
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    made = body(output=OutputSchema("answer", schema))
    assert "output_config" not in made
    assert encode(schema).decode() in made["system"][0]["text"]


# ---- caching


def test_the_marks_are_behind_the_instructions_and_the_newest_message():
    made = body(instructions="Be brief.", messages=TURN, prompt_caching=PromptCaching(ttl="1h"))
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert made["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert made["messages"][-1]["content"][-1]["cache_control"] == mark
    assert marks(made) == 2
    assert marks(body(instructions="Be brief.", messages=TURN, prompt_caching=False)) == 0


PARTS = st.lists(st.sampled_from(["user", "call", "think", "answer"]), min_size=1, max_size=12)


@given(PARTS)
def test_from_turn_to_turn_the_prefix_stays_the_same_but_for_the_mark(kinds: list[str]):
    wire, conversation = AnthropicWire(endpoint(profile=FULL)), Conversation([user("go")])
    bodies: list[bytes] = []
    for number, kind in enumerate(kinds):
        conversation.messages += turn(kind, number)
        asked = request(tools=TOOLS, instructions="Be brief.", prompt_caching=PromptCaching())
        asked = msgspec.structs.replace(asked, conversation=conversation)
        bodies.append(wire.body(asked, ()).data)
        assert (
            bodies[-1]
            == AnthropicWire(endpoint(profile=FULL))
            .body(msgspec.structs.replace(asked, conversation=Conversation(list(conversation.messages))), ())
            .data
        )
    for before, after in itertools.pairwise(bodies):
        end = before.rindex(b',"cache_control"')
        assert before.count(b"cache_control") <= 2
        assert after.startswith(before[:end])


def turn(kind: str, number: int) -> list[Any]:
    match kind:
        case "user":
            return [user(f"words {number}")]
        case "answer":
            return [Assistant((Text(f"answer {number}"),)), user("next")]
        case _:
            thoughts = (Thinking("t", "s", "test:m"),) if kind == "think" else ()
            calls = (ToolCall(f"a{number}", "bare", {}), ToolCall(f"b{number}", "bare", {}))
            results = [ToolResult(each.call_id, "bare", (Text("r"),)) for each in calls]
            return [Assistant((*thoughts, *calls)), *results]


@given(PARTS)
def test_what_a_reply_was_given_to_stays_before_it(kinds: list[str]):
    wire, conversation = AnthropicWire(endpoint(profile=FULL)), Conversation([user("go")])
    asked = msgspec.structs.replace(request(), conversation=conversation)
    for number, kind in enumerate(kinds):
        before = decode(wire.body(asked, ()).data)["messages"]
        conversation.messages += turn(kind, number) if kind != "user" else [Assistant((Text("alone"),))]
        assert decode(wire.body(asked, ()).data)["messages"][: len(before)] == before


# ---- settings


def test_settings_and_options():
    options = {"metadata": {"user_id": "u"}, "service_tier": "auto", "output_config": {"effort": "low"}}
    made = body(stop=("END",), top_p=0.9, options=options, max_output_tokens=7)
    assert (made["stop_sequences"], made["top_p"], made["max_tokens"]) == (["END"], 0.9, 7)
    assert (made["metadata"], made["service_tier"]) == ({"user_id": "u"}, "auto")


def test_an_option_wins_over_everything():
    assert body(options={"max_tokens": 9}, max_output_tokens=7)["max_tokens"] == 9
    assert body(options={"system": "mine"}, instructions="Be brief.")["system"] == "mine"


def test_a_message_is_encoded_once():
    wire, conversation = AnthropicWire(endpoint()), Conversation([user("first")])
    wire.body(msgspec.structs.replace(request(), conversation=conversation), ())
    conversation.messages[0] = user("changed behind its back")
    conversation.messages.append(Assistant((Text("x"),)))
    made = decode(wire.body(msgspec.structs.replace(request(), conversation=conversation), ()).data)
    assert made["messages"][0]["content"][0]["text"] == "first"


async def test_key_and_version_are_sent(finish):
    async with ScriptedServer(otherwise=error_reply(401, "bad key very-secret-key")) as server:
        with pytest.raises(AuthError) as caught:
            await finish(model_at(server, AnthropicWire, settings=ModelSettings(timeout=5)))
    assert server.requests[0].headers["x-api-key"] == "very-secret-key"
    assert server.requests[0].path == "/v1/messages"
    assert "very-secret" not in str(caught.value)


def test_the_vendors_types_notice_what_is_wrong():
    with pytest.raises(ValidationError):
        listed(VENDOR.validate_python({"model": "m", "max_tokens": 1, "stream": True, "messages": [{"role": "x"}]}))
