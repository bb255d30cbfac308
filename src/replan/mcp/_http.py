"""The SDK's streamable HTTP transport on a client that says what went wrong. Imports the SDK."""

import inspect
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from replan.encoding import JSONObject, clean_text, decode, is_object

from .config import HttpServer

__all__ = ["FAULT", "http_transport"]

FAULT = "replan/fault"
"""The key in a JSON-RPC error's data under which this client says what happened below JSON-RPC."""

_SESSION = "mcp-session-id"
_NO_SESSION = re.compile(
    r"\bsession[\s_-]*id\b|\b(?:no|no valid|invalid|unknown|expired|missing|bad)\s+session\b"
    r"|^\W*session\s+(?:is\s+|was\s+|has\s+)?(?:not|unknown|invalid|expired|terminated|closed|does)\b",
    re.IGNORECASE,
)
"""How servers that answer 400 in plain text, not 404 as they should, say that they do not know a session."""

_SHOWN = 300
_LARGEST_EVENT = 64 * 2**20
"""Bytes of one event of a stream: an image fits, an endless one does not."""


class _Client(httpx2.AsyncClient):
    """Answers every failure with a JSON-RPC error, so that it concerns one request and not the whole connection."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
            if response.status_code >= 400 or "json" in response.headers.get("content-type", ""):
                await response.aread()
        except httpx2.TransportError as error:
            fault = "unsent" if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)) else "broken"
            detail = clean_text(str(error)) or "no details"
            return _answer(request, 503, f"cannot reach {_place(request)}: {type(error).__name__}: {detail}", fault)
        if response.status_code < 400:
            return response
        return _failure(request, response)


def _failure(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    status, text = response.status_code, clean_text(response.text).strip()
    reply = _rpc_error(text)
    if status == 401:
        return _answer(request, status, f"{_place(request)} needs authorization (HTTP 401)", "unauthorized")
    if reply is not None and _is_reply_to(request, reply):
        # The server's own word on this request: it may have run, so it is passed on, whatever the status and the text.
        return _stale(request, response, reply) if status == 404 and _SESSION in request.headers else response
    if _SESSION in request.headers and (status == 404 or (status == 400 and _speaks_of_session(text, reply))):
        return _answer(request, status, "the server no longer knows this session", "session")
    if reply is not None:
        return response
    return _answer(request, status, f"{_place(request)} answered HTTP {status}: {text[:_SHOWN] or 'no text'}", "status")


def _rpc_error(text: str) -> JSONObject | None:
    """The JSON-RPC error that the text is, if it is one."""
    try:
        value = decode(text)
    except ValueError:
        return None
    return value if is_object(value) and is_object(value.get("error")) else None


def _is_reply_to(request: httpx2.Request, reply: JSONObject) -> bool:
    """Whether the error names the request, as only what has read the request can."""
    asked = decode(request.content) if request.method == "POST" else None
    ident = asked.get("id") if is_object(asked) else None
    return ident is not None and str(reply.get("id")) == str(ident)


def _speaks_of_session(text: str, reply: JSONObject | None) -> bool:
    """Whether a 400 refuses the session: in an error that answers no request, or in words that mean just that."""
    return "session" in text.lower() if reply is not None else _NO_SESSION.search(text) is not None


def _stale(request: httpx2.Request, response: httpx2.Response, reply: JSONObject) -> httpx2.Response:
    """The reply, marked: its status says that the session is gone, so that later requests need a new one."""
    error = {**cast("JSONObject", reply["error"]), "data": {FAULT: "stale"}}
    return httpx2.Response(response.status_code, json={**reply, "error": error}, request=request)


def _answer(request: httpx2.Request, status: int, message: str, fault: str) -> httpx2.Response:
    error = {"code": -32000, "message": message, "data": {FAULT: fault}}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def _place(request: httpx2.Request) -> str:
    return str(request.url.copy_with(userinfo=b"", query=None, fragment=None))


@asynccontextmanager
async def http_transport(
    server: HttpServer,
) -> AsyncGenerator[tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]]:
    """The streams of a connection to the server, with its headers of this moment."""
    headers = dict(server.headers or {})
    if server.get_headers is not None:
        fresh = server.get_headers()
        headers.update(await fresh if inspect.isawaitable(fresh) else fresh)
    # How long a request may take is decided where calls are made; a stream may be silent for long.
    timeout = httpx2.Timeout(server.connect_timeout, read=None)
    async with (
        _Client(headers=headers, timeout=timeout) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=_LARGEST_EVENT) as streams,
    ):
        yield streams
