"""MCP servers as a source of tools. The official SDK is imported when the first connection is made."""

from .config import HttpServer, McpServer, StdioServer, parse_servers
from .connection import Connection
from .names import tool_aliases
from .servers import McpServers, ServerStatus
from .tools import McpTool

__all__ = [
    "Connection",
    "HttpServer",
    "McpServer",
    "McpServers",
    "McpTool",
    "ServerStatus",
    "StdioServer",
    "parse_servers",
    "tool_aliases",
]
