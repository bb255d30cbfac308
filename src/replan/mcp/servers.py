"""All MCP servers of an agent: connected at the same time, each failing for itself."""

import asyncio
import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from replan.errors import ConfigError, McpError

from .config import parse_servers
from .connection import Connection, State
from .names import tool_aliases
from .tools import McpTool

__all__ = ["McpServers", "ServerStatus"]

_log = logging.getLogger("replan.mcp")


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How one server does. `error` says why it is not ready, `tools` are the names that the model sees."""

    name: str
    state: State
    error: str | None = None
    tools: tuple[str, ...] = ()
    instructions: str | None = None
    needs_authorization: bool = False


class McpServers:
    """The servers that `configs` describes, in whatever form `parse_servers` takes.

    ```python
    async with McpServers({"time": {"command": "mcp-server-time"}, "docs": "https://mcp.example.com/mcp"}) as servers:
        print([tool.info.name for tool in servers.tools], servers.statuses)
    ```

    A server that cannot be used is logged and left out; `statuses` says why. With `fail_on_no_tools`, `connect` raises
    `McpError` when servers are configured and none of them gave a tool. Connections belong to the event loop in which
    `connect` ran, not to its task; they end with the loop, or when nobody refers to the servers and their tools any
    more.
    """

    def __init__(self, configs: Any, *, fail_on_no_tools: bool = False) -> None:
        self._connections = {name: Connection(name, server) for name, server in parse_servers(configs).items()}
        self._fail_on_no_tools = fail_on_no_tools
        self._tools: list[McpTool] = []

    async def __aenter__(self) -> "McpServers":
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def tools(self) -> list[McpTool]:
        """The tools, in the order of the servers and of their lists, as of the last `connect`, `reconnect`,
        `list_tools`.
        """
        return list(self._tools)

    @property
    def statuses(self) -> list[ServerStatus]:
        """How each server does now, in the order of the configuration."""
        return [self._status(connection) for connection in self._connections.values()]

    @property
    def instructions(self) -> dict[str, str]:
        """What the servers say about their use, by server; those that say nothing are left out."""
        found = {name: connection.instructions for name, connection in self._connections.items()}
        return {name: text for name, text in found.items() if text}

    async def connect(self) -> None:
        """Connect to all servers at the same time. A second call tries again what is not connected."""
        await self._open(self._connections.values())
        if self._fail_on_no_tools and self._connections and not self._tools:
            reasons = "; ".join(f"{status.name!r}: {status.error or 'no tools'}" for status in self.statuses)
            raise McpError(f"no MCP server gave a tool: {reasons}")

    async def reconnect(self, *names: str) -> None:
        """Try the named servers again, or all that are not connected; servers that are connected stay as they are."""
        for name in names:
            if name not in self._connections:
                known = ", ".join(map(repr, self._connections)) or "none"
                raise ConfigError(f"there is no MCP server {name!r}; known are {known}")
        await self._open([self._connections[name] for name in names or self._connections])

    def list_tools(self) -> list[McpTool]:
        """The tools of the servers' latest lists: from now on `tools` has the new ones too, and no removed ones."""
        self._tools = [tool for connection in self._connections.values() for tool in _mount(connection)]
        return self.tools

    async def close(self) -> None:
        """End all connections at the same time. For any task, also more than once; takes a few seconds at most."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    async def _open(self, connections: Any) -> None:
        await asyncio.gather(*(_try(connection) for connection in connections))
        self.list_tools()

    def _status(self, connection: Connection) -> ServerStatus:
        names = tuple(tool.info.name for tool in self._tools if tool.info.server == connection.name)
        return ServerStatus(
            connection.name,
            connection.state,
            connection.failure,
            names,
            connection.instructions,
            connection.needs_authorization,
        )


async def _try(connection: Connection) -> None:
    try:
        await connection.open()
    except McpError as error:
        _log.warning("%s; it is left out", error)


def _mount(connection: Connection) -> list[McpTool]:
    tools = [tool for tool in connection.tools if not _needs_task(tool)]
    for tool in connection.tools:
        if _needs_task(tool):
            _log.info("MCP server %r: the tool %r runs as a task only; it is left out", connection.name, tool.name)
    aliases = tool_aliases(connection.name, [tool.name for tool in tools])
    return [McpTool(connection, tool, aliases[tool.name]) for tool in tools]


def _needs_task(tool: Any) -> bool:
    return tool.execution is not None and tool.execution.task_support == "required"
