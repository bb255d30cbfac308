"""The same conversation through our wires and through pydantic-ai's models: the bodies that arrive are the same.

Differences that are meant, by wire (field: ours, theirs, why):

- all: `stream`: we always stream. A tool choice of `auto` is said in theirs; it is what all APIs do without.
- chat: `strict` of a tool is said in theirs.
- responses: `store: false` and `include` are in ours, because nothing is to be kept at the provider. `strict` is always
  said in ours, `detail` of images too. Texts are lists of parts in theirs.
- anthropic: a text is always a block in ours. `is_error` is only sent where it is true.
- gemini: `responseModalities` and names of images are sent in theirs, as are checks of arguments (`VALIDATED`). Some
  names are in snake case in theirs; the API takes both. A result is under `output` in ours, as Google's guide has it.
  Unions of types are lists of types in ours. Unsigned calls are marked for all models in theirs, for those that need it
  in ours.
- gemini: a schema has the output's name as its title in theirs.
- bedrock: an empty `system` is sent in theirs. Results have `status` only where they failed.
"""

import base64
import gc
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from anthropic import AsyncAnthropic
from oracles import model_at, request
from pydantic_ai import messages as theirs
from pydantic_ai._output import OutputObjectDefinition
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.bedrock import BedrockConverseModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.bedrock import BedrockProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from replan.errors import ModelError
from replan.messages import Assistant, Image, Message, Text, Thinking, ToolCall, ToolResult, User, user
from replan.model import ModelProfile, OutputSchema, ToolSpec
from replan.models.anthropic import AnthropicWire
from replan.models.bedrock import BedrockWire
from replan.models.chat import ChatWire
from replan.models.gemini import GeminiWire
from replan.models.responses import ResponsesWire
from replan.testing import ScriptedServer, error_reply

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # their clients are not closed
]


@pytest.fixture(autouse=True)
def clients_end_here():
    """What their clients leave behind is collected before another test is blamed for it."""
    yield
    gc.collect()


PARAMETERS = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "level": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    "required": ["key"],
    "additionalProperties": False,
}
PNG = b"\x89PNG"
NAMES = {"chat": "gpt-4o", "responses": "gpt-4o", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash",
         "bedrock": "us.anthropic.claude-sonnet-4-5-20250929-v1:0"}  # fmt: skip
OURS = {
    "chat": ChatWire,
    "responses": ResponsesWire,
    "anthropic": AnthropicWire,
    "gemini": GeminiWire,
    "bedrock": BedrockWire,
}


def their_model(wire: str, base: str) -> Any:
    name = NAMES[wire]
    match wire:
        case "chat":
            return OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{base}/v1", api_key="k"))
        case "responses":
            return OpenAIResponsesModel(name, provider=OpenAIProvider(base_url=f"{base}/v1", api_key="k"))
        case "anthropic":
            client = AsyncAnthropic(base_url=base, api_key="k", max_retries=0)
            return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))
        case "gemini":
            return GoogleModel(name, provider=GoogleProvider(api_key="k", base_url=base))
        case _:
            keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
            client = boto3.client("bedrock-runtime", endpoint_url=base, **keys)
            return BedrockConverseModel(name, provider=BedrockProvider(bedrock_client=client))


async def their_body(
    wire: str, messages: list[Any], settings: ModelSettings, tools: bool, **asked_for: Any
) -> dict[str, Any]:
    definition = ToolDefinition(name="look", description="Look it up.", parameters_json_schema=PARAMETERS)
    asked = ModelRequestParameters(function_tools=[definition] if tools else [], **asked_for)
    with ScriptedServer(otherwise=error_reply(400, "no")) as server:
        with pytest.raises(Exception, match=r"(?s).*"):
            await their_model(wire, server.base_url.removesuffix("/v1")).request(messages, settings, asked)
        return server.requests[0].json


async def our_body(wire: str, messages: list[Message], tools: bool, **fields: Any) -> dict[str, Any]:
    profile = ModelProfile(images=True, files=True, result_images=True)
    specs = (ToolSpec("look", "Look it up.", PARAMETERS),) if tools else ()
    async with ScriptedServer(otherwise=error_reply(400, "no")) as server:
        options = {"provider": "openai"} if wire == "chat" else {}
        model = model_at(server, OURS[wire], model=NAMES[wire], profile=profile, **options)
        with pytest.raises(ModelError):
            async for _ in model.stream(request(messages, tools=specs, **fields)):
                pass
        return server.requests[0].json


CALLS = (ToolCall("call_1", "look", {"key": "ü"}), ToolCall("call_2", "look", {"key": "b", "level": 2}))
TEXTS: tuple[list[Message], list[Any]] = (
    [user("hello"), Assistant((Text("hi"),)), user("and?")],
    [
        theirs.ModelRequest([theirs.UserPromptPart("hello")]),
        theirs.ModelResponse([theirs.TextPart("hi")]),
        theirs.ModelRequest([theirs.UserPromptPart("and?")]),
    ],
)
TURNS: tuple[list[Message], list[Any]] = (
    [
        user("look"),
        Assistant((Text("I look."), *CALLS)),
        ToolResult("call_1", "look", (Text("one"),)),
        ToolResult("call_2", "look", (Text("two"),)),
    ],
    [
        theirs.ModelRequest([theirs.UserPromptPart("look")]),
        theirs.ModelResponse(
            [theirs.TextPart("I look."), *(theirs.ToolCallPart(c.name, c.arguments, c.call_id) for c in CALLS)]
        ),
        theirs.ModelRequest(
            [theirs.ToolReturnPart("look", "one", "call_1"), theirs.ToolReturnPart("look", "two", "call_2")]
        ),
    ],
)
IMAGE: tuple[list[Message], list[Any]] = (
    [User((Text("see"), Image("image/png", data=PNG)))],
    [theirs.ModelRequest([theirs.UserPromptPart(["see", theirs.BinaryContent(PNG, media_type="image/png")])])],
)
CASES: dict[str, tuple[tuple[list[Message], list[Any]], bool]] = {
    "texts": (TEXTS, False),
    "turns": (TURNS, True),
    "image": (IMAGE, False),
}


# ---- what is meant to differ is taken out of both


def without(body: Any, *names: str) -> Any:
    if isinstance(body, dict):
        return {name: without(value, *names) for name, value in body.items() if name not in names and value is not None}
    return [without(value, *names) for value in body] if isinstance(body, list) else body


def renamed(body: Any, names: dict[str, str]) -> Any:
    if isinstance(body, dict):
        return {names.get(name, name): renamed(value, names) for name, value in body.items()}
    return [renamed(value, names) for value in body] if isinstance(body, list) else body


def chat(body: dict[str, Any]) -> dict[str, Any]:
    return said_less(without(body, "stream", "stream_options", "strict"))


def responses(body: dict[str, Any]) -> dict[str, Any]:
    body = without(
        body, "stream", "store", "include", "strict", "type", "id", "status", "detail", "parallel_tool_calls"
    )
    for item in body["input"]:
        if isinstance(item.get("content"), list) and all(set(part) == {"text"} for part in item["content"]):
            item["content"] = "\n".join(part["text"] for part in item["content"])
    return said_less(body)


def said_less(body: dict[str, Any]) -> dict[str, Any]:
    """Without a tool choice that is what all APIs do anyway."""
    return {
        name: value for name, value in body.items() if name != "tool_choice" or value not in ("auto", {"type": "auto"})
    }


def anthropic(body: dict[str, Any]) -> dict[str, Any]:
    body = without(body, "stream")
    for message in body["messages"]:
        content = message["content"]
        message["content"] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in message["content"]:
            if part.get("is_error") is False:
                del part["is_error"]
            if isinstance(part.get("content"), str):
                part["content"] = [{"type": "text", "text": part["content"]}]
    if isinstance(body.get("system"), str):
        body["system"] = [{"type": "text", "text": body["system"]}]
    for tool in body.get("tools", []):
        tool.pop("strict", None)
    return said_less(body)


def gemini(body: dict[str, Any]) -> dict[str, Any]:
    names = {
        "mime_type": "mimeType",
        "parameters_json_schema": "parametersJsonSchema",
        "thought_signature": "thoughtSignature",
    }
    body = renamed(without(body, "role", "displayName", "responseModalities", "toolConfig", "title"), names)
    for content in body["contents"]:
        for part in content["parts"]:
            for kind in ("functionCall", "functionResponse"):
                part.get(kind, {}).pop("id", None)
            if response := part.get("functionResponse"):
                response["response"] = list(response["response"].values())
            if part.get("thoughtSignature") == UNSIGNED:
                del part["thoughtSignature"]
    for tool in body.get("tools", []):
        for function in tool["functionDeclarations"]:
            function["parametersJsonSchema"]["properties"].pop("level")
    return body


UNSIGNED = base64.b64encode(b"skip_thought_signature_validator").decode()


def bedrock(body: dict[str, Any]) -> dict[str, Any]:
    body = {name: value for name, value in without(body, "toolChoice").items() if value != []}
    for message in body["messages"]:
        for part in message["content"]:
            part.get("toolResult", {}).pop("status", None)
    return body


SAME: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "chat": chat, "responses": responses, "anthropic": anthropic, "gemini": gemini, "bedrock": bedrock,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("wire", OURS)
async def test_a_conversation_is_sent_as_the_other_library_sends_it(wire: str, case: str):
    (own, other), tools = CASES[case]
    settings = ModelSettings(max_tokens=50, temperature=0.5)
    if wire in ("anthropic", "bedrock"):
        settings.pop("temperature")
    given = {"max_output_tokens": 50, "temperature": settings.get("temperature"), "instructions": "Be brief."}
    told = [theirs.ModelRequest(m.parts, instructions="Be brief.") if m.kind == "request" else m for m in other]
    expected = SAME[wire](await their_body(wire, told, settings, tools))
    assert SAME[wire](await our_body(wire, own, tools, **given)) == expected


async def test_signed_thoughts_are_sent_as_the_other_library_sends_them():
    own: list[Message] = [user("look"), Assistant((Thinking("hm", "c2ln", "test:claude-sonnet-4-5"), CALLS[0])),
                          ToolResult("call_1", "look", (Text("one"),))]  # fmt: skip
    thought = theirs.ThinkingPart("hm", signature="c2ln", provider_name="anthropic")
    other = [
        theirs.ModelRequest([theirs.UserPromptPart("look")]),
        theirs.ModelResponse([thought, theirs.ToolCallPart("look", {"key": "ü"}, "call_1")], provider_name="anthropic"),
        theirs.ModelRequest([theirs.ToolReturnPart("look", "one", "call_1")]),
    ]
    expected = anthropic(await their_body("anthropic", other, ModelSettings(max_tokens=50), True))
    assert anthropic(await our_body("anthropic", own, True, max_output_tokens=50)) == expected


CLOSED = {
    "type": "object",
    "properties": {"price": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["price", "name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic", "gemini"])
async def test_a_schema_of_the_output_is_sent_as_the_other_library_sends_it(wire: str):
    output = OutputObjectDefinition(json_schema=CLOSED, name="answer", strict=True)
    asked = {"output_mode": "native", "output_object": output}
    expected = SAME[wire](await their_body(wire, TEXTS[1], ModelSettings(max_tokens=50), False, **asked))
    body = await our_body(wire, TEXTS[0], False, max_output_tokens=50, output=OutputSchema("answer", CLOSED))
    assert SAME[wire](body) == expected


@pytest.mark.parametrize("wire", ["chat", "anthropic", "gemini", "bedrock"])
async def test_stop_texts_are_sent_as_the_other_library_sends_them(wire: str):
    settings = ModelSettings(max_tokens=50, stop_sequences=["END"])
    expected = SAME[wire](await their_body(wire, TEXTS[1], settings, False))
    assert SAME[wire](await our_body(wire, TEXTS[0], False, max_output_tokens=50, stop=("END",))) == expected
