"""One agent, unchanged, on every wire: tools, thoughts that go back, typed answers, a stage on each."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import test_anthropic_reply as messages
import test_bedrock_reply as bedrock
import test_gemini_reply as gemini
import test_responses_reply as responses
from pydantic import BaseModel

from replan import Agent, ModelSettings, PlanningAgent, StageModel, Stages, tool
from replan.errors import BadRequest, RunCancelled
from replan.messages import Thinking
from replan.models import resolve
from replan.testing import HttpReply, ScriptedServer, error_reply, sse_reply


class Answer(BaseModel):
    price: int


@tool(read_only=True)
def look(key: str) -> str:
    "Look a key up."
    return f"value of {key}"


def stream(data: bytes) -> HttpReply:
    return HttpReply(headers={"content-type": "text/event-stream"}, chunks=(data,))


def by_anthropic(text: str | None) -> HttpReply:
    if text is None:
        return stream(messages.sse(messages.start(), messages.THOUGHT, messages.CALL, messages.end("tool_use")))
    said = messages.block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})
    return stream(messages.sse(messages.start(), said, messages.end("end_turn")))


def by_gemini(text: str | None) -> HttpReply:
    if text is None:
        return stream(
            gemini.sse(gemini.chunk(gemini.call("look", gemini.SIGN, key="a"), finish="STOP", usage=gemini.USAGE))
        )
    return stream(gemini.sse(gemini.chunk({"text": text}, finish="STOP", usage=gemini.USAGE)))


def by_responses(text: str | None) -> HttpReply:
    if text is None:
        end = {"type": "response.completed", "response": responses.response(responses.REASONING, responses.CALL)}
    else:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        end = {"type": "response.completed", "response": responses.response({**responses.MESSAGE, "content": content})}
    return stream(responses.numbered(responses.START, end))


def by_deepseek(text: str | None) -> HttpReply:
    if text is None:
        function = {"name": "look", "arguments": '{"key": "a"}'}
        delta: dict[str, Any] = {
            "reasoning_content": "hm",
            "tool_calls": [{"index": 0, "id": "c", "function": function}],
        }
    else:
        delta = {"content": text}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return sse_reply({"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}], "usage": usage})


def by_bedrock(text: str | None) -> HttpReply:
    if text is None:
        asked = bedrock.call(1, "t1", "look", '{"key": "a"}')
        data = bedrock.START + bedrock.THOUGHT + asked + bedrock.stop("tool_use") + bedrock.counts()
    else:
        data = bedrock.START + bedrock.block(0, {"text": text}) + bedrock.stop("end_turn") + bedrock.counts()
    return bedrock.streamed(data)


Say = Callable[[str | None], HttpReply]
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
WIRES: dict[str, tuple[Say, str, dict[str, Any], str]] = {
    "anthropic": (by_anthropic, "anthropic:claude-sonnet-4-5", {}, '"signature":"c2ln"'),
    "bedrock": (by_bedrock, f"bedrock:{CLAUDE}", {"region": "us-east-1"}, '"signature":"c2ln"'),
    "google": (by_gemini, "google:gemini-2.5-flash", {}, f'"thoughtSignature":"{gemini.SIGN}"'),
    "openai": (by_responses, "openai:gpt-5-mini", {"responses": "always"}, '"encrypted_content":"ENC"'),
    "deepseek": (by_deepseek, "deepseek:deepseek-reasoner", {}, '"reasoning_content":"hm"'),
}


def model_on(server: ScriptedServer, name: str, options: dict[str, Any], **settings: Any) -> Any:
    base = server.base_url.removesuffix("/v1")
    asked = ModelSettings(**settings)
    return resolve(name, api_key="very-secret-key", base_url=base, settings=asked, **options)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_tool_is_called_and_the_thought_before_it_goes_back(wire: str):
    say, name, options, thought = WIRES[wire]
    async with (
        ScriptedServer(say(None), say("It is 7.")) as server,
        Agent(model_on(server, name, options, thinking="high"), tools=[look]) as agent,
    ):
        result = await agent.run("What is a?")
    assert (result.text, result.tool_calls, result.usage.model_calls) == ("It is 7.", 1, 2)
    assert "value of a" in server.requests[1].body.decode()
    assert thought in server.requests[1].body.decode()
    assert "very-secret" not in server.requests[1].body.decode()
    assert any(isinstance(part, Thinking) for part in result.messages[1].content)
    assert result.cost is not None
    assert result.cost > 0


@pytest.mark.parametrize("wire", WIRES)
async def test_a_thought_survives_the_journal_and_stays_with_its_model(wire: str, tmp_path):
    say, name, options, thought = WIRES[wire]
    async with ScriptedServer(say(None), say("It is 7."), say("And 8."), otherwise="chat") as server:
        model = model_on(server, name, options, thinking="high")
        async with Agent(model, tools=[look], journal=tmp_path / "runs.db") as agent:
            first = await agent.run("What is a?")
            await agent.run("And b?", history=first.messages)
        other = resolve("openai-compatible:other", base_url=server.base_url)
        async with Agent(other, tools=[look]) as agent:
            await agent.run("And c?", history=first.messages)
    assert thought in server.requests[2].body.decode()
    assert thought not in server.requests[3].body.decode()
    assert "value of a" in server.requests[3].body.decode()


@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_is_typed_and_asked_for_again_where_it_does_not_fit(wire: str):
    say, name, options, _ = WIRES[wire]
    async with (
        ScriptedServer(say('{"price": "much"}'), say('{"price": 7}')) as server,
        Agent(model_on(server, name, options), output_type=Answer) as agent,
    ):
        result = await agent.run("What does it cost?")
    assert result.output == Answer(price=7)
    assert "price" in server.requests[0].body.decode()
    assert len(server.requests) == 2


async def test_each_stage_of_a_plan_is_on_another_provider():
    plan = {
        "thought": "t",
        "steps": [
            {"id": "a", "description": "Look a up", "call": {"tool": "look", "arguments": {"key": "a"}}},
            {"id": "b", "description": "Think about it", "depends_on": ["a"]},
        ],
    }
    async with (
        ScriptedServer(by_anthropic(json.dumps(plan))) as planner,
        ScriptedServer(by_gemini("Thought about.")) as executor,
        ScriptedServer(by_responses("It is the value of a.")) as synthesizer,
    ):
        stages = Stages(
            planner=StageModel(model=model_on(planner, "anthropic:claude-sonnet-4-5", {}), thinking="high"),
            executor=model_on(executor, "google:gemini-2.5-flash", {}),
            synthesizer=model_on(synthesizer, "openai:gpt-5-mini", {"responses": "always"}),
        )
        async with PlanningAgent(models=stages, tools=[look], name="mixed") as agent:
            result = await agent.run("What is a?")
    assert result.text == "It is the value of a."
    assert set(result.usage_by_model) == {"anthropic:claude-sonnet-4-5", "google:gemini-2.5-flash", "openai:gpt-5-mini"}
    assert "thinking" in planner.requests[0].json
    assert "thinkingConfig" not in json.dumps(executor.requests[0].json)
    assert synthesizer.requests[0].json["prompt_cache_key"] == "mixed:synthesizer"
    assert planner.requests[0].body.count(b"cache_control") == 2


async def test_a_refusal_stops_a_run_with_its_words_and_is_not_asked_again():
    refused = stream(
        messages.sse(messages.start(), messages.end("refusal", stop_details={"explanation": "It is harmful."}))
    )
    async with (
        ScriptedServer(refused) as server,
        Agent(model_on(server, "anthropic:claude-sonnet-4-5", {}), output_type=Answer) as agent,
    ):
        result = await agent.run("x")
    assert (result.status, result.stop_reason, result.text) == ("stopped", "refusal", "It is harmful.")
    assert len(server.requests) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_a_resumed_run_sends_the_same_bytes_again(wire: str, tmp_path):
    say, name, options, thought = WIRES[wire]
    journal = tmp_path / "runs.db"
    async with ScriptedServer(say(None), error_reply(400, "no"), say("It is 7.")) as server:
        async with Agent(model_on(server, name, options, thinking="high"), tools=[look], journal=journal) as agent:
            with pytest.raises(BadRequest):
                await agent.run("What is a?", run_id="x")
        async with Agent(model_on(server, name, options, thinking="high"), tools=[look], journal=journal) as agent:
            assert (await agent.resume("x")).text == "It is 7."
    assert thought in server.requests[1].body.decode()
    assert server.requests[2].body == server.requests[1].body


@pytest.mark.parametrize("wire", WIRES)
async def test_a_cancelled_run_ends_its_request(wire: str):
    say, name, options, _ = WIRES[wire]
    begun = say("hello there")
    hangs = HttpReply(headers=begun.headers, chunks=(begun.chunks[0][:60],), then="hang")
    async with ScriptedServer(hangs) as server, Agent(model_on(server, name, options)) as agent, asyncio.timeout(5):
        run = agent.start("x")
        while not server.requests:
            await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(RunCancelled):
            await run.result()
        while server.open_connections:
            await asyncio.sleep(0.001)
