import asyncio
import urllib.request

import pytest
from openai import APIConnectionError, AsyncOpenAI, BadRequestError

from replan.messages import Refusal, Thinking
from replan.testing import HttpReply, ScriptedServer, call, error_reply


def client(server: ScriptedServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0)


async def ask(server: ScriptedServer, **options: object):
    async with client(server) as api:
        return await api.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], **options)  # type: ignore[call-overload]


async def test_the_vendor_client_reads_a_whole_answer():
    async with ScriptedServer(["Let me see.", call("look", key="a"), call("stop")]) as server:
        answer = await ask(server)
    message = answer.choices[0].message
    assert message.content == "Let me see."
    assert [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls] == [
        ("call_1", "look", '{"key":"a"}'),
        ("call_2", "stop", "{}"),
    ]
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_the_vendor_client_reads_a_stream_with_usage_only_when_asked():
    async with ScriptedServer("one two", "one two") as server, client(server) as api:
        for options, usages in (({}, []), ({"stream_options": {"include_usage": True}}, [110])):
            stream = await api.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True, **options
            )  # type: ignore[call-overload]
            chunks = [chunk async for chunk in stream]
            assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "one two"
            assert [c.usage.total_tokens for c in chunks if c.usage] == usages


async def test_requests_are_recorded():
    async with ScriptedServer("ok") as server:
        await ask(server, temperature=0.5)
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].json["temperature"] == 0.5
    assert server.requests[0].headers["authorization"] == "Bearer any"


async def test_an_exhausted_script_is_a_bad_request_that_says_so():
    async with ScriptedServer("ok") as server:
        await ask(server)
        with pytest.raises(BadRequestError, match="has 1 replies, and this is request 2"):
            await ask(server)


async def test_functions_and_otherwise_are_played():
    async with ScriptedServer(lambda request: request.json["model"], otherwise=[Thinking("t"), Refusal("r")]) as server:
        assert (await ask(server)).choices[0].message.content == "m"
        assert (await ask(server)).choices[0].message.refusal == "r"


async def test_errors_carry_status_headers_and_message():
    async with ScriptedServer(error_reply(400, "no", code="bad", retry_after="7")) as server:
        with pytest.raises(BadRequestError, match="no") as caught:
            await ask(server)
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.code == "bad"


async def test_leaving_ends_connections_that_hang():
    async with ScriptedServer(HttpReply(then="hang")) as server:
        asking = asyncio.ensure_future(ask(server))
        while not server.requests:
            await asyncio.sleep(0.001)
    with pytest.raises(APIConnectionError):
        await asking
    assert server.open_connections == 0


async def test_a_hanging_reply_goes_on_when_released():
    body = b'{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[]}'
    reply = HttpReply(headers={"content-type": "application/json"}, chunks=(body,), then="hang")
    async with ScriptedServer(reply) as server:
        asking = asyncio.ensure_future(ask(server))
        while not server.requests:
            await asyncio.sleep(0.001)
        assert not asking.done()
        server.release()
        assert (await asking).model == "m"


def test_it_serves_blocking_code_from_a_thread():
    with ScriptedServer("from a thread") as server:
        request = urllib.request.Request(
            f"{server.base_url}/chat/completions", b"{}", {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            assert b"from a thread" in answer.read()
