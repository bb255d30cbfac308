"""Requests of the Anthropic Messages API (reference "Create a message", version 2023-06-01)."""

import re
from collections.abc import Collection, Mapping

from replan.encoding import JSON, JSONObject, encode
from replan.model import Conversation, ModelRequest, ToolSpec
from replan.models.body import ToolList, object_bytes
from replan.models.options import merge_options
from replan.models.schemas import anthropic_parameters
from replan.models.sse import EventParser
from replan.models.structured import schema_instructions
from replan.models.wire import Body, Endpoint

from .asking import fields_of, parts_of
from .blocks import Blocks, text_block, wire_id
from .history import History
from .reply import AnthropicReply

__all__ = ["AnthropicWire"]

_LAST = ("tools", "system", "messages")
"""Fields that stand behind the others, in the order in which a cache reads them."""
_VERTEX = {"anthropic_version": "vertex-2023-10-16"}
_REFUSED = r"(n.t support|not support|unsupported|not available|not permitted|extra inputs|input tag)"


def _refusal(what: str) -> re.Pattern[str]:
    """What recognises that something is refused: its name beside words for that, in one sentence."""
    return re.compile(rf"{what}[^{{}}]{{0,80}}{_REFUSED}|{_REFUSED}[^{{}}]{{0,40}}{what}", re.I)


class AnthropicWire:
    """`POST {base_url}/v1/messages`; with the option `vertex`, `publishers/anthropic/models/{model}:streamRawPredict`.

    Options: `anthropic_version`, `betas` (names for the `anthropic-beta` header), `vertex`.
    """

    objections: Mapping[str, re.Pattern[str]] = {
        "tool_choice": re.compile(r"tool.?choice", re.I),
        "thoughts": re.compile(
            r"bound to a different|signature.{0,5} in .{0,5}thinking|thinking.{0,60}cannot be modified"
            r"|cannot contain .{0,5}thinking",
            re.I,
        ),
        "effort": re.compile(rf"{_refusal('effort').pattern}|output_config: extra inputs", re.I),
        "thinking": _refusal("thinking"),
        "output": re.compile(r"output_config|output.?format|structured.?output|json_schema", re.I),
        "cache": re.compile(r"cache_control|prompt caching", re.I),
        "top_p": re.compile(r"temperature.{0,20}top_p.{0,20}both", re.I),
        "sampling": re.compile(rf"(temperature|top_p)[^{{}}]{{0,60}}(deprecated|may only|{_REFUSED})", re.I),
        "undeclared": re.compile(r"must (define|declare|include|provide)[^{}]{0,20}\btools\b", re.I),
    }
    server_wide: Collection[str] = ()
    passing: Collection[str] = frozenset(["thoughts"])
    decoder = EventParser

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._profile = endpoint, endpoint.profile
        self._vertex = bool(endpoint.options.get("vertex"))
        self._url = self._address(endpoint)
        self._tools = ToolList(_tool)
        profile = self._profile
        takes = (profile.images, profile.files, profile.result_images, not self._vertex)
        self._store = f"anthropic:{endpoint.name}:{''.join(str(int(can)) for can in takes)}"

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
        """The request without the parts in `off`.

        Without `undeclared`, the tools of earlier calls are declared, and forbidden, in a request that has none.
        """
        history = self._history(request.conversation, thoughts="thoughts" not in off)
        asked = fields_of(request, self._profile, off, cold=history.cold)
        parts = parts_of(asked)
        parts |= {"thoughts": history.thoughts, "undeclared": bool(history.called and not request.tools)}
        tools = self._tools.encoded(request.tools) if request.tools else None
        if parts["undeclared"] and "undeclared" in off:
            tools, asked["tool_choice"] = _declared(history.called), {"type": "none"}
        mark = None if "cache" in off else self._mark(request)
        parts["cache"] = mark is not None
        fields = merge_options(_VERTEX if self._vertex else {"model": self._endpoint.model}, asked, request.options)
        own: dict[str, bytes] = {} if tools is None else {"tools": tools}
        if instructions := self._instructions(request, native=parts["output"]):
            own["system"] = encode([_marked(text_block(instructions), mark)])
        own["messages"] = history.encoded(mark)
        return Body(_joined(fields, own), frozenset(part for part, found in parts.items() if found))

    def _address(self, endpoint: Endpoint) -> str:
        base = endpoint.base_url.rstrip("/")
        if self._vertex:
            return f"{base}/publishers/anthropic/models/{endpoint.model}:streamRawPredict"
        return f"{base.removesuffix('/messages').removesuffix('/v1')}/v1/messages"

    def _mark(self, request: ModelRequest) -> JSONObject | None:
        caching = request.prompt_caching if self._profile.caching == "marks" else None
        if not caching:
            return None
        return {"type": "ephemeral", "ttl": "1h"} if caching.ttl == "1h" else {"type": "ephemeral"}

    def _instructions(self, request: ModelRequest, *, native: bool) -> str:
        if request.output is None or native:
            return request.instructions
        return schema_instructions(request.instructions, request.output)

    def _history(self, conversation: Conversation, *, thoughts: bool) -> History:
        """The conversation, encoded once; with and without its thoughts."""
        store = conversation.encoded.setdefault(self._store if thoughts else f"{self._store}:bare", [])
        if not store:
            store.append(History(self._blocks(thoughts=thoughts)))
        history: History = store[0]
        history.take(conversation.messages)
        return history

    def _blocks(self, *, thoughts: bool) -> Blocks:
        """Claude signs each thought that may go back to it; other models behind this API may not."""
        return Blocks(
            self._endpoint.name if thoughts else "",
            self._profile,
            urls=not self._vertex,
            unsigned="claude" not in self._endpoint.model.lower(),
        )


def _joined(fields: JSONObject, own: dict[str, bytes]) -> bytes:
    """The body of fields and of what is encoded already; an option counts over what has its name there."""
    last = {name: encode(fields[name]) if name in fields else own[name] for name in _LAST if name in fields | own}
    return object_bytes({**{name: encode(fields[name]) for name in fields if name not in _LAST}, **last})


def _marked(block: JSONObject, mark: JSONObject | None) -> JSONObject:
    return {**block, "cache_control": mark} if mark else block


def _declared(names: Collection[str]) -> bytes:
    return encode([{"name": name, "input_schema": {"type": "object"}} for name in names])


def _tool(tool: ToolSpec) -> JSON:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": anthropic_parameters(tool.parameters)}
