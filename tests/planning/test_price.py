"""What plans are said to cost, and what runs of them then cost."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replan import Limits, tool
from replan.encoding import JSONObject, encode
from replan.events import PlanCreated
from replan.journal import ToolHistory
from replan.model import ModelRequest
from replan.planning.plan import Plan, PlannedCall, Step
from replan.planning.price import Pricer, price_line
from replan.testing import call
from replan.tool import Tool

INTERVALS = ("model_calls", "tool_calls", "input_tokens", "output_tokens", "seconds")


@tool(read_only=True)
async def look(key: str) -> str:
    """Look something up."""
    return f"value of {key}"


@tool
async def send(to: str, body: str) -> str:
    """Send a message."""
    return f"sent to {to}"


def facts_of(*tools: Tool) -> dict[str, JSONObject]:
    return {
        t.info.name: {
            "line": f"{t.info.name}: {t.info.description}",
            "required": t.info.parameters["required"],
            "once": not t.info.repeatable,
            "writes": not t.info.read_only,
        }
        for t in tools
    }


FACTS = facts_of(look, send)


def pricer(**options: Any) -> Pricer:
    sizes: JSONObject = {
        "instructions": {"binder": 400, "executor": 400, "replanner": 800, "synthesizer": 400},
        "models": dict.fromkeys(("planner", "executor", "binder", "replanner", "synthesizer"), "scripted:model"),
        "tools": {"look": 100, "send": 100},
    }
    return Pricer(**{**sizes, **options})


def plan(*steps: Step) -> Plan:
    return Plan(steps=steps)


def direct(ident: str, *, reads: str = "a", **more: Any) -> Step:
    return Step(id=ident, description=f"Look up {reads}", call=PlannedCall("look", {"key": reads}), **more)


def bound(ident: str, **more: Any) -> Step:
    return Step(id=ident, description="Look it up", call=PlannedCall("look", {"key": None}), **more)


def price_of(*steps: Step, by: Pricer | None = None, **args: Any) -> JSONObject:
    return (by or pricer()).price(plan(*steps), FACTS, {"goal": "Reach the goal.", "with_cost": False, **args})


def counts(*steps: Step, by: Pricer | None = None, **args: Any) -> tuple[list[int], list[int]]:
    price = price_of(*steps, by=by, **args)
    return price["model_calls"], price["tool_calls"]


FAILS = {"look": ToolHistory(calls=10, failed=1, seconds=(0.2, 2.0), chars=(100, 4_000))}
WORKS = {"look": ToolHistory(calls=10, failed=0, seconds=(0.2, 2.0), chars=(100, 4_000))}


def test_direct_and_computed_steps_need_no_model():
    computed = Step(id="s2", description="Add", compute={"sum": ["${s1}"]})
    assert counts(direct("s1")) == ([1, 1], [1, 1])
    assert counts(direct("s1"), computed) == ([1, 2], [1, 1])
    assert counts(Step(id="s1", description="Add", compute={"value": "1 + 1"})) == ([1, 1], [0, 0])


def test_an_open_operand_is_one_model_call():
    chosen = Step(id="s2", description="The largest", compute={"max": None})
    assert counts(direct("s1"), chosen) == ([2, 4], [1, 1])


def test_bound_steps_are_one_call_of_each_and_may_be_tried_twice():
    assert counts(direct("s1"), bound("s2"), bound("s3")) == ([3, 6], [3, 5])


def test_a_call_whose_arguments_can_come_from_nowhere_is_the_executors():
    assert counts(bound("s1")) == ([3, 7], [1, 5])
    assert counts(bound("s1"), kinds=["direct", "bound"]) == ([2, 3], [1, 2])
    assert counts(bound("s2", depends_on=("s1",)), known={"s1": {"ok": True}}) == ([2, 3], [1, 2])


def test_open_steps_take_a_few_turns_as_far_as_the_limits_allow():
    asked = Step(id="s1", description="Find it", suggested_tools=("look",))
    assert counts(asked) == ([3, 7], [1, 5])
    assert counts(asked, by=pricer(limits=Limits(max_turns=3))) == ([3, 4], [1, 2])
    assert counts(Step(id="s1", description="Think")) == ([2, 7], [0, 5])
    assert counts(Step(id="s1", description="Think"), by=pricer(narrowed=True)) == ([2, 2], [0, 0])
    assert counts(Step(id="s1", description="Think"), by=pricer(tools={})) == ([2, 2], [0, 0])


def test_a_direct_step_may_move_up_where_its_tool_has_failed_before():
    assert counts(direct("s1"), by=pricer(history=WORKS)) == ([1, 1], [1, 1])
    assert counts(direct("s1"), by=pricer(history=FAILS)) == ([1, 8], [1, 7])
    assert counts(direct("s1"), by=pricer(history=FAILS), kinds=["direct"]) == ([1, 1], [1, 1])
    assert counts(direct("s1"), by=pricer(history=FAILS), kinds=["direct", "bound"]) == ([1, 2], [1, 2])


def test_kinds_that_are_not_allowed_are_priced_as_what_they_become():
    assert counts(direct("s1"), kinds=["bound", "open"]) == ([2, 3], [1, 2])
    assert counts(direct("s1"), kinds=["open"]) == ([3, 7], [1, 5])
    assert counts(direct("s1"), bound("s2"), by=pricer(kinds=("direct", "open"))) == ([3, 8], [2, 6])


def test_the_replanner_is_asked_as_often_as_the_settings_say():
    steps = [direct("s1"), direct("s2"), direct("s3")]
    assert counts(*steps)[0] == [1, 2]
    assert counts(*steps, by=pricer(replan_after="always"))[0] == [3, 3]
    assert counts(*steps, by=pricer(replan_after=lambda result: True))[0] == [1, 3]
    assert counts(steps[0], by=pricer(replan_after="always"))[0] == [1, 1]


def test_checks_by_a_call_are_tool_calls():
    checked = direct("s1", check={"call": {"tool": "look", "arguments": {"key": "b"}}, "expect": "x"})
    assert counts(checked) == ([1, 1], [2, 2])
    assert counts(direct("s1", check="length(result) > `1`")) == ([1, 1], [1, 1])


def test_a_plan_without_steps_is_the_answer():
    assert counts() == ([1, 1], [0, 0])


def test_tokens_are_those_of_instructions_tools_and_results():
    goal = len("Reach the goal.")
    few = price_of(direct("s1"))["input_tokens"]
    assert few == [(400 + goal + 20 + 20) // 4, (400 + goal + 80 + 80 + 600 + 3) // 4]
    known = price_of(direct("s1"), by=pricer(history=WORKS))["input_tokens"]
    assert known == [(400 + goal + 20 + 20 + 100) // 4, (400 + goal + 80 + 4_000 + 3) // 4]  # shown clipped
    said = price_of(direct("s1"), by=pricer(conversation=4_000))["input_tokens"]
    assert said == [few[0], few[1] + 1_000]
    open_step = Step(id="s1", description="Find it", suggested_tools=("look",))
    all_tools, narrowed = (price_of(open_step, by=pricer(narrowed=n))["input_tokens"] for n in (False, True))
    assert [a - n for a, n in zip(all_tools, narrowed, strict=True)] == [2 * 100 // 4, 6 * 100 // 4]


def test_time_is_that_of_the_longest_chain():
    slow = pricer(history={"look": ToolHistory(calls=1, seconds=(10.0, 20.0))}, model_seconds=(1.0, 1.0))
    chain = [direct(f"s{n}") for n in range(1, 5)]
    together = [direct(f"s{n}", depends_on=()) for n in range(1, 5)]
    assert price_of(*chain, by=slow)["seconds"] == [41.0, 82.0]
    assert price_of(*together, by=slow)["seconds"] == [11.0, 22.0]
    two = replace_options(slow, max_parallel_steps=2)
    assert price_of(*together, by=two)["seconds"] == [21.0, 52.0]
    diamond = [direct("a"), direct("b", depends_on=("a",)), direct("c", depends_on=("a",)), direct("d", reads="${b}")]
    assert price_of(*diamond, by=slow)["seconds"] == [31.0, 62.0]


def replace_options(by: Pricer, **options: Any) -> Pricer:
    return Pricer(**{name: getattr(by, name) for name in Pricer.__dataclass_fields__} | options)


def test_steps_that_write_wait_for_each_other_unless_they_say_what_they_need():
    def write(ident: str, **more: Any) -> Step:
        return Step(id=ident, description="Send", call=PlannedCall("send", {"to": "a", "body": ident}), **more)

    slow = pricer(history={"send": ToolHistory(calls=1, seconds=(10.0, 10.0))}, model_seconds=(0.0, 0.0))
    stated = [write(f"s{n}", depends_on=()) for n in range(3)]
    assert price_of(*stated, by=slow)["seconds"] == [10.0, 10.0]
    assert price_of(write("s0"), *stated[1:], by=slow)["seconds"] == [20.0, 20.0]


def test_steps_that_wait_for_each_other_in_a_circle_have_a_price_too():
    price = price_of(direct("a", depends_on=("b",)), direct("b", depends_on=("a",)), direct("c", depends_on=("a",)))
    assert (price["model_calls"], price["tool_calls"]) == ([1, 2], [3, 3])


def test_what_is_left_of_the_limits_is_compared():
    steps = [direct("s1"), bound("s2"), bound("s3")]
    assert price_of(*steps)["exceeds"] == []
    assert price_of(*steps, left={"tool_calls": 5})["exceeds"] == []
    assert price_of(*steps, left={"tool_calls": 4})["exceeds"] == ["may need 5 tool calls, 4 are left"]
    assert price_of(*steps, left={"tool_calls": 1})["exceeds"] == ["needs at least 3 tool calls, 1 is left"]
    assert price_of(direct("s1"), left={"tool_calls": 0})["exceeds"] == ["needs at least 1 tool call, none is left"]
    price = price_of(*steps, left={"input_tokens": 10, "output_tokens": 200, "total_tokens": 100_000})
    assert price["exceeds"] == [
        f"needs at least {price['input_tokens'][0]} input tokens, 10 are left",
        f"may need {price['output_tokens'][1]:,} output tokens, 200 are left",
    ]


def test_money_is_known_where_all_prices_are():
    models = {"executor": "openai:gpt-4.1", "binder": "openai:gpt-4.1", "synthesizer": "openai:gpt-4.1-mini"}
    models |= {"replanner": "local:model"}
    steps = [direct("s1"), bound("s2")]
    low, high = price_of(*steps, by=pricer(models=models), with_cost=True)["cost"]
    assert 0.0002 < low < high < 0.02
    assert price_of(*steps, by=pricer(models=models | {"binder": "some:model"}), with_cost=True)["cost"] is None
    assert price_of(direct("s1"), by=pricer(models=models | {"binder": "some:model"}), with_cost=True)["cost"]
    local = dict.fromkeys(models, "local:model")
    assert price_of(*steps, by=pricer(models=local), with_cost=True)["cost"] == [0.0, 0.0]
    assert price_of(*steps, by=pricer(models=models))["cost"] is None


def test_importing_it_loads_no_table_of_prices():
    script = "import sys, replan.planning.price; print('genai_prices' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("price", "line"),
    [
        (
            {
                "model_calls": [2, 4],
                "tool_calls": [3, 3],
                "input_tokens": [1000, 2600],
                "output_tokens": [200, 400],
                "seconds": [2.0, 9.4],
                "cost": [0.00123, 0.00312],
            },
            "2-4 model calls, 3 tool calls, ~1.2-3 k tokens, $0.0012-0.0031, about 2-9.4 s",
        ),
        (
            {
                "model_calls": [1, 1],
                "tool_calls": [1, 1],
                "input_tokens": [100, 120],
                "output_tokens": [20, 20],
                "seconds": [1.0, 12.4],
                "cost": None,
            },
            "1 model call, 1 tool call, ~120-140 tokens, about 1-12 s",
        ),
        (
            {
                "model_calls": [0, 1],
                "tool_calls": [0, 0],
                "input_tokens": [0, 99_000],
                "output_tokens": [0, 1_000],
                "seconds": [0.0, 0.0],
                "cost": [0.0, 12.0],
            },
            "0-1 model calls, 0 tool calls, ~0-100 k tokens, $0-12.00, about 0 s",
        ),
    ],
)
def test_a_price_can_be_read_in_one_line(price: JSONObject, line: str):
    assert price_line(price) == line


KINDS: list[Any] = ["direct", "bound", "open"]
texts = st.text(max_size=30)
histories = st.builds(
    lambda failed, seconds, chars: ToolHistory(
        calls=10, failed=failed, seconds=(seconds[0], sum(seconds)), chars=(chars[0], sum(chars))
    ),
    st.integers(0, 10),
    st.tuples(st.floats(0, 9), st.floats(0, 9)),
    st.tuples(st.integers(0, 9_000), st.integers(0, 9_000)),
)
pricers = st.builds(
    pricer,
    history=st.dictionaries(st.sampled_from(["look", "send"]), histories),
    limits=st.builds(Limits, max_turns=st.integers(1, 9)),
    narrowed=st.booleans(),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, unique=True),
    replan_after=st.sampled_from(["failure", "always", bool]),
    max_parallel_steps=st.integers(1, 4),
    conversation=st.integers(0, 9_000),
)


@st.composite
def step_lists(draw: Callable[..., Any]) -> list[Step]:
    steps: list[Step] = []
    for number in range(draw(st.integers(0, 7))):
        earlier = [step.id for step in steps]
        waits = st.lists(st.sampled_from(earlier), unique=True).map(tuple) if earlier else st.none()
        values = st.one_of(st.none(), texts, *([st.sampled_from(earlier).map("${{{}}}".format)] if earlier else []))
        names = st.sampled_from(["look", "send", "unknown"])
        calls = st.builds(
            PlannedCall,
            names,
            st.one_of(st.none(), st.dictionaries(st.sampled_from(["key", "to", "body"]), values)),
        )
        step = Step(
            id=f"s{number}",
            description=draw(texts),
            suggested_tools=tuple(draw(st.lists(names, max_size=2))),
            requires_tools=draw(st.booleans()),
            call=draw(st.one_of(st.none(), calls)),
            compute=draw(st.one_of(st.none(), st.none(), st.just({"max": None}), st.just({"value": "1"}))),
            depends_on=draw(st.one_of(st.none(), waits)),
            check=draw(st.one_of(st.none(), st.just({"call": {"tool": "look"}}))),
        )
        steps.append(step)
    return steps


def ends(price: JSONObject, end: int) -> list[float]:
    return [price[name][end] for name in INTERVALS]


SOME = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SOME
@given(step_lists(), pricers)
def test_the_low_end_is_never_above_the_high_one(steps: list[Step], by: Pricer):
    price = price_of(*steps, by=by)
    assert all(0 <= low <= high for low, high in zip(ends(price, 0), ends(price, 1), strict=True))


@SOME
@given(step_lists(), pricers)
def test_another_step_lowers_nothing(steps: list[Step], by: Pricer):
    for count in range(len(steps)):
        less, more = price_of(*steps[:count], by=by), price_of(*steps[: count + 1], by=by)
        for end in (0, 1):
            assert all(a <= b for a, b in zip(ends(less, end), ends(more, end), strict=True))


@SOME
@given(step_lists(), pricers, st.integers(0, 5_000), st.none() | histories)
def test_another_tool_lowers_nothing(steps: list[Step], by: Pricer, size: int, history: ToolHistory | None):
    known = {**by.history, **({"third": history} if history else {})}
    wider = replace_options(by, tools={**by.tools, "third": size}, history=known)
    less, more = price_of(*steps, by=by), price_of(*steps, by=wider)
    for end in (0, 1):
        assert all(a <= b for a, b in zip(ends(less, end), ends(more, end), strict=True))


@SOME
@given(step_lists(), pricers, st.sampled_from(["tool_calls", "input_tokens", "output_tokens", "total_tokens"]))
def test_a_limit_is_named_exactly_where_the_high_end_passes_it(steps: list[Step], by: Pricer, limit: str):
    price = price_of(*steps, by=by)
    needs = {
        **price,
        "total_tokens": [i + o for i, o in zip(price["input_tokens"], price["output_tokens"], strict=True)],
    }
    low, high = needs[limit]
    assert price_of(*steps, by=by, left={limit: high})["exceeds"] == []
    if high:
        [said] = price_of(*steps, by=by, left={limit: high - 1})["exceeds"]
        assert said.startswith("needs at least" if low == high else "may need")


def test_a_long_plan_is_priced_quickly():
    steps = [Step(id=f"s{n}", description="Find it", suggested_tools=("look",)) for n in range(400)]
    assert price_of(*steps)["model_calls"] == [801, 2402]


SHAPES: dict[str, tuple[list[Any], list[Any]]] = {
    "direct only": (
        [{"description": f"Look up {key}", "call": {"tool": "look", "arguments": {"key": key}}} for key in "abc"],
        [],
    ),
    "a bound chain": (
        [
            {"description": "Look up a", "call": {"tool": "look", "arguments": {"key": "a"}}},
            {"description": "Look up what that gave", "call": {"tool": "look", "arguments": {"key": None}}},
            {"description": "Send it", "call": {"tool": "send", "arguments": {"to": "Bob", "body": None}}},
        ],
        ['{"key": "value of a"}', '{"to": "Bob", "body": "value of a"}'],
    ),
    "open": (
        [{"description": "Find a", "suggested_tools": ["look"]}, {"description": "Sum it up"}],
        [call("look", key="a"), call("look", key="b"), "Both are there.", "They are a and b."],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_run_costs_what_its_plan_was_said_to(shape: str, cast: Any, plan_of: Any):
    steps, replies = SHAPES[shape]
    made = cast([plan_of(*steps)], replies, tools=[look, send])
    goal = "Look up a, b and c, and send them to Bob."
    result = await made.run(goal)
    assert result.status == "complete"
    price = result.price
    [created] = made.of(PlanCreated)
    assert created.price == price
    model_calls = result.usage.model_calls - len(made.planner.requests)
    assert price["model_calls"][0] <= model_calls <= price["model_calls"][1]
    assert price["tool_calls"][0] <= result.tool_calls <= price["tool_calls"][1]
    requests = [*made.executor.requests, *made.synthesizer.requests]
    given_chars = sum(map(chars_of, requests))
    assert price["input_tokens"][0] <= given_chars / 4 <= price["input_tokens"][1]
    assert price["exceeds"] == []


def chars_of(request: ModelRequest) -> int:
    """What a model is given, as far as it is text; a schema for the reply counts as the tool it is made of."""
    specs = sum(len(t.name) + len(t.description) + len(encode(t.parameters)) for t in request.tools)
    schema = len(encode(request.output.schema)) if request.output else 0
    parts = [part for message in request.conversation.messages for part in message.content]
    return len(request.instructions) + specs + schema + sum(len(getattr(part, "text", "")) for part in parts)


def test_a_revision_counts_the_results_that_are_there():
    known = {f"k{n}": {"call": None, "ok": True, "shape": None} for n in range(3)}
    before, after = price_of(direct("s1")), price_of(direct("s1"), known=known)
    assert after["input_tokens"] == [before["input_tokens"][0], before["input_tokens"][1] + 3 * 680 // 4]
