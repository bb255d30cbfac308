"""The SDK's transport over a server process of ours. Imports the SDK."""

import logging
from types import TracebackType

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from .process import ServerProcess

__all__ = ["StdioTransport"]

_log = logging.getLogger("replan.mcp")


class _Input:
    """The stream that the SDK writes to. A write never waits: the pipe's buffer takes it."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        if not self._process.send(text.encode()):
            raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        """The pipe is closed where the process is stopped."""

    async def __aenter__(self) -> "_Input":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class StdioTransport:
    """Reads and writes JSON-RPC lines. What the server prints besides is logged and left out."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        # Unlimited: the session takes messages as fast as it can, and blocking the event loop's reader helps nobody.
        self._feed, self._read = anyio.create_memory_object_stream[SessionMessage | Exception](float("inf"))

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[SessionMessage | Exception], _Input]:
        self._process.listen(self._take)
        self._process.at_end(self._feed.close)
        return self._read, _Input(self._process)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.listen(lambda line: None)
        self._feed.close()
        self._read.close()

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            shown = line[:200].decode("utf-8", "replace")
            _log.warning("MCP server %r printed a line that is no JSON-RPC message: %r", self._process.name, shown)
            return
        try:
            self._feed.send_nowait(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            _log.debug("MCP server %r sent a message after its session ended", self._process.name)
