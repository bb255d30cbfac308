"""Requests of the OpenAI Responses API (reference "Create a response")."""

import re
from collections.abc import Collection, Mapping

from replan.encoding import JSON, JSONObject, encode
from replan.model import Conversation, ModelRequest, OutputSchema, ToolSpec
from replan.models.body import ToolList, object_bytes
from replan.models.caching import cache_key
from replan.models.chat.request import endpoint_url, wire_id
from replan.models.fields import an_object
from replan.models.options import merge_options
from replan.models.schemas import openai_output, openai_parameters, openai_strict
from replan.models.sse import EventParser
from replan.models.structured import schema_instructions
from replan.models.thinking import resolve_thinking
from replan.models.wire import Body, Endpoint, refusing

from .items import items_of
from .reply import ResponsesReply

__all__ = ["ResponsesWire"]

_MOST_FORMS = 64
"""Schemas of outputs that are kept translated."""


class ResponsesWire:
    """`POST {base_url}/responses`. The API has no stop texts: `stop` is not sent."""

    objections: Mapping[str, re.Pattern[str]] = {
        "reasoning": re.compile(
            r"without its required|invalid_encrypted_content|encrypted content .{0,400}(verified|decrypted)"
            r"|\brs_\w+\W{1,4}not found",
            re.I | re.S,
        ),
        "summary": re.compile(r"reasoning\.summary|reasoning summar", re.I),
        "tool_choice": re.compile(r"tool.?choice", re.I),
        "output": re.compile(r"text\.format|response.?format|json_schema|structured.?output", re.I),
        "strict": re.compile(rf"invalid schema for function|{refusing(r'strict').pattern}", re.I | re.S),
        "encrypted": refusing(r"encrypted|\binclude\b"),
        "thinking": refusing(r"reasoning|thinking"),
        "sampling": refusing(r"temperature|top_p"),
        "prompt_cache_key": refusing(r"prompt_cache_key"),
        "store": refusing(r"\bstore\b"),
    }
    server_wide = frozenset(["prompt_cache_key", "store"])
    passing: Collection[str] = frozenset(["reasoning"])
    decoder = EventParser

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._profile = endpoint, endpoint.profile
        self._url = endpoint_url(endpoint.base_url, "/responses")
        self._tools, self._lenient = ToolList(_tool), ToolList(_lenient_tool)
        self._forms: dict[int, tuple[OutputSchema, JSONObject]] = {}
        sees = self._profile.images, self._profile.files, self._profile.result_images
        self._store = f"responses:{endpoint.name}:{sees}"

    def url(self, request: ModelRequest) -> str:
        """Where the request goes."""
        return self._url

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """None of its own."""
        return {}

    def reply(self, request: ModelRequest) -> ResponsesReply:
        """What collects the reply."""
        return ResponsesReply(self._endpoint.name, self._endpoint.auth.secrets)

    def taken(self, call_id: str, body: bytes) -> bool:
        """Whether the call id occurs in a request."""
        return b'"call_id":' + encode(wire_id(call_id)) in body

    def body(self, request: ModelRequest, off: Collection[str]) -> Body:
        """The request without the parts in `off`."""
        parts = {name: value for name, value in self._parts(request).items() if value and name not in off}
        if "thinking" not in parts:
            parts.pop("summary", None)
        instructions = request.instructions
        if request.output is not None and "output" not in parts:
            instructions = schema_instructions(instructions, request.output)
        encoded = {"model": encode(self._endpoint.model)}
        if instructions:
            encoded["instructions"] = encode(instructions)
        if self._tools.names(request.tools):
            encoded["tools"] = (self._lenient if "strict" in off else self._tools).encoded(request.tools)
        encoded["input"], reasons = self._input(request.conversation, with_reasoning="reasoning" not in off)
        settings: JSONObject = {"stream": True}
        if request.max_output_tokens is not None:
            settings["max_output_tokens"] = request.max_output_tokens
        settings = merge_options(settings, *parts.values(), request.options)
        encoded |= {name: encode(value) for name, value in settings.items()}
        inside = {"reasoning": reasons, "strict": b'"strict":true' in encoded.get("tools", b"")}
        return Body(object_bytes(encoded), frozenset([*parts, *(name for name, there in inside.items() if there)]))

    def _parts(self, request: ModelRequest) -> dict[str, JSONObject]:
        """The parts that some servers refuse and that are fields of their own, as these fields."""
        thinks, key = self._profile.thinking != "none", cache_key(request)
        thinking = resolve_thinking(request.thinking or None, self._profile)
        reasoning = an_object(thinking.get("reasoning"))
        summary = {"reasoning": {"summary": reasoning["summary"]}} if "summary" in reasoning else {}
        rest = {name: value for name, value in reasoning.items() if name != "summary"}
        return {
            "store": {"store": False},
            "encrypted": {"include": ["reasoning.encrypted_content"]} if thinks else {},
            "thinking": {**thinking, **({"reasoning": rest} if rest else {})},
            "summary": summary,
            "output": self._output(request),
            "tool_choice": self._choice(request),
            "sampling": self._sampling(request),
            "prompt_cache_key": {"prompt_cache_key": key} if key and self._profile.caching == "key" else {},
        }

    def _choice(self, request: ModelRequest) -> JSONObject:
        refused = request.thinking and request.thinking.wanted and not self._profile.forced_calls_while_thinking
        auto = request.tool_choice == "auto" or (refused and request.tool_choice == "required")
        return {} if auto or not self._tools.names(request.tools) else {"tool_choice": request.tool_choice}

    def _sampling(self, request: ModelRequest) -> JSONObject:
        given: JSONObject = {"temperature": request.temperature, "top_p": request.top_p}
        return {name: value for name, value in given.items() if value is not None} if self._profile.sampling else {}

    def _output(self, request: ModelRequest) -> JSONObject:
        output = request.output
        if output is None or self._profile.structured_output != "native" or output.schema.get("type") != "object":
            return {}
        known = self._forms.get(id(output))
        if known is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            known = self._forms[id(output)] = output, _form(output)
        return {"text": {"format": known[1]}}

    def _input(self, conversation: Conversation, *, with_reasoning: bool) -> tuple[bytes, bool]:
        """The items of the conversation, and whether reasoning is among them."""
        store = self._store if with_reasoning else f"{self._store}:bare"
        fragments = conversation.encoded.setdefault(store, [])
        reasons = conversation.encoded.setdefault(f"{store}:reasoning", [])
        for message in conversation.messages[len(fragments) :]:
            items = items_of(message, self._endpoint.name, self._profile, reasoning=with_reasoning)
            if not reasons and any(item["type"] == "reasoning" for item in items):
                reasons.append(len(fragments))
            fragments.append(b",".join(encode(item) for item in items))
        return b"[" + b",".join(fragments) + b"]", bool(reasons)


def _form(output: OutputSchema) -> JSONObject:
    schema = openai_output(output.schema)
    return {"type": "json_schema", "name": output.name, "schema": schema, "strict": openai_strict(schema)}


def _tool(tool: ToolSpec) -> JSONObject:
    parameters = openai_parameters(tool.parameters)
    described = {"description": tool.description} if tool.description else {}
    strict = openai_strict(parameters)
    return {"type": "function", "name": tool.name, **described, "parameters": parameters, "strict": strict}


def _lenient_tool(tool: ToolSpec) -> JSON:
    return {**_tool(tool), "strict": False}
