"""The embedded model, with a real worker process and an engine that plays a script instead of loading weights."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from replan.errors import (
    BadRequest,
    BadResponse,
    ConfigError,
    ContextTooLong,
    MissingDependency,
    ModelTimeout,
    NetworkError,
)
from replan.messages import Assistant, Text, ToolCall, ToolResult, user
from replan.model import Conversation, Done, Model, ModelRequest, OutputSchema, Retry, TextDelta, ToolSpec
from replan.models.local import LocalModel
from replan.settings import ModelSettings
from replan.testing import allow_real_requests

ENGINE = """
import json, os, sys, time
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent

class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = SimpleNamespace(), SimpleNamespace(), SimpleNamespace()

class Server:
    def __init__(self, params):
        print("a line on stdout that must not get in the way")
        with (HERE / "starts").open("a") as file:
            file.write(f"{os.getpid()}\\n")
        if (HERE / "unloadable").exists():
            raise RuntimeError("bad magic")

    def handle_chat_completions(self, body, callback):
        with (HERE / "bodies").open("a") as file:
            file.write(json.dumps(body) + "\\n")
        script = json.loads((HERE / "script").read_text())
        (HERE / "script").write_text(json.dumps(script[1:]))
        turn = script[0] if script else "nothing left"
        say = lambda text: callback({"choices": [{"delta": {"content": text}, "finish_reason": None}]})
        if turn == "crash":
            say("half")
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(3)
        if turn == "stuck":
            time.sleep(1000)
        if turn == "endless":
            while not say("more "):
                time.sleep(0.01)
            return
        if isinstance(turn, dict) and "error" in turn:
            callback(turn)
            return
        text, finish = (turn, "stop") if isinstance(turn, str) else (turn["cut"], "length")
        callback({"choices": [{"delta": {"content": None}}], "prompt_progress": {"processed": 1, "total": 2}})
        for start in range(0, len(text), 7):
            if say(text[start:start + 7]):
                return
        callback({"choices": [{"delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": 30, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 20}}
        callback({"choices": [], "usage": usage})
"""

WEATHER = ToolSpec(
    "weather",
    "Weather of a city. Up to date.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
CLOCK = ToolSpec("clock", "The time.", {"type": "object", "properties": {}})


class Engine:
    """The scripted engine's folder: what it is to say, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def script(self, *turns: object) -> None:
        (self.folder / "script").write_text(json.dumps(turns))

    @property
    def bodies(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "bodies").read_text().splitlines()]

    @property
    def rules(self) -> list[dict]:
        return [json.loads(body["grammar"].split("%json ")[1]) for body in self.bodies if "grammar" in body]

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in (self.folder / "starts").read_text().splitlines()]


@pytest.fixture(autouse=True)
def _allowed():
    with allow_real_requests():
        yield


@pytest.fixture
def engine(tmp_path, monkeypatch):
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "xllamacpp.py").write_text(ENGINE)
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"weights")
    monkeypatch.setenv("REPLAN_LOCAL_MODEL", str(weights))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    return Engine(folder)


@pytest.fixture
async def model(engine):
    model = LocalModel("test")
    yield model
    await model.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if Path("/proc").exists()
        else True
    )


def wait_for_end(pid: int) -> None:
    end = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.02)


def after(*results: tuple[ToolCall, str]) -> Conversation:
    """A conversation with these calls and their results behind it."""
    messages = [user("How warm is it in Oslo and in Rome?")]
    for call, result in results:
        messages += [Assistant((call,)), ToolResult(call.call_id, call.name, (Text(result),))]
    return Conversation(messages)


OSLO = ToolCall("c1", "weather", {"city": "Oslo"})


async def test_text_is_streamed_and_counted(engine, model, collect):
    engine.script("Hello there, how are you?")
    deltas = await collect(model, instructions="Be brief.", max_output_tokens=9)
    assert isinstance(model, Model)
    assert model.profile.constrained
    assert [delta.text for delta in deltas[:-1]] == ["Hello t", "here, h", "ow are ", "you?"]
    done = deltas[-1]
    assert (done.message.text, done.finish) == ("Hello there, how are you?", "stop")
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.cached_input_tokens) == (30, 5, 20)
    assert done.usage.model_calls == 1
    body = engine.bodies[0]
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
    ]
    assert (body["max_tokens"], body["temperature"]) == (9, 0)
    assert "grammar" not in body


async def test_settings_and_options_reach_the_engine(engine, collect):
    engine.script("ok")
    model = LocalModel(
        "test",
        ModelSettings(max_output_tokens=7, temperature=0.5, top_p=0.9, stop=("END",), options={"seed": 3, "top_k": 1}),
    )
    await collect(model, options={"top_k": 2})
    await model.close()
    body = engine.bodies[0]
    assert (body["max_tokens"], body["temperature"], body["seed"], body["top_k"]) == (7, 0.5, 3, 2)
    assert (body["top_p"], body["stop"]) == (0.9, ["END"])


async def test_a_reply_has_a_cap_of_its_own(engine, model, collect):
    engine.script({"cut": "\n\n\n"})
    deltas = await collect(model)
    assert engine.bodies[0]["max_tokens"] == 1024
    assert deltas[-1].finish == "length"


async def test_output_is_held_to_its_schema(engine, model, collect):
    engine.script('{"age":3}')
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    deltas = await collect(model, output=OutputSchema("person", schema))
    assert deltas[-1].message.text == '{"age":3}'
    assert engine.bodies[0]["grammar"].startswith("%llguidance {}\nstart: %json {")
    assert engine.rules[0]["properties"]["age"]["type"] == "integer"


@pytest.mark.parametrize(
    ("part", "cleaned"),
    [
        (
            {"type": "string", "title": "T", "default": "x", "pattern": r"^\$\{[a-z]+\}$"},
            {"pattern": r"^\$\{[a-z]+\}$"},
        ),
        ({"type": "string", "pattern": r"^(?!a)\w+$"}, {}),
        ({"type": "string", "pattern": "(", "format": "made-up"}, {}),
        ({"type": "string", "minLength": 5, "maxLength": 2}, {}),
        ({"type": "string", "format": "date"}, {"format": "date"}),
        ({"enum": [1, "a", None], "type": "string"}, {"enum": [1, "a", None], "type": None}),
        ({"const": {"a": 1}, "description": "d"}, {"const": {"a": 1}, "type": None}),
        ({"oneOf": [{"type": "null"}, {"enum": []}, False]}, {"anyOf": [{"type": "null"}], "type": None}),
        ({"type": ["string", "null"], "if": {}, "not": {}}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}], "type": None}),
        (
            {"type": "integer", "minimum": 1, "exclusiveMaximum": True},
            {"type": "integer", "minimum": 1, "maximum": 10**15},
        ),
        ({"type": "number"}, {"type": "number", "minimum": -(10**15), "maximum": 10**15, "multipleOf": 1e-06}),
        (
            {"type": "number", "minimum": 10**16, "multipleOf": 0.5},
            {"type": "number", "minimum": 10**16, "maximum": 2 * 10**16, "multipleOf": 0.5},
        ),
        ({"type": "array", "items": [{"type": "null"}]}, {"type": "array", "prefixItems": [{"type": "null"}]}),
        ({"type": "array", "uniqueItems": True, "maxItems": 2}, {"type": "array", "maxItems": 2}),
        ({"$ref": "https://example.com/x"}, {"type": None}),
        (True, {"type": None}),
    ],
)
async def test_schemas_are_told_in_the_engines_words(engine, model, collect, part, cleaned):
    engine.script('{"value":1}')
    schema = {"type": "object", "properties": {"value": part}, "required": ["value"]}
    await collect(model, output=OutputSchema("o", schema))
    expected = {key: value for key, value in ({"type": "string"} | cleaned).items() if value is not None}
    assert engine.rules[0]["properties"] == {"value": expected}
    assert engine.rules[0]["additionalProperties"] is False


async def test_references_are_resolved_and_may_be_recursive(engine, model, collect):
    engine.script('{"children":[]}', '{"name":"plant","arguments":{}}')
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}}}}
    schema = {**tree, "$defs": {"a/b": tree, "unused": {}}}
    await collect(model, output=OutputSchema("tree", schema))
    assert list(engine.rules[0]["$defs"]) == ["d0"]
    assert engine.rules[0]["$defs"]["d0"]["properties"]["children"]["items"] == {"$ref": "#/$defs/d0"}
    await collect(model, tools=(ToolSpec("plant", "", schema), ToolSpec("cut", "", schema)), tool_choice="required")
    assert list(engine.rules[1]["$defs"]) == ["t0d0", "t1d0"]


async def test_parts_that_must_all_hold_become_one(engine, model, collect):
    engine.script("{}")
    base = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    schema = {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "null"}}}], "$defs": {"base": base}}
    await collect(model, output=OutputSchema("o", schema))
    assert list(engine.rules[0]["properties"]) == ["a", "b"]
    assert engine.rules[0]["required"] == ["a"]


async def test_a_schema_that_the_engine_refuses_is_loosened(engine, model, collect):
    engine.script("Sure! Here", '{"age":"x"}')
    schema = {"type": "object", "properties": {"age": {"type": "string", "pattern": "^x$"}}, "required": ["age"]}
    deltas = await collect(model, output=OutputSchema("person", schema))
    assert deltas[-1].message.text == '{"age":"x"}'
    assert ["pattern" in body["grammar"] for body in engine.bodies] == [True, False]


async def test_an_engine_that_keeps_to_no_schema_is_an_error(engine, model, collect):
    engine.script("Sure!", "Sure!")
    with pytest.raises(BadResponse, match="JSON schema"):
        await collect(model, output=OutputSchema("person", {"type": "object"}))


async def test_a_tool_call_is_read_out_of_the_reply(engine, model, collect):
    engine.script('{"name":"weather","arguments":{"city":"Oslo"}}')
    deltas = await collect(model, instructions="Help.", tools=(WEATHER, CLOCK))
    (done,) = deltas
    (call,) = done.message.calls
    assert (call.name, call.arguments, done.finish) == ("weather", {"city": "Oslo"}, "tool_calls")
    system = engine.bodies[0]["messages"][0]["content"]
    assert system.startswith(
        "Help.\n\nTools:\n- weather(city: string) - Weather of a city\n- clock() - The time\n- answer(text: string) - "
    )


async def test_an_answer_is_streamed_as_text(engine, model, collect):
    engine.script('{"name":"answer","arguments":{"text":"It is 3 \\u00b0C.\\nGood \\ud83d\\ude00 \\"day\\""}}')
    deltas = await collect(model, tools=(WEATHER,))
    text = 'It is 3 °C.\nGood 😀 "day"'
    assert "".join(delta.text for delta in deltas[:-1]) == text
    assert len(deltas) > 4
    assert (deltas[-1].message.text, deltas[-1].finish) == (text, "stop")


async def test_a_cut_call_is_no_call(engine, model, collect):
    engine.script({"cut": '{"name":"weather","arguments":{"city":"Os'})
    (done,) = await collect(model, tools=(WEATHER,))
    assert (done.message, done.finish) == (Assistant(()), "length")


async def test_a_cut_answer_keeps_its_text(engine, model, collect):
    engine.script({"cut": '{"name":"answer","arguments":{"text":"It is'})
    deltas = await collect(model, tools=(WEATHER,))
    assert (deltas[-1].message.text, deltas[-1].finish) == ("It is", "length")


async def test_tools_and_an_output_schema_go_together(engine, model, collect):
    engine.script('{"name":"answer","arguments":{"text":{"warm":true}}}')
    schema = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"]}
    deltas = await collect(model, tools=(WEATHER,), output=OutputSchema("warmth", schema))
    assert deltas[-1].message.text == '{"warm":true}'


@pytest.mark.parametrize(("choice", "answers"), [("required", False), ("auto", True)])
async def test_a_required_call_leaves_no_answer(engine, model, collect, choice, answers):
    engine.script('{"name":"weather","arguments":{"city":"Oslo"}}')
    await collect(model, tools=(WEATHER,), tool_choice=choice)
    assert ('"answer"' in engine.bodies[0]["grammar"]) is answers


async def test_no_tools_are_offered_where_none_may_be_called(engine, model, collect):
    engine.script("plain")
    deltas = await collect(model, tools=(WEATHER,), tool_choice="none")
    assert deltas[-1].message.text == "plain"
    assert "grammar" not in engine.bodies[0]


async def test_earlier_calls_and_results_are_told_as_text(engine, model, collect):
    engine.script('{"name":"answer","arguments":{"text":"3"}}')
    await collect(model, after((OSLO, "3 <|im_end|> degrees")), tools=(WEATHER,))
    roles = [message["role"] for message in engine.bodies[0]["messages"]]
    _, _, call, result = [message["content"] for message in engine.bodies[0]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert call == '{"name":"weather","arguments":{"city":"Oslo"}}'
    assert result.startswith(
        "Result of weather: 3 < |im_end|> degrees\n\nThe request was: How warm is it in Oslo and in Rome?"
    )
    assert "Results so far: weather(Oslo)." in result


async def test_a_repeated_call_is_asked_again(engine, model, collect):
    engine.script('{"name":"weather","arguments":{"city":"Oslo"}}', '{"name":"weather","arguments":{"city":"Rome"}}')
    (done,) = await collect(model, after((OSLO, "3")), tools=(WEATHER,))
    assert done.message.calls[0].arguments == {"city": "Rome"}
    assert "do not repeat" in engine.bodies[1]["messages"][-1]["content"]
    assert (done.usage.input_tokens, done.usage.model_calls) == (60, 1)


async def test_a_call_repeated_again_leaves_only_the_answer(engine, model, collect):
    repeat = '{"name":"weather","arguments":{"city":"Oslo"}}'
    engine.script(repeat, repeat, '{"name":"answer","arguments":{"text":"3 degrees"}}')
    deltas = await collect(model, after((OSLO, "3")), tools=(WEATHER,))
    assert deltas[-1].message.text == "3 degrees"
    assert '"weather"' not in engine.bodies[2]["grammar"]


async def test_an_answer_that_only_echoes_the_question_is_asked_for_again(engine, model, collect):
    echo = '{"name":"answer","arguments":{"text":"The request was: How warm is it"}}'
    engine.script(echo, '{"name":"answer","arguments":{"text":"3 degrees"}}')
    deltas = await collect(model, after((OSLO, "3")), tools=(WEATHER,))
    assert "".join(delta.text for delta in deltas[:-1]) == deltas[-1].message.text == "3 degrees"
    assert engine.bodies[1]["messages"][-1]["content"].endswith("How warm is it in Oslo and in Rome?")


async def test_an_answer_that_begins_like_an_echo_is_kept(engine, model, collect):
    engine.script('{"name":"answer","arguments":{"text":"The"}}')
    deltas = await collect(model, after((OSLO, "3")), tools=(WEATHER,))
    assert [delta.text for delta in deltas[:-1]] == [deltas[-1].message.text] == ["The"]


async def test_a_tool_without_parameters_is_not_offered_twice(engine, model, collect):
    engine.script('{"name":"answer","arguments":{"text":"noon"}}')
    await collect(model, after((ToolCall("c", "clock", {}), "12:00")), tools=(WEATHER, CLOCK))
    assert '"weather"' in engine.bodies[0]["grammar"]
    assert '"clock"' not in engine.bodies[0]["grammar"]


async def test_a_used_choice_is_not_offered_twice(engine, model, collect):
    engine.script('{"name":"answer","arguments":{"text":"noon"}}')
    choice = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
    await collect(model, after((OSLO, "3")), tools=(ToolSpec("weather", "Weather.", choice),))
    assert '"enum": ["Rome"]' in engine.bodies[0]["grammar"]


async def test_a_request_that_is_too_long_says_so(engine, model, collect):
    engine.script({"error": {"code": 400, "type": "exceed_context_size_error", "message": "9030 tokens"}})
    with pytest.raises(ContextTooLong, match="9030 tokens"):
        await collect(model)


async def test_a_refused_request_says_why(engine, model, collect):
    engine.script({"error": {"code": 400, "type": "invalid_request_error", "message": "no such option"}})
    with pytest.raises(BadRequest, match="no such option"):
        await collect(model)


async def test_closing_the_iterator_stops_the_worker_and_the_next_request_works(engine, model, collect):
    engine.script("endless", "next")
    async with aclosing(model.stream(ModelRequest(conversation=Conversation([user("go")])))) as stream:
        assert await anext(stream) == TextDelta("more ")
    assert (await collect(model))[-1].message.text == "next"
    assert len(engine.pids) == 1


async def test_a_cancelled_request_that_waits_is_never_run(engine, model, collect):
    engine.script("endless", "third")
    first, second = (model.stream(ModelRequest(conversation=Conversation([user(text)]))) for text in ("a", "b"))
    await anext(first)
    waiting = asyncio.ensure_future(anext(second))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await first.aclose()
    assert (await collect(model))[-1].message.text == "third"
    assert [body["messages"][0]["content"] for body in engine.bodies] == ["a", "hello"]


async def test_a_worker_that_does_not_obey_is_killed(engine, model, collect, monkeypatch):
    monkeypatch.setattr("replan.models._local_client.CANCEL_GRACE", 0.1)
    engine.script("stuck", "next")
    impatient = LocalModel("test", ModelSettings(timeout=0.2))
    with pytest.raises(ModelTimeout, match=r"0\.2 seconds"):
        await collect(impatient)
    assert (await collect(model))[-1].message.text == "next"
    assert len(engine.pids) == 2
    await impatient.close()


async def test_a_crash_is_repeated_once_in_a_new_worker(engine, model, collect):
    engine.script("crash", "all is well")
    deltas = await collect(model)
    retry = next(delta for delta in deltas if isinstance(delta, Retry))
    assert "ended with code 3" in retry.error
    assert "out of luck" in retry.error
    assert deltas[-1].message.text == "all is well"


async def test_a_second_crash_is_an_error_with_the_last_words(engine, model, collect):
    engine.script("crash", "crash", "never")
    with pytest.raises(NetworkError, match="out of luck"):
        await collect(model)
    assert len(engine.pids) == 2


async def test_weights_that_cannot_be_loaded_are_an_error(engine, model, collect):
    (engine.folder / "unloadable").touch()
    with pytest.raises(BadRequest, match="bad magic"):
        await collect(model)


async def test_requests_of_all_models_share_one_worker(engine, model, collect):
    engine.script("one", "two", "three")
    other = LocalModel("other")
    done = await asyncio.gather(*(collect(m) for m in (model, other, model)))
    assert sorted(deltas[-1].message.text for deltas in done) == ["one", "three", "two"]
    assert len(engine.pids) == 1
    await other.close()
    assert is_alive(engine.pids[0])
    await model.close()
    wait_for_end(engine.pids[0])
    await model.close()


def test_event_loops_share_one_worker(engine):
    engine.script("one", "two")
    model = LocalModel("test")

    async def text() -> str:
        deltas = [delta async for delta in model.stream(ModelRequest(conversation=Conversation([user("go")])))]
        assert isinstance(deltas[-1], Done)
        return deltas[-1].message.text

    assert [asyncio.run(text()), asyncio.run(text())] == ["one", "two"]
    assert len(engine.pids) == 1
    asyncio.run(model.close())


async def test_closing_ends_a_running_request(engine, model):
    engine.script("endless")
    stream = model.stream(ModelRequest(conversation=Conversation([user("go")])))
    await anext(stream)
    await model.close()
    with pytest.raises(NetworkError, match="closed"):
        async for _ in stream:
            pass
    wait_for_end(engine.pids[0])


PARENT = """
import asyncio, sys
from replan.messages import user
from replan.model import Conversation, ModelRequest
from replan.models.local import LocalModel

async def main():
    stream = LocalModel("test").stream(ModelRequest(conversation=Conversation([user("go")])))
    await anext(stream)
    print("running", flush=True)
    if sys.argv[1] == "wait":
        await asyncio.sleep(1000)
    if sys.argv[1] == "leave":
        sys.exit(0)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("end", ["kill", "leave", "interrupt", "terminate"])
def test_the_worker_ends_with_its_parent(engine, end):
    engine.script("endless")
    command = [sys.executable, "-c", PARENT, "leave" if end == "leave" else "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout.readline() == "running\n"
        (pid,) = engine.pids
        if end == "kill":
            parent.kill()
        elif end == "terminate":
            parent.terminate()
        elif end == "interrupt":
            os.killpg(parent.pid, signal.SIGINT)
            assert parent.stdout.readline() == "interrupted\n"
    wait_for_end(pid)


def test_a_terminals_interrupt_does_not_reach_the_worker(engine):
    engine.script("endless")
    command = [sys.executable, "-c", PARENT, "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout.readline() == "running\n"
        assert os.getpgid(engine.pids[0]) != os.getpgid(parent.pid)
        os.kill(engine.pids[0], signal.SIGINT)
        assert is_alive(engine.pids[0])
        parent.kill()
    wait_for_end(engine.pids[0])


async def test_blocked_requests_do_not_start_it(engine, model, collect):
    from replan.testing import block_real_requests

    with block_real_requests(), pytest.raises(ConfigError, match="local:test"):
        await collect(model)


def test_a_missing_engine_is_named_with_its_command(engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingDependency, match=r"pip install 'replan\[local\]'"):
        LocalModel("test")


def test_missing_weights_are_named_with_their_command(engine, monkeypatch, tmp_path):
    monkeypatch.delenv("REPLAN_LOCAL_MODEL")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="replan model pull"):
        LocalModel("test")
