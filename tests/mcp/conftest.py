import asyncio
import json
import logging
import os
import sys
import time
import uuid
from pathlib import Path

import pytest

from replan.mcp import StdioServer
from replan.tool import ToolContext

SCRIPT = str(Path(__file__).with_name("wire_server.py"))


def marked_processes(mark):
    """The ids of the processes whose environment holds the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark.encode() in (folder / "environ").read_bytes()
                and "Z" not in (folder / "stat").read_text().split()[2]
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def wire():
    """Makes configurations of the misbehaving server; afterwards no process of theirs may be left."""
    mark = f"replan-test-{uuid.uuid4().hex}"

    def make(*flags, **options):
        env = {"REPLAN_TEST_MARK": mark, **options.pop("env", {})}
        return StdioServer(sys.executable, ("-S", "-E", SCRIPT, *flags), env, **options)

    make.mark = mark
    make.processes = lambda: marked_processes(mark)
    yield make
    deadline = time.monotonic() + 2
    while (left := marked_processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, 9)
    assert not left


@pytest.fixture
def context(tmp_path):
    """A tool context that keeps artifacts in a folder and notes progress."""

    def keep(data, mime):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.bin"
        path.write_bytes(data)
        return path

    steps = []
    made = ToolContext(
        run_id="run",
        call_id="call",
        tool_name="tool",
        idempotency_key="key-1",
        deps=None,
        logger=logging.getLogger("test"),
        sandbox_path=lambda: tmp_path,
        keep=keep,
        progress=lambda done, total, message: steps.append((done, total, message)),
    )
    made.cancelled.steps = steps
    return made


class WireHttp:
    """A streamable HTTP server whose answers a test can replace. `seen` holds every message and its headers."""

    def __init__(self):
        self.seen = []
        self.sessions = 0
        self.forgotten = False
        self.forget_status = 404
        self.stateless = False
        self.override = lambda headers, message: None
        self._server = None
        self._writers = set()

    async def start(self, port=0):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    async def stop(self):
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    def count(self, method):
        return sum(message.get("method") == method for _, message in self.seen)

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if not head[0].startswith("POST"):
            return await self._reply(writer, 405 if head[0].startswith("GET") else 200, {}, b"")
        message = json.loads(body)
        self.seen.append((headers, message))
        answer = self.override(headers, message)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer is None:
            answer = self._answer(headers, message)
        if answer == "cut":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
            await writer.drain()
            return False
        return await self._reply(writer, *answer)

    async def _reply(self, writer, status, headers, body):
        lines = {"Content-Length": len(body), "Content-Type": "application/json", **headers}
        head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body)
        await writer.drain()
        return True

    def _answer(self, headers, message):
        method, headers_out = message["method"], {}
        if "id" not in message:
            return 202, {}, b""
        match method:
            case "initialize":
                self.sessions += 1
                self.forgotten = False
                if not self.stateless:
                    headers_out = {"Mcp-Session-Id": f"s{self.sessions}"}
                info = {"name": "wire", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case _ if headers.get("mcp-session-id", f"s{self.sessions}") != f"s{self.sessions}" or self.forgotten:
                return self.forget_status, {"Content-Type": "text/plain"}, b"No valid session ID provided"
            case "tools/list":
                result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": json.dumps(message["params"]["arguments"])}]}
            case _:
                return 200, {}, self.rpc(message, error={"code": -32601, "message": "Method not found"})
        return 200, headers_out, self.rpc(message, result=result)

    @staticmethod
    def rpc(message, **fields):
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], **fields}).encode()


@pytest.fixture
async def wire_http():
    """A running `WireHttp`."""
    server = WireHttp()
    await server.start()
    yield server
    await server.stop()
