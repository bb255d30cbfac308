"""Chat models of LangChain as ours.

    from langchain_ollama import ChatOllama
    from replan.models.langchain import from_langchain

    Agent(from_langchain(ChatOllama(model="qwen3")))

Needs `pip install langchain-core`; `replan.tools.langchain` imports it too, for tools. Source: LangChain's
documentation, "Messages" (standard content blocks) and "Models".
"""

import re
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Final, NamedTuple, cast

from replan.encoding import JSON, JSONObject, encode, normalise
from replan.errors import (
    AuthError,
    BadRequest,
    BadResponse,
    ContextTooLong,
    MissingDependency,
    ModelError,
    ModelTimeout,
    NetworkError,
    Overloaded,
    RateLimited,
)
from replan.messages import Assistant, Audio, Content, File, Image, Message, Text, Thinking, ToolCall, User
from replan.model import (
    CallDelta,
    Delta,
    Done,
    FinishReason,
    Model,
    ModelProfile,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from replan.settings import ModelSettings

from .adapted import AdaptedModel, sent
from .body import tool_name
from .content import base64_text, described, loaded
from .draft import Draft, Tally
from .failures import Failure, answer_failure
from .fields import an_object
from .structured import OutputTool, schema_instructions

try:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
except ImportError as error:
    raise MissingDependency(
        "models of LangChain need its library; install it with: pip install langchain-core"
    ) from error

__all__ = ["from_langchain"]

_PROVIDERS = {
    "google_genai": "google",
    "google_vertexai": "google-vertex",
    "mistralai": "mistral",
    "amazon_bedrock": "bedrock",
}
"""Providers that LangChain calls otherwise than we do."""

_REASONS: tuple[tuple[str, FinishReason], ...] = (
    ("refus", "refusal"),
    ("filter|safety|guardrail|blocklist|prohibited|recitation|spii|sensitive", "content_filter"),
    ("length|max_tokens|max_output_tokens|context_window", "length"),
    ("tool|function", "tool_calls"),
)
_KINDS: tuple[tuple[str, type[ModelError], bool], ...] = (
    ("ModelTimeoutError|APITimeoutError|TimeoutException|TimeoutError", ModelTimeout, True),
    ("ModelRateLimitError|RateLimitError", RateLimited, True),
    ("ModelAuthenticationError|ModelPermissionDeniedError", AuthError, False),
    ("ModelConnectionError|APIConnectionError|TransportError|ConnectionError", NetworkError, True),
    ("ModelInvalidRequestError|ModelNotFoundError|NotImplementedError", BadRequest, False),
    ("ModelAPIError", Overloaded, True),
)
"""Errors without a status, by the names of their classes: each integration has its own."""

_EMPTY = "No generation"
"""In the error, of no class of its own, that LangChain makes of an empty answer."""

_ENDED = ("finish_reason", "stop_reason", "stopReason", "done_reason", "incomplete_details")
_SENDER = ("model_provider", "output_version", "id")


def from_langchain(
    model: BaseChatModel,
    *,
    name: str | None = None,
    profile: ModelProfile | None = None,
    settings: ModelSettings | None = None,
) -> Model:
    """A chat model of LangChain as ours.

    `name` is `provider:name`, for prices and events; `profile` counts instead of what the model says of itself, which
    often is nothing. `max_output_tokens`, `temperature`, `top_p` and `stop` of the `settings`, and its `options` last,
    become arguments of the call (`max_tokens`, ...). How much it thinks is set in the model itself, or by `options`.
    Repeats are ours; switch those of the model off (`max_retries=0`).
    """
    return AdaptedModel(_LangChain(model, name, profile), settings)


class _Call(NamedTuple):
    """A call, or a piece of one."""

    key: Any
    name: str
    call_id: str
    arguments: str


class _LangChain:
    """A `Source`: what the adapter makes of one model."""

    def __init__(self, model: BaseChatModel, name: str | None, profile: ModelProfile | None) -> None:
        self._model = model
        self.name: Final = name or _name(model)
        self.base_url: Final = ""
        self.profile: Final = profile or _profile(model)
        self._bound: dict[tuple[int, str], tuple[Any, Any]] = {}

    async def attempt(self, request: ModelRequest, settings: ModelSettings) -> AsyncGenerator[Delta, None]:
        """One call."""
        tool = OutputTool.of(request, self.profile)
        wanted = request if tool is None else tool.request(request)
        names: dict[Any, str] = {}
        chunks: list[AIMessage] = []
        try:
            stream = self._runnable(wanted).astream(self._history(wanted), **_arguments(wanted))
            try:
                async for chunk in stream:
                    chunks.append(chunk)
                    for delta in _deltas(chunk, names):
                        yield delta if tool is None else tool.delta(delta)
            finally:
                await stream.aclose()
            done = self._done(chunks, request)
            yield done if tool is None else tool.done(done)
        except Exception as error:
            raise _failure(error, self.name) from error

    def _runnable(self, request: ModelRequest) -> Any:
        """The model with the tools, bound once for each tuple of them."""
        if not request.tools:
            return self._model
        choice: JSONObject = {"tool_choice": "any"} if request.tool_choice == "required" else {}
        key = (id(request.tools), request.tool_choice)
        if key not in self._bound:
            if len(self._bound) >= 64:
                self._bound.clear()
            functions = [
                {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
                for spec in request.tools
            ]
            tools = [{"type": "function", "function": function} for function in functions]
            self._bound[key] = (request.tools, cast("Any", self._model).bind_tools(tools, **choice))
        return self._bound[key][1]

    def _history(self, request: ModelRequest) -> list[BaseMessage]:
        """The instructions and the conversation as theirs, each message made once."""
        conversation, output = request.conversation, request.output
        made = conversation.encoded.setdefault(f"langchain:{self.name}", [])
        made += [self._message(message) for message in conversation.messages[len(made) :]]
        instructions = schema_instructions(request.instructions, output) if output else request.instructions
        return [SystemMessage(instructions), *made] if instructions else list(made)

    def _message(self, message: Message) -> BaseMessage:
        match message:
            case User():
                return HumanMessage(_contents(message.content, self.profile))
            case Assistant():
                return self._reply(message)
            case _:
                content = _contents(message.content, self.profile, images=self.profile.result_images)
                status = "error" if message.is_error else "success"
                name = tool_name(message.name)
                return ToolMessage(content, tool_call_id=message.call_id, name=name, status=status)

    def _reply(self, message: Assistant) -> AIMessage:
        """A reply, with what the model itself sent where nothing of it has been changed since."""
        calls: Any = [
            {"name": tool_name(call.name), "args": call.arguments, "id": call.call_id, "type": "tool_call"}
            for call in message.calls
        ]
        own = (part for part in message.content if isinstance(part, Thinking) and part.model == self.name and part.data)
        kept = an_object(next((part.data for part in own), None))
        if kept and len(kept["ids"]) == len(calls) and kept["text"] == message.text:
            sent_back = _renamed(kept["sent"], dict(zip(kept["ids"], (call["id"] for call in calls), strict=True)))
            return AIMessage(tool_calls=calls, **cast("JSONObject", sent_back))
        said = [part.text for part in message.content if not isinstance(part, Thinking | ToolCall)]
        return AIMessage("".join(said), tool_calls=calls)

    def _done(self, chunks: list[AIMessage], request: ModelRequest) -> Done:
        first, *others = chunks
        whole: Any = cast("Any", first) + others if others else first
        draft, tally = Draft(self.name), Tally()
        calls = _calls(whole)
        for number, (kind, text) in enumerate(_blocks(whole)):
            match kind:
                case "reasoning":
                    draft.thinking(number, text)
                case "refusal":
                    draft.refusal(number, text or "The model refused.")
                case _:
                    draft.text(number, text)
        if kept := _kept(whole, calls):
            draft.thinking("kept", data=kept)
        for number, call in enumerate(calls):
            draft.call(("call", number), name=call.name, call_id=call.call_id, arguments=call.arguments)
        _count(tally, an_object(whole.usage_metadata))
        return draft.done(_finish(whole.response_metadata, calls), tally, sent(request))


def _name(model: Any) -> str:
    known = model._get_ls_params()  # noqa: SLF001  # the one place where a model says who it is
    provider = known.get("ls_provider") or "langchain"
    return f"{_PROVIDERS.get(provider, provider)}:{known.get('ls_model_name') or type(model).__name__}"


def _profile(model: BaseChatModel) -> ModelProfile:
    known = cast("JSONObject", getattr(model, "profile", None) or {})
    tools = type(model).bind_tools is not BaseChatModel.bind_tools and known.get("tool_calling", True)
    return ModelProfile(
        context_window=known.get("max_input_tokens") or ModelProfile().context_window,
        max_output_tokens=known.get("max_output_tokens"),
        structured_output="tool" if tools else "prompted",
        images=known.get("image_inputs", False),
        audio=known.get("audio_inputs", False),
        files=known.get("pdf_inputs", False),
        result_images=known.get("image_tool_message", False),
    )


def _arguments(request: ModelRequest) -> JSONObject:
    given = {
        "stop": list(request.stop) or None,
        "max_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    return {**{name: value for name, value in given.items() if value is not None}, **request.options}


def _contents(parts: tuple[Content, ...], profile: ModelProfile, *, images: bool = True) -> Any:
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [_content(part, profile, images=images) for part in parts]


def _content(part: Content, profile: ModelProfile, *, images: bool) -> JSONObject:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    kind, taken = {
        Image: ("image", profile.images and images),
        Audio: ("audio", profile.audio),
        File: ("file", profile.files),
    }[type(part)]
    found = loaded(part) if taken else None
    if found is None:
        return {"type": "text", "text": described(part)}
    where = {"url": found.url} if found.data is None else {"base64": base64_text(found.data)}
    named = {"extras": {"filename": part.name}} if isinstance(part, File) and part.name else {}
    return {"type": kind, "mime_type": found.mime, **where, **named}


def _deltas(chunk: AIMessage, names: dict[Any, str]) -> Iterable[Delta]:
    """The deltas of a piece; `names` keeps those of the calls."""
    for kind, text in _blocks(chunk):
        if text and kind != "refusal":
            yield ThinkingDelta(text) if kind == "reasoning" else TextDelta(text)
    for call in _calls(chunk):
        name = names[call.key] = call.name or names.get(call.key, "")
        yield CallDelta(name, call.arguments)


def _blocks(message: AIMessage) -> list[tuple[str, str]]:
    """The texts of a message, each with what it is: `text`, `reasoning` or `refusal`."""
    blocks = [
        (kind, block.get(kind) or "")
        for block in cast("list[JSONObject]", message.content_blocks)
        if (kind := block.get("type")) in ("text", "reasoning", "refusal")
    ]
    refusal = message.additional_kwargs.get("refusal")
    return [*blocks, ("refusal", refusal)] if isinstance(refusal, str) and refusal else blocks


def _calls(message: AIMessage) -> list[_Call]:
    """The calls of a message, as the model wrote them where that is known."""
    if isinstance(message, AIMessageChunk) and message.tool_call_chunks:
        return [
            _Call(piece.get("index"), piece["name"] or "", piece["id"] or "", piece["args"] or "")
            for piece in message.tool_call_chunks
        ]
    whole = [_Call(call["id"], call["name"], call["id"] or "", _written(call["args"])) for call in message.tool_calls]
    broken = [
        _Call(call["id"], call["name"] or "", call["id"] or "", call["args"] or "")
        for call in message.invalid_tool_calls
    ]
    return whole + broken


def _written(arguments: Any) -> str:
    return encode(normalise(arguments)).decode()


def _kept(message: AIMessage, calls: list[_Call]) -> JSON:
    """What goes back to the model as it came: content that is more than text, and what is beside it."""
    more = {key: value for key, value in message.additional_kwargs.items() if key not in ("tool_calls", "refusal")}
    if isinstance(message.content, str) and not more:
        return None
    sender = {key: message.response_metadata[key] for key in _SENDER if key in message.response_metadata}
    sent_back = {"content": message.content, "additional_kwargs": more, "response_metadata": sender}
    text = "".join(text for kind, text in _blocks(message) if kind == "text")
    return normalise({"sent": sent_back, "text": text, "ids": [call.call_id for call in calls]})


def _renamed(value: JSON, names: dict[str, str]) -> JSON:
    """The value with other call ids, wherever they stand in it."""
    match value:
        case str():
            return names.get(value, value)
        case list():
            return [_renamed(item, names) for item in cast("list[JSON]", value)]
        case dict():
            items = cast("JSONObject", value).items()
            return {names.get(key, key): _renamed(item, names) for key, item in items}
        case _:
            return value


def _count(tally: Tally, used: JSONObject) -> None:
    into, out = an_object(used.get("input_token_details")), an_object(used.get("output_token_details"))
    written = sum(into[key] or 0 for key in into if key.startswith("ephemeral_")) or into.get("cache_creation")
    tally.note(input=used.get("input_tokens"), output=used.get("output_tokens"), reasoning=out.get("reasoning"))
    tally.note(cached=into.get("cache_read"), written=written)


def _finish(metadata: JSONObject, calls: list[_Call]) -> FinishReason:
    """Why the reply ended; integrations keep the provider's own word for it, under several names."""
    said = " ".join(str(metadata.get(key, "")) for key in _ENDED).lower()
    for words, reason in _REASONS:
        if re.search(words, said) and (calls or reason != "tool_calls"):
            return reason
    return "stop"


def _failure(error: Exception, name: str) -> Failure:
    """The failure that an error of any integration means: by its HTTP status, else by the names of its classes."""
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    text = f"{name}: {str(error) or type(error).__name__}"
    if "ContextOverflowError" in names:
        return Failure(ContextTooLong(text, model=name), repeat=False)
    given: Any = getattr(error, "response", None)
    status: Any = getattr(error, "status_code", None) or getattr(given, "status_code", None)
    if isinstance(given, dict):  # as botocore has it
        status = cast("Any", given).get("ResponseMetadata", {}).get("HTTPStatusCode")
    if isinstance(status, int) and status >= 300:
        body = getattr(error, "body", None) or {"error": {"message": str(error)}}
        return answer_failure(status, _headers(given), encode(normalise(body)), model=name)
    found = ((kind, repeat) for words, kind, repeat in _KINDS if re.search(rf"\b({words})\b", names))
    kind, repeat = next(found, (BadResponse, _EMPTY in text))
    return Failure(kind(text, model=name), repeat=repeat)


def _headers(response: Any) -> dict[str, str]:
    headers: Any = getattr(response, "headers", None) or {}
    return {str(key).lower(): str(value) for key, value in headers.items()}
