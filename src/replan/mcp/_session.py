"""One SDK session: shaking hands, listing tools, calling them. Imports the SDK; is itself imported on first use."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp import Client
from replan._version import __version__
from replan.encoding import JSONObject, encode

from ._http import FAULT, http_transport
from ._mending import mend_tools, mended
from ._stdio import StdioTransport
from .config import HttpServer, McpServer
from .faults import CallRefused, ConnectionLost
from .process import ServerProcess

__all__ = ["Session", "explain"]

_log = logging.getLogger("replan.mcp")

_MOST_PAGES = 100
_SHOWN = 500
_QUIET = 0.05
"""Seconds that change notices, which come in bursts, are gathered before the tools are listed again."""

_CLOSED = ("Connection closed", "SSE stream")
"""How the SDK begins to say that it lost the connection. Servers use its code for that for other errors too."""

Progress = Callable[[float, float | None, str | None], None]


class Session:
    """An SDK client over one transport. Opened, watched and closed in one task; called from any."""

    def __init__(self, name: str, server: McpServer, process: ServerProcess | None) -> None:
        self.tools: tuple[types.Tool, ...] = ()
        self._name, self._server, self._process = name, server, process
        self._version = LATEST_HANDSHAKE_VERSION
        self._changed = asyncio.Event()
        info = types.Implementation(name="replan", version=__version__)
        transport = cast("Any", mended(self._transport(), self._mend))
        self._client = Client(transport, cache=None, client_info=info, message_handler=self._heard)

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        if isinstance(self._server, HttpServer):
            return http_transport(self._server)
        assert self._process is not None
        return StdioTransport(self._process)

    def _mend(self, result: JSONObject) -> None:
        mend_tools(self._name, self._version, result)

    async def __aenter__(self) -> "Session":
        await self._client.__aenter__()
        self._version = self._client.protocol_version
        self._client.session.validate_tool_result = self._tolerant(self._client.session.validate_tool_result)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    @property
    def instructions(self) -> str | None:
        """What the server says about its use as a whole."""
        return self._client.instructions

    async def list_tools(self) -> None:
        """Read the server's whole tool list into `tools`, page by page."""
        tools: dict[str, types.Tool] = {}
        cursor, seen = None, set[str]()
        for _ in range(_MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                tools.setdefault(tool.name, tool)
            cursor = page.next_cursor
            if cursor is None:
                break
            if cursor in seen:
                _log.warning("MCP server %r repeats the cursor %r; its tool list ends here", self._name, cursor)
                break
            seen.add(cursor)
        else:
            _log.warning("MCP server %r has more than %d pages of tools; the rest is left out", self._name, _MOST_PAGES)
        self.tools = tuple(tools.values())

    async def watch(self, end: asyncio.Event, listed: Callable[[], None]) -> None:
        """Follow changes of the tool list until `end`; `listed` is called after each new listing."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow, listed)
            tools = self._client.server_capabilities.tools
            if tools and tools.list_changed and self._version in MODERN_PROTOCOL_VERSIONS:
                group.start_soon(self._subscribe)
            await end.wait()
            group.cancel_scope.cancel()

    async def _follow(self, listed: Callable[[], None]) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_QUIET)
            self._changed.clear()
            try:
                async with asyncio.timeout(self._server.connect_timeout):
                    await self.list_tools()
            except (MCPError, TimeoutError, ValidationError) as error:
                _log.warning("MCP server %r changed its tools and could not list them: %s", self._name, error)
            else:
                listed()

    async def _subscribe(self) -> None:
        try:
            async with self._client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._changed.set()
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            _log.debug("MCP server %r gives no notice of changed tools: %s", self._name, error)

    async def _heard(self, message: types.ServerNotification | Exception) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def call(
        self, tool: str, arguments: JSONObject, meta: JSONObject, progress: Progress
    ) -> types.CallToolResult:
        """Call a tool by its own name.

        Raises `CallRefused` where the server answers with an error or not in time, `ConnectionLost` where the
        connection broke.
        """
        try:
            return await self._timed(tool, arguments, meta, progress)
        except MCPError as error:
            raise self._translate(error) from error
        except ValidationError as error:
            text = f"the server's answer does not follow the protocol: {_first(error)}"
            raise CallRefused(text, may_have_run=True) from error
        except RuntimeError as error:  # the SDK's: too many rounds of questions, an unexpected kind of result
            raise CallRefused(str(error) or type(error).__name__, may_have_run=True) from error

    async def _timed(
        self, tool: str, arguments: JSONObject, meta: JSONObject, progress: Progress
    ) -> types.CallToolResult:
        patience = _Patience(self._server.call_timeout, self._server.max_call_time, progress)
        sent: Any = meta or None
        try:
            async with patience.limit:
                return await self._client.call_tool(tool, arguments, progress_callback=patience, meta=sent)
        except TimeoutError as error:
            if not patience.limit.expired():
                raise CallRefused(f"the call could not be sent: {_first(error)}") from error
            text = f"{patience.verdict()}; whether it took effect is not known"
            raise CallRefused(text, may_have_run=True) from None
        finally:
            patience.over = True

    def _translate(self, error: MCPError) -> CallRefused | ConnectionLost:
        fault = _fault(error)
        if fault in ("session", "unauthorized", "unsent", "broken"):
            return ConnectionLost(error.message, fault=fault)
        closed = error.code == types.CONNECTION_CLOSED and error.message.startswith(_CLOSED)
        if closed and (self._process is None or self._process.ended):
            return ConnectionLost(error.message, fault="broken")
        if error.data is None or fault is not None:
            return CallRefused(error.message, stale=fault == "stale")
        return CallRefused(f"{error.message} {encode(error.data).decode()[:_SHOWN]}".strip())

    def _tolerant(self, validate: Any) -> Any:
        warned = set[str]()

        async def check(name: str, result: types.CallToolResult) -> None:
            try:
                await validate(name, result)
            except Exception as error:  # noqa: BLE001  # the tool has run: its result is passed on, whatever its schema says
                if name not in warned:
                    warned.add(name)
                    reason = _first(error)
                    _log.warning("MCP server %r: a result of %r breaks its schema: %s", self._name, name, reason)

        return check


class _Patience:
    """How long a call may take: `idle` seconds without a sign of life, `most` altogether. Progress is such a sign."""

    def __init__(self, idle: float | None, most: float | None, report: Progress) -> None:
        self.over = False
        self._idle, self._most, self._report = idle, most, report
        self._loop = asyncio.get_running_loop()
        self._latest = None if most is None else self._loop.time() + most
        self.limit = asyncio.timeout_at(self._deadline())

    def _deadline(self) -> float | None:
        silent = None if self._idle is None else self._loop.time() + self._idle
        return min((end for end in (self._latest, silent) if end is not None), default=None)

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        if not self.over and not self.limit.expired():
            self.limit.reschedule(self._deadline())
            self._report(progress, total, message)

    def verdict(self) -> str:
        """What to say when the time is over."""
        if self._latest is not None and self._loop.time() >= self._latest:
            return f"the call did not end within {self._most:g} s and was cancelled"
        return f"the call gave no sign of life for {self._idle:g} s and was cancelled"


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:_SHOWN] or type(error).__name__


def explain(error: BaseException) -> tuple[str, bool]:
    """What went wrong, in one line, and whether the server wants authorization.

    Groups of errors are opened; the first error in them speaks for all.
    """
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, MCPError):
        return error.message or f"MCP error {error.code}", _fault(error) == "unauthorized"
    return f"{type(error).__name__}: {_first(error)}" if str(error) else type(error).__name__, False


def _fault(error: MCPError) -> Any:
    return error.data.get(FAULT) if isinstance(error.data, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # any JSON
