"""MCP servers as a source of tools. The official SDK is imported when the first connection is made."""

from .config import HttpServer, McpServer, StdioServer, parse_servers
from .names import tool_aliases
from .servers import McpServers, ServerStatus
from .tools import McpTool

__all__ = [
    "HttpServer",
    "McpServer",
    "McpServers",
    "McpTool",
    "ServerStatus",
    "StdioServer",
    "parse_servers",
    "tool_aliases",
]
