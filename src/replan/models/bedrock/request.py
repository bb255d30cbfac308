"""Requests of Amazon Bedrock in one format for all models (API reference "ConverseStream" and "Converse")."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from urllib.parse import quote

from replan.encoding import JSON, JSONObject, decode, encode
from replan.messages import Assistant, Message, Thinking, ToolResult, User
from replan.model import Conversation, ModelRequest, OutputSchema, ToolSpec
from replan.models.body import ToolList, object_bytes
from replan.models.options import merge_options
from replan.models.schemas import anthropic_output, bedrock_parameters
from replan.models.structured import form_of, schema_instructions
from replan.models.thinking import resolve_thinking
from replan.models.turns import Turns
from replan.models.wire import Body, Endpoint

from .blocks import Blocks, text_block, wire_id
from .eventstream import EventStreamDecoder
from .families import family_of, thinks
from .reply import BedrockReply

__all__ = ["BedrockWire"]

_MAX_TOKENS = 4096
_LEAST_BUDGET = 1024
_BEFORE = encode(text_block("(The conversation begins.)"))
_BETWEEN = encode(text_block("(Noted.)"))
_BEHIND = encode(text_block("(Go on.)"))
_REFUSED = r"(not supported|unsupported|not permitted|not available|n't support|extraneous)"
_THINKING = r"(thinking|reasoning|effort)"


class BedrockWire:
    """`POST {base_url}/model/{model}/converse-stream`; `/converse` to a model that does not stream, or not with tools.

    A request without tools, or that forbids them, tells earlier calls and results in texts, because the API refuses
    them there; Claude is offered the tools and forbidden to call them. `options` are merged into the body as they are:
    what is a model's own belongs into `additionalModelRequestFields`.
    """

    objections: Mapping[str, re.Pattern[str]] = {
        "stream": re.compile(r"streaming", re.I),
        "tool_choice": re.compile(r"tool_?choice", re.I),
        "output": re.compile(r"output_?config|text_?format|structured.?output|json_schema", re.I),
        "cache": re.compile(r"prompt caching|cache_?point|cache_control", re.I),
        "thinking": re.compile(rf"{_THINKING}.{{0,60}}{_REFUSED}|{_REFUSED}.{{0,40}}{_THINKING}", re.I),
        "sampling": re.compile(r"temperature|top_?p\b", re.I),
        "stop": re.compile(r"stop_?sequences", re.I),
    }
    server_wide: Collection[str] = ()
    passing: Collection[str] = ()

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._profile = endpoint, endpoint.profile
        self._family = family_of(endpoint.model, endpoint.profile)
        self._url = f"{endpoint.base_url.rstrip('/')}/model/{quote(endpoint.model, safe='')}/converse"
        self._streams = True
        self._tools = ToolList(_tool)
        profile = self._profile
        takes = (profile.images, profile.files, profile.audio, profile.result_images)
        self._store = f"bedrock:{endpoint.name}:{''.join(str(int(can)) for can in takes)}"
        self.decoder: Callable[[], EventStreamDecoder] = partial(EventStreamDecoder, endpoint.name)

    def url(self, request: ModelRequest) -> str:
        """Where the request goes whose body was made last: a model either streams, or is known not to."""
        return f"{self._url}-stream" if self._streams else self._url

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """None of its own."""
        return {}

    def reply(self, request: ModelRequest) -> BedrockReply:
        """What collects the reply."""
        return BedrockReply(self._endpoint.name, self._endpoint.auth.secrets)

    def taken(self, call_id: str, body: bytes) -> bool:
        """Whether the call id occurs in a request."""
        return b'"toolUseId":' + encode(wire_id(call_id, self._family)) in body

    def body(self, request: ModelRequest, off: Collection[str]) -> Body:
        """The request without the parts in `off`."""
        self._streams = "stream" not in off
        asked = {} if "thinking" in off else self._thinking(request)
        output = None if "output" in off else self._output(request)
        mark = None if "cache" in off else self._mark(request)
        tools, choice = self._tool_config(request, asked, off)
        limit, asked = self._limit(request, asked)
        config = self._inference(request, asked, limit, off)
        additional = self._family.thinking(asked) | ({"tool_choice": choice} if choice == _NONE else {})
        fields: dict[str, bytes] = {}
        if config:
            fields["inferenceConfig"] = encode(config)
        if additional:
            fields["additionalModelRequestFields"] = encode(additional)
        if output is not None:
            fields["outputConfig"] = encode(output)
        if tools is not None:
            fields["toolConfig"] = tools
        if instructions := self._instructions(request, native=output is not None):
            fields["system"] = encode([text_block(instructions), *([mark] if mark else [])])
        fields["messages"] = self._messages(request.conversation, mark, words=tools is None)
        for name, value in request.options.items():
            fields[name] = encode(_merged(fields.get(name, b""), value))
        found = {
            "stream": self._streams,
            "tool_choice": choice,
            "output": output,
            "cache": mark,
            "thinking": asked,
            "sampling": config.keys() & {"temperature", "topP"},
            "stop": "stopSequences" in config,
        }
        return Body(object_bytes(fields), frozenset(part for part, value in found.items() if value))

    def _thinking(self, request: ModelRequest) -> JSONObject:
        """What asks for thinking. A turn that began without thoughts cannot go on with a budget for them."""
        asked = resolve_thinking(request.thinking or None, self._profile)
        messages = request.conversation.messages
        if self._profile.thinking != "budget" or not thinks(asked) or not _answers(messages):
            return asked
        said = next((m for m in reversed(messages) if isinstance(m, Assistant)), Assistant(()))
        own = any(isinstance(part, Thinking) and part.model == self._endpoint.name for part in said.content)
        return asked if own else {}

    def _limit(self, request: ModelRequest, asked: JSONObject) -> tuple[int | None, JSONObject]:
        """The cap of the reply, which for Claude is low where it is not given and must be above a budget for thoughts;
        and thinking with a budget below it.
        """
        most = self._profile.max_output_tokens
        limit = request.max_output_tokens or (most if self._family.claude else None)
        budget = asked.get("thinking", {}).get("budget_tokens")
        if budget is None:
            return limit, asked
        limit = limit or _MAX_TOKENS
        if request.max_output_tokens is not None or most is None:
            limit += budget
        limit = min(limit, most or limit)
        budget = max(_LEAST_BUDGET, min(budget, limit - 1))
        return max(limit, budget + 1), merge_options(asked, {"thinking": {"budget_tokens": budget}})

    def _inference(
        self, request: ModelRequest, asked: JSONObject, limit: int | None, off: Collection[str]
    ) -> JSONObject:
        """Settings, without those that the model refuses while it thinks."""
        found: JSONObject = {}
        bare = self._family.nova and "high" in self._family.thinking(asked).get("reasoningConfig", {}).values()
        if limit is not None and not bare:
            found["maxTokens"] = limit
        silent = bare or "sampling" in off or not self._profile.sampling or (self._family.claude and thinks(asked))
        if request.temperature is not None and not silent:
            found["temperature"] = request.temperature
        if request.top_p is not None and not silent:
            found["topP"] = request.top_p
        if request.stop and "stop" not in off:
            found["stopSequences"] = list(request.stop)
        return found

    def _tool_config(
        self, request: ModelRequest, asked: JSONObject, off: Collection[str]
    ) -> tuple[bytes | None, JSONObject | None]:
        """The tools, if they are offered, and the choice that is asked for, which the tools have in them unless it is
        Claude's way of having none.
        """
        forbidden = request.tool_choice == "none"
        if not self._tools.names(request.tools) or (forbidden and ("tool_choice" in off or not self._family.claude)):
            return None, None
        tools = b'{"tools":' + self._tools.encoded(request.tools)
        refused = thinks(asked) and not self._profile.forced_calls_while_thinking
        if forbidden:
            return tools + b"}", _NONE
        if request.tool_choice == "auto" or refused or "tool_choice" in off:
            return tools + b"}", None
        return tools + b',"toolChoice":' + encode(_ANY) + b"}", _ANY

    def _output(self, request: ModelRequest) -> JSONObject | None:
        if request.output is None or self._profile.structured_output != "native":
            return None
        return form_of(request.output, _form)

    def _mark(self, request: ModelRequest) -> JSONObject | None:
        caching = request.prompt_caching
        if not caching or self._profile.caching != "marks":
            return None
        long = {"ttl": "1h"} if caching.ttl == "1h" and not self._family.nova else {}
        return {"cachePoint": {"type": "default", **long}}

    def _instructions(self, request: ModelRequest, *, native: bool) -> str:
        asked = request.instructions
        if request.output is not None and not native:
            asked = schema_instructions(asked, request.output)
        return asked if asked.strip() else ""

    def _messages(self, conversation: Conversation, mark: JSONObject | None, *, words: bool) -> bytes:
        store = conversation.encoded.setdefault(f"{self._store}:{'words' if words else 'calls'}", [])
        if not store:
            store.append(Turns("content"))
        turns: Turns = store[0]
        blocks = Blocks(self._endpoint.name, self._profile, self._family, words)
        messages = conversation.messages
        for number, message in enumerate(messages[turns.count :], turns.count):
            role = "assistant" if isinstance(message, Assistant) else "user"
            if not turns.role and role == "assistant":
                turns.add("user", [_BEFORE])
            before = messages[number - 1] if number else None
            if self._family.alone and isinstance(message, User) and isinstance(before, ToolResult):
                turns.add("assistant", [_BETWEEN])
            turns.add(role, [encode(block) for block in blocks.of(message, number)])
            turns.count += 1
        closing = ("user", [_BEHIND]) if turns.role == "assistant" else None
        return turns.encoded(partial(_marked, encode(mark)) if mark else None, closing)


_ANY: JSONObject = {"any": {}}
_NONE: JSONObject = {"type": "none"}


def _answers(messages: list[Message]) -> bool:
    """Whether the conversation goes on behind a tool result."""
    return bool(messages) and isinstance(messages[-1], ToolResult)


def _marked(mark: bytes, blocks: list[bytes]) -> list[bytes]:
    """The blocks with a mark behind them; behind a thought there can be none."""
    return blocks if blocks[-1].startswith(b'{"reasoningContent"') else [*blocks, mark]


def _merged(ours: bytes, option: JSON) -> JSON:
    """The option over what the body has in its place, where both are objects."""
    if not ours.startswith(b"{") or not isinstance(option, dict):
        return option
    return merge_options({"": decode(ours)}, {"": option})[""]


def _tool(tool: ToolSpec) -> JSONObject:
    described = {"description": tool.description} if tool.description else {}
    return {"toolSpec": {"name": tool.name, **described, "inputSchema": {"json": bedrock_parameters(tool.parameters)}}}


def _form(output: OutputSchema) -> JSONObject | None:
    schema = anthropic_output(output.schema)
    if schema is None:
        return None
    described = {"name": output.name, "schema": encode(schema).decode()}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": described}}}
