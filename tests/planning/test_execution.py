import asyncio
import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from replan import Limits, PlanningAgent, tool
from replan.errors import ConfigError, RunCancelled
from replan.events import ReplanDecision
from replan.settings import Planning
from replan.testing import ScriptedModel


class Bench:
    """Tools whose calls wait until they are let go, and which write down what happens."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.at_once = 0
        self.most_at_once = 0

    async def _call(self, name: str) -> str:
        self.log.append(name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if gate := self.gates.get(name):
                await gate.wait()
            else:
                await asyncio.sleep(0)
        finally:
            self.at_once -= 1
        if name.startswith("bad"):
            raise ValueError(f"there is no {name}")
        return f"<{name}>"

    def tools(self) -> list[Any]:
        @tool(read_only=True)
        async def look(key: str) -> str:
            "Look something up."
            return await self._call(key)

        @tool
        async def write(text: str) -> str:
            "Write something."
            return await self._call(f"W:{text}")

        return [look, write]

    def hold(self, *names: str) -> None:
        self.gates |= {name: asyncio.Event() for name in names}

    async def until(self, *names: str) -> None:
        async with asyncio.timeout(5):
            while not set(names) <= set(self.log):
                await asyncio.sleep(0.001)


def look(ident: str, key: str, *needs: str, **more: Any) -> dict[str, Any]:
    call = {"tool": "look", "arguments": {"key": key}}
    return {"id": ident, "description": f"look up {key}", "call": call, "depends_on": list(needs), **more}


def write(ident: str, text: str, *needs: str, **more: Any) -> dict[str, Any]:
    call = {"tool": "write", "arguments": {"text": text}}
    return {"id": ident, "description": f"write {text}", "call": call, "depends_on": list(needs), **more}


def agent(bench: Bench, *planner: str, **options: Any) -> PlanningAgent[Any]:
    model = ScriptedModel(*planner, otherwise="The answer.")
    return PlanningAgent(model, tools=bench.tools(), **options)


ONLY_CALLS = Planning(step_kinds=("direct",))


async def test_steps_that_do_not_need_each_other_run_at_the_same_time():
    bench = Bench()
    bench.hold("a", "b", "c")
    plan = {"steps": [look("a", "a"), look("b", "b"), look("c", "c"), look("d", "d", "a", "b", "c")]}
    async with agent(bench).start("Go.", plan=plan) as run:
        await bench.until("a", "b", "c")
        assert bench.log == ["a", "b", "c"]
        for gate in bench.gates.values():
            gate.set()
        result = await run.result()
    assert (bench.log, bench.most_at_once) == (["a", "b", "c", "d"], 3)
    assert {r.step.id: r.outputs["result"] for r in result.trace} == {i: f"<{i}>" for i in "abcd"}


async def test_no_more_steps_run_at_once_than_allowed():
    bench = Bench()
    plan = {"steps": [look(f"s{n}", f"k{n}") for n in range(8)]}
    await agent(bench, planning=Planning(max_parallel_steps=3)).run("Go.", plan=plan)
    assert bench.most_at_once == 3
    assert sorted(bench.log) == [f"k{n}" for n in range(8)]


async def test_writes_keep_the_order_of_the_plan_and_reads_do_not_wait_for_them():
    bench = Bench()
    bench.hold("W:one")
    steps = [write("w1", "one"), write("w2", "two"), look("r", "read")]
    del steps[1]["depends_on"]
    steps[1]["description"] = "after ${r.result}"
    async with agent(bench).start("Go.", plan={"steps": steps}) as run:
        await bench.until("W:one", "read")
        assert "W:two" not in bench.log
        bench.gates["W:one"].set()
        await run.result()
    assert bench.log[-1] == "W:two"


async def test_cancelling_one_step_leaves_the_others():
    bench = Bench()
    bench.hold("a")
    plan = {"steps": [look("a", "a"), look("b", "b"), look("c", "c", "b"), look("d", "d", "a")]}
    async with agent(bench, planning=ONLY_CALLS).start("Go.", plan=plan) as run:
        await bench.until("a", "c")
        run.cancel_step("a")
        result = await run.result()
    found = {r.step.id: r for r in result.trace}
    assert (found["a"].cancelled, found["c"].ok, found["d"].needs) == (True, True, "a")
    assert bench.log == ["a", "b", "c"]


async def test_what_needs_a_failed_step_waits_for_the_replanner_and_the_rest_goes_on():
    bench = Bench()
    decision = json.dumps({"mode": "revise", "reason": "other key", "steps": [look("x", "good")]})
    bench.hold("c")
    steps = [look("a", "bad"), look("b", "b"), look("c", "c", "b"), look("d", "d", "a")]
    events: list[Any] = []
    subject = agent(bench, decision, planning=ONLY_CALLS, on_event=events.append)
    async with subject.start("Go.", plan={"steps": steps}) as run:
        await bench.until("good")
        bench.gates["c"].set()
        result = await run.result()
    assert "d" not in bench.log
    assert {r.step.id: r.ok for r in result.trace} == {"a": False, "b": True, "x": True, "c": True}
    assert [e.mode for e in events if isinstance(e, ReplanDecision) and e.cause == "llm-decision"] == ["revise"]


async def test_after_a_failed_write_no_other_begins_until_the_replanner_has_spoken():
    bench = Bench()
    decision = '{"mode": "continue", "reason": "it does not matter", "steps": []}'
    steps = [write("w1", "one", check={"expression": "result == 'never'"}), look("a", "a"), write("w2", "two", "a")]
    model = ScriptedModel(decision, otherwise="The answer.")
    subject = PlanningAgent(model, tools=bench.tools(), planning=ONLY_CALLS)
    result = await subject.run("Go.", plan={"steps": steps})
    assert bench.log[-1] == "W:two"
    failed = next(r for r in result.trace if r.step.id == "w1")
    assert "the check failed" in (failed.problem or "")
    asked = model.requests[0].conversation.messages[0].content[0].text
    assert "The step w1 (write one) did not work: the check failed" in asked
    assert "- w2: write two" in asked


@pytest.mark.parametrize(
    ("check", "fine"),
    [
        ("result == '<b>'", False),
        ({"expression": "result == '<a>'"}, True),
        ({"schema": {"properties": {"result": {"pattern": "^<a"}}}}, True),
        ({"schema": {"properties": {"result": {"type": "integer"}}}}, False),
        ({"function": "short"}, True),
        ({"function": "long"}, False),
        ({"call": {"tool": "look", "arguments": {"key": "b"}}, "expect": "<b>"}, True),
        ({"call": {"tool": "look", "arguments": {"key": "${a.result}"}}, "expect": "<<a>>"}, True),
        ({"call": {"tool": "look", "arguments": {"key": "b"}}, "expect": "<c>"}, False),
        ({"call": {"tool": "look", "arguments": {"key": "bad"}}}, False),
    ],
)
async def test_a_step_is_done_when_its_check_holds(check: Any, fine: bool):
    checks = {"short": lambda outputs: len(outputs["result"]) < 10, "long": lambda outputs: "it is short"}
    planning = Planning(step_kinds=("direct",), checks=checks)
    result = await agent(Bench(), planning=planning).run("Go.", plan={"steps": [look("a", "a", check=check)]})
    (done,) = result.trace
    assert (done.ok, done.problem is None) == (fine, fine)
    assert fine or str(done.problem)[:19] == "the check failed: " + str(done.problem)[18:19]


async def test_outputs_have_the_names_that_the_step_gives_them():
    @tool(read_only=True)
    def order(number: int) -> dict[str, Any]:
        "An order."
        return {"total": 12.5, "lines": [{"sku": "a"}, {"sku": "b"}], "customer": {"id": "C-1"}}

    steps = [
        {
            "id": "o",
            "description": "the order",
            "call": {"tool": "order", "arguments": {"number": 5}},
            "from": {"customer": "customer.id", "skus": "lines[*].sku"},
            "produces": {"customer": {"type": "string"}, "total": {"type": "number"}},
        },
        {"id": "c", "description": "half", "compute": {"value": "${o.total} / 2"}},
    ]
    subject = PlanningAgent(ScriptedModel(otherwise="Done."), tools=[order], planning=ONLY_CALLS)
    result = await subject.run("Order 5.", plan={"steps": steps})
    assert result.trace[0].outputs["customer"] == "C-1"
    assert result.trace[0].outputs["skus"] == ["a", "b"]
    assert (result.trace[1].kind, result.trace[1].outputs["result"]) == ("compute", 6.25)


async def test_an_output_that_is_not_there_fails_the_step_with_what_there_is():
    steps = [look("a", "a", **{"from": {"id": "customer.id"}})]
    result = await agent(Bench(), planning=ONLY_CALLS).run("Go.", plan={"steps": steps})
    assert "the output is not there" in str(result.trace[0].problem)


async def test_a_plan_that_cannot_be_run_is_refused_with_what_is_wrong():
    with pytest.raises(ConfigError, match=r"the plan cannot be run: .*nothing_like_it"):
        await agent(Bench()).run(
            "Go.",
            plan={"steps": [{"id": "a", "description": "x", "call": {"tool": "nothing_like_it", "arguments": {}}}]},
        )


async def test_a_dry_run_reads_and_says_what_it_would_write():
    bench = Bench()
    steps = [look("a", "a"), write("w", "${a.result}", "a"), write("v", "${w.result}"), look("z", "z", "w")]
    result = await agent(bench).run("Go.", plan={"steps": steps}, dry_run=True)
    assert bench.log == ["a"]
    assert result.effects == (
        {"step": "w", "tool": "write", "arguments": {"text": "<a>"}},
        {"step": "v", "tool": "write", "arguments": {"text": "${w.result}"}},
    )
    assert result.status == "complete"


async def test_a_plan_can_be_had_without_running_it():
    bench = Bench()
    plan = json.dumps({"thought": "t", "steps": [look("a", "x")]})
    preview = await agent(bench, plan).plan("Look up x.")
    assert bench.log == []
    assert preview.plan.steps[0].call.arguments == {"key": "x"}
    assert preview.price["tool_calls"] == [1, 1]
    assert preview.origins == {"a": {"key": "goal"}}
    again = await agent(bench).run("Look up x.", plan=preview.plan)
    assert (bench.log, again.plan) == (["x"], preview.plan)


async def test_a_limit_stops_what_has_not_begun():
    bench = Bench()
    plan = {"steps": [look(f"s{n}", f"k{n}") for n in range(6)]}
    limits = Limits(max_iterations=3)
    result = await agent(bench, limits=limits).run("Go.", plan=plan)
    assert (sorted(bench.log), result.status, result.stop_reason) == (["k0", "k1", "k2"], "stopped", "limit")


@st.composite
def plans(draw: st.DrawFn) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 7))):
        needs = draw(st.lists(st.sampled_from([s["id"] for s in steps]), max_size=2, unique=True)) if steps else []
        kind = draw(st.sampled_from([look, look, write]))
        key = f"bad{number}" if draw(st.integers(0, 9)) == 0 and kind is look else f"k{number}"
        steps.append(kind(f"s{number}", key, *needs))
        if draw(st.booleans()):
            del steps[-1]["depends_on"]
    return steps


def effects(trace: Any) -> dict[str, list[Any]]:
    return {r.step.id: [(c.tool, c.arguments, c.output, c.ok) for c in r.calls] for r in trace}


@settings(max_examples=40, deadline=None)
@given(plans(), st.integers(0, 20), st.integers(1, 3))
async def test_a_run_that_is_left_anywhere_and_resumed_does_each_thing_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[dict[str, Any]], cut: int, most: int
):
    planning = Planning(step_kinds=("direct",), max_parallel_steps=most)
    carry_on = ['{"mode": "continue", "reason": "r", "steps": []}'] * 9
    straight = await agent(Bench(), *carry_on, planning=planning).run("Go.", plan={"steps": steps})

    bench, seen = Bench(), 0
    async with agent(bench, *carry_on, planning=planning, journal=tmp_path_factory.mktemp("r") / "runs.db") as subject:
        run = subject.start("Go.", plan={"steps": steps}, run_id="r")
        async for _ in run:
            seen += 1
            if seen > cut:
                run.cancel()
        try:
            result = await run.result()
        except RunCancelled:
            result = await subject.resume("r")
    doubtful = {c.arguments["text"] for r in result.trace for c in r.calls if c.writes and not c.ok}
    if not doubtful:
        assert effects(result.trace) == effects(straight.trace)
    assert [n for n in bench.log if n.startswith("W:")] == list(dict.fromkeys(n for n in bench.log if n[0] == "W"))


@settings(max_examples=40, deadline=None)
@given(plans(), st.data())
async def test_a_cancelled_step_never_blocks_what_does_not_need_it(steps: list[dict[str, Any]], data: st.DataObject):
    assume(not any("bad" in str(each["call"]) for each in steps))
    stuck = data.draw(st.sampled_from(steps))
    (value,) = stuck["call"]["arguments"].values()
    name = f"W:{value}" if stuck["call"]["tool"] == "write" else value
    bench = Bench()
    bench.hold(name)
    carry_on = ['{"mode": "continue", "reason": "r", "steps": []}'] * 9
    async with agent(bench, *carry_on, planning=ONLY_CALLS).start("Go.", plan={"steps": steps}) as run:
        await bench.until(name)
        run.cancel_step(stuck["id"])
        result = await run.result()
    found = {r.step.id: r for r in result.trace}
    assert set(found) == {s["id"] for s in steps}
    assert found[stuck["id"]].cancelled
    needs: dict[str, set[str]] = {}
    for at, each in enumerate(steps):
        before = steps[at - 1 : at] if "depends_on" not in each and at else []
        needs[each["id"]] = {*each.get("depends_on", ()), *(s["id"] for s in before)}
    for ident, outcome in found.items():
        stated = "depends_on" in next(s for s in steps if s["id"] == ident)
        hindered = stated and any(found[other].fruitless for other in needs[ident])
        assert (outcome.needs is not None) == hindered
