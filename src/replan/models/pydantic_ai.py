"""Models of Pydantic AI as ours: whatever it speaks to, an agent can use.

    from pydantic_ai.models.mistral import MistralModel
    from replan.models.pydantic_ai import from_pydantic_ai

    Agent(from_pydantic_ai(MistralModel("mistral-large-latest")))

Needs `pip install 'pydantic-ai-slim>=2'`. Source: its API documentation, "Direct model requests", "Messages" and "Model
settings".
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, cast

from msgspec.structs import replace

from replan.encoding import JSONObject, encode, normalise
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
from replan.messages import Assistant, Audio, Content, File, Image, Message, Refusal, Text, Thinking, ToolCall, User
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
    ToolSpec,
)
from replan.settings import ModelSettings
from replan.usage import Usage

from .adapted import AdaptedModel, sent
from .body import tool_name
from .content import described, loaded
from .draft import Draft, Tally
from .failures import MAX_RETRY_AFTER, Failure, answer_failure
from .structured import OutputTool, schema_instructions
from .thinking import resolve_thinking

try:
    from pydantic_ai import direct
    from pydantic_ai import messages as theirs
    from pydantic_ai.exceptions import AgentRunError, ContentFilterError, ModelHTTPError, UserError
    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.settings import ModelSettings as TheirSettings
    from pydantic_ai.tools import ToolDefinition
except ImportError as error:
    raise MissingDependency(
        "models of Pydantic AI need its library; install it with: pip install 'pydantic-ai-slim>=2'"
    ) from error

__all__ = ["from_pydantic_ai"]

_FINISH: dict[str | None, FinishReason] = {
    "tool_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
_KINDS: tuple[tuple[str, type[ModelError], bool], ...] = (
    ("ModelTimeoutError", ModelTimeout, True),
    ("ModelRequestTimeout", ModelTimeout, True),
    ("ModelRateLimitError", RateLimited, True),
    ("ModelQuotaExceededError", RateLimited, False),
    ("ModelUnavailableError", Overloaded, True),
    ("ModelServerError", Overloaded, True),
    ("ModelContextWindowExceededError", ContextTooLong, False),
    ("ModelAuthenticationError", AuthError, False),
    ("ModelRequestRejectedError", BadRequest, False),
    ("ModelAPIError", NetworkError, True),
    ("UnexpectedModelBehavior", BadResponse, True),
    ("UserError", BadRequest, False),
)
"""Its errors without a status, the narrowest first, by name: older versions have fewer."""

_ANSWERED = ("provider_name", "canonical_system", "model_name")
_SIGNED = ("id", "provider_name", "provider_details")


def from_pydantic_ai(
    model: TheirModel[Any],
    *,
    name: str | None = None,
    profile: ModelProfile | None = None,
    settings: ModelSettings | None = None,
) -> Model:
    """A model of Pydantic AI as ours.

    `name` is `provider:name`, for prices and events, where its own is not wanted; `profile` counts instead of what it
    says of itself. `settings` are those of the model; repeats are ours, and its client makes none where it lets us say
    so. `options` become its `extra_body`.
    """
    return AdaptedModel(_PydanticAI(model, name, profile), settings)


class _PydanticAI:
    """A `Source`: what the adapter makes of one model."""

    def __init__(self, model: TheirModel[Any], name: str | None, profile: ModelProfile | None) -> None:
        self._model = model
        self.name: Final = name or f"{model.system}:{model.model_name}"
        self.base_url: Final = model.base_url or ""
        self.profile: Final = profile or _profile(model)
        self._whole = False  # whether it is known not to stream

    async def attempt(self, request: ModelRequest, settings: ModelSettings) -> AsyncGenerator[Delta, None]:
        """One call."""
        tool = OutputTool.of(request, self.profile)
        asked: Any = {
            "messages": self._history(request),
            "model_settings": self._settings(request, settings),
            "model_request_parameters": _parameters(request, self.profile, tool),
        }
        try:
            async with aclosing(self._ask(asked)) as items:
                async for item in items:
                    if isinstance(item, theirs.ModelResponse):
                        done = self._done(item, request)
                        yield done if tool is None else tool.done(done)
                    else:
                        yield item if tool is None else tool.delta(item)
        except ContentFilterError as error:
            message, usage = Assistant((Refusal(str(error)),)), Usage(model_calls=1, estimated=True)
            yield Done(message, usage, "content_filter")
        except (AgentRunError, UserError, ExceptionGroup) as error:
            raise _failure(error, self.name) from error

    async def _ask(self, asked: Any) -> AsyncGenerator[Delta | theirs.ModelResponse, None]:
        """The deltas, and then the whole response."""
        async with AsyncExitStack() as stack:
            stream = None if self._whole else await self._open(asked, stack)
            if stream is None:
                response = await direct.model_request(self._model, **asked)
            else:
                names: dict[int, str] = {}
                async for event in stream:
                    if (delta := _delta(event, names)) is not None:
                        yield delta
                response = stream.get()
        yield response

    async def _open(self, asked: Any, stack: AsyncExitStack) -> Any:
        """The stream; None where the model has none, which is remembered."""
        try:
            return await stack.enter_async_context(direct.model_request_stream(self._model, **asked))
        except (NotImplementedError, AssertionError) as error:
            if "stream" not in str(error):
                raise
            self._whole = True
            return None

    def _settings(self, request: ModelRequest, own: ModelSettings) -> TheirSettings:
        ignored: Any = getattr(self._model, "unsupported_settings", ())
        given: JSONObject = {
            "max_tokens": request.max_output_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop_sequences": list(request.stop) or None,
            "thinking": _thinking(request, self.profile),
            "cache": _cache(request, self.profile),
            "tool_choice": request.tool_choice if request.tools and request.tool_choice != "auto" else None,
            "timeout": None if "timeout" in ignored else own.timeout,
            "max_retries": None if "max_retries" in ignored else 0,
            "extra_body": request.options or None,
        }
        return cast("TheirSettings", {name: value for name, value in given.items() if value is not None})

    def _history(self, request: ModelRequest) -> list[theirs.ModelMessage]:
        """The conversation as theirs, each message made once; requests in a row are one."""
        conversation = request.conversation
        made = conversation.encoded.setdefault(f"pydantic-ai:{self.name}", [])
        made += [self._message(message) for message in conversation.messages[len(made) :]]
        history: list[theirs.ModelMessage] = []
        last: list[Any] = []
        for item in made:
            if isinstance(item, theirs.ModelResponse):
                history.append(item)
                last = []
            elif last:
                last += item
            elif item:
                last = [*item]
                history.append(theirs.ModelRequest(parts=last, instructions=_instructions(request, self.profile)))
        return history

    def _message(self, message: Message) -> list[Any] | theirs.ModelResponse:
        """The parts of a request, or a response; nothing for a reply of nothing."""
        match message:
            case User():
                return [theirs.UserPromptPart(content=_contents(message.content, self.profile))]
            case Assistant():
                response = self._response(message)
                return response if response.parts else []
            case _:
                content = _contents(message.content, self.profile, images=self.profile.result_images)
                outcome = "failed" if message.is_error else "success"
                return [theirs.ToolReturnPart(tool_name(message.name), content, message.call_id, outcome=outcome)]

    def _response(self, message: Assistant) -> theirs.ModelResponse:
        parts: list[theirs.ModelResponsePart] = []
        signed: JSONObject = {}
        answered: JSONObject = {}
        for part in message.content:
            match part:
                case Thinking():
                    data = cast("JSONObject", part.data) if part.model == self.name and part.data else {}
                    answered = data.get("response", answered)
                    signed = {key: data[key] for key in _SIGNED if key in data}
                    if data.get("part") == "thinking":
                        parts.append(theirs.ThinkingPart(part.text, signature=part.signature, **signed))
                    else:
                        continue
                case ToolCall():
                    arguments = part.arguments if part.raw is None else part.raw
                    parts.append(theirs.ToolCallPart(tool_name(part.name), arguments, part.call_id, **signed))
                case _:
                    parts.append(theirs.TextPart(part.text, **signed))
            signed = {}
        return theirs.ModelResponse(parts=parts, **answered)

    def _done(self, response: theirs.ModelResponse, request: ModelRequest) -> Done:
        """The whole reply. Raises `Failure` for one that broke off."""
        if response.finish_reason == "error" or (response.finish_reason is None and response.state != "complete"):
            error = BadResponse(f"{self.name}: the answer broke off before its end", model=self.name)
            raise Failure(error, repeat=True)
        draft, tally, finish = Draft(self.name), Tally(), _FINISH.get(response.finish_reason, "stop")
        for number, part in enumerate(response.parts):
            _read(draft, number, part, response)
        refusal = (response.provider_details or {}).get("refusal")
        if isinstance(refusal, str):
            draft.refusal("refusal", refusal)
            finish = "refusal"
        used = response.usage
        tally.note(input=used.input_tokens, output=used.output_tokens, reasoning=used.output_reasoning_tokens)
        tally.note(cached=used.cache_read_tokens, written=used.cache_write_tokens)
        done = draft.done(finish, tally, sent(request))
        routed = f"{response.provider_name}:{response.model_name}" if _routes(self._model) else None
        return replace(done, model=routed)


def _routes(model: TheirModel[Any]) -> bool:
    """Whether others answer in the model's place, so that only the reply says which."""
    return isinstance(getattr(model, "models", None), list | tuple)


def _profile(model: TheirModel[Any]) -> ModelProfile:
    try:
        known, window = cast("JSONObject", model.profile), model.context_window
    except NotImplementedError:
        known, window = {}, None  # a router, whose models say each for itself
    native, tools = known.get("supports_json_schema_output", False), known.get("supports_tools", True)
    images, thinks = known.get("supports_image_input", True), known.get("supports_thinking", False)
    return ModelProfile(
        context_window=window or ModelProfile().context_window,
        structured_output="native" if native else "tool" if tools else "prompted",
        images=images,
        audio=known.get("supports_audio_file_input", True),
        files=known.get("supports_document_input", True),
        result_images=images,
        thinking="effort" if thinks else "none",
        caching="automatic" if known.get("supports_cache", False) else "none",
    )


def _parameters(request: ModelRequest, profile: ModelProfile, tool: OutputTool | None) -> ModelRequestParameters:
    parameters = ModelRequestParameters(function_tools=[_definition(spec) for spec in request.tools])
    output = request.output
    if tool is not None:
        parameters.output_mode, parameters.allow_text_output = "tool", False
        parameters.output_tools = [_definition(tool.spec, "output")]
    elif output is not None and output.schema.get("type") == "object":
        parameters.output_mode = "native" if profile.structured_output == "native" else "prompted"
        parameters.output_object = OutputObjectDefinition(json_schema=output.schema, name=output.name)
    return parameters


def _definition(spec: ToolSpec, kind: Any = "function") -> ToolDefinition:
    return ToolDefinition(
        name=spec.name, description=spec.description, parameters_json_schema=spec.parameters, kind=kind
    )


def _instructions(request: ModelRequest, profile: ModelProfile) -> str | None:
    """The instructions, with a schema that is no object in words."""
    output = request.output
    if output is None or output.schema.get("type") == "object":
        return request.instructions or None
    return schema_instructions(request.instructions, output)


def _thinking(request: ModelRequest, profile: ModelProfile) -> str | bool | None:
    if request.thinking is None or profile.thinking == "none":
        return None
    levels = ModelProfile(thinking="effort", thinking_levels=profile.thinking_levels)
    level = resolve_thinking(request.thinking, levels).get("reasoning_effort")
    return False if level == "none" else level


def _cache(request: ModelRequest, profile: ModelProfile) -> str | bool | None:
    caching = request.prompt_caching
    if not caching or profile.caching == "none":
        return None
    return True if caching.ttl == "5m" else caching.ttl


def _contents(parts: tuple[Content, ...], profile: ModelProfile, *, images: bool = True) -> Any:
    contents = [_content(part, profile, images=images) for part in parts]
    return contents[0] if len(contents) == 1 and isinstance(contents[0], str) else contents


def _content(part: Content, profile: ModelProfile, *, images: bool) -> theirs.UserContent:
    if isinstance(part, Text):
        return part.text
    taken = {Image: profile.images and images, Audio: profile.audio, File: profile.files}[type(part)]
    found = loaded(part) if taken else None
    if found is None:
        return described(part)
    if found.data is not None:
        return theirs.BinaryContent(found.data, media_type=found.mime)
    kind = {Image: theirs.ImageUrl, Audio: theirs.AudioUrl, File: theirs.DocumentUrl}[type(part)]
    return kind(found.url or "", media_type=found.mime)


def _delta(event: Any, names: dict[int, str]) -> Delta | None:
    """The delta of an event, where it has one; `names` keeps those of the calls."""
    match getattr(event, "part", None) if isinstance(event, theirs.PartStartEvent) else getattr(event, "delta", None):
        case theirs.TextPart(content=text) | theirs.TextPartDelta(content_delta=text):
            return TextDelta(text) if text else None
        case theirs.ThinkingPart(content=text) | theirs.ThinkingPartDelta(content_delta=text):
            return ThinkingDelta(text) if text else None
        case theirs.ToolCallPart(tool_name=name, args=arguments):
            names[event.index] = name
            return CallDelta(name, _written(arguments))
        case theirs.ToolCallPartDelta(args_delta=arguments):
            return CallDelta(names.get(event.index, ""), _written(arguments)) if arguments else None
        case _:
            return None


def _read(draft: Draft, number: int, part: Any, response: theirs.ModelResponse) -> None:
    """Add a part to the reply; what is signed of a text or a call stands before it, as a thought without text."""
    data: Any = normalise({"part": part.part_kind, **_set(part, _SIGNED), "response": _set(response, _ANSWERED)})
    match part:
        case theirs.ThinkingPart():
            draft.thinking(number, part.content, signature=part.signature or "", data=data)
        case theirs.TextPart() | theirs.ToolCallPart():
            if part.id or part.provider_details:
                draft.thinking((number, "signed"), data=data)
            if isinstance(part, theirs.TextPart):
                draft.text(number, part.content)
            else:
                arguments = _written(part.args)
                draft.call(number, name=part.tool_name, call_id=part.tool_call_id, arguments=arguments)
        case _:  # files and calls of the provider's own tools have no place in a message
            pass


def _set(value: Any, fields: tuple[str, ...]) -> JSONObject:
    """The fields that are set."""
    return {key: found for key in fields if (found := getattr(value, key, None)) is not None}


def _written(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return encode(normalise(arguments)).decode()


def _failure(error: Any, name: str) -> Failure:
    if isinstance(error, ExceptionGroup):  # of a router, all of whose models failed
        return _failure(cast("Any", error).exceptions[-1], name)
    wait = getattr(error, "retry_after", None)
    if isinstance(error, ModelHTTPError):
        headers = dict(error.headers or {}) if wait is None else {"retry-after": f"{wait:f}"}
        body = error.body
        data = body.encode() if isinstance(body, str) else b"" if body is None else encode(normalise(body))
        return answer_failure(error.status_code, headers, data, model=name)
    names = {kind.__name__ for kind in type(error).__mro__}
    found = ((kind, repeat) for theirs_name, kind, repeat in _KINDS if theirs_name in names)
    kind, repeat = next(found, (BadResponse, False))
    failure = kind(f"{name}: {error}", model=name, retry_after=wait)
    return Failure(failure, repeat=repeat, wait=wait and min(wait, MAX_RETRY_AFTER))
