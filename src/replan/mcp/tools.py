"""An MCP server's tool behind the tool seam."""

import unicodedata
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from replan.encoding import JSONObject, clean_text, normalise
from replan.errors import McpError
from replan.messages import Text
from replan.tool import InvalidArguments, ToolContext, ToolInfo, ToolOutput

from .arguments import ArgumentSchema
from .config import McpServer
from .connection import Connection
from .content import tool_output
from .faults import CallRefused

if TYPE_CHECKING:
    from mcp_types import Tool

__all__ = ["IDEMPOTENCY_KEY", "McpTool"]

IDEMPOTENCY_KEY = "replan/idempotency-key"
"""The key in a call's `_meta` under which the server gets the call's idempotency key."""

_HIDDEN = frozenset("\u200e\u200f\u061c\ufeff" + "".join(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))))


class McpTool:
    """A tool of an MCP server. `hint_read_only` and the like are the server's words; `info` says what to rely on."""

    def __init__(self, connection: Connection, tool: "Tool", alias: str) -> None:
        self._connection = connection
        hints = tool.annotations
        self.hint_read_only = hints.read_only_hint if hints else None
        self.hint_destructive = hints.destructive_hint if hints else None
        self.hint_idempotent = hints.idempotent_hint if hints else None
        self.hint_open_world = hints.open_world_hint if hints else None
        self.title = clean_description(tool.title or (hints.title if hints else None) or "")
        server = connection.server
        parameters = _object_schema(normalise(tool.input_schema))
        self._arguments = ArgumentSchema(parameters, f"{connection.name}/{tool.name}")
        self._info = ToolInfo(
            name=alias,
            description=clean_description(tool.description or self.title),
            parameters=parameters,
            output_schema=normalise(tool.output_schema),
            read_only=_declared(server.read_only, tool.name, server, hint=self.hint_read_only),
            idempotent=_declared(server.idempotent, tool.name, server, hint=self.hint_idempotent),
            server=connection.name,
            original=tool.name,
        )

    def __repr__(self) -> str:
        return f"McpTool({self._info.server!r}, {self._info.original!r})"

    @property
    def info(self) -> ToolInfo:
        """Name, description, schemas and declarations."""
        return self._info

    def validate(self, arguments: JSONObject) -> JSONObject:
        """The arguments as they will be sent: without optional parameters that are null where null is not allowed.

        Raises `InvalidArguments`. Every argument passes where the server's schema cannot be used.
        """
        wanted = self._arguments.prune(arguments)
        if problems := self._arguments.problems(wanted):
            raise InvalidArguments(problems)
        return wanted

    async def call(self, arguments: JSONObject, context: ToolContext[Any]) -> ToolOutput:
        """Call the tool. All failures of the server or of the connection are error results; only cancelling raises."""
        original = self._info.original or ""
        if not self._connection.offers(original):
            return _error(f"MCP server {self._info.server!r} no longer offers the tool {original!r}")
        try:
            result = await self._connection.call(
                original,
                self._arguments.prune(arguments),
                meta={IDEMPOTENCY_KEY: context.idempotency_key} if context.idempotency_key else {},
                progress=context.progress,
                repeatable=self._info.repeatable,
            )
        except (CallRefused, McpError) as error:
            return _error(str(error), outcome_unknown=error.may_have_run)
        return tool_output(result, context.keep)


def _error(text: str, *, outcome_unknown: bool = False) -> ToolOutput:
    text = clean_text(text).strip() or "(the server answered with an error and gave no reason)"
    return ToolOutput((Text(text),), is_error=True, outcome_unknown=outcome_unknown)


def _declared(globs: tuple[str, ...], name: str, server: McpServer, *, hint: bool | None) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs) or (server.trusted and hint is True)


def _object_schema(schema: JSONObject) -> JSONObject:
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def clean_description(text: str) -> str:
    """The text without characters that people do not see but models read: controls, text direction, tags."""
    return "".join(char for char in clean_text(text).replace("\r\n", "\n") if not _unseen(char)).strip()


def _unseen(char: str) -> bool:
    if char in "\n\t":
        return False
    return char in _HIDDEN or unicodedata.category(char) == "Cc" or 0xE0000 <= ord(char) <= 0xE007F
