"""Requests of Gemini's `streamGenerateContent` (reference "Generating content"; on Vertex AI "Generate content")."""

import re
from collections.abc import Collection, Mapping

from replan.encoding import JSONObject, encode
from replan.model import Conversation, ModelRequest, OutputSchema
from replan.models.body import ToolList, object_bytes
from replan.models.options import merge_options
from replan.models.schemas import gemini_output
from replan.models.structured import form_of, schema_instructions
from replan.models.thinking import resolve_thinking
from replan.models.wire import Body, Endpoint, refusing

from .history import History
from .parts import UNSIGNED, UNSIGNED_PLAIN, Parts
from .reply import GeminiReply
from .stream import GeminiDecoder
from .tools import by_json_schema, by_own_schema

__all__ = ["GeminiWire"]

_MODES = {"required": "ANY", "none": "NONE"}
_ENCODED = ("systemInstruction", "tools", "contents")


class GeminiWire:
    """`POST {base_url}/models/{model}:streamGenerateContent`; with the option `vertex`, of `publishers/google`.

    Signatures that a server refuses are left out of what was said up to then; those of later replies go back again.
    """

    objections: Mapping[str, re.Pattern[str]] = {
        "signatures": re.compile(r"thought.?signature", re.I),
        "parameters": re.compile(r"parameters.?json.?schema", re.I),
        "output": re.compile(
            r"response.?(json.?)?schema|response.?mime|controlled gen|json mode|with a response", re.I
        ),
        "tool_choice": re.compile(r"function.?calling.?config|tool.?config", re.I),
        "thinking": refusing(r"thinking"),
        "instructions": refusing(r"developer instruction|system.?instruction"),
    }
    server_wide: Collection[str] = ()
    passing: Collection[str] = frozenset(["signatures"])
    decoder = GeminiDecoder

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._profile = endpoint, endpoint.profile
        vertex, profile = bool(endpoint.options.get("vertex")), endpoint.profile
        self._url = _address(endpoint.base_url.rstrip("/"), endpoint.model, vertex=vertex)
        unsigned = UNSIGNED if profile.thinking == "gemini-level" else ""
        self._parts = Parts(endpoint.name, profile, vertex, unsigned)
        self._bare = Parts("", profile, vertex, UNSIGNED_PLAIN)
        self._tools, self._own_tools = ToolList(by_json_schema), ToolList(by_own_schema)
        takes = (profile.images, profile.files, profile.audio, profile.result_images, vertex, bool(unsigned))
        self._store = f"gemini:{endpoint.name}:{''.join(str(int(can)) for can in takes)}"

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
        tools = self._tools.names(request.tools)
        mode = self._mode(request) if tools and "tool_choice" not in off else None
        instructions = request.instructions
        if request.output is not None and output is None:
            instructions = schema_instructions(instructions, request.output)
        aside = bool(instructions) and "instructions" not in off
        history = self._history(request.conversation, "" if aside else instructions, bare="signatures" in off)
        encoded: dict[str, bytes] = {}
        if aside:
            encoded["systemInstruction"] = encode({"parts": [{"text": instructions}]})
        if tools:
            described = self._own_tools if "parameters" in off else self._tools
            encoded["tools"] = b'[{"functionDeclarations":' + described.encoded(request.tools) + b"}]"
        settings = self._settings(request, output, thinking, mode)
        encoded |= {name: encode(value) for name, value in settings.items()}
        encoded["contents"] = history.encoded()
        encoded |= {name: encode(value) for name, value in request.options.items() if name in _ENCODED}
        found = {
            "signatures": history.signed,
            "parameters": b'"parametersJsonSchema"' in encoded.get("tools", b""),
            "output": output,
            "thinking": thinking,
            "tool_choice": mode,
            "instructions": aside,
        }
        return Body(object_bytes(encoded), frozenset(part for part, value in found.items() if value))

    def _mode(self, request: ModelRequest) -> str | None:
        thinks = request.thinking and request.thinking.wanted and not self._profile.forced_calls_while_thinking
        return None if thinks and request.tool_choice == "required" else _MODES.get(request.tool_choice)

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

    def _history(self, conversation: Conversation, before: str, *, bare: bool) -> History:
        """The conversation, encoded once; from its beginning where signatures are to be left out of it. `before` is
        what comes first where the model has no place for instructions.
        """
        store = conversation.encoded.setdefault(f"{self._store}:{before}", [])
        if bare or not store:
            store[:] = [History(before)]
        history: History = store[0]
        history.take(conversation.messages, self._bare if bare else self._parts, bare=bare)
        return history


def _address(base: str, model: str, *, vertex: bool) -> str:
    """Where a model is; one whose name says where it lies is there."""
    if vertex and model.startswith("projects/"):
        base, path = base.partition("/projects/")[0], model
    elif model.startswith(("models/", "tunedModels/", "publishers/", "endpoints/")) or (not vertex and "/" in model):
        path = model
    elif not vertex:
        path = f"models/{model}"
    else:
        publisher, _, name = model.rpartition("/")
        path = f"publishers/{publisher or 'google'}/models/{name}"
    return f"{base}/{path}:streamGenerateContent?alt=sse"


def _form(output: OutputSchema) -> JSONObject | None:
    return gemini_output(output.schema)
