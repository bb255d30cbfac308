"""Small MCP servers for tests, made of plain functions: as a process, or behind a URL on the loopback interface.

```python
from replan.testing.mcp import http_server, stdio_server

def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

servers = {"local": stdio_server(add)}          # for functions at the top level of a file
with http_server(add) as server:                # for any functions; the server runs in a thread of this process
    servers["remote"] = server.url
```

Names, descriptions and schemas of the tools are taken from the functions, as the official SDK does it.
"""

import importlib
import importlib.util
import inspect
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from replan.errors import ConfigError
from replan.mcp import StdioServer

__all__ = ["RunningServer", "http_server", "stdio_server"]

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that is running: `url` is where."""

    url: str


def stdio_server(*functions: Function, **options: Any) -> StdioServer:
    """A server with these functions as tools, started as a process; `options` are those of `StdioServer`.

    The functions must stand at the top level of a file, which the process loads. Raises `ConfigError` where they do
    not.
    """
    args = ["-m", "replan.testing.mcp", *(_where(function) for function in functions)]
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[2])]
    env = {"PYTHONPATH": os.pathsep.join(paths), **cast("dict[str, str]", options.pop("env", None) or {})}
    return StdioServer(sys.executable, tuple(args), env, **options)


@contextmanager
def http_server(*functions: Function, name: str = "test") -> Generator[RunningServer]:
    """A server with these functions as tools, behind a URL of the loopback interface, until the block is left."""
    import uvicorn

    app = _build(name, functions).streamable_http_app()
    # The protocol is stated because asyncio sends small packets at once only where it is.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        listener.listen()
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield RunningServer(url)
        finally:
            server.should_exit = True
            thread.join(10)


def _where(function: Function) -> str:
    file = inspect.getsourcefile(function)
    if file is None or function.__qualname__ != function.__name__:
        raise ConfigError(
            f"{function.__qualname__!r} is not at the top level of a file; move it there or use http_server"
        )
    return f"{Path(file).resolve()}:{function.__name__}"


def _load(where: str) -> Function:
    file, _, name = where.rpartition(":")
    spec = importlib.util.spec_from_file_location("replan_testing_tools", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return cast("Function", getattr(module, name))


def _build(name: str, functions: tuple[Function, ...]) -> Any:
    from mcp.server.mcpserver import MCPServer

    # The SDK would set up logging for the whole process if nobody had.
    root, guard = logging.getLogger(), logging.NullHandler()
    root.addHandler(guard)
    try:
        server = MCPServer(name)
    finally:
        root.removeHandler(guard)
    for function in functions:
        server.add_tool(function)
    return server


if __name__ == "__main__":
    _build("test", tuple(map(_load, sys.argv[1:]))).run("stdio")
