"""An agent's tools: its own, and those of its MCP servers, which are connected when a run first wants them."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .errors import ConfigError, McpError
from .tool import Tool, ToolInfo
from .tools import Toolbox

if TYPE_CHECKING:
    from .mcp import McpServers, ServerStatus

__all__ = ["Connections", "ToolLike"]

ToolLike = Tool | Callable[..., Any]


class Connections:
    """The tools of the agent of that name. After `closed` is set, nothing is connected any more."""

    def __init__(self, agent: str, tools: Iterable[ToolLike], mcp_servers: Any, *, fail_on_no_tools: bool) -> None:
        self.closed = False
        self._agent = agent
        self._native = Toolbox(tools).check()
        self._config = mcp_servers
        self._fail_on_no_tools = fail_on_no_tools
        self._servers: McpServers | None = None
        self._arriving: McpServers | None = None
        self._connecting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._toolbox: Toolbox | None = None
        if mcp_servers:
            from .mcp import parse_servers

            self._config = parse_servers(mcp_servers)

    async def toolbox(self) -> Toolbox:
        """All tools. Connects the servers, once, and mounts their tools behind the agent's own, in declared order."""
        if self._toolbox is not None:
            return self._toolbox
        async with self._turn():
            self.check_open()
            if self._toolbox is None:
                if self._config and self._servers is None:
                    self._servers = await self._connected()
                mounted = self._servers.tools if self._servers else ()
                self._toolbox = Toolbox([*self._native.values(), *mounted])
        return self._toolbox

    async def infos(self) -> tuple[ToolInfo, ...]:
        """What is known of all tools."""
        return tuple(tool.info for tool in (await self.toolbox()).values())

    async def statuses(self) -> "list[ServerStatus]":
        """How the servers are."""
        await self.toolbox()
        return list(self._servers.statuses) if self._servers else []

    def remarks(self) -> list[str]:
        """What a planner is told of the servers."""
        if self._servers is None:
            return []
        failed = [f"Server {s.name!r} is not available: {s.error}" for s in self._servers.statuses if s.error]
        said = [f"About the server {name!r}: {text}" for name, text in self._servers.instructions.items()]
        return [*failed, *said]

    async def reconnect(self) -> None:
        """Close and connect the servers anew."""
        async with self._turn():
            servers, self._servers, self._toolbox = self._servers, None, None
            if servers:
                await servers.close()
        await self.toolbox()

    async def close(self) -> None:
        """Close the servers, those too that are just being connected."""
        self.closed, self._toolbox = True, None
        for servers in (self._arriving, self._servers):
            if servers:
                await servers.close()
        self._servers = None

    def check_open(self) -> None:
        """Raise `ConfigError` where the agent is closed."""
        if self.closed:
            raise ConfigError(f"the agent {self._agent!r} is closed; make a new one")

    async def _connected(self) -> "McpServers":
        """The servers, connected; `close` may come in between, and then they are closed too."""
        from .mcp import McpServers

        self._arriving = servers = McpServers(self._config, fail_on_no_tools=self._fail_on_no_tools)
        try:
            await servers.__aenter__()
        except McpError:
            self.check_open()
            raise
        finally:
            self._arriving = None
        if self.closed:
            await servers.close()
        self.check_open()
        return servers

    def _turn(self) -> asyncio.Lock:
        """The lock for connecting, a new one where the event loop that used it is gone."""
        loop = asyncio.get_running_loop()
        if self._loop is None or (self._loop is not loop and not self._loop.is_running()):
            self._loop, self._connecting, self._arriving = loop, asyncio.Lock(), None
        return self._connecting
