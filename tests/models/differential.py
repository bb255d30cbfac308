"""The same conversation as messages of ours and of pydantic-ai, and what both send and read of it."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
from anthropic import AsyncAnthropic
from msgspec.structs import replace
from oracles import PDF, PNG, TOOLS, model_at, request
from pydantic_ai import messages as theirs
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.bedrock import BedrockConverseModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.bedrock import BedrockProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

from replan.errors import ModelError
from replan.messages import Assistant, Message, Text, Thinking, ToolCall, ToolResult, User, user
from replan.model import Done, OutputSchema, ToolSpec
from replan.models.anthropic import AnthropicWire
from replan.models.bedrock import BedrockWire
from replan.models.chat import ChatWire
from replan.models.gemini import GeminiWire
from replan.models.profiles import profile_for
from replan.models.responses import ResponsesWire
from replan.settings import PromptCaching
from replan.settings import Thinking as Thinks
from replan.testing import HttpReply, ScriptedServer, error_reply

OURS: dict[str, Any] = {
    "chat": ChatWire, "responses": ResponsesWire, "anthropic": AnthropicWire, "gemini": GeminiWire,
    "bedrock": BedrockWire,
}  # fmt: skip
PROVIDERS = {"chat": "openai", "responses": "openai", "anthropic": "anthropic", "gemini": "google",
             "bedrock": "bedrock"}  # fmt: skip
NAMES = {"chat": "gpt-4o", "responses": "gpt-4o", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash",
         "bedrock": "us.anthropic.claude-sonnet-4-5-20250929-v1:0"}  # fmt: skip
WIRES = tuple(OURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A conversation on one wire, as both libraries are given it."""

    own: list[Message]
    other: list[Any]
    fields: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    tools: tuple[ToolSpec, ...] = ()
    output: OutputSchema | None = None
    model: str | None = None


def their_model(wire: str, base: str, name: str, closing: list[Any]) -> Any:
    """Their model at that server; what is to be closed is put into `closing`."""
    match wire:
        case "chat" | "responses":
            provider: Any = OpenAIProvider(base_url=f"{base}/v1", api_key="k")
            model = OpenAIChatModel if wire == "chat" else OpenAIResponsesModel
        case "anthropic":
            provider = AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=base, api_key="k", max_retries=0))
            model = AnthropicModel
        case "gemini":
            provider, model = GoogleProvider(api_key="k", base_url=base), GoogleModel
            closing.append(provider.client.aio.aclose)
            return model(name, provider=provider)
        case _:
            keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
            client = boto3.client("bedrock-runtime", endpoint_url=base, **keys)
            return BedrockConverseModel(name, provider=BedrockProvider(bedrock_client=client))
    closing.append(provider.client.close)
    return model(name, provider=provider)


@asynccontextmanager
async def their_model_at(server: ScriptedServer, wire: str, name: str) -> AsyncIterator[Any]:
    """Their model, closed at the end; what its libraries leave to the collector is collected here."""
    closing: list[Callable[[], Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        yield their_model(wire, server.base_url.removesuffix("/v1"), name, closing)
        for close in closing:
            await close()
        gc.collect()


async def their_body(wire: str, case: Case) -> Any:
    """What theirs sends; the server refuses it."""
    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
        for tool in case.tools
    ]
    asked: dict[str, Any] = {"function_tools": tools}
    if case.output:
        told = OutputObjectDefinition(json_schema=case.output.schema, name=case.output.name, strict=True)
        asked |= {"output_mode": "native", "output_object": told}
    async with ScriptedServer(otherwise=error_reply(400, "no")) as server:
        async with their_model_at(server, wire, case.model or NAMES[wire]) as model:
            try:
                await model.request(case.other, case.settings, ModelRequestParameters(**asked))
            except Exception as error:
                if not server.requests:
                    raise AssertionError(f"{wire}: theirs sent nothing: {error!r}") from error
        return server.requests[0].json


async def our_body(wire: str, case: Case) -> Any:
    """What ours sends; the server refuses it."""
    async with ScriptedServer(otherwise=error_reply(400, "no")) as server:
        model = our_model(server, wire, case.model or NAMES[wire])
        try:
            async for _ in model.stream(request(case.own, tools=case.tools, output=case.output, **case.fields)):
                pass
        except ModelError as error:
            if not server.requests:
                raise AssertionError(f"{wire}: ours sent nothing: {error!r}") from error
        return server.requests[0].json


def our_model(server: ScriptedServer, wire: str, name: str) -> Any:
    """Our model at that server, as `resolve` makes it."""
    provider, profile = PROVIDERS[wire], profile_for(PROVIDERS[wire], name)
    if wire == "responses" and profile.thinking == "effort":
        profile = replace(profile, thinking="reasoning")
    return model_at(server, OURS[wire], provider=provider, model=name, profile=profile)


def bodies(wire: str, case: Case) -> tuple[Any, Any]:
    """What ours and theirs send."""
    return asyncio.run(our_body(wire, case)), asyncio.run(their_body(wire, case))


# ---- replies


async def our_reply(wire: str, reply: HttpReply, tools: tuple[ToolSpec, ...]) -> Done:
    """What ours makes of these bytes."""
    async with ScriptedServer(reply) as server:
        *_, done = [delta async for delta in our_model(server, wire, NAMES[wire]).stream(request(tools=tools))]
        return done


async def their_reply(wire: str, reply: HttpReply, tools: tuple[ToolSpec, ...]) -> theirs.ModelResponse:
    """What theirs makes of these bytes."""
    given = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
        for tool in tools
    ]
    asked = ModelRequestParameters(function_tools=given)
    hello = [theirs.ModelRequest([theirs.UserPromptPart("hello")])]
    async with ScriptedServer(reply) as server, their_model_at(server, wire, NAMES[wire]) as model:
        async with model.request_stream(hello, {"max_tokens": 50}, asked) as stream:
            async for _ in stream:
                pass
        return stream.get()


# ---- conversations

PARAMETERS = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "level": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    "required": ["key"],
    "additionalProperties": False,
}
LOOK = (ToolSpec("look", "Look it up.", PARAMETERS),)
CLOSED = {
    "type": "object",
    "properties": {"price": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["price", "name"],
    "additionalProperties": False,
}
CALLS = (ToolCall("call_1", "look", {"key": "ü"}), ToolCall("call_2", "look", {"key": "b", "level": 2}))
BRIEF = "Be brief."


def asks(*parts: Any) -> theirs.ModelRequest:
    return theirs.ModelRequest(list(parts), instructions=BRIEF)


def says(text: str) -> theirs.ModelRequest:
    return asks(theirs.UserPromptPart(text))


def calls(*asked: ToolCall) -> list[theirs.ToolCallPart]:
    return [theirs.ToolCallPart(call.name, call.arguments, call.call_id) for call in asked]


def case(own: list[Message], other: list[Any], /, **more: Any) -> Case:
    """What all cases have, and more."""
    fields = {"instructions": BRIEF, "max_output_tokens": 2000, "prompt_caching": False, **more.pop("fields", {})}
    return Case(own=own, other=other, fields=fields, settings={"max_tokens": 2000, **more.pop("settings", {})}, **more)


TEXTS: tuple[list[Message], list[Any]] = (
    [user("hello"), Assistant((Text("hi"),)), user("and?")],
    [says("hello"), theirs.ModelResponse([theirs.TextPart("hi")]), says("and?")],
)


def turns(*, failed: bool = False) -> tuple[list[Message], list[Any]]:
    """A text and two calls in one reply, and their results; the second may be an error."""
    first = theirs.ToolReturnPart("look", "one", "call_1")
    second = theirs.ToolReturnPart("look", "two", "call_2", outcome="failed" if failed else "success")
    own: list[Message] = [
        user("look"),
        Assistant((Text("I look."), *CALLS)),
        ToolResult("call_1", "look", (Text("one"),)),
        ToolResult("call_2", "look", (Text("two"),), is_error=failed),
    ]
    return own, [
        says("look"),
        theirs.ModelResponse([theirs.TextPart("I look."), *calls(*CALLS)]),
        asks(first, second),
    ]


def seen() -> tuple[list[Message], list[Any]]:
    image = theirs.BinaryContent(PNG.data or b"", media_type="image/png")
    pdf = theirs.BinaryContent(PDF.data or b"", media_type="application/pdf")
    return [User((Text("see"), PNG, PDF))], [asks(theirs.UserPromptPart(["see", image, pdf]))]


SUMMARY = [{"type": "summary_text", "text": "First."}]


def thought(wire: str, name: str) -> tuple[list[Message], list[Any]]:
    """A signed thought before a call goes back to the model that had it."""
    endpoint, provider = f"{PROVIDERS[wire]}:{name}", PROVIDERS[wire]
    call = calls(CALLS[0])[0]
    parts: list[Any] = [theirs.ThinkingPart("First.", signature="c2ln", provider_name=provider), call]
    own = Thinking("First.", "c2ln", endpoint)
    if wire == "gemini":
        own, parts = Thinking("", "c2ln", endpoint), [call]
        call.provider_name, call.provider_details = "google", {"thought_signature": "c2ln"}
    if wire == "responses":
        own = Thinking("First.", "c2ln", endpoint, {"id": "rs_1", "summary": SUMMARY})
        parts[0].id = "rs_1"
    result = theirs.ToolReturnPart("look", "one", "call_1")
    return (
        [user("look"), Assistant((own, CALLS[0])), ToolResult("call_1", "look", (Text("one"),))],
        [says("look"), theirs.ModelResponse(parts, provider_name=provider), asks(result)],
    )


THINKS: dict[str, tuple[Thinks, dict[str, Any]]] = {
    "chat": (Thinks(level="high"), {"openai_reasoning_effort": "high"}),
    "responses": (Thinks(level="high"), {"openai_reasoning_effort": "high", "openai_reasoning_summary": "auto"}),
    "anthropic": (Thinks(budget_tokens=1024), {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}}),
    "gemini": (
        Thinks(budget_tokens=1024),
        {"google_thinking_config": {"thinking_budget": 1024, "include_thoughts": True}},
    ),
    "bedrock": (
        Thinks(budget_tokens=1024),
        {"bedrock_additional_model_requests_fields": {"thinking": {"type": "enabled", "budget_tokens": 1024}}},
    ),
}
CACHED = {
    wire: {f"{wire}_cache_tool_definitions": True, f"{wire}_cache_instructions": True, f"{wire}_cache_messages": True}
    for wire in ("anthropic", "bedrock")
}


def thinking(wire: str) -> Case:
    name = {"chat": "gpt-5-mini", "responses": "gpt-5-mini"}.get(wire, NAMES[wire])
    ours, settings = THINKS[wire]
    history = TEXTS if wire == "chat" else thought(wire, name)
    tools = () if wire == "chat" else LOOK
    return case(*history, model=name, fields={"thinking": ours}, settings=settings, tools=tools)


def caching(wire: str) -> Case:
    return case(*turns(), tools=LOOK, fields={"prompt_caching": PromptCaching()}, settings=CACHED[wire])


CASES: dict[str, Callable[[str], Case]] = {
    "texts": lambda wire: case(*TEXTS),
    "turns": lambda wire: case(*turns(), tools=LOOK),
    "error": lambda wire: case(*turns(failed=True), tools=LOOK),
    "seen": lambda wire: case(*seen()),
    "awkward": lambda wire: case(*TEXTS, tools=TOOLS),
    "output": lambda wire: case(*TEXTS, output=OutputSchema("answer", CLOSED)),
    "sampling": lambda wire: case(*TEXTS, fields={"temperature": 0.5}, settings={"temperature": 0.5}),
    "stop": lambda wire: case(*TEXTS, fields={"stop": ("END",)}, settings={"stop_sequences": ["END"]}),
    "thinking": thinking,
    "caching": caching,
}
