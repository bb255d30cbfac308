"""What is sent: checked against the vendor's own request types, and for its stability from turn to turn."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from openai.types.chat import completion_create_params
from pydantic import TypeAdapter, ValidationError

from replan.messages import Assistant, Audio, File, Image, Refusal, Text, Thinking, ToolCall, ToolResult, User, user
from replan.model import Conversation, ModelProfile, OutputSchema, ToolSpec
from replan.settings import ModelSettings
from replan.testing import ScriptedServer, error_reply

PARAMETERS = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
TOOLS = (ToolSpec("look", "Look something up.", PARAMETERS), ToolSpec("stop", "", {"type": "object"}))
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}

HISTORY = [
    User((Text("see"), Image("image/png", data=b"\x89PNG"), Text("this"))),
    Assistant(
        (
            Thinking("hm", signature="s"),
            Text("I look."),
            ToolCall("c1", "look", {"key": "ü"}),
            ToolCall("c2", "stop", {}),
        )
    ),
    ToolResult("c1", "look", (Text("one"), Text("two"))),
    ToolResult("c2", "stop", (), is_error=True),
    Assistant((ToolCall("c3", "look", {}, raw='{"key": '),)),
    ToolResult("c3", "look", (Image("image/png", data=b"12345"), File("application/pdf", name="a.pdf"))),
    Assistant((Refusal("no"),)),
    user("go on"),
    Assistant(()),
    User(()),
]


@pytest.fixture(scope="module")
def vendor() -> Any:
    """The vendor's type of a streaming request, as a validator."""
    return TypeAdapter(completion_create_params.CompletionCreateParamsStreaming)


def read(value: Any) -> Any:
    """The validated value with its lazy iterators read, so that what is in them is validated too."""
    if isinstance(value, dict):
        return {key: read(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [read(item) for item in value]
    return value


def check(vendor: Any, body: dict) -> None:
    """The body is valid, and nothing in it is unknown: validation drops what the types do not have."""
    assert read(vendor.validate_python(body)) == body


@pytest.fixture
def sent(chat, finish):
    """The body that a request makes."""

    async def send(conversation: Conversation | None = None, options: dict | None = None, **request: object) -> dict:
        async with ScriptedServer("ok") as server:
            await finish(chat(server, **(options or {})), conversation, **request)
        return server.requests[0].json

    return send


async def test_a_plain_request_has_nothing_but_what_it_needs(sent, vendor):
    body = await sent(instructions="Be brief.", tools=TOOLS)
    check(vendor, body)
    assert list(body) == ["model", "messages", "tools", "stream", "stream_options"]
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Look something up.", "parameters": PARAMETERS},
        },
        {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


async def test_without_instructions_and_tools_there_are_none(sent, vendor):
    body = await sent()
    check(vendor, body)
    assert list(body) == ["model", "messages", "stream", "stream_options"]
    assert [message["role"] for message in body["messages"]] == ["user"]


async def test_every_kind_of_message_is_what_the_vendor_accepts(sent, vendor):
    body = await sent(Conversation(list(HISTORY)))
    check(vendor, body)
    see, calls, one, empty, raw, odd, refusal, _, nothing, silent = body["messages"]
    assert see["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    assert calls["content"] == "I look."
    assert calls["tool_calls"][0] == {
        "id": "c1",
        "type": "function",
        "function": {"name": "look", "arguments": '{"key":"ü"}'},
    }
    assert one == {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"}
    assert empty["content"]
    assert raw["content"] is None
    assert json.loads(raw["tool_calls"][0]["function"]["arguments"]) == {}
    assert "image/png" in odd["content"]
    assert "'a.pdf' of type application/pdf" in odd["content"]
    assert refusal["content"] == "no"
    assert nothing["content"]
    assert silent["content"]
    assert "hm" not in json.dumps(body["messages"])


async def test_all_options_together_are_what_the_vendor_accepts(sent, vendor):
    body = await sent(
        tools=TOOLS,
        tool_choice="required",
        output=OutputSchema("answer", CLOSED),
        max_output_tokens=50,
        temperature=0.0,
        options={"settings": ModelSettings(options={"seed": 7, "reasoning_effort": "low"})},
    )
    check(vendor, body)
    assert body["tool_choice"] == "required"
    assert body["temperature"] == 0.0
    assert body["seed"] == 7
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": CLOSED, "strict": True}


@pytest.mark.parametrize(("provider", "name"), [("openai", "max_completion_tokens"), ("other", "max_tokens")])
async def test_the_limit_has_the_name_that_the_provider_knows(sent, provider: str, name: str):
    body = await sent(options={"provider": provider, "settings": ModelSettings(max_output_tokens=9)})
    assert body[name] == 9


async def test_a_server_that_wants_the_other_name_of_the_limit_gets_it(chat, finish):
    def reply(request):
        if "max_tokens" in request.json:
            return error_reply(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return "ok"

    async with ScriptedServer(otherwise=reply) as server:
        await finish(chat(server), max_output_tokens=5)
        await finish(chat(server), max_output_tokens=6)
    assert [r.json.get("max_completion_tokens") for r in server.requests] == [None, 5, 6]


async def test_the_request_wins_over_the_settings_and_options_come_last(chat, finish):
    settings = ModelSettings(
        max_output_tokens=9, temperature=0.1, options={"seed": 1, "user": "s", "stream_options": None}
    )
    async with ScriptedServer("ok") as server:
        await finish(
            chat(server, settings=settings), max_output_tokens=5, temperature=0.7, options={"seed": 2, "model": "other"}
        )
    body = server.requests[0].json
    assert (body["max_tokens"], body["temperature"], body["seed"], body["user"]) == (5, 0.7, 2, "s")
    assert (body["model"], body["stream_options"]) == ("other", None)


async def test_a_schema_that_is_not_closed_is_not_strict(sent, vendor):
    body = await sent(output=OutputSchema("answer", PARAMETERS))
    check(vendor, body)
    assert body["response_format"]["json_schema"]["strict"] is False


@pytest.mark.parametrize(
    ("profile", "schema"),
    [
        (ModelProfile(structured_output="prompted"), CLOSED),
        (ModelProfile(), {"type": "array", "items": {"type": "string"}}),
    ],
)
async def test_a_schema_that_cannot_be_given_is_written_into_the_instructions(sent, profile, schema: dict):
    body = await sent(options={"profile": profile}, instructions="Be brief.", output=OutputSchema("answer", schema))
    assert "response_format" not in body
    system = body["messages"][0]["content"]
    assert system.startswith("Be brief.\n\n")
    assert json.dumps(schema, separators=(",", ":")) in system


async def test_a_server_that_takes_no_schema_is_asked_in_words_from_then_on(chat, finish):
    def reply(request):
        refuses = "response_format" in request.json
        return error_reply(400, "'response_format.type' must be one of text, json_object") if refuses else '{"a":"b"}'

    async with ScriptedServer(otherwise=reply) as server:
        for _ in range(2):
            done = await finish(chat(server), output=OutputSchema("answer", CLOSED))
            assert done.message.text == '{"a":"b"}'
        await finish(chat(server, profile=ModelProfile()), Conversation([user("no schema")]))
    assert ["response_format" in request.json for request in server.requests] == [True, False, False, False]
    assert "JSON schema" in server.requests[2].json["messages"][0]["content"]
    assert server.requests[3].json["messages"] == [{"role": "user", "content": "no schema"}]


async def test_one_refused_schema_does_not_end_schemas(chat, finish):
    invalid = error_reply(400, "Invalid schema for response_format 'answer': 'format' is not permitted")
    async with ScriptedServer(invalid, "{}", "{}") as server:
        for _ in range(2):
            await finish(chat(server), output=OutputSchema("answer", CLOSED))
    assert ["response_format" in request.json for request in server.requests] == [True, False, True]


async def test_a_model_that_refuses_a_forced_choice_is_left_to_choose(chat, finish):
    def reply(request):
        refuses = "tool_choice" in request.json
        return error_reply(400, "Thinking mode does not support this tool_choice") if refuses else "ok"

    async with ScriptedServer(otherwise=reply) as server:
        await finish(chat(server), tools=TOOLS, tool_choice="required")
    assert ["tool_choice" in request.json for request in server.requests] == [True, False]


async def test_a_choice_without_tools_is_not_sent(sent):
    assert "tool_choice" not in await sent(tool_choice="required")


@pytest.mark.parametrize("name", ["", "a.b", "with space", "ü" * 80])
async def test_a_name_that_the_model_made_up_is_replayed_as_one_that_is_accepted(sent, name: str):
    history = Conversation(
        [user("x"), Assistant((ToolCall("c", name, {}),)), ToolResult("c", name, (Text("unknown"),))]
    )
    replayed = (await sent(history))["messages"][1]["tool_calls"][0]["function"]["name"]
    assert 1 <= len(replayed) <= 64
    assert replayed.isascii()
    assert "." not in replayed


async def test_long_ids_of_other_providers_are_shortened_alike_in_call_and_result(sent):
    long = "toolu_" + "x" * 60
    history = Conversation(
        [user("x"), Assistant((ToolCall(long, "look", {}),)), ToolResult(long, "look", (Text("r"),))]
    )
    messages = (await sent(history))["messages"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
    assert len(messages[2]["tool_call_id"]) <= 40


async def test_lone_surrogates_are_replaced(sent):
    assert (await sent(Conversation([user("a\ud800b")])))["messages"][0]["content"] == "a\ufffdb"


async def test_images_go_as_url_as_file_or_as_a_note(sent, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"png")
    images = (
        Image("image/png", url="https://example.com/a.png"),
        Image("image/png", url=str(path)),
        Image("image/png", url=str(tmp_path / "missing.png")),
        Audio("audio/wav", data=b"123"),
    )
    parts = (await sent(Conversation([User(images)])))["messages"][0]["content"]
    assert parts[0]["image_url"]["url"] == "https://example.com/a.png"
    assert parts[1]["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert "cannot be read" in parts[2]["text"]
    assert parts[3] == {"type": "text", "text": "[audio of type audio/wav, 3 bytes, not shown]"}


async def test_a_model_without_eyes_gets_a_note_for_an_image(sent):
    history = Conversation([User((Text("see"), Image("image/png", data=b"12345")))])
    body = await sent(history, {"profile": ModelProfile(images=False)})
    assert body["messages"][0]["content"] == "see\n[image of type image/png, 5 bytes, not shown]"


async def test_headers_carry_the_key_and_what_the_caller_adds(chat, finish):
    async with ScriptedServer("ok", "ok") as server:
        await finish(chat(server, headers={"X-Team": "a"}))
        await finish(chat(server, api_key=None))
    first, second = (request.headers for request in server.requests)
    assert first["authorization"] == "Bearer sk-very-secret"
    assert first["x-team"] == "a"
    assert first["content-type"] == "application/json"
    assert "authorization" not in second
    assert "cookie" not in second


async def test_a_large_body_arrives_whole(chat, finish):
    async with ScriptedServer("ok") as server:
        await finish(chat(server), Conversation([user("x" * 3_000_000)]))
    assert len(server.requests[0].body) > 3_000_000


# --- from turn to turn


async def test_each_request_begins_with_the_bytes_of_the_one_before(chat, finish):
    conversation = Conversation([HISTORY[0]])
    async with ScriptedServer(otherwise="ok") as server:
        model = chat(server)
        for message in HISTORY[1:]:
            await finish(model, conversation, instructions="Rules.", tools=TOOLS)
            conversation.messages.append(message)
    bodies = [request.body for request in server.requests]
    for before, after in itertools.pairwise(bodies):
        prefix, rest = before.split(b'],"tools":')
        assert after.startswith(prefix + b",")
        assert after.endswith(b'],"tools":' + rest)


async def test_a_message_is_encoded_once(chat, finish):
    conversation = Conversation([user("first")])
    async with ScriptedServer(otherwise="ok") as server:
        model = chat(server)
        await finish(model, conversation)
        (fragments,) = conversation.encoded.values()
        kept = fragments[0]
        conversation.messages += [user("second"), user("third")]
        await finish(model, conversation)
        assert fragments[0] is kept
        assert len(fragments) == 3
        fragments[0] = b'{"role":"user","content":"from the store"}'
        await finish(model, conversation)
    assert server.requests[-1].json["messages"][0] == {"role": "user", "content": "from the store"}


async def test_models_that_encode_differently_do_not_share_fragments(chat, finish):
    conversation = Conversation([User((Image("image/png", data=b"1"),))])
    async with ScriptedServer(otherwise="ok") as server:
        await finish(chat(server), conversation)
        await finish(chat(server, profile=ModelProfile(images=False)), conversation)
    assert [b"image_url" in request.body for request in server.requests] == [True, False]


def test_the_vendor_types_notice_what_is_wrong(vendor):
    with pytest.raises(ValidationError):
        check(vendor, {"model": "m", "messages": [{"role": "tool", "content": "x"}], "stream": True})
    with pytest.raises(AssertionError):
        check(vendor, {"model": "m", "messages": [{"role": "user", "content": "x", "odd": 1}], "stream": True})
