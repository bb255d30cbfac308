import asyncio
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replan import Agent, Limits, ToolContext, ToolError, Usage, tool, user
from replan.errors import ReplanError, RunCancelled, RunFailed
from replan.events import BudgetExceeded, StepToolCall, StepToolResult
from replan.journal import MemoryJournal
from replan.messages import Assistant, Refusal, Text, ToolCall, ToolResult
from replan.model import Done, ModelRequest
from replan.testing import ScriptedModel, call
from replan.tool import ToolInfo, ToolOutput


@tool(read_only=True)
async def look(key: str) -> str:
    "Look up a key."
    return f"value of {key}"


@tool
async def fail(text: str = "broken") -> str:
    "Always fails."
    raise ToolError(text)


def cut(*calls: ToolCall, text: str = "") -> Done:
    """A reply that ended at the output limit."""
    parts = [Text(text)] if text else []
    return Done(Assistant((*parts, *calls)), Usage(input_tokens=10, output_tokens=10), "length")


def results(model: ScriptedModel, request: int = -1) -> list[ToolResult]:
    return [m for m in model.requests[request].conversation.messages if isinstance(m, ToolResult)]


def texts(model: ScriptedModel, request: int = -1) -> list[str]:
    return [result.text for result in results(model, request)]


async def test_an_answer_without_tools_is_one_model_call():
    model = ScriptedModel("Hello.")
    result = await Agent(model).run("Say hello.")
    assert (result.text, result.status, result.stop_reason) == ("Hello.", "complete", None)
    assert model.requests[0].conversation.messages == [user("Say hello.")]
    assert result.messages == [user("Say hello."), Assistant((Text("Hello."),))]


async def test_the_results_of_parallel_calls_are_in_the_order_of_the_calls_whatever_the_order_of_their_ends():
    ended: list[str] = []
    turn = {name: asyncio.Event() for name in "abc"}

    @tool(read_only=True)
    async def wait(name: str) -> str:
        await turn[name].wait()
        ended.append(name)
        if name != "a":
            turn[{"c": "b", "b": "a"}[name]].set()
        return name

    turn["c"].set()
    seen: list[Any] = []
    model = ScriptedModel([call("wait", name=name) for name in "abc"], "done")
    result = await Agent(model, tools=[wait], on_event=seen.append).run("go")
    assert ended == ["c", "b", "a"]
    assert texts(model) == ["a", "b", "c"]
    ids = [c.call_id for m in result.messages if isinstance(m, Assistant) for c in m.calls]
    assert [e.call_id for e in seen if isinstance(e, StepToolCall)] == ids
    assert [e.call_id for e in seen if isinstance(e, StepToolResult)] == ids[::-1]
    assert [m.call_id for m in result.messages if isinstance(m, ToolResult)] == ids


async def test_parallel_calls_run_at_the_same_time():
    barrier = asyncio.Barrier(4)

    @tool
    async def meet() -> str:
        await barrier.wait()
        return "met"

    model = ScriptedModel([call("meet") for _ in range(4)], "done")
    await Agent(model, tools=[meet]).run("go")
    assert texts(model) == ["met"] * 4


@pytest.mark.parametrize("name", ["serch", "search.all", "", "x" * 500])
async def test_an_unknown_tool_is_answered_and_its_siblings_run(name: str):
    @tool(read_only=True)
    async def search(query: str) -> str:
        return f"found {query}"

    model = ScriptedModel([ToolCall("", name, {}), call("search", query="a")], "done")
    result = await Agent(model, tools=[search]).run("go")
    first, second = results(model)
    assert first.is_error
    assert "'search'" in first.text or "search" in first.text
    assert len(first.text) < 300
    assert (second.text, second.is_error) == ("found a", False)
    assert result.status == "complete"


async def test_a_tool_may_be_called_by_its_servers_own_name():
    class Remote:
        info = ToolInfo(
            name="docs__find", description="", parameters={"type": "object"}, server="docs", original="docs.find"
        )

        def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
            return arguments

        async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
            return ToolOutput((Text("found"),))

    seen: list[Any] = []
    model = ScriptedModel([call("docs.find"), call("docs__find")], "done")
    await Agent(model, tools=[Remote()], on_event=seen.append).run("go")
    assert texts(model) == ["found", "found"]
    told = [(e.tool, e.name, e.server) for e in seen if isinstance(e, StepToolCall)]
    assert told == [("docs.find", "docs.find", "docs"), ("docs__find", "docs.find", "docs")]


async def test_the_same_unknown_tool_again_and_again_ends_the_run():
    model = ScriptedModel(otherwise=call("serch"))
    result = await Agent(model, tools=[look]).run("go")
    assert (result.status, result.stop_reason) == ("stopped", "no-progress")
    assert len(model.requests) == 5


async def test_a_call_that_failed_twice_is_refused_and_repeats_end_the_run(check_history: Callable[..., None]):
    calls = 0

    @tool(read_only=True)
    async def broken(key: str) -> str:
        nonlocal calls
        calls += 1
        raise ToolError("no")

    model = ScriptedModel(otherwise=call("broken", key="a"))
    result = await Agent(model, tools=[broken]).run("go")
    assert calls == 2
    assert (result.status, result.stop_reason) == ("stopped", "no-progress")
    refused = "Not run: this exact call has failed before. Change the arguments, or go on without it."
    assert texts(model) == ["no", "no", refused, refused]
    check_history(result.messages)


async def test_a_failed_call_is_the_same_whatever_the_order_of_its_keys():
    calls = 0

    @tool(read_only=True)
    async def broken(where: dict[str, int]) -> str:
        nonlocal calls
        calls += 1
        raise ToolError("no")

    model = ScriptedModel(
        call("broken", where={"a": 1, "b": 2}), call("broken", where={"b": 2, "a": 1}),
        call("broken", where={"a": 1, "b": 2}), call("broken", where={"a": 1, "b": 3}), "done",
    )  # fmt: skip
    await Agent(model, tools=[broken]).run("go")
    assert calls == 3
    assert "failed before" in texts(model)[2]
    assert texts(model)[3] == "no"


async def test_arguments_that_cannot_be_used_are_explained_to_the_model():
    model = ScriptedModel(
        [call("look", kee="a"), ToolCall("", "look", {}, raw='{"key": '), ToolCall("", "look", {}, raw="[1]")],
        call("look", key="a"),
        "done",
    )
    result = await Agent(model, tools=[look]).run("go")
    first, second, third, fourth = results(model)
    assert all(r.is_error for r in (first, second, third))
    assert "look takes key (string, required)" in first.text
    assert "not valid JSON" in second.text
    assert "must be one JSON object, not an array" in third.text
    assert (fourth.text, result.status) == ("value of a", "complete")


@pytest.mark.parametrize("raw", [None, "", "null", "{}", "   ", '"null"'])
async def test_no_arguments_in_any_spelling_are_an_empty_object(raw: str | None):
    @tool
    async def ping() -> str:
        return "pong"

    model = ScriptedModel([ToolCall("", "ping", {}, raw=raw), ToolCall("", "look", {}, raw=raw)], "done")
    seen: list[Any] = []
    await Agent(model, tools=[ping, look], on_event=seen.append).run("go")
    first, second = results(model)
    assert (first.text, first.is_error) == ("pong", False)
    assert second.is_error
    assert "key" in second.text
    assert [e.arguments for e in seen if isinstance(e, StepToolCall)] == [{}]


async def test_arguments_are_read_as_the_schema_means_them():
    got: list[Any] = []

    @tool
    async def edit(edits: list[dict[str, int]], n: int, note: str) -> str:
        got.append((edits, n, note))
        return "ok"

    inner = {"edits": '[{"a": 1}]', "n": "5", "note": "[1,2]"}
    double = '"{\\"edits\\": [{\\"a\\": 1}], \\"n\\": 5, \\"note\\": \\"[1,2]\\"}"'
    seen: list[Any] = []
    model = ScriptedModel([ToolCall("", "edit", inner), ToolCall("", "edit", {}, raw=double)], "done")
    await Agent(model, tools=[edit], on_event=seen.append).run("go")
    assert got == [([{"a": 1}], 5, "[1,2]")] * 2
    wanted = {"edits": [{"a": 1}], "n": 5, "note": "[1,2]"}
    assert [e.arguments for e in seen if isinstance(e, StepToolCall)] == [wanted] * 2


async def test_calls_of_a_cut_reply_are_not_run(check_history: Callable[..., None]):
    ran: list[str] = []

    @tool
    async def write(text: str) -> str:
        ran.append(text)
        return "written"

    model = ScriptedModel(cut(ToolCall("c1", "write", {"text": "half"})), call("write", text="whole"), "done")
    result = await Agent(model, tools=[write]).run("go")
    assert ran == ["whole"]
    assert "cut off" in texts(model)[0]
    check_history(result.messages)


async def test_replies_that_are_cut_again_and_again_end_the_run(check_history: Callable[..., None]):
    model = ScriptedModel(
        otherwise=lambda request: cut(ToolCall("", "look", {"key": str(len(request.conversation.messages))}))
    )
    result = await Agent(model, tools=[look]).run("go")
    assert (result.status, result.stop_reason, len(model.requests)) == ("stopped", "length", 3)
    check_history(result.messages)


async def test_cut_replies_with_progress_between_them_do_not_end_the_run():
    whole = [call("look", key="a")]
    partial = cut(ToolCall("", "look", {"key": "b"}))
    model = ScriptedModel(partial, partial, whole, partial, partial, whole, "done")
    result = await Agent(model, tools=[look]).run("go")
    assert (result.status, result.text) == ("complete", "done")


async def test_a_cut_answer_stops_the_run_with_what_there_is():
    result = await Agent(ScriptedModel(cut(text="The first half"))).run("go")
    assert (result.status, result.stop_reason, result.text) == ("stopped", "length", "The first half")


NO_PARTS: tuple[Any, ...] = ()


@pytest.mark.parametrize(
    ("reply", "reason", "text"),
    [
        (Done(Assistant((Refusal("I will not."),)), Usage(), "refusal"), "refusal", "I will not."),
        (Done(Assistant((Refusal("I will not."),)), Usage(), "stop"), "refusal", "I will not."),
        (Done(Assistant(NO_PARTS), Usage(), "refusal"), "refusal", ""),
        (Done(Assistant(NO_PARTS), Usage(), "content_filter"), "content-filter", ""),
        (Done(Assistant((Text("Half of"),)), Usage(), "content_filter"), "content-filter", "Half of"),
        (Done(Assistant((ToolCall("c", "look", {"key": "a"}),)), Usage(), "refusal"), "refusal", ""),
        (Done(Assistant((Text("No. "), Refusal("I will not."))), Usage(), "refusal"), "refusal", "No. "),
    ],
)
async def test_a_refusal_in_any_shape_stops_the_run_without_another_try(
    reply: Done, reason: str, text: str, check_history: Callable[..., None]
):
    model = ScriptedModel(reply)
    result = await Agent(model, tools=[look], output_type=int).run("go")
    assert (result.status, result.stop_reason, result.text) == ("stopped", reason, text)
    assert len(model.requests) == 1
    check_history(result.messages)


async def test_an_empty_reply_is_asked_for_again_a_few_times():
    model = ScriptedModel("", "Here.")
    result = await Agent(model).run("go")
    assert result.text == "Here."
    assert model.requests[1].conversation.messages[-1] == user("Your reply was empty. Give the answer.")
    silent = ScriptedModel(otherwise="")
    with pytest.raises(RunFailed, match="repairs included: Your reply was empty"):
        await Agent(silent).run("go")
    assert len(silent.requests) == 3


@pytest.mark.parametrize("error", [ValueError(""), ToolError(""), ToolError("  "), asyncio.CancelledError()])
async def test_one_failing_call_of_several_leaves_the_others_alone(
    error: BaseException, check_history: Callable[..., None]
):
    @tool
    async def bad() -> str:
        raise error

    model = ScriptedModel([call("look", key="a"), call("bad"), call("look", key="b")], "done")
    result = await Agent(model, tools=[look, bad]).run("go")
    assert [r.is_error for r in results(model)] == [False, True, False]
    assert texts(model)[0::2] == ["value of a", "value of b"]
    assert texts(model)[1].strip()
    assert result.text == "done"
    check_history(result.messages)


async def test_the_run_stops_at_the_limit_of_turns_with_a_valid_history(check_history: Callable[..., None]):
    model = ScriptedModel(otherwise=["Looking.", call("look", key="a")])
    result = await Agent(model, tools=[look], limits=Limits(max_turns=3)).run("go")
    assert (result.status, result.stop_reason, result.text) == ("stopped", "max-turns", "Looking.")
    assert (len(model.requests), result.tool_calls) == (3, 2)
    check_history(result.messages)


async def test_calls_beyond_the_budget_are_refused_and_the_model_answers_from_what_it_has():
    seen: list[Any] = []
    model = ScriptedModel([call("look", key=key) for key in "abcd"], [call("look", key="e")], "so far: a, b")
    agent = Agent(model, tools=[look], limits=Limits(max_tool_calls=2), on_event=seen.append)
    result = await agent.run("go")
    assert [r.is_error for r in results(model)] == [False, False, True, True, True]
    assert "budget of this run is exhausted" in texts(model)[-1]
    assert (result.status, result.stop_reason, result.text) == ("stopped", "limit", "so far: a, b")
    assert result.tool_calls == 2
    excess = BudgetExceeded(run_id=result.run_id, kind="tool-calls", tokens=2, cap=2)
    assert [e for e in seen if isinstance(e, BudgetExceeded)] == [excess]


async def test_a_model_that_ignores_the_exhausted_budget_is_stopped():
    model = ScriptedModel(otherwise=lambda request: call("look", key=str(len(request.conversation.messages))))
    result = await Agent(model, tools=[look], limits=Limits(max_tool_calls=1)).run("go")
    assert (result.status, result.stop_reason) == ("stopped", "limit")
    assert len(model.requests) == 4


@pytest.mark.parametrize(
    ("limits", "kind", "tokens"),
    [
        (Limits(max_input_tokens=150), "input", 200),
        (Limits(max_output_tokens=20), "output", 20),
        (Limits(max_reasoning_tokens=5), "reasoning", 6),
        (Limits(max_total_tokens=219), "total", 220),
    ],
)
async def test_a_token_limit_stops_the_run_between_turns(limits: Limits, kind: str, tokens: int):
    seen: list[Any] = []
    model = ScriptedModel(
        otherwise=call("look", key="a"), usage=Usage(input_tokens=100, output_tokens=10, reasoning_tokens=3)
    )
    result = await Agent(model, tools=[look], limits=limits, on_event=seen.append).run("go")
    assert (result.status, result.stop_reason, len(model.requests)) == ("stopped", "limit", 2)
    [excess] = [e for e in seen if isinstance(e, BudgetExceeded)]
    assert (excess.kind, excess.tokens) == (kind, tokens)


async def test_token_limits_still_hold_when_the_tool_budget_is_exhausted():
    model = ScriptedModel(otherwise=lambda request: call("look", key=str(len(request.conversation.messages))))
    limits = Limits(max_tool_calls=0, max_total_tokens=150)
    result = await Agent(model, tools=[look], limits=limits).run("go")
    assert (len(model.requests), result.stop_reason) == (2, "limit")


async def test_an_answer_that_crosses_a_limit_is_an_answer():
    result = await Agent(ScriptedModel("Yes."), limits=Limits(max_total_tokens=1)).run("go")
    assert (result.status, result.text) == ("complete", "Yes.")


async def test_estimated_usage_counts_for_limits_and_stays_marked():
    model = ScriptedModel(otherwise=call("look", key="a"), usage=Usage(input_tokens=100, estimated=True))
    result = await Agent(model, tools=[look], limits=Limits(max_input_tokens=100)).run("go")
    assert (result.stop_reason, len(model.requests)) == ("limit", 1)
    assert result.usage.estimated
    assert result.usage_by_model["scripted:model"].estimated


async def test_call_ids_that_a_provider_repeats_or_leaves_empty_become_unique(check_history: Callable[..., None]):
    same = Assistant((ToolCall("x", "look", {"key": "a"}), ToolCall("x", "look", {"key": "b"})))
    none = Assistant((ToolCall("", "look", {"key": "c"}), ToolCall("", "look", {"key": "d"})))
    replies = [Done(message, Usage(), "tool_calls") for message in (same, same, none)]
    seen: list[Any] = []
    agent = Agent(ScriptedModel(*replies, "done"), tools=[look], on_event=seen.append)
    result = await agent.run("go")
    ids = [e.call_id for e in seen if isinstance(e, StepToolCall)]
    assert len(set(ids)) == 6
    assert all(ids)
    assert all(len(i) <= 40 for i in ids)
    assert [m.text for m in result.messages if isinstance(m, ToolResult)] == [f"value of {k}" for k in "ababcd"]
    check_history(result.messages)


async def test_call_ids_of_a_history_are_not_given_again():
    same = Done(Assistant((ToolCall("x", "look", {"key": "a"}),)), Usage(), "tool_calls")
    first = await Agent(ScriptedModel(same, "done"), tools=[look]).run("go")
    second = await Agent(ScriptedModel(same, "done"), tools=[look]).run("go", history=first.messages)
    ids = [m.call_id for m in second.messages if isinstance(m, ToolResult)]
    assert len(set(ids)) == 2


# ---- whatever happens, the history is valid


@tool
async def slow(turns: int) -> str:
    "Takes a while."
    for _ in range(turns):
        await asyncio.sleep(0)
    return "slowly"


@tool
async def quit_itself() -> str:
    "Cancels itself."
    raise asyncio.CancelledError


@tool
def in_thread(key: str, context: ToolContext) -> str:
    "Runs in a thread."
    return f"{context.call_id} {key}"


TOOLS = [look, fail, slow, quit_itself, in_thread]

keys = st.text(string.ascii_lowercase, min_size=1, max_size=3)
calls = st.one_of(
    keys.map(lambda key: call("look", key=key)),
    keys.map(lambda text: call("fail", text=text)),
    st.integers(0, 8).map(lambda turns: call("slow", turns=turns)),
    st.sampled_from([call("quit_itself"), call("look"), call("nothing"), call("fail", text=3)]),
    st.sampled_from(["{", "null", "[]", '"{}"']).map(lambda raw: ToolCall("", "look", {}, raw=raw)),
    keys.map(lambda key: call("in_thread", key=key)),
    st.just(ToolCall("same", "look", {"key": "a"})),
)
turns = st.one_of(
    st.lists(calls, min_size=1, max_size=4),
    st.lists(calls, min_size=1, max_size=3).map(lambda some: cut(*some)),
    st.just(["Thinking."]),
    st.lists(calls, max_size=2).map(lambda some: Done(Assistant((Refusal("No."), *some)), Usage(), "refusal")),
    st.just(Done(Assistant(()), Usage(), "content_filter")),
    st.just(RunFailed("the model broke")),
)
LIMITS = st.sampled_from([Limits(), Limits(max_turns=2), Limits(max_tool_calls=3), Limits(max_total_tokens=250)])


@settings(max_examples=150, deadline=None)
@given(script=st.lists(turns, max_size=5), limits=LIMITS, after=st.none() | st.integers(0, 60))
def test_the_history_is_valid_whatever_happens(
    check_history: Callable[..., None], script: list[Any], limits: Limits, after: int | None
):
    def last(request: ModelRequest) -> str:
        check_history(request.conversation.messages)
        return "the end"

    async def interrupted(agent: Agent) -> list[Any]:
        async with agent.start("go") as run:
            if after is not None:
                for _ in range(after):
                    await asyncio.sleep(0)
                run.cancel()
            try:
                result = await run.result()
            except ReplanError as error:
                result = error.result
        return result.messages

    async def main() -> None:
        model = ScriptedModel(*script, otherwise=last)
        async with Agent(model, tools=TOOLS, limits=limits) as agent:
            messages = await interrupted(agent)
            assert agent.active_runs == 0
        for request in model.requests:
            check_history(request.conversation.messages)
        check_history(messages)
        following = ScriptedModel("fine")
        async with Agent(following, tools=TOOLS) as agent:
            result = await agent.run("and now?", history=messages)
        assert following.requests[0].conversation.messages == [*messages, user("and now?")]
        check_history(result.messages)

    asyncio.run(main())


async def test_a_call_may_be_tried_again_after_something_was_written():
    made: list[str] = []

    @tool
    async def write(name: str) -> str:
        made.append(name)
        return "written"

    @tool(read_only=True)
    async def read(name: str) -> str:
        if name not in made:
            raise LookupError(f"there is no {name!r}")
        return "found"

    fetch, make = call("read", name="a"), call("write", name="a")
    model = ScriptedModel(fetch, fetch, make, fetch, "done")
    result = await Agent(model, tools=[read, write]).run("go")
    found = [m.text for m in result.messages if isinstance(m, ToolResult)]
    assert found[2:] == ["written", "found"]


@pytest.mark.parametrize("again", [{"amount": 5}, {"amount": "5"}, {"amount": 5.0}])
async def test_a_call_in_doubt_is_not_made_again_however_it_is_spelt(again: dict[str, Any]):
    paid: list[int] = []
    begun = asyncio.Event()

    @tool
    async def pay(amount: int) -> str:
        paid.append(amount)
        begun.set()
        await asyncio.Event().wait()
        return "paid"

    journal = MemoryJournal()
    first = Agent(ScriptedModel(call("pay", amount=5)), tools=[pay], journal=journal)
    run = first.start("go", run_id="r1")
    await begun.wait()
    run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()
    model = ScriptedModel(call("pay", **again), "done")
    result = await Agent(model, tools=[pay], journal=journal).resume("r1")
    found = [m.text for m in result.messages if isinstance(m, ToolResult)]
    assert paid == [5]
    assert found[0].startswith("Outcome unknown")
    assert "this exact call has failed before" in found[1]
