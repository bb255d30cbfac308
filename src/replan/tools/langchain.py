"""Tools of LangChain as ours, and ours as LangChain's.

    from replan.tools.langchain import from_langchain_tools, to_langchain_tools

    Agent("openai:gpt-4.1-mini", tools=from_langchain_tools([search], read_only=["search"]))
    create_agent("openai:gpt-4.1-mini", tools=to_langchain_tools([lookup]))

Needs `pip install langchain-core`; `replan.models.langchain` imports it too, for models. Source: LangChain's
documentation, "Tools" and "Messages" (standard content blocks).
"""

import asyncio
import base64
import hashlib
import logging
import mimetypes
import re
import tempfile
from collections.abc import Callable, Collection, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from jsonschema.validators import validator_for

from replan.encoding import JSON, JSONObject, decode, encode, normalise
from replan.errors import ConfigError, MissingDependency
from replan.messages import Audio, Content, File, Image, Text
from replan.tool import InvalidArguments, Tool, ToolContext, ToolError, ToolInfo, ToolOutput

from ._output import to_output
from ._problems import cap
from .arguments import prepare
from .names import check_name
from .threads import run_in_thread
from .toolbox import Toolbox

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
except ImportError as error:
    raise MissingDependency(
        "tools of LangChain need its library; install it with: pip install langchain-core"
    ) from error

__all__ = ["from_langchain_tools", "to_langchain_tools"]

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_TAKEN = ("config", "run_manager", "callbacks")
_KINDS: dict[type[Image | Audio | File], str] = {Image: "image", Audio: "audio", File: "file"}


def from_langchain_tools(
    tools: Iterable[BaseTool], *, read_only: Collection[str] = (), idempotent: Collection[str] = ()
) -> list[Tool]:
    """Tools of LangChain as ours.

    `read_only` and `idempotent` are the names of those that are: LangChain does not say. What such a tool raises is an
    error that the model reads; an artifact, or a result that is JSON, is the structured result. Tools without async
    code run in threads. Raises `ConfigError` for a declared name that no tool has.
    """
    made = [_FromLangChain(tool, tool.name in read_only, tool.name in idempotent) for tool in tools]
    known = {tool.original for tool in made}
    if unknown := sorted({*read_only, *idempotent} - known):
        raise ConfigError(f"there is no tool {unknown[0]!r}; known are {', '.join(map(repr, sorted(known))) or 'none'}")
    return [*made]


class _FromLangChain:
    """A tool of LangChain."""

    def __init__(self, tool: BaseTool, read_only: bool, idempotent: bool) -> None:  # internal
        self._tool, self.original = tool, tool.name
        name = check_name(_NOT_IN_NAME.sub("_", tool.name)[:64])
        self.info = ToolInfo(
            name=name,
            description=tool.description,
            parameters=_parameters(tool),
            read_only=read_only,
            idempotent=idempotent,
            original=tool.name if tool.name != name else None,
        )

    def __repr__(self) -> str:
        return f"<tool {self.info.name!r} of LangChain>"

    @cached_property
    def _validator(self) -> Any:
        schema = self.info.parameters
        return validator_for(schema)(schema)

    def validate(self, arguments: JSONObject) -> JSONObject:
        """The arguments, if they fit the schema. Raises `InvalidArguments`."""
        errors = sorted(self._validator.iter_errors(arguments), key=lambda error: list(map(str, error.path)))
        if errors:
            where = [".".join(map(str, error.path)) or "the arguments" for error in errors]
            texts = [f"{place}: {error.message}" for place, error in zip(where, errors, strict=True)]
            raise InvalidArguments(cap(texts))
        return arguments

    async def call(self, arguments: JSONObject, context: ToolContext[Any]) -> ToolOutput:
        """Run the tool. Its own error (`ToolException`) is a `ToolError`."""
        asked: Any = {"type": "tool_call", "name": self.original, "args": arguments, "id": context.call_id}
        try:
            if _is_async(self._tool):
                result: Any = await self._tool.ainvoke(asked)
            else:
                result = await run_in_thread(partial(self._tool.invoke, asked), context.cancelled)
        except ToolException as error:
            raise ToolError(str(error)) from error
        return _output(result) if isinstance(result, ToolMessage) else to_output(result)


def to_langchain_tools(
    tools: Iterable[Tool | Callable[..., Any]], *, deps: Any = None, folder: str | Path | None = None
) -> list[StructuredTool]:
    """Our tools, functions and those of MCP servers too, as LangChain's.

    Their structured results are the artifacts of LangChain's messages, their errors are for the model to read. `deps`
    is what they find in their context; `folder` is where they put files, made on first use where none is given. Tools
    of MCP servers work in the event loop in which the servers were connected. Raises `ConfigError` for a parameter
    that LangChain keeps for itself.
    """
    place = _Folder(folder)
    return [_structured(tool, deps, place) for tool in Toolbox(tools).values()]


class _Folder:
    """Where tools that run outside of our runs put files."""

    def __init__(self, folder: str | Path | None) -> None:
        self._folder = folder

    def path(self) -> Path:
        """The folder, which exists."""
        self._folder = Path(self._folder or tempfile.mkdtemp(prefix="replan-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def keep(self, data: bytes, mime: str) -> Path:
        """Write the data to a file that is named by what it holds."""
        name = hashlib.blake2b(data, digest_size=16).hexdigest()
        path = self.path() / f"{name}{mimetypes.guess_extension(mime) or '.bin'}"
        path.write_bytes(data)
        return path


def _structured(tool: Tool, deps: Any, place: _Folder) -> StructuredTool:
    info = tool.info
    if taken := [name for name in _TAKEN if name in info.parameters.get("properties", {})]:
        raise ConfigError(f"tool {info.name!r} has a parameter {taken[0]!r}, which LangChain fills itself: rename it")

    async def call(**arguments: Any) -> tuple[Any, JSON]:
        context = ToolContext(
            run_id="langchain",
            call_id=f"call_{uuid4().hex}",
            tool_name=info.name,
            idempotency_key=uuid4().hex,
            deps=deps,
            logger=logging.getLogger("replan"),
            sandbox_path=place.path,
            keep=place.keep,
        )
        try:
            output = await tool.call(prepare(tool, arguments), context)
        except (ToolError, InvalidArguments) as error:
            raise ToolException(str(error)) from error
        if output.is_error:
            raise ToolException("\n".join(part.text for part in output.content if isinstance(part, Text)))
        return _blocks(output.content), output.structured

    def call_sync(**arguments: Any) -> tuple[Any, JSON]:
        return asyncio.run(call(**arguments))

    return StructuredTool(
        name=info.name,
        description=info.description,
        args_schema=info.parameters,
        func=call_sync,
        coroutine=call,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


def _parameters(tool: Any) -> JSONObject:
    """The schema of the arguments that a model gives."""
    schema = tool.tool_call_schema
    if not isinstance(schema, dict):
        schema = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema.schema()
    shown = {key: value for key, value in cast("JSONObject", schema).items() if key not in ("title", "description")}
    return {"type": "object", "properties": {}, **shown}


def _is_async(tool: Any) -> bool:
    """Whether it has async code of its own; else LangChain would run it in threads that hold up the program's end."""
    code: Any = getattr(cast("Any", type(tool)), "_arun")  # noqa: B009  # protected, for subclasses to override
    return not code.__module__.startswith("langchain_core.") or getattr(tool, "coroutine", None) is not None


def _output(message: ToolMessage) -> ToolOutput:
    content = tuple(_part(block) for block in cast("list[JSONObject]", message.content_blocks))
    structured = normalise(message.artifact)
    if structured is None and len(content) == 1 and isinstance(content[0], Text):
        structured = _json(content[0].text)
    return ToolOutput(to_output(content).content if content else (), structured, message.status == "error")


def _json(text: str) -> JSON:
    """The object or list that a text is; None where it is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return decode(text)
    except (ValueError, RecursionError):
        return None


def _part(block: JSONObject) -> Content:
    kind, mime, url = block.get("type"), block.get("mime_type"), block.get("url")
    data = base64.b64decode(block["base64"]) if isinstance(block.get("base64"), str) else None
    if kind == "text":
        return Text(block.get("text") or "")
    if data is None and not isinstance(url, str):
        return Text(encode(normalise(block)).decode())
    match kind:
        case "image":
            return Image(mime or "image/png", data, url)
        case "audio":
            return Audio(mime or "audio/wav", data, url)
        case _:
            extras = cast("JSONObject", block.get("extras") or {})
            return File(mime or "application/octet-stream", extras.get("filename", ""), data, url)


def _blocks(content: tuple[Content, ...]) -> Any:
    """The content for LangChain: a text where it is nothing else."""
    if all(isinstance(part, Text) for part in content):
        return "\n".join(part.text for part in content if isinstance(part, Text))
    return [_block(part) for part in content]


def _block(part: Content) -> JSONObject:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    data, url = part.data, part.url or ""
    if data is None and not url.startswith(("http://", "https://", "data:")):
        data = Path(url).read_bytes()  # an artifact of the tool's
    where = {"url": url} if data is None else {"base64": base64.b64encode(data).decode()}
    named = {"extras": {"filename": part.name}} if isinstance(part, File) and part.name else {}
    return {"type": _KINDS[type(part)], "mime_type": part.mime, **where, **named}
