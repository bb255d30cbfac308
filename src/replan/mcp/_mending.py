"""Tool lists that break the protocol in one tool, made good before the SDK refuses them whole. Imports the SDK."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, cast

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from replan.encoding import JSONObject

__all__ = ["mend_tools", "mended"]

_log = logging.getLogger("replan.mcp")

Item = SessionMessage | Exception


class _Stream:
    """A read stream of the SDK whose messages pass through a function."""

    def __init__(self, stream: Any, mend: Callable[[JSONObject], None]) -> None:
        self._stream = stream
        self._mend = mend

    @property
    def last_context(self) -> Any:
        """The context in which the latest message was sent, where the transport knows it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Item:
        return self._through(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_Stream":
        return self

    async def __anext__(self) -> Item:
        return self._through(await self._stream.__anext__())

    async def __aenter__(self) -> "_Stream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)

    def _through(self, item: Item) -> Item:
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCResponse) and isinstance(message.result.get("tools"), list):
            self._mend(message.result)
        return item


@asynccontextmanager
async def mended(
    transport: AbstractAsyncContextManager[Any], mend: Callable[[JSONObject], None]
) -> AsyncGenerator[tuple[_Stream, Any]]:
    """The transport, with `mend` called on every result that holds a list of tools."""
    async with transport as (read, write):
        yield _Stream(read, mend), write


def mend_tools(server: str, version: str, result: JSONObject) -> None:
    """Repair the tools of the list in place, and take out those that cannot be repaired, with a warning."""
    tools = [_repaired(tool) for tool in result["tools"]]
    result["tools"] = tools
    if _valid(version, result):
        return
    good = [tool for tool in tools if _valid(version, {**result, "tools": [tool]})]
    for tool in tools:
        if tool not in good:
            name: Any = cast("JSONObject", tool).get("name") if isinstance(tool, dict) else tool
            _log.warning(
                "MCP server %r: the tool %r is not described as the protocol wants; it is left out", server, name
            )
    result["tools"] = good


def _repaired(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    fields = cast("JSONObject", tool)
    schema: Any = fields.get("inputSchema") or {}
    if isinstance(schema, dict):
        fields = {**fields, "inputSchema": {**cast("JSONObject", schema), "type": "object"}}
    return fields


def _valid(version: str, result: JSONObject) -> bool:
    try:
        validate_server_result("tools/list", version, result)
    except (KeyError, ValidationError):
        return False
    return True
