import asyncio
import subprocess
import sys
from contextlib import aclosing

import pytest

from replan.errors import ConfigError, NetworkError
from replan.models.failures import Failure
from replan.models.http import close_all, drain, post_stream
from replan.testing import HttpReply, ScriptedServer, allow_real_requests, block_real_requests


def post(url: str, body: bytes = b"{}", timeout: float = 5.0):
    return post_stream(url, {"Content-Type": "application/json"}, body, timeout=timeout, model="p:m")


async def whole(url: str, body: bytes = b"{}") -> bytes:
    return b"".join([piece async for piece in post(url, body)])


async def test_the_body_comes_in_pieces_as_it_is_sent():
    got = b""
    reply = HttpReply(chunks=(b"one", b"two"), then="hang")
    async with ScriptedServer(reply) as server, aclosing(post(server.base_url)) as pieces:
        async for piece in pieces:
            got += piece
            if got == b"onetwo":
                server.release()
    assert got == b"onetwo"


async def test_blocked_requests_open_no_connection():
    with block_real_requests(), pytest.raises(ConfigError, match="blocked"):
        await whole("http://192.0.2.1/v1")


async def test_what_is_left_can_be_drained_so_that_the_connection_is_used_again():
    async with ScriptedServer(otherwise=HttpReply(chunks=(b"a", b"b"))) as server:
        for _ in range(2):
            async with aclosing(post(server.base_url)) as pieces:
                await anext(pieces)
                await drain(pieces)
        assert server.open_connections == 1


async def test_draining_gives_up_in_time():
    reply = HttpReply(chunks=(b"a",), then="hang")
    async with ScriptedServer(reply) as server, aclosing(post(server.base_url)) as pieces, asyncio.timeout(3):
        assert await anext(pieces) == b"a"
        await drain(pieces, 0.05)


async def test_a_server_of_another_kind_is_a_failure():
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        with pytest.raises(Failure) as caught:
            await whole(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert caught.value.error.model == "p:m"


async def test_connections_can_be_closed_and_are_opened_again():
    async with ScriptedServer(otherwise=HttpReply(chunks=(b"a",))) as server:
        await whole(server.base_url)
        await close_all()
        await close_all()
        async with asyncio.timeout(5):
            while server.open_connections:
                await asyncio.sleep(0.001)
        assert await whole(server.base_url) == b"a"


async def test_a_proxy_from_the_environment_is_used_but_not_for_this_machine(monkeypatch: pytest.MonkeyPatch):
    async with ScriptedServer(HttpReply(chunks=(b"direct",)), HttpReply(chunks=(b"by proxy",))) as server:
        monkeypatch.setenv("http_proxy", server.base_url.replace("http://", "http://user:pass@").removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert await whole(server.base_url) == b"direct"
        with allow_real_requests():
            assert await whole("http://models.invalid/v1") == b"by proxy"
    assert server.requests[1].path == "http://models.invalid/v1"
    assert server.requests[1].headers["proxy-authorization"].startswith("Basic ")


async def test_a_proxy_of_an_unknown_kind_is_a_config_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "socks5://user:pass@127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with allow_real_requests(), pytest.raises(ConfigError, match="socks5://127") as caught:
        await whole("http://other.invalid/v1")
    assert "pass" not in str(caught.value)


async def test_names_that_do_not_exist_are_network_errors():
    with pytest.raises(Failure) as caught:
        await whole("http://no-such-name.localhost:9/v1")
    assert isinstance(caught.value.error, NetworkError)
    assert caught.value.repeat


SCRIPT = """
import asyncio
from replan.messages import user
from replan.model import Conversation, ModelRequest
from replan.models import resolve
from replan.testing import ScriptedServer

async def main():
    async with ScriptedServer(otherwise="hello") as server:
        model = resolve("openai-compatible:m", base_url=server.base_url)
        async for delta in model.stream(ModelRequest(conversation=Conversation([user("x")]))):
            pass
    print(delta.message.text)

def loop_run(close):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    if close:
        loop.close()
"""


@pytest.mark.parametrize(
    "ending",
    ["asyncio.run(main()); asyncio.run(main())", "loop_run(True); asyncio.run(main())", "loop_run(False)"],
)
def test_the_end_of_a_loop_leaves_nothing_open(ending: str):
    command = [sys.executable, "-c", SCRIPT + ending]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert set(done.stdout.split()) == {"hello"}


def test_the_wire_is_imported_without_the_http_library():
    code = "import sys, replan.models, replan.models.chat; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
