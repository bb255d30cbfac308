import asyncio
import socket
import time

import pytest

from replan.errors import ConfigError
from replan.mcp import HttpServer, McpServers


def text(output):
    return output.content[0].text


async def test_tools_are_listed_and_called(wire_http, context):
    async with McpServers({"h": wire_http.url}) as servers:
        (tool,) = servers.tools
        assert text(await tool.call({"a": 1}, context)) == '{"a": 1}'
    _, sent = next(entry for entry in wire_http.seen if entry[1]["method"] == "tools/call")
    assert sent["params"]["_meta"]["replan/idempotency-key"] == "key-1"


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_headers_go_with_every_request_and_those_of_the_function_win(wire_http, asynchronous):
    async def later():
        return {"X-Token": "fresh"}

    source = later if asynchronous else lambda: {"X-Token": "fresh"}
    async with McpServers({"h": HttpServer(wire_http.url, {"X-Token": "old", "X-Other": "o"}, source)}):
        pass
    assert {(headers["x-token"], headers["x-other"]) for headers, _ in wire_http.seen} == {("fresh", "o")}


async def test_servers_that_cannot_be_used_are_named_and_the_others_work(wire_http, context, caplog):
    def refuse(headers, message):
        return (401, {"WWW-Authenticate": "Bearer"}, b"") if "x-refuse" in headers else None

    wire_http.override = refuse
    with socket.socket() as hole, socket.socket() as closed:
        hole.bind(("127.0.0.1", 0))
        hole.listen()
        closed.bind(("127.0.0.1", 0))
        configs = {
            "refused": f"http://127.0.0.1:{closed.getsockname()[1]}/",
            "hole": HttpServer(f"http://127.0.0.1:{hole.getsockname()[1]}/", connect_timeout=0.5),
            "locked": {"url": wire_http.url, "headers": {"X-Refuse": "1"}},
            "good": wire_http.url,
        }
        began = time.monotonic()
        async with McpServers(configs) as servers:
            assert time.monotonic() - began < 3
            refused, black, locked, good = servers.statuses
            assert [tool.info.name for tool in servers.tools] == ["good__echo"]
            assert not (await servers.tools[0].call({}, context)).is_error
    assert "cannot reach http://127.0.0.1" in refused.error
    assert black.error == "no answer within 0.5 s"
    assert "needs authorization (HTTP 401)" in locked.error
    assert [status.needs_authorization for status in (refused, black, locked, good)] == [False, False, True, False]
    assert sum("it is left out" in record.getMessage() for record in caplog.records) == 3


@pytest.mark.parametrize("status", [404, 400])
async def test_a_forgotten_session_is_opened_once_more_for_all_waiting_calls(wire_http, context, status):
    wire_http.forget_status = status
    async with McpServers({"h": wire_http.url}) as servers:
        (tool,) = servers.tools
        assert text(await tool.call({}, context)) == "{}"
        wire_http.forgotten = True
        outputs = await asyncio.gather(*(tool.call({"n": n}, context) for n in range(3)))
        assert [text(output) for output in outputs] == [f'{{"n": {n}}}' for n in range(3)]
        assert wire_http.count("initialize") == 2


@pytest.mark.parametrize(("status", "sessions"), [(400, 1), (404, 2), (500, 1)])
async def test_an_error_that_names_the_request_is_its_answer_whatever_it_says_of_sessions(
    wire_http, context, status, sessions
):
    async with McpServers({"h": wire_http.url}) as servers:
        error = {"code": -32000, "message": "invalid session id: checkout session 7 was charged, but has no receipt"}
        wire_http.override = lambda headers, message: (
            (status, {}, wire_http.rpc(message, error=error)) if message["method"] == "tools/call" else None
        )
        output = await servers.tools[0].call({}, context)
        assert (output.is_error, text(output)) == (True, error["message"])
        assert wire_http.count("tools/call") == 1
        wire_http.override = lambda headers, message: None
        assert text(await servers.tools[0].call({"a": 1}, context)) == '{"a": 1}'
        assert wire_http.count("initialize") == sessions


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Bad Request: no session"}}', 2),
        (b'{"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Unknown session"}}', 2),
        (b"Session not found", 2),
        (b"checkout session 7 was charged, but its receipt failed", 1),
        (b'{"error": "the session of the till was closed"}', 1),
    ],
)
async def test_a_400_loses_the_session_only_where_it_says_so(wire_http, context, body, sent):
    async with McpServers({"h": wire_http.url}) as servers:
        wire_http.override = lambda headers, message: (400, {}, body) if message["method"] == "tools/call" else None
        assert (await servers.tools[0].call({}, context)).is_error
        assert wire_http.count("tools/call") == sent


async def test_a_server_that_forgets_every_session_gets_one_more_try(wire_http, context):
    async with McpServers({"h": wire_http.url}) as servers:
        wire_http.override = lambda headers, message: (404, {}, b"") if message["method"] == "tools/call" else None
        output = await servers.tools[0].call({}, context)
        assert output.is_error
        assert "no longer knows this session" in text(output)
        assert wire_http.count("initialize") == wire_http.count("tools/call") == 2


async def test_404_without_a_session_is_an_ordinary_error(wire_http, context):
    wire_http.stateless = True
    async with McpServers({"h": wire_http.url}) as servers:
        wire_http.override = lambda headers, message: (404, {}, b"gone") if message["method"] == "tools/call" else None
        output = await servers.tools[0].call({}, context)
        assert output.is_error
        assert "answered HTTP 404: gone" in text(output)
        assert wire_http.count("initialize") == wire_http.count("tools/call") == 1


async def test_refused_credentials_are_fetched_again_once(wire_http, context):
    given = iter(["first", "second"])
    config = HttpServer(wire_http.url, get_headers=lambda: {"X-Token": next(given)})
    async with McpServers({"h": config}) as servers:
        wire_http.override = lambda headers, message: (401, {}, b"") if headers["x-token"] == "first" else None
        assert text(await servers.tools[0].call({"a": 1}, context)) == '{"a": 1}'
    assert list(given) == []


async def test_refused_fixed_credentials_are_an_error_result(wire_http, context):
    async with McpServers({"h": wire_http.url}) as servers:
        wire_http.override = lambda headers, message: (401, {}, b"")
        output = await servers.tools[0].call({}, context)
        assert output.is_error
        assert "needs authorization" in text(output)
        assert servers.statuses[0].needs_authorization
        wire_http.override = lambda headers, message: None
        await servers.reconnect("h")
        assert not servers.statuses[0].needs_authorization
        assert not (await servers.tools[0].call({}, context)).is_error


async def test_proxies_of_the_environment_are_used(wire_http, context, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{wire_http.port}")
    monkeypatch.setenv("NO_PROXY", "")
    async with McpServers({"h": "http://mcp.invalid/mcp"}) as servers:
        assert text(await servers.tools[0].call({"a": 1}, context)) == '{"a": 1}'
    assert wire_http.seen[0][0]["host"] == "mcp.invalid"


async def test_asking_for_a_server_that_is_not_configured_is_an_error():
    with pytest.raises(ConfigError, match="there is no MCP server 'x'; known are none"):
        await McpServers({}).reconnect("x")


async def test_an_http_error_concerns_one_call(wire_http, context):
    async with McpServers({"h": wire_http.url}) as servers:
        (tool,) = servers.tools
        wire_http.override = lambda headers, message: (500, {"Content-Type": "text/html"}, b"<h1>Oops</h1>")
        output = await tool.call({}, context)
        assert output.is_error
        assert "answered HTTP 500: <h1>Oops</h1>" in text(output)
        wire_http.override = lambda headers, message: None
        assert not (await tool.call({}, context)).is_error
        assert wire_http.count("initialize") == 1


@pytest.mark.parametrize(("globs", "calls"), [((), 1), (("ec*",), 2)])
async def test_a_cut_answer_is_asked_for_again_only_where_the_host_says_it_may(wire_http, context, globs, calls):
    async with McpServers({"h": HttpServer(wire_http.url, read_only=globs)}) as servers:
        (tool,) = servers.tools
        slow = asyncio.Event()

        async def answer(headers, message):
            if message["params"]["arguments"] == {"slow": 1}:
                await slow.wait()
                return None
            return "cut" if wire_http.count("tools/call") == 2 else None

        wire_http.override = lambda headers, message: answer(headers, message) if "id" in message else None
        waiting = asyncio.create_task(tool.call({"slow": 1}, context))
        while wire_http.count("tools/call") < 1:
            await asyncio.sleep(0.01)
        output = await tool.call({}, context)
        assert output.is_error == (not globs)
        assert wire_http.count("tools/call") == 1 + calls
        slow.set()
        assert text(await waiting) == '{"slow": 1}'


async def test_a_server_that_went_away_and_came_back_is_used_again(wire_http, context):
    async with McpServers({"h": wire_http.url}) as servers:
        (tool,) = servers.tools
        await wire_http.stop()
        output = await tool.call({}, context)
        assert output.is_error
        assert "cannot reach" in text(output)
        assert servers.statuses[0].state == "failed"
        await wire_http.start(wire_http.port)
        assert text(await tool.call({"a": 1}, context)) == '{"a": 1}'
        assert servers.statuses[0].state == "ready"


async def test_cancelling_a_call_tells_the_server(wire_http, context):
    async with McpServers({"h": wire_http.url}) as servers:
        (tool,) = servers.tools
        never = asyncio.Event()

        async def hang():
            await never.wait()

        wire_http.override = lambda headers, message: hang() if message["method"] == "tools/call" else None
        call = asyncio.create_task(tool.call({}, context))
        while wire_http.count("tools/call") < 1:
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while wire_http.count("notifications/cancelled") < 1:
            await asyncio.sleep(0.01)
        wire_http.override = lambda headers, message: None
        assert not (await tool.call({}, context)).is_error


async def test_closing_is_bounded_while_the_server_hangs(wire_http, context):
    servers = McpServers({"h": wire_http.url})
    await servers.connect()
    never = asyncio.Event()

    async def hang():
        await never.wait()

    wire_http.override = lambda headers, message: hang()
    call = asyncio.create_task(servers.tools[0].call({}, context))
    while wire_http.count("tools/call") < 1:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    await servers.close()
    assert time.monotonic() - began < 6
    assert (await asyncio.wait_for(call, 1)).is_error
