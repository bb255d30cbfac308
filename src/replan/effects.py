"""The effects that loops start by name: `model` makes one model call, `tool` makes one tool call.

They run where the live things are. What a loop must know to decide (whether a call may be repeated, whether an output
is usable) is part of their results, so it is journalled, and a replay decides the same although the tools may have
changed since.
"""

import asyncio
import hashlib
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from . import events
from .durable import StepContext, durable_step
from .encoding import JSON, JSONObject, clean_text, encode, normalise
from .live import Watch
from .messages import Assistant, Content, Message, Text, ToolCall, ToolResult, from_json, to_json
from .model import Conversation, Done, Model, ModelRequest, OutputSchema, Retry, ToolSpec
from .output import OutputProblem
from .settings import ModelSettings, Thinking
from .tool import InvalidArguments, Tool, ToolContext, ToolError, ToolInfo, ToolOutput
from .tools import Toolbox, prepare, unknown_tool_text

__all__ = ["Services", "Stage"]

MAX_RESULT_CHARS = 200_000
"""Texts longer than this are kept whole as an artifact; the model gets the beginning and the path."""

MAX_DATA_BYTES = 1_000_000
"""Images, sounds and files larger than this are kept as artifacts; the message has their path."""

MAX_RESULT_BYTES = 3_000_000
"""What all parts of one result may have together."""

MAX_STRUCTURED_BYTES = 4_000_000
"""Structured results that are larger, as JSON, are left out of what is stored."""

_FAILED_SILENTLY = "The tool failed without saying why."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One way of calling a model: which model, with what standing instructions and tools, and how its reply is read.

    `read` turns the reply's text into the stage's output as JSON and raises `OutputProblem` where it cannot; without
    it, and where it gives None, the text is the output. Of the `tools`, the arguments of the effect may name fewer:
    `tools`, `reads_only`, and, for a model that only follows a grammar, some to `avoid`. `schema` may be made from the
    arguments of the effect. `watch(run_id, step_id)` gives the translator of one call's deltas.
    """

    phase: events.Phase
    model: Model
    instructions: str = ""
    tools: tuple[ToolInfo, ...] = ()
    schema: OutputSchema | Callable[[JSONObject], OutputSchema | None] | None = None
    read: Callable[[JSONObject, str], JSON] | None = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    watch: Callable[[str, str | None], Watch] | None = None

    def request(self, args: JSONObject, conversation: Conversation, client: str = "") -> ModelRequest:
        """The model request for the arguments of a model effect. `client` names the agent, for keys of caches."""
        tools = self.offered(args)
        schema = self.schema(args) if callable(self.schema) else self.schema
        return ModelRequest(
            instructions=self.instructions,
            conversation=conversation,
            tools=_specs(tools),
            output=schema,
            cache_key=f"{client}:{args['stage']}" if client else "",
            **_asked(self.settings),
        )

    def offered(self, args: JSONObject) -> tuple[ToolInfo, ...]:
        """The tools that a call with these arguments is given."""
        names, avoid = args.get("tools"), args.get("avoid", ())
        tools = self.tools if names is None else tuple(t for t in self.tools if t.name in names)
        if args.get("reads_only"):
            tools = tuple(t for t in tools if t.read_only)
        if avoid and self.model.profile.constrained:
            return tuple(t for t in tools if t.name not in avoid) or tools
        return tools


def _asked(settings: ModelSettings) -> JSONObject:
    """What a request says of the settings; what is left open is the model's own."""
    caching, thinking = settings.prompt_caching, settings.thinking
    return {
        "max_output_tokens": settings.max_output_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stop": settings.stop,
        "thinking": thinking if thinking is False else Thinking.of(thinking),
        "prompt_caching": None if caching is True else caching,
        "options": settings.options,
    }


_spec_cache: dict[tuple[int, ...], tuple[tuple[ToolInfo, ...], tuple[ToolSpec, ...]]] = {}


def _specs(infos: tuple[ToolInfo, ...]) -> tuple[ToolSpec, ...]:
    """The same tuple for the same tools, so that a wire can keep what it made of it."""
    key = tuple(map(id, infos))
    if key not in _spec_cache:
        if len(_spec_cache) > 256:
            _spec_cache.clear()
        _spec_cache[key] = (infos, tuple(ToolSpec(i.name, i.description, i.parameters) for i in infos))
    return _spec_cache[key][1]


@dataclass(slots=True)
class Services:
    """The live things of one run in one process: what `StepContext.services` holds.

    `functions` are the user's own, by what they are for. `client` is the agent's name.
    """

    stages: dict[str, Stage]
    toolbox: Toolbox
    sandbox: Callable[[], Path]
    deps: Any = None
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("replan"))
    conversations: dict[str, Conversation] = field(default_factory=dict[str, Conversation])
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    client: str = ""


@durable_step("model")
async def call_model(ctx: StepContext, args: JSONObject) -> JSONObject:
    """One model call. `args`: `stage`, `step`, `after` (the key of the model call before it), `add` (what was said
    since).

    Gives `message`, `usage`, `finish`, `model`, `phase`; with tool calls `calls`, what is to become of each; with an
    output schema `output`, or `problem` where the reply cannot be used.
    """
    services: Services = ctx.services
    stage = services.stages[args["stage"]]
    conversation = await _conversation(ctx, args["after"], args["add"])
    done = await _stream(ctx, stage, args, stage.request(args, conversation, services.client))
    message = _with_own_ids(done.message, ctx.idempotency_key)
    conversation.messages.append(message)
    services.conversations[ctx.key] = conversation
    reply: JSONObject = {
        "message": to_json(message),
        "usage": msgspec.to_builtins(done.usage),
        "finish": done.finish,
        "model": done.model or stage.model.name,
        "phase": stage.phase,
    }
    if calls := message.calls:
        names = {info.name for info in stage.offered(args)}
        reply["calls"] = [_plan_offered(services.toolbox, names, call) for call in calls]
    elif done.finish in ("stop", "tool_calls"):
        _read_output(stage, args, message, reply)
    return reply


async def _stream(ctx: StepContext, stage: Stage, args: JSONObject, request: ModelRequest) -> Done:
    step_id: str | None = args["step"]
    watch = stage.watch(ctx.run_id, step_id) if stage.watch and ctx.listening else None
    stream = stage.model.stream(request)
    try:
        async for delta in stream:
            if type(delta) is Done:
                return delta
            if watch:
                for event in watch(delta):
                    ctx.live(event)
                if type(delta) is Retry:
                    ctx.live(_retry(ctx, stage, step_id, delta))
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
    raise RuntimeError(f"the model {stage.model.name!r} ended its stream without Done")


def _retry(ctx: StepContext, stage: Stage, step_id: str | None, delta: Retry) -> events.Retry:
    return events.Retry(
        run_id=ctx.run_id,
        phase=stage.phase,
        step_id=step_id,
        attempt=delta.attempt,
        error=delta.error,
        delay=delta.delay,
    )


def _read_output(stage: Stage, args: JSONObject, message: Assistant, reply: JSONObject) -> None:
    if not message.text.strip():
        reply["problem"] = "Your reply was empty. Give the answer."
    elif stage.read:
        try:
            if (output := stage.read(args, message.text)) is not None:
                reply["output"] = output
        except OutputProblem as problem:
            reply["problem"] = str(problem)


def _plan_offered(toolbox: Toolbox, names: Collection[str], call: ToolCall) -> JSONObject:
    """`plan_call`, for the tools that the model was offered; what it was not is not there for it."""
    tool = toolbox.find(call.name)
    if tool is None or tool.info.name in names:
        return plan_call(toolbox, call.name, call.arguments, call.raw)
    return {"error": f"The tool {call.name!r} cannot be used here. There are: {', '.join(sorted(names)) or 'none'}."}


def plan_call(toolbox: Toolbox, name: str, arguments: JSONObject, raw: str | None = None) -> JSONObject:
    """What is to become of a call:

    `error` for the model, or `once`, and what differs: `writes`, coerced `arguments`, `original` name, `server`.
    """
    tool = toolbox.find(name)
    if tool is None:
        return {"error": unknown_tool_text(name, toolbox)}
    info = tool.info
    plan: JSONObject = {"once": not info.repeatable}
    if info.repeatable and not info.read_only:
        plan["writes"] = True
    if info.original and info.original != name:
        plan["original"] = info.original
    if info.server:
        plan["server"] = info.server
    try:
        prepared = prepare(tool, arguments if raw is None else raw)
    except Exception as error:  # noqa: BLE001  # whatever a tool's own validation raises is for the model to mend
        return {
            **plan,
            "error": f"Invalid arguments for {name!r}: {normalise(error).removeprefix('InvalidArguments: ')}",
        }
    return plan if prepared == arguments else {**plan, "arguments": prepared}


@durable_step("tool")
async def call_tool(ctx: StepContext, args: JSONObject) -> JSONObject:
    """One tool call.

    `args`: `tool`, `arguments`, `call_id`, `step`. Gives a `ToolResult`; what goes wrong is an error result.
    """
    services: Services = ctx.services
    name, call_id = args["tool"], args["call_id"]
    tool = services.toolbox.find(name)
    if tool is None:
        output = _error(unknown_tool_text(name, services.toolbox))
    else:
        output = await _run_tool(tool, args["arguments"], _tool_context(ctx, args))
    content = _bounded_content(ctx, [p for p in output.content if not isinstance(p, Text) or p.text.strip()])
    if not content:
        content = (Text(_FAILED_SILENTLY if output.is_error else "Done."),)
    structured = normalise(output.structured)
    if len(encode(structured)) > MAX_STRUCTURED_BYTES:
        structured = None  # steps that refer to it read the text
    unknown = output.is_error and output.outcome_unknown
    result = ToolResult(
        call_id, name, content, is_error=output.is_error, structured=structured, outcome_unknown=unknown
    )
    return to_json(result)


async def _run_tool(tool: Tool, arguments: JSONObject, context: ToolContext[Any]) -> ToolOutput:
    try:
        return await tool.call(prepare(tool, arguments), context)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task and task.cancelling():
            raise
        return _error("The tool stopped by itself before it had a result.")
    except InvalidArguments as error:
        return _error(f"Invalid arguments for {tool.info.name!r}: {error}")
    except ToolError as error:
        return _error(normalise(str(error)), outcome_unknown=error.outcome_unknown)
    except Exception as error:  # whatever a tool raises is for the model to read
        context.logger.debug("tool %r raised", tool.info.name, exc_info=True)
        return _error(normalise(error).removesuffix(": "))


def _error(text: str, *, outcome_unknown: bool = False) -> ToolOutput:
    return ToolOutput((Text(text),), is_error=True, outcome_unknown=outcome_unknown)


def _bounded_content(ctx: StepContext, parts: list[Content]) -> tuple[Content, ...]:
    """The parts, small enough to be stored and sent again and again; what is larger is kept as artifacts."""
    left, content = MAX_RESULT_BYTES, list[Content]()
    for part in parts:
        size = len(part.text) if isinstance(part, Text) else len(part.data or b"")
        limit = MAX_RESULT_CHARS if isinstance(part, Text) else MAX_DATA_BYTES
        content.append(_small(part) if size <= min(left, limit) else _kept(ctx, part, min(left, limit)))
        left = max(0, left - min(size, limit))
    return tuple(content)


def _small(part: Content) -> Content:
    return Text(clean_text(part.text)) if isinstance(part, Text) else part


def _kept(ctx: StepContext, part: Content, room: int) -> Content:
    """What is too large to stand in a result: where it lies, or that it could not be kept.

    The call itself has been made.
    """
    data = clean_text(part.text).encode() if isinstance(part, Text) else part.data or b""
    mime = "text/plain" if isinstance(part, Text) else part.mime
    try:
        where = f"the whole is in {ctx.keep(data, mime)}"
        if not isinstance(part, Text):
            return msgspec.structs.replace(part, data=None, url=where.removeprefix("the whole is in "))
    except Exception as error:  # noqa: BLE001  # the call has taken effect; that must not read as a failure
        where = f"the whole could not be kept: {normalise(error)}"
    if isinstance(part, Text):
        return Text(f"{clean_text(part.text[:room])}\n... [{len(part.text) - room} more characters; {where}]")
    return Text(f"[{mime}, {len(data)} bytes; {where}]")


def _tool_context(ctx: StepContext, args: JSONObject) -> ToolContext[Any]:
    services: Services = ctx.services
    step_id, call_id = args["step"], args["call_id"]
    loop, cancelled = asyncio.get_running_loop(), threading.Event()

    def progress(done: float, total: float | None = None, message: str | None = None) -> None:
        event = events.StepToolProgress(
            run_id=ctx.run_id, step_id=step_id, call_id=call_id, progress=done, total=total, message=message
        )
        if not cancelled.is_set():  # a thread that nobody waits for may outlive its run
            loop.call_soon_threadsafe(ctx.live, event)

    return ToolContext(
        run_id=ctx.run_id,
        call_id=call_id,
        tool_name=args["tool"],
        idempotency_key=ctx.idempotency_key,
        deps=services.deps,
        logger=services.logger,
        sandbox_path=services.sandbox,
        keep=ctx.keep,
        step_id=step_id,
        cancelled=cancelled,
        progress=progress,
    )


async def _conversation(ctx: StepContext, after: str | None, add: list[JSONObject]) -> Conversation:
    """The conversation up to the model call `after`, and what was added since: from memory, or rebuilt from the
    journal.
    """
    services: Services = ctx.services
    earlier: list[tuple[list[JSONObject], JSONObject]] = []
    while after and after not in services.conversations:
        args, reply = await ctx.read(after)
        earlier.append((args["add"], reply["message"]))
        after = args["after"]
    conversation = services.conversations.pop(after) if after else Conversation()
    for entry in [*(entry for added, reply in reversed(earlier) for entry in (*added, reply)), *add]:
        conversation.messages.append(await _entry(ctx, entry))
    return conversation


async def _entry(ctx: StepContext, entry: JSONObject) -> Message:
    return from_json((await ctx.read(entry["ref"]))[1] if "ref" in entry else entry)


def _with_own_ids(message: Assistant, key: str) -> Assistant:
    """Call ids are unique in the run, in every process, whatever the provider sends: they are made of the effect's own
    key.
    """
    if not message.calls:
        return message
    prefix = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
    content: list[Any] = []
    for part in message.content:
        if isinstance(part, ToolCall):
            content.append(msgspec.structs.replace(part, call_id=f"call_{prefix}_{len(content)}"))
        else:
            content.append(part)
    return Assistant(tuple(content))
