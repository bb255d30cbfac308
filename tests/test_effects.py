import asyncio
import contextvars
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from replan import Agent, ToolContext, ToolError, Usage, tool
from replan.effects import MAX_RESULT_CHARS
from replan.errors import BadResponse, RunFailed
from replan.events import FinalReasoningDelta, FinalTextDelta, Retry, StepToolProgress, StepToolResult
from replan.journal import LocalRun
from replan.messages import Assistant, File, Image, Text, Thinking, ToolResult
from replan.model import Delta, Done, ModelProfile, ModelRequest, TextDelta
from replan.model import Retry as RetryDelta
from replan.settings import ModelSettings
from replan.testing import ScriptedModel, call
from replan.tool import ToolInfo, ToolOutput


class Made:
    """A tool that is no function."""

    def __init__(self, output: ToolOutput | BaseException, **options: Any) -> None:
        self.info = ToolInfo(name="made", description="", parameters={"type": "object"}, **options)
        self._output = output

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    async def call(self, arguments: dict[str, Any], context: ToolContext[Any]) -> ToolOutput:
        if isinstance(self._output, BaseException):
            raise self._output
        return self._output


async def result_of(made: Any) -> ToolResult:
    model = ScriptedModel(call("made"), "done")
    await Agent(model, tools=[made]).run("go")
    return next(m for m in model.requests[1].conversation.messages if isinstance(m, ToolResult))


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("ask for 'b'"), "ask for 'b'"),
        (ToolError(""), "The tool failed without saying why."),
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError("\ud800"), "ValueError: \ufffd"),
        (Unspeakable(), "<Unspeakable that cannot be shown: RuntimeError>"),
        (asyncio.CancelledError(), "The tool stopped by itself before it had a result."),
    ],
)
async def test_what_a_tool_raises_is_an_error_result_with_words(error: BaseException, text: str):
    result = await result_of(Made(error))
    assert (result.text, result.is_error) == (text, True)


@pytest.mark.parametrize(
    ("output", "text", "is_error"),
    [
        (ToolOutput((), is_error=True), "The tool failed without saying why.", True),
        (ToolOutput((Text(" "),), is_error=True), "The tool failed without saying why.", True),
        (ToolOutput((Text("not found"),), is_error=True), "not found", True),
        (ToolOutput(()), "Done.", False),
        (ToolOutput((Text(""),)), "Done.", False),
        (ToolOutput((Text("a\ud800"),)), "a\ufffd", False),
    ],
)
async def test_a_result_is_never_empty_and_always_text_that_can_be_written(
    output: ToolOutput, text: str, is_error: bool
):
    result = await result_of(Made(output))
    assert (result.text, result.is_error) == (text, is_error)


async def test_an_image_needs_no_text_beside_it():
    result = await result_of(Made(ToolOutput((Text(""), Image("image/png", b"x")))))
    assert result.content == (Image("image/png", b"x"),)


async def test_structured_values_that_json_cannot_hold_are_normalised():
    result = await result_of(Made(ToolOutput((Text("x"),), structured={1: {Path("/a")}, "n": float("nan")})))
    assert result.structured == {"1": ["/a"], "n": None}


async def test_a_long_result_is_clipped_and_kept_whole_as_an_artifact():
    kept: list[str] = []

    @tool
    async def made() -> str:
        return "x" * MAX_RESULT_CHARS + "the end"

    def look(request: ModelRequest) -> str:
        text = request.conversation.messages[-1].text
        path = text.removesuffix("]").rpartition("the whole is in ")[2]
        kept.append(Path(path).read_text())
        return "done"

    model = ScriptedModel(call("made"), look)
    result = await Agent(model, tools=[made]).run("go")
    text = next(m for m in result.messages if isinstance(m, ToolResult)).text
    assert kept == ["x" * MAX_RESULT_CHARS + "the end"]
    assert text.startswith("x" * MAX_RESULT_CHARS + "\n... [7 more characters; the whole is in ")
    assert len(text) < MAX_RESULT_CHARS + 400


async def test_a_result_of_just_the_limit_is_whole():
    result = await result_of(Made(ToolOutput((Text("x" * MAX_RESULT_CHARS),))))
    assert result.text == "x" * MAX_RESULT_CHARS


async def test_large_data_are_kept_as_an_artifact_and_small_ones_stay():
    kept: list[bytes] = []
    large = b"x" * 1_000_001

    def look(request: ModelRequest) -> str:
        first, second = request.conversation.messages[-1].content
        assert first == Image("image/png", b"small")
        assert (second.mime, second.name, second.data) == ("application/pdf", "a.pdf", None)
        kept.append(Path(second.url).read_bytes())
        return "done"

    made = Made(ToolOutput((Image("image/png", b"small"), File("application/pdf", "a.pdf", large))))
    await Agent(ScriptedModel(call("made"), look), tools=[made]).run("go")
    assert kept == [large]


async def test_a_huge_structured_result_is_left_out_and_the_call_is_no_failure():
    rows = [{"text": "x" * 1000, "n": n} for n in range(5000)]
    result = await result_of(Made(ToolOutput((Text("5000 rows"),), structured=rows)))
    assert (result.text, result.is_error, result.structured) == ("5000 rows", False, None)
    small = await result_of(Made(ToolOutput((Text("rows"),), structured=rows[:100])))
    assert small.structured == rows[:100]


async def test_a_tool_knows_the_run_that_calls_it():
    got: list[ToolContext[Any]] = []
    files: list[Path] = []

    @tool
    async def made(context: ToolContext[dict[str, int]]) -> str:
        got.append(context)
        (context.sandbox / "note.txt").write_text("kept while the run lasts")
        files.append(context.sandbox)
        files.append(context.keep(b"data", "text/plain"))
        assert files[-1].read_bytes() == b"data"
        return "ok"

    deps = {"a": 1}
    model = ScriptedModel([call("made"), call("made")], "done")
    result = await Agent(model, tools=[made]).run("go", deps=deps, run_id="r1")
    assert [c.call_id for c in got] == [m.call_id for m in result.messages if isinstance(m, ToolResult)]
    first, second = got
    assert first.deps is deps
    assert (first.run_id, first.tool_name, first.step_id) == ("r1", "made", None)
    assert first.idempotency_key == "r1/t0/0" != second.idempotency_key
    assert isinstance(first.logger, logging.Logger)
    assert files[0] == files[2]
    assert result.text == "done"
    assert not files[0].exists()


@pytest.mark.parametrize("in_thread", [False, True])
async def test_progress_of_a_call_reaches_listeners_in_the_event_loop(in_thread: bool):
    seen: list[tuple[Any, int]] = []

    @tool
    async def in_loop(context: ToolContext) -> str:
        context.progress(1, 3, "one")
        context.progress(2, None, None)
        return "ok"

    @tool(name="in_loop")
    def threaded(context: ToolContext) -> str:
        context.progress(1, 3, "one")
        context.progress(2, None, None)
        return "ok"

    agent = Agent(
        ScriptedModel(call("in_loop"), "done"),
        tools=[threaded if in_thread else in_loop],
        on_event=lambda event: seen.append((event, threading.get_ident())),
    )
    await agent.run("go")
    told = [event for event, _ in seen if isinstance(event, StepToolProgress)]
    assert [(e.progress, e.total, e.message) for e in told] == [(1, 3, "one"), (2, None, None)]
    assert {thread for _, thread in seen} == {threading.get_ident()}
    kinds = [type(event) for event, _ in seen]
    assert kinds.index(StepToolProgress) < kinds.index(StepToolResult)


async def test_progress_that_comes_after_a_cancelled_call_is_dropped():
    told: list[Any] = []
    started, go_on, said = threading.Event(), threading.Event(), threading.Event()

    @tool
    def stubborn(context: ToolContext) -> str:
        started.set()
        go_on.wait(10)
        context.progress(1, None, None)
        said.set()
        return "late"

    agent = Agent(ScriptedModel(call("stubborn")), tools=[stubborn], on_event=told.append)
    async with agent.start("go"):
        while not started.is_set():
            await asyncio.sleep(0.005)
    go_on.set()
    assert await asyncio.to_thread(said.wait, 10)
    await asyncio.sleep(0)
    assert not [e for e in told if isinstance(e, (StepToolProgress, StepToolResult))]


async def test_a_sync_tool_runs_in_a_thread_with_the_callers_context_variables():
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")
    got: list[Any] = []

    @tool
    def made() -> None:
        got.append((where.get(), threading.current_thread() is threading.main_thread()))

    where.set("here")
    await Agent(ScriptedModel(call("made"), "done"), tools=[made]).run("go")
    assert got == [("here", False)]


async def test_two_blocking_tools_run_at_the_same_time_and_the_loop_goes_on():
    both = threading.Barrier(2)
    beats = 0

    @tool
    def block() -> str:
        both.wait(10)
        return "ok"

    async def heart() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(heart())
    result = await Agent(ScriptedModel([call("block"), call("block")], "done"), tools=[block]).run("go")
    beating.cancel()
    assert result.text == "done"
    assert beats > 2


async def test_the_request_carries_instructions_tools_and_settings():
    @tool
    async def made(n: int) -> str:
        "Make it."
        return str(n)

    model = ScriptedModel(call("made", n=1), "done")
    settings = ModelSettings(max_output_tokens=7, temperature=0.5, options={"seed": 1})
    await Agent(model, tools=[made], system_prompt="Be brief.", settings=settings).run("go")
    first, second = model.requests
    assert first.instructions == "Be brief."
    assert [(t.name, t.description) for t in first.tools] == [("made", "Make it.")]
    assert first.tools[0].parameters["properties"]["n"]["type"] == "integer"
    assert (first.max_output_tokens, first.temperature, first.options) == (7, 0.5, {"seed": 1})
    assert first.tools is second.tools


async def test_text_and_thoughts_are_streamed_and_a_retry_is_told():
    done = Done(Assistant((Thinking("hm"), Text("one two"))), Usage(), "stop")
    script: list[Delta] = [TextDelta("on"), RetryDelta(1, "it broke", 0.5), TextDelta("one "), TextDelta("two"), done]
    seen: list[Any] = []
    await Agent(ScriptedModel(script), on_event=seen.append).run("go", run_id="r1")
    live = [e for e in seen if e.live]
    assert live == [
        FinalTextDelta(run_id="r1", delta="on"),
        Retry(run_id="r1", phase="execute", attempt=1, error="it broke", delay=0.5),
        FinalTextDelta(run_id="r1", delta="one "),
        FinalTextDelta(run_id="r1", delta="two"),
    ]
    thoughtful: list[Any] = []
    await Agent(ScriptedModel([Thinking("so it is"), "yes"]), on_event=thoughtful.append).run("go")
    assert "".join(e.delta for e in thoughtful if isinstance(e, FinalReasoningDelta)) == "so it is"


class Ending:
    """A model whose stream ends, or breaks, without the final delta."""

    name = "test:ending"
    profile = ModelProfile()
    closed = False

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield TextDelta("half")
        if self._error:
            raise self._error

    async def close(self) -> None:
        self.closed = True


async def test_a_stream_that_ends_without_an_end_fails_the_run():
    with pytest.raises(RunFailed, match=r"'test:ending' ended its stream without Done"):
        await Agent(Ending()).run("go")
    with pytest.raises(BadResponse, match="not JSON"):
        await Agent(Ending(BadResponse("not JSON"))).run("go")


async def test_the_stream_is_closed_when_the_run_is_cancelled():
    left = asyncio.Event()
    waiting = asyncio.Event()

    class Endless(Ending):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            try:
                yield TextDelta("a")
                waiting.set()
                await asyncio.Event().wait()
            finally:
                left.set()

    async with Agent(Endless()).start("go"):
        await waiting.wait()
    assert left.is_set()


async def test_a_call_that_took_effect_is_not_told_as_failed_whatever_its_output(monkeypatch: pytest.MonkeyPatch):
    @tool
    async def shoot() -> list[Any]:
        return [Image("image/png", data=bytes([n]) * 900_000) for n in range(8)]

    result = await Agent(ScriptedModel(call("shoot"), "done"), tools=[shoot]).run("go")
    [first] = [m for m in result.messages if isinstance(m, ToolResult)]
    assert not first.is_error
    assert sum(len(p.data or b"") for p in first.content if isinstance(p, Image)) <= 3_000_000
    assert len(first.content) == 8

    def full(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(LocalRun, "keep", full)
    result = await Agent(ScriptedModel(call("shoot"), "done"), tools=[shoot]).run("go")
    [second] = [m for m in result.messages if isinstance(m, ToolResult)]
    assert not second.is_error
    assert "could not be kept: OSError: no space left" in second.text
