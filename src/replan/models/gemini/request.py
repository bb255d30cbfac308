"""Requests of Gemini's `streamGenerateContent` (reference "Generating content"; on Vertex AI "Generate content")."""

import re
from collections.abc import Collection, Mapping

from replan.encoding import JSON, JSONObject, encode
from replan.messages import Assistant
from replan.model import Conversation, ModelRequest, OutputSchema, ToolSpec
from replan.models.body import ToolList, object_bytes
from replan.models.options import merge_options
from replan.models.schemas import gemini_output, gemini_parameters
from replan.models.sse import EventParser
from replan.models.structured import form_of, schema_instructions
from replan.models.thinking import resolve_thinking
from replan.models.turns import Turns
from replan.models.wire import Body, Endpoint, refusing

from .parts import Parts
from .reply import GeminiReply

__all__ = ["GeminiWire"]

_MODES = {"required": "ANY", "none": "NONE"}
_ENCODED = ("systemInstruction", "tools", "contents")


class GeminiWire:
    """`POST {base_url}/models/{model}:streamGenerateContent`; with the option `vertex`, of `publishers/google`."""

    objections: Mapping[str, re.Pattern[str]] = {
        "output": re.compile(
            r"response.?(json.?)?schema|response.?mime|controlled gen|json mode|with a response", re.I
        ),
        "tool_choice": re.compile(r"function.?calling.?config|tool.?config", re.I),
        "thinking": refusing(r"thinking"),
        "instructions": refusing(r"developer instruction|system.?instruction"),
    }
    server_wide: Collection[str] = ()
    passing: Collection[str] = ()
    decoder = EventParser

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._profile = endpoint, endpoint.profile
        vertex = bool(endpoint.options.get("vertex"))
        self._url = _address(endpoint.base_url.rstrip("/"), endpoint.model, vertex=vertex)
        self._parts = Parts(endpoint.name, endpoint.profile, ids=not vertex)
        self._tools = ToolList(_function)
        self._store = f"gemini:{endpoint.name}"

    def url(self, request: ModelRequest) -> str:
        """Where the request goes."""
        return self._url

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """None of its own."""
        return {}

    def reply(self, request: ModelRequest) -> GeminiReply:
        """What collects the reply."""
        return GeminiReply(self._endpoint.name, self._endpoint.auth.secrets)

    def taken(self, call_id: str, body: bytes) -> bool:
        """Whether the call id occurs in a request."""
        return b'"id":' + encode(call_id) in body

    def body(self, request: ModelRequest, off: Collection[str]) -> Body:
        """The request without the parts in `off`."""
        output = None if "output" in off else self._output(request)
        thinking = {} if "thinking" in off else resolve_thinking(request.thinking or None, self._profile)
        mode = None if "tool_choice" in off or not request.tools else _MODES.get(request.tool_choice)
        instructions = request.instructions
        if request.output is not None and output is None:
            instructions = schema_instructions(instructions, request.output)
        aside = bool(instructions) and "instructions" not in off
        encoded: dict[str, bytes] = {}
        if aside:
            encoded["systemInstruction"] = encode({"parts": [{"text": instructions}]})
        if request.tools:
            encoded["tools"] = b'[{"functionDeclarations":' + self._tools.encoded(request.tools) + b"}]"
        settings = self._settings(request, output, thinking, mode)
        encoded |= {name: encode(value) for name, value in settings.items()}
        encoded["contents"] = self._contents(request.conversation, "" if aside else instructions)
        encoded |= {name: encode(value) for name, value in request.options.items() if name in _ENCODED}
        found = {"output": output, "thinking": thinking, "tool_choice": mode, "instructions": aside}
        return Body(object_bytes(encoded), frozenset(part for part, value in found.items() if value))

    def _output(self, request: ModelRequest) -> JSONObject | None:
        native = request.output is not None and self._profile.structured_output == "native"
        return form_of(request.output, _form) if native and request.output else None

    def _settings(
        self, request: ModelRequest, output: JSONObject | None, thinking: JSONObject, mode: str | None
    ) -> JSONObject:
        sampling = self._profile.sampling
        given: JSONObject = {
            "maxOutputTokens": request.max_output_tokens,
            "temperature": request.temperature if sampling else None,
            "topP": request.top_p if sampling else None,
            "stopSequences": list(request.stop) or None,
            "responseMimeType": None if output is None else "application/json",
            "responseJsonSchema": output,
            **thinking,
        }
        config = {name: value for name, value in given.items() if value is not None}
        fields: JSONObject = {"toolConfig": {"functionCallingConfig": {"mode": mode}}} if mode else {}
        fields |= {"generationConfig": config} if config else {}
        return merge_options(fields, request.options)

    def _contents(self, conversation: Conversation, before: str) -> bytes:
        """The conversation; `before` is what comes first where the model has no place for instructions."""
        store = conversation.encoded.setdefault(f"{self._store}:{before}", [])
        if not store:
            store.append(Turns("parts"))
        turns: Turns = store[0]
        for message in conversation.messages[turns.count :]:
            role = "model" if isinstance(message, Assistant) else "user"
            if not turns.role and (before or role == "model"):
                turns.add("user", [encode({"text": before or "(The conversation begins.)"})])
            turns.add(role, [encode(part) for part in self._parts.of(message)])
            turns.count += 1
        return turns.encoded()


def _address(base: str, model: str, *, vertex: bool) -> str:
    if vertex:
        path = model if "/" in model else f"publishers/google/models/{model}"
    else:
        path = model if "/" in model else f"models/{model}"
    return f"{base}/{path}:streamGenerateContent?alt=sse"


def _form(output: OutputSchema) -> JSONObject | None:
    return gemini_output(output.schema)


def _function(tool: ToolSpec) -> JSON:
    parameters = gemini_parameters(tool.parameters)
    described = {"description": tool.description} if tool.description else {}
    taken = {"parametersJsonSchema": parameters} if parameters.get("properties") else {}
    return {"name": tool.name, **described, **taken}
