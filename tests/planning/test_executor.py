import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from replan import Limits, Planning, ToolError, Usage, tool
from replan.errors import AuthError, Overloaded
from replan.events import Error, StepComplete, StepStart, StepToolCall, StepToolResult
from replan.messages import Refusal, ToolResult
from replan.model import ModelProfile, ModelRequest
from replan.planning import Plan, PlannedCall, Step, StepResult, ToolUse
from replan.planning.binder import binder_prompt
from replan.planning.executor import executor_prompt, strip_blocker
from replan.testing import ScriptedModel, call

CITIES = {"Lisbon": {"temp": 21, "zone": "Europe/Lisbon"}, "Rome": {"temp": 25, "zone": "Europe/Rome"}}


class World:
    def __init__(self) -> None:
        self.weather: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.fail_sending = False

    @property
    def tools(self) -> list[Any]:
        @tool(read_only=True)
        async def weather(city: str, unit: str = "C") -> dict[str, Any]:
            "The weather of a city."
            self.weather.append({"city": city, "unit": unit})
            if city not in CITIES:
                raise ToolError(f"there is no {city!r}; did you mean 'Lisbon'?")
            return {**CITIES[city], "unit": unit}

        @tool
        async def send(to: str, text: str) -> str:
            "Send a text."
            self.sent.append({"to": to, "text": text})
            if self.fail_sending:
                raise ToolError("the mailbox of 'Bob' is full; use 'Ann'")
            return f"sent to {to}"

        @tool(read_only=True)
        async def search(query: str = "", limit: int = 5) -> list[str]:
            "Search."
            self.weather.append({"query": query, "limit": limit})
            if query == "bad":
                raise ToolError("no 'bad', try 'good'")
            return [query]

        return [weather, send, search]


@pytest.fixture
def world() -> World:
    return World()


def direct(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"description": f"Use {tool}", "call": {"tool": tool, "arguments": arguments or None}}


def starts(cast: Any) -> list[tuple[str, str]]:
    return [(e.step_id, e.kind) for e in cast.of(StepStart)]


def schema_of(request: ModelRequest) -> Any:
    assert request.output is not None
    return request.output.schema


@pytest.mark.parametrize(
    ("text", "summary", "blocked"),
    [
        ("Found it.", "Found it.", False),
        ("No access.\n[BLOCKER]", "No access.", True),
        ("No access. [BLOCKER].  \n", "No access.", True),
        ("No access **[BLOCKER]**", "No access", True),
        ("Kein Zugriff `[BLOCKER]`!", "Kein Zugriff", True),
        ("アクセスできません[BLOCKER]", "アクセスできません", True),
        ("No access [Blocker]", "No access", True),
        ("[BLOCKER]", "", True),
        ("It said [BLOCKER] but then worked.", "It said [BLOCKER] but then worked.", False),
        ("BLOCKER", "BLOCKER", False),
        ("  spaces  ", "spaces", False),
        ("", "", False),
    ],
)
def test_the_sentinel_at_the_end_of_a_reply_says_that_the_step_is_blocked(text: str, summary: str, blocked: bool):
    assert strip_blocker(text) == (summary, blocked)


def result_of(ident: str, *calls: ToolUse, summary: str = "", **more: Any) -> StepResult:
    return StepResult(step=Step(id=ident, description=f"do {ident}"), kind="open", summary=summary, calls=calls, **more)


def test_the_executors_prompt_has_the_goal_the_plan_the_findings_and_the_step():
    step = Step(
        id="s2",
        description="send it",
        expected_outcome="it is sent",
        suggested_tools=("send",),
        call=PlannedCall("send", {"to": "Bob"}),
    )
    plan = Plan(steps=(Step(id="s1", description="look"), step))
    long = ToolUse("look", {"key": "a"}, "x" * 5000, True)
    trace = [result_of("s1", long, ToolUse("look", {}, "broke", False), summary="half of it")]
    prompt = executor_prompt({"goal": "Tell Bob.", "history": []}, plan, step, trace, "send({}) failed: no")
    assert prompt.startswith("Goal: Tell Bob.\n\nPlan:\n1. look\n2. send it\n")
    assert "- s1: do s1\n" in prompt
    assert '  look({"key":"a"}) -> xxx' in prompt
    assert "x ... [clipped]" in prompt
    assert "x" * 2001 not in prompt
    assert "  look({}) FAILED: broke\n  half of it" in prompt
    assert prompt.endswith(
        'Your step: send it\nExpected outcome: it is sent\nSuggested tools: send\nPlanned call: send({"to":"Bob"})\n'
        "That failed: send({}) failed: no"
    )
    bare = executor_prompt(
        {"goal": "Go.", "history": []},
        Plan(steps=(Step(id="s1", description="look"),)),
        Step(id="s1", description="look"),
        [],
        None,
    )
    assert bare == "Goal: Go.\n\nPlan:\n1. look\n\nYour step: look"


def test_the_binders_prompt_has_the_tool_and_what_was_tried():
    step = Step(id="s2", description="send it")
    prompt = binder_prompt("Tell Bob.", step, "send(to: string): Send.", [result_of("s1", summary="yes")], "it broke")
    assert prompt == (
        "Goal: Tell Bob.\n\nResults so far:\n- s1: do s1\n  yes\n\n"
        "Step: send it\nTool: send(to: string): Send.\nTried before: it broke"
    )


async def test_a_direct_step_runs_without_a_model(cast: Callable[..., Any], plan_of: Callable[..., str], world: World):
    made = cast([plan_of(direct("weather", city="Rome"))], tools=world.tools)
    result = await made.run()
    [step] = result.trace
    assert (step.kind, step.ok, step.blocked) == ("direct", True, False)
    assert step.outputs == {"result": {"temp": 25, "zone": "Europe/Rome", "unit": "C"}}
    assert step.calls == (ToolUse("weather", {"city": "Rome"}, step.summary, True),)
    assert made.executor.requests == []
    assert starts(made) == [("s1", "direct")]
    assert [e.arguments for e in made.of(StepToolCall)] == [{"city": "Rome"}]
    assert [(e.step_id, e.summary, e.ok) for e in made.of(StepComplete)] == [("s1", step.summary, True)]


async def test_references_carry_values_from_step_to_step(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    made = cast(
        [
            plan_of(
                direct("weather", city="Rome"), direct("send", to="${s1.zone}", text="It is ${s1.result.temp} there")
            )
        ],
        tools=world.tools,
    )
    result = await made.run()
    assert world.sent == [{"to": "Europe/Rome", "text": "It is 25 there"}]
    assert [step.kind for step in result.trace] == ["direct", "direct"]
    assert made.executor.requests == []


async def test_a_bound_step_fills_in_what_is_open_with_one_call(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, prompt_of: Callable[..., str]
):
    made = cast(
        [plan_of(direct("weather", city="Rome"), direct("send", to="Bob", text=None), direct("send"))],
        ['{"text": "25 degrees", "to": "Eve"}', '```json\n{"arguments": {"to": "Ann", "text": "done"}}\n```'],
        tools=world.tools,
    )
    result = await made.run()
    assert world.sent == [{"to": "Bob", "text": "25 degrees"}, {"to": "Ann", "text": "done"}]
    assert starts(made) == [("s1", "direct"), ("s2", "bound"), ("s3", "bound")]
    assert [step.ok for step in result.trace] == [True, True, True]
    first = made.executor.requests[0]
    assert "Tool: send(to: string, text: string) [writes]: Send a text." in prompt_of(first)
    assert "25" in prompt_of(first)
    assert schema_of(first)["required"] == ["to", "text"]
    assert first.tools == ()


async def test_a_constrained_model_is_offered_known_values_for_a_bound_step(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    made = cast([plan_of(direct("weather", city="Rome"), direct("send", to=None, text="hi"))], tools=world.tools)
    made.executor = ScriptedModel('{"to": "Europe/Rome", "text": "hi"}', profile=ModelProfile(constrained=True))
    await made.run("Tell the zone.")
    properties = schema_of(made.executor.requests[0])["properties"]
    assert properties["text"] == {"enum": ["hi"]}
    assert "Europe/Rome" in properties["to"]["enum"]
    assert world.sent == [{"to": "Europe/Rome", "text": "hi"}]


async def test_a_reference_that_leads_nowhere_is_filled_in_with_the_message_in_view(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, prompt_of: Callable[..., str]
):
    made = cast(
        [plan_of(direct("weather", city="Rome"), direct("send", to="${s1.mail}", text="T: ${s1.temp}"))],
        ['{"to": "Bob", "text": "changed"}'],
        tools=world.tools,
    )
    await made.run()
    assert world.sent == [{"to": "Bob", "text": "T: 25"}]
    assert "there is no 'mail'; there are 'temp', 'zone', 'unit'" in prompt_of(made.executor.requests[0])


async def test_a_missing_reference_in_an_optional_argument_is_not_dropped_silently(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, prompt_of: Callable[..., str]
):
    made = cast(
        [plan_of(direct("weather", city="Rome"), direct("search", query="${s1.nothing}"))],
        [call("search", query="found"), "ok"],
        tools=world.tools,
    )
    await made.run()
    assert world.weather[1:] == [{"query": "found", "limit": 5}]
    assert "That failed: '${s1.nothing}': there is no 'nothing'" in prompt_of(made.executor.requests[0])


@pytest.mark.parametrize("reference", ["${s2.result}", "${s9.x}", "${s3.x}"])
async def test_a_step_that_refers_to_itself_or_to_what_never_was_still_runs(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, reference: str
):
    made = cast(
        [plan_of(direct("weather", city="Rome"), direct("send", to=reference, text="x"), "more")],
        ['{"to": "Bob", "text": "x"}', "nothing more"],
        tools=world.tools,
    )
    result = await made.run()
    assert world.sent == [{"to": "Bob", "text": "x"}]
    assert result.status == "complete"


async def test_an_error_that_offers_another_value_is_answered_by_one_bound_call(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, prompt_of: Callable[..., str]
):
    made = cast(
        [plan_of(direct("weather", city="Lisbn", unit="F"))], ['{"city": "Lisbon", "unit": "C"}'], tools=world.tools
    )
    result = await made.run()
    assert world.weather == [{"city": "Lisbn", "unit": "F"}, {"city": "Lisbon", "unit": "F"}]
    assert "Tried before: weather(" in prompt_of(made.executor.requests[0])
    assert "did you mean 'Lisbon'?" in prompt_of(made.executor.requests[0])
    [step] = result.trace
    assert (step.ok, [use.ok for use in step.calls]) == (True, [False, True])
    assert len({e.call_id for e in made.of(StepToolCall)}) == 2


async def test_the_call_that_failed_is_not_made_again_but_goes_to_the_executor(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, prompt_of: Callable[..., str]
):
    made = cast(
        [plan_of(direct("weather", city="Lisbn"))],
        ['{"city": "Lisbn"}', call("weather", city="Lisbn"), call("weather", city="Rome"), "It is 25 in Rome."],
        tools=world.tools,
    )
    result = await made.run()
    assert [c["city"] for c in world.weather] == ["Lisbn", "Rome"]
    open_request = made.executor.requests[1]
    assert 'That failed: weather({"city":"Lisbn"}) failed: there is no \'Lisbn\'' in prompt_of(open_request)
    refused = [m for m in made.executor.requests[2].conversation.messages if isinstance(m, ToolResult)]
    assert "this exact call has failed before" in refused[0].text
    [step] = result.trace
    assert (step.summary, step.ok) == ("It is 25 in Rome.", True)


async def test_an_optional_argument_that_failed_is_not_dropped_to_get_some_result(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    made = cast([plan_of(direct("search", query="bad"))], [call("search", query="good"), "ok"], tools=world.tools)
    await made.run()
    assert [c["query"] for c in world.weather] == ["bad", "good"]


async def test_a_failed_write_is_not_tried_with_other_values_without_the_executor(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, prompt_of: Callable[..., str]
):
    world.fail_sending = True
    made = cast([plan_of(direct("send", to="Bob", text="x"))], ["cannot [BLOCKER]"], tools=world.tools)
    result = await made.run()
    assert world.sent == [{"to": "Bob", "text": "x"}]
    assert "the mailbox of 'Bob' is full" in prompt_of(made.executor.requests[0])
    [step] = result.trace
    assert (step.blocked, step.summary, step.failed_tools) == (True, "cannot", ["send"])


async def test_invalid_arguments_in_a_plan_go_back_to_the_planner_once_and_are_then_filled_in(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    wrong = plan_of(direct("weather", city=["x"]))
    made = cast([wrong, wrong], [call("weather", city="Rome"), "warm"], tools=world.tools)
    result = await made.run()
    told = made.planner.requests[1].conversation.messages[-1].content[0].text
    assert """'city': expected string, got ["x"]""" in told
    assert world.weather == [{"city": "Rome", "unit": "C"}]
    assert (result.trace[0].kind, result.trace[0].ok) == ("bound", True)
    mended = cast([wrong, plan_of(direct("weather", city="Rome"))], tools=world.tools)
    assert (await mended.run()).trace[0].kind == "direct"
    assert mended.executor.requests == []


async def test_a_binder_that_gives_nothing_leaves_the_step_to_the_executor(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    made = cast(
        [plan_of(direct("weather", city="Rome"), direct("send"))],
        ["nothing", "still nothing", call("send", to="Bob", text="x"), "sent"],
        tools=world.tools,
    )
    result = await made.run()
    assert "Your reply holds no JSON object" in made.executor.requests[1].conversation.messages[-1].content[0].text
    assert world.sent == [{"to": "Bob", "text": "x"}]
    assert result.trace[1].summary == "sent"


async def test_a_first_step_with_nothing_known_is_left_to_the_executor(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    made = cast([plan_of(direct("send"))], [call("send", to="Bob", text="x"), "sent"], tools=world.tools)
    await made.run()
    assert world.sent == [{"to": "Bob", "text": "x"}]
    assert made.executor.requests[0].output is None
    assert len(made.executor.requests) == 2


async def test_an_open_step_gives_its_summary_and_its_findings(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    made = cast(
        [plan_of("Compare the cities", direct("send", to="Bob", text="${s1.calls[1].temp}: ${s1.result}"))],
        [[call("weather", city="Lisbon"), call("weather", city="Rome")], "Rome is warmer."],
        tools=world.tools,
    )
    result = await made.run()
    step = result.trace[0]
    assert (step.kind, step.summary) == ("open", "Rome is warmer.")
    assert step.outputs["result"] == "Rome is warmer."
    assert [found["temp"] for found in step.outputs["calls"]] == [21, 25]
    assert world.sent == [{"to": "Bob", "text": "25: Rome is warmer."}]
    assert [(e.step_id, e.ok) for e in made.of(StepToolResult)] == [("s1", True), ("s1", True), ("s2", True)]


@pytest.mark.parametrize(
    ("script", "summary"),
    [
        ([[Refusal("I will not.")]], "I will not."),
        ([call("weather", city="Rome")] * 2, "The step ended without a reply: max-turns."),
    ],
)
async def test_a_step_that_ends_without_an_answer_is_blocked(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, script: list[Any], summary: str
):
    made = cast([plan_of("open")], script, tools=world.tools, limits=Limits(max_turns=2))
    result = await made.run()
    [step] = result.trace
    assert (step.blocked, step.summary) == (True, summary)
    assert len(made.executor.requests) == len(script)


async def test_a_lone_result_wrapper_is_taken_off_the_output(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    @tool(read_only=True)
    async def wrapped() -> dict[str, list[int]]:
        return {"result": [1, 2]}

    @tool(read_only=True)
    async def text() -> str:
        return "just text"

    made = cast([plan_of(direct("wrapped"), direct("text"))], tools=[wrapped, text])
    result = await made.run()
    assert [step.outputs for step in result.trace] == [{"result": [1, 2]}, {"result": "just text"}]


async def test_results_in_the_trace_and_the_events_are_whole_while_prompts_are_clipped(
    cast: Callable[..., Any], plan_of: Callable[..., str], prompt_of: Callable[..., str]
):
    @tool(read_only=True)
    async def big() -> str:
        return "y" * 50_000

    made = cast([plan_of(direct("big"), "think")], ["ok"], tools=[big])
    result = await made.run()
    assert result.trace[0].calls[0].output == "y" * 50_000
    assert made.of(StepToolResult)[0].output == "y" * 50_000
    assert "y" * 2000 in prompt_of(made.executor.requests[0])
    assert "y" * 2001 not in prompt_of(made.executor.requests[0])
    assert "y" * 4000 in prompt_of(made.synthesizer.requests[0])
    assert "y" * 4001 not in prompt_of(made.synthesizer.requests[0])


async def test_the_budget_of_tool_calls_ends_the_steps_but_not_the_answer(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, prompt_of: Callable[..., str]
):
    steps = [direct("weather", city="Rome"), direct("weather", city="Lisbon"), direct("send", to="Bob", text="x")]
    made = cast([plan_of(*steps)], tools=world.tools, limits=Limits(max_tool_calls=1))
    result = await made.run()
    assert len(world.weather) == 1
    assert (result.status, result.stop_reason) == ("stopped", "limit")
    assert result.text == "The answer."
    assert made.kinds().count("budget.exceeded") == 1
    assert made.executor.requests == []
    assert len(made.planner.requests) == 1
    assert "- Use send (the limit of 1 tool calls was reached)" in prompt_of(made.synthesizer.requests[0])
    assert "budget of this run is exhausted" in prompt_of(made.synthesizer.requests[0])


async def test_only_what_the_plan_suggests_is_offered_where_that_is_asked_for(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    steps = [
        {"description": "one", "suggested_tools": ["weather"]},
        {"description": "two", "suggested_tools": ["nothing", "no"]},
        {"description": "three", "suggested_tools": ["nothing", "send"]},
        {**direct("send"), "suggested_tools": ["search"]},
        "five",
    ]
    narrowed = Planning(tool_selection="plan-narrowed")
    made = cast([plan_of(*steps)], ["ok"] * 8, tools=world.tools, planning=narrowed)
    await made.run()
    offered = [{t.name for t in r.tools} for r in made.executor.requests if r.output is None]
    everything = {"weather", "send", "search"}
    assert offered == [{"weather"}, everything, {"send"}, {"search", "send"}, set()]
    usual = cast([plan_of(*steps[:2])], ["ok"] * 2, tools=world.tools)
    await usual.run()
    assert [{t.name for t in r.tools} for r in usual.executor.requests] == [everything, everything]


async def test_a_model_that_fails_while_binding_leaves_the_step_to_the_executor(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World, prompt_of: Callable[..., str]
):
    steps = [direct("weather", city="Rome"), direct("send")]
    made = cast([plan_of(*steps)], [Overloaded("busy"), call("send", to="Bob", text="x"), "sent"], tools=world.tools)
    result = await made.run()
    assert result.trace[1].summary == "sent"
    assert "That failed: busy" in prompt_of(made.executor.requests[1])
    failing = cast([plan_of(*steps)], [AuthError("no key")], tools=world.tools)
    with pytest.raises(AuthError):
        await failing.run()
    assert [(e.phase, e.kind) for e in failing.of(Error)] == [("execute", "AuthError")]


async def test_a_step_can_be_cancelled_while_its_tool_runs(cast: Callable[..., Any], plan_of: Callable[..., str]):
    begun, left = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def stay() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return ""

    decision = json.dumps({"mode": "continue", "reason": "go on", "steps": []})
    made = cast([plan_of(direct("stay"), "second"), decision], ["done"], tools=[stay])
    async with made.agent().start("go") as run:
        await begun.wait()
        run.cancel_step("s2")
        run.cancel_step("nothing")
        run.cancel_step("s1")
        result = await run.result()
    assert left.is_set()
    first, second = result.trace
    assert (first.blocked, first.cancelled, first.summary) == (True, True, "Cancelled.")
    assert [(e.ok, e.output) for e in made.of(StepToolResult)] == [(False, "Cancelled before it had a result.")]
    assert (second.blocked, second.cancelled) == (True, True)
    assert result.text == "The answer."


async def test_what_a_model_call_used_is_told_with_its_phase(
    cast: Callable[..., Any], plan_of: Callable[..., str], world: World
):
    made = cast([plan_of("open")], ["done"], tools=world.tools)
    result = await made.run()
    used = [(e.phase, e.model) for e in made.events if e.__struct_config__.tag == "usage"]
    assert used == [
        ("plan", "scripted:planner"),
        ("execute", "scripted:executor"),
        ("synthesize", "scripted:synthesizer"),
    ]
    assert set(result.usage_by_model) == {model for _, model in used}
    assert result.usage == sum(result.usage_by_model.values(), Usage())


async def test_a_look_up_that_failed_is_not_made_up_for_by_writing_something(
    cast: Callable[..., Any], plan_of: Callable[..., str]
):
    @tool(read_only=True)
    async def look(key: str) -> str:
        raise LookupError("nothing there")

    @tool
    async def write(text: str) -> str:
        return "written"

    made = cast([plan_of(direct("look", key="a"))], ["not there [BLOCKER]"], tools=[look, write])
    await made.run()
    assert [spec.name for spec in made.executor.requests[0].tools] == ["look"]


async def test_a_write_that_failed_makes_its_step_fruitless_whatever_else_was_found(
    cast: Callable[..., Any], plan_of: Callable[..., str], prompt_of: Callable[..., str]
):
    @tool(read_only=True)
    async def look(key: str) -> str:
        return "found"

    @tool
    async def send(to: str) -> str:
        raise ValueError("that is no address")

    made = cast([plan_of(direct("send", to="Bob"))], [call("look", key="a"), "It was sent."], tools=[look, send])
    result = await made.run()
    [step] = result.trace
    assert step.fruitless
    assert "that is no address" in prompt_of(made.synthesizer.requests[0]).split("the answer must say:")[1]
