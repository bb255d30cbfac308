"""A model provider on this machine that plays a script, over real sockets."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, TypeAlias

from replan.encoding import JSONObject, encode
from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall

from .model import split_words

__all__ = ["HttpReply", "HttpRequest", "ScriptedServer", "ServerReply", "error_reply", "sse_reply"]

Part: TypeAlias = str | Text | Thinking | Refusal | ToolCall
Ending: TypeAlias = Literal["end", "cut", "hang"]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it arrived. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """An answer, byte by byte. Each of `chunks` is sent by itself.

    `then` says what follows the last chunk: the proper end, a broken connection (`cut`), or nothing until
    `ScriptedServer.release` is called (`hang`). Without `chunks` a `hang` sends not even the head.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    chunks: Sequence[bytes] = ()
    then: Ending = "end"


PlayedReply: TypeAlias = str | Assistant | ToolCall | Sequence[Part] | HttpReply
ServerReply: TypeAlias = PlayedReply | Callable[[HttpRequest], PlayedReply]
"""One entry of a server's script; see `ScriptedServer`."""


def error_reply(status: int, message: str = "scripted error", *, code: str | None = None, **headers: str) -> HttpReply:
    """An error as OpenAI words it. Underscores in header names become dashes: `error_reply(429, retry_after="0")`."""
    body = encode({"error": {"message": message, "type": "scripted", "code": code}})
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpReply(status=status, headers={"content-type": "application/json", **named}, chunks=(body,))


def sse_reply(*events: object, done: bool = True, then: Ending = "end") -> HttpReply:
    """A stream of these events: JSON values, or bytes that are sent as they are. `done` adds the closing `[DONE]`."""
    chunks = [event if isinstance(event, bytes) else b"data: %s\n\n" % encode(event) for event in events]
    return HttpReply(
        headers={"content-type": "text/event-stream"}, chunks=(*chunks, *[b"data: [DONE]\n\n"] * done), then=then
    )


class ScriptedServer:
    """An OpenAI-compatible server on a free port of this machine that plays `replies` in order, one a request.

        async with ScriptedServer([call("lookup", key="a")], "The answer is 7.") as server:
            model = resolve("openai-compatible:any", base_url=server.base_url)  # from replan.models
            result = await Agent(model, tools=[lookup]).run("What is a?")
        assert server.requests[0].json["messages"][0]["role"] == "system"

    A reply is a text, a tool call, a list of calls, texts and other parts, or an `Assistant`: it is sent as a stream
    or as one object, as the request wants it. An `HttpReply` is sent as it is; `error_reply` and `sse_reply` make the
    usual ones. A function of the request gives any of these. After the last reply `otherwise` is played, as often as
    needed; without it requests are refused with status 400.

    `async with` serves in the running event loop, `with` in a thread of its own. `requests` holds what arrived, in
    order; `open_connections` is the number of connections that clients keep open.
    """

    def __init__(self, *replies: ServerReply, otherwise: ServerReply | None = None) -> None:
        self.requests: list[HttpRequest] = []
        self._replies = replies
        self._otherwise = otherwise
        self._server: asyncio.Server | None = None
        self._port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._released: asyncio.Event | None = None
        self._ended: asyncio.Event | None = None
        self._connections: set[asyncio.Task[Any]] = set()
        self._thread: threading.Thread | None = None
        self._calls = 0

    @property
    def base_url(self) -> str:
        """The base URL to give to a client: `http://127.0.0.1:<port>/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def open_connections(self) -> int:
        """How many connections clients keep open."""
        return len(self._connections)

    def release(self) -> None:
        """Let all replies that hang go on to their end, now and in future."""
        if self._loop is not None and self._released is not None:
            self._loop.call_soon_threadsafe(self._released.set)

    async def __aenter__(self) -> "ScriptedServer":
        self._loop = asyncio.get_running_loop()
        self._released = asyncio.Event()
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def __enter__(self) -> "ScriptedServer":
        started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(started),), name="scripted-server")
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None and self._loop is not None and self._ended is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    async def _serve(self, started: threading.Event) -> None:
        self._ended = asyncio.Event()
        async with self:
            started.set()
            await self._ended.wait()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while request := await _read_request(reader):
                if not await self._answer(request, reader, writer):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the server ends: only `__aexit__` cancels this task
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used again."""
        if request.method != "POST":
            reply = error_reply(404, f"nothing at {request.path}")
        else:
            self.requests.append(request)
            reply = self._reply(len(self.requests) - 1, request)
        if reply.chunks or reply.then != "hang":
            writer.write(_head(reply))
        for chunk in reply.chunks:
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunk else b"")
            await writer.drain()
            await asyncio.sleep(0)
        if reply.then == "hang" and not await self._hold(reader):
            return False
        if reply.then == "cut":
            return False
        if not reply.chunks and reply.then == "hang":
            writer.write(_head(reply))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _hold(self, reader: asyncio.StreamReader) -> bool:
        """Wait for `release`; False where the client goes first."""
        assert self._released is not None
        released = asyncio.ensure_future(self._released.wait())
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((released, gone), return_when=asyncio.FIRST_COMPLETED)
            return released.done()
        finally:
            released.cancel()
            gone.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await asyncio.gather(released, gone, return_exceptions=True)

    def _reply(self, index: int, request: HttpRequest) -> HttpReply:
        reply = self._replies[index] if index < len(self._replies) else self._otherwise
        if callable(reply):
            reply = reply(request)
        if reply is None:
            text = f"the script of this server has {len(self._replies)} replies, and this is request {index + 1}"
            return error_reply(400, f"{text}; add one, or give `otherwise=`")
        return reply if isinstance(reply, HttpReply) else self._chat(reply, request)

    def _chat(self, reply: str | Assistant | ToolCall | Sequence[Part], request: HttpRequest) -> HttpReply:
        if isinstance(reply, Assistant):
            parts: Sequence[Part] = reply.content
        else:
            parts = [reply] if isinstance(reply, str | ToolCall) else reply
        asked: JSONObject = request.json
        head: JSONObject = {
            "id": f"chatcmpl-{len(self.requests)}",
            "created": 1_700_000_000,
            "model": asked.get("model", ""),
        }
        fields = [self._fields(part) for part in parts]
        finish = "tool_calls" if any("tool_calls" in field for field in fields) else "stop"
        if not asked.get("stream"):
            choice = {"index": 0, "message": _merged(fields), "logprobs": None, "finish_reason": finish}
            body = encode({**head, "object": "chat.completion", "choices": [choice], "usage": _USAGE})
            return HttpReply(headers={"content-type": "application/json"}, chunks=(body,))
        head["object"] = "chat.completion.chunk"
        options: JSONObject = asked.get("stream_options") or {}
        events: list[JSONObject] = [{**head, "choices": [choice]} for choice in _choices(fields, finish)]
        if options.get("include_usage"):
            events.append({**head, "choices": [], "usage": _USAGE})
        return sse_reply(*events)

    def _fields(self, part: Part) -> JSONObject:
        match part:
            case str():
                return {"content": part}
            case Text():
                return {"content": part.text}
            case Thinking():
                return {"reasoning_content": part.text}
            case Refusal():
                return {"refusal": part.text}
            case ToolCall():
                self._calls += 1
                function = {"name": part.name, "arguments": part.raw or encode(part.arguments).decode()}
                return {
                    "tool_calls": [
                        {"id": part.call_id or f"call_{self._calls}", "type": "function", "function": function}
                    ]
                }


_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def _merged(fields: list[JSONObject]) -> JSONObject:
    """The parts as one message."""
    message: JSONObject = {"role": "assistant", "content": None, "refusal": None}
    for field_ in fields:
        for name, value in field_.items():
            message[name] = message[name] + value if message.get(name) else value
    return message


def _choices(fields: list[JSONObject], finish: str) -> Iterator[JSONObject]:
    """The parts as the choices of a stream's chunks: text in words, a call as its head and then its arguments."""
    deltas: list[JSONObject] = [{"role": "assistant", "content": None}]
    calls = 0
    for field_ in fields:
        for name, value in field_.items():
            if name != "tool_calls":
                deltas += [{name: word} for word in split_words(value)]
                continue
            call = value[0]
            pieces = [{**call, "function": {**call["function"], "arguments": ""}}]
            pieces += [{"function": {"arguments": word}} for word in split_words(call["function"]["arguments"])]
            deltas += [{"tool_calls": [{"index": calls, **piece}]} for piece in pieces]
            calls += 1
    for delta in deltas:
        yield {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    yield {"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish}


async def _read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request; None where the client has closed the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ", 2)
    return HttpRequest(method, path, headers, body)


def _head(reply: HttpReply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} Scripted", "transfer-encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
