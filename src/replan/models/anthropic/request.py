"""Requests of the Anthropic Messages API (reference "Create a message", version 2023-06-01)."""

import re
from collections.abc import Callable, Collection, Mapping

from replan.encoding import JSON, JSONObject, encode
from replan.messages import Assistant, Thinking, ToolResult
from replan.model import Conversation, ModelRequest, ToolSpec
from replan.models.body import ToolList, object_bytes
from replan.models.options import merge_options
from replan.models.schemas import anthropic_output, anthropic_parameters
from replan.models.sse import EventParser
from replan.models.structured import schema_instructions
from replan.models.thinking import resolve_thinking
from replan.models.turns import Turns
from replan.models.wire import Body, Endpoint, refusing

from .blocks import blocks_of, text_block, wire_id
from .reply import AnthropicReply

__all__ = ["AnthropicWire"]

_MAX_TOKENS = 4096
_ENCODED = ("tools", "system", "messages")
"""Fields that are put in encoded, over which an option of their name counts."""
_LEAST_BUDGET = 1024
_BEFORE = encode(text_block("(The conversation begins.)"))
_BEHIND = encode(text_block("(Go on.)"))


class AnthropicWire:
    """`POST {base_url}/v1/messages`; with the option `vertex`, `publishers/anthropic/models/{model}:streamRawPredict`.

    Options: `anthropic_version`, `betas` (names for the `anthropic-beta` header), `vertex`.
    """

    objections: Mapping[str, re.Pattern[str]] = {
        "tool_choice": re.compile(r"tool.?choice", re.I),
        "output": re.compile(r"output_config|output.?format|structured.?output|json_schema", re.I),
        "thinking": refusing(r"thinking|effort"),
        "cache": refusing(r"cache_control|prompt caching"),
    }
    server_wide: Collection[str] = ()
    decoder = EventParser

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._profile = endpoint, endpoint.profile
        self._vertex = bool(endpoint.options.get("vertex"))
        self._url = self._address(endpoint)
        self._tools = ToolList(_tool)
        self._store = f"anthropic:{endpoint.name}"

    def url(self, request: ModelRequest) -> str:
        """Where the request goes."""
        return self._url

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """The version of the API and the betas."""
        betas = self._endpoint.options.get("betas") or ()
        beta = ",".join([betas] if isinstance(betas, str) else betas)
        found = {"anthropic-beta": beta} if beta else {}
        if not self._vertex:
            found["anthropic-version"] = self._endpoint.options.get("anthropic_version") or "2023-06-01"
        return found

    def reply(self, request: ModelRequest) -> AnthropicReply:
        """What collects the reply."""
        return AnthropicReply(self._endpoint.name, self._endpoint.auth.secrets)

    def taken(self, call_id: str, body: bytes) -> bool:
        """Whether the call id occurs in a request."""
        return b'"id":' + encode(wire_id(call_id)) in body

    def body(self, request: ModelRequest, off: Collection[str]) -> Body:
        """The request without the parts in `off`."""
        asked = {} if "thinking" in off else self._thinking(request)
        output = None if "output" in off else self._output(request)
        choice = None if "tool_choice" in off else self._choice(request, asked)
        caching = None if "cache" in off or self._profile.caching != "marks" else request.prompt_caching or None
        mark = {"type": "ephemeral", **({"ttl": "1h"} if caching.ttl == "1h" else {})} if caching else None
        fields: JSONObject = (
            {"anthropic_version": "vertex-2023-10-16"} if self._vertex else {"model": self._endpoint.model}
        )
        limit, asked = self._limit(request, asked)
        fields |= {"max_tokens": limit, "stream": True, **self._sampling(request, asked), **asked}
        if output is not None:
            form = {"format": {"type": "json_schema", "schema": output}}
            fields = merge_options(fields, {"output_config": form})
        if choice is not None:
            fields["tool_choice"] = choice
        fields = merge_options(fields, request.options)
        encoded = {name: encode(value) for name, value in fields.items()}
        if request.tools:
            encoded["tools"] = self._tools.encoded(request.tools)
        if instructions := self._instructions(request, native=output is not None):
            encoded["system"] = encode([{**text_block(instructions), **({"cache_control": mark} if mark else {})}])
        encoded["messages"] = self._messages(request.conversation, mark)
        encoded |= {name: encode(value) for name, value in request.options.items() if name in _ENCODED}
        found = {"thinking": asked, "output": output, "tool_choice": choice, "cache": mark}
        return Body(object_bytes(encoded), frozenset(part for part, value in found.items() if value))

    def _address(self, endpoint: Endpoint) -> str:
        base = endpoint.base_url.rstrip("/")
        if self._vertex:
            return f"{base}/publishers/anthropic/models/{endpoint.model}:streamRawPredict"
        return f"{base.removesuffix('/messages').removesuffix('/v1')}/v1/messages"

    def _thinking(self, request: ModelRequest) -> JSONObject:
        """What asks for thinking. A turn that began without thoughts cannot go on with a budget for them."""
        asked = resolve_thinking(request.thinking or None, self._profile)
        if self._profile.thinking != "budget" or not _on(asked):
            return asked
        messages = request.conversation.messages
        if not messages or not isinstance(messages[-1], ToolResult):
            return asked
        last = next((m for m in reversed(messages) if isinstance(m, Assistant)), Assistant(()))
        own = any(isinstance(part, Thinking) and part.model == self._endpoint.name for part in last.content)
        return asked if own else {}

    def _limit(self, request: ModelRequest, asked: JSONObject) -> tuple[int, JSONObject]:
        """The cap of the reply, which must be above the budget for thoughts, and thinking with a budget below it."""
        most = self._profile.max_output_tokens
        limit = request.max_output_tokens or most or _MAX_TOKENS
        budget = asked.get("thinking", {}).get("budget_tokens")
        if budget is None:
            return limit, asked
        if request.max_output_tokens is not None or most is None:
            limit += budget
        limit = min(limit, most or limit)
        budget = max(_LEAST_BUDGET, min(budget, limit - 1))
        return max(limit, budget + 1), merge_options(asked, {"thinking": {"budget_tokens": budget}})

    def _sampling(self, request: ModelRequest, asked: JSONObject) -> JSONObject:
        """Stop texts, and what the API refuses while the model thinks."""
        found: JSONObject = {"stop_sequences": list(request.stop)} if request.stop else {}
        if not self._profile.sampling or _on(asked):
            return found
        given = {"temperature": request.temperature, "top_p": request.top_p}
        return {**found, **{name: value for name, value in given.items() if value is not None}}

    def _choice(self, request: ModelRequest, asked: JSONObject) -> JSON:
        if not request.tools or request.tool_choice == "auto":
            return None
        if request.tool_choice == "none":
            return {"type": "none"}
        refused = _on(asked) and not self._profile.forced_calls_while_thinking
        return None if refused else {"type": "any"}

    def _output(self, request: ModelRequest) -> JSONObject | None:
        if request.output is None or self._profile.structured_output != "native":
            return None
        return anthropic_output(request.output.schema)

    def _instructions(self, request: ModelRequest, *, native: bool) -> str:
        if request.output is None or native:
            return request.instructions
        return schema_instructions(request.instructions, request.output)

    def _messages(self, conversation: Conversation, mark: JSONObject | None) -> bytes:
        store = conversation.encoded.setdefault(self._store, [])
        if not store:
            store.append(Turns("content"))
        turns: Turns = store[0]
        for message in conversation.messages[turns.count :]:
            role = "assistant" if isinstance(message, Assistant) else "user"
            if not turns.role and role == "assistant":
                turns.add("user", [_BEFORE])
            turns.add(role, [encode(block) for block in blocks_of(message, self._endpoint.name, self._profile)])
            turns.count += 1
        closing = ("user", [_BEHIND]) if turns.role == "assistant" else None
        return turns.encoded(_marker(mark) if mark else None, closing)


def _on(asked: JSONObject) -> bool:
    """Whether thinking is asked for."""
    return asked.get("thinking", {}).get("type") in ("enabled", "adaptive")


def _marker(mark: JSONObject) -> Callable[[list[bytes]], list[bytes]]:
    ending = b',"cache_control":' + encode(mark) + b"}"

    def marked(blocks: list[bytes]) -> list[bytes]:
        """The blocks with the mark on the last one that can have it: thoughts cannot."""
        for at in range(len(blocks) - 1, -1, -1):
            if not blocks[at].startswith((b'{"type":"thinking"', b'{"type":"redacted_thinking"')):
                return [*blocks[:at], blocks[at][:-1] + ending, *blocks[at + 1 :]]
        return blocks

    return marked


def _tool(tool: ToolSpec) -> JSONObject:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": anthropic_parameters(tool.parameters)}
