from typing import Any

from replan.planning import PlannedCall, Step
from replan.planning.lint import mend
from replan.tool import ToolInfo


def info(name: str, *, read_only: bool) -> ToolInfo:
    return ToolInfo(name=name, description="", parameters={"type": "object"}, read_only=read_only)


LOOK, SEND, PAY = info("look", read_only=True), info("send", read_only=False), info("pay", read_only=False)


def step(ident: str, tool: str | None = None, description: str = "", **arguments: Any) -> Step:
    call = PlannedCall(tool, arguments or None) if tool else None
    return Step(id=ident, description=description or ident, call=call)


def mended(*steps: Step, uses: tuple[str, ...] = (), max_steps: int = 8) -> tuple[list[str], list[str]]:
    kept, remarks = mend(steps, uses, [LOOK, SEND, PAY], ["s1", "s4"], max_steps)
    return [step.id for step in kept], remarks


def test_a_step_that_repeats_a_call_is_left_out():
    ids, remarks = mended(step("a", "look", key="x"), step("b", "look", key="y"), step("c", "look", key="x"))
    assert ids == ["a", "b"]
    assert remarks == ["step 'c' repeated an earlier one and was left out"]
    assert mended(step("a", "send", to="x"), step("b", "send", to="x"))[0] == ["a"]


def test_a_look_after_a_change_is_no_repetition():
    balance = {"key": "balance"}
    assert mended(step("a", "look", **balance), step("b", "pay", sum=5), step("c", "look", **balance))[0] == [
        "a",
        "b",
        "c",
    ]
    assert mended(step("a", "look", **balance), step("b"), step("c", "look", **balance))[0] == ["a", "b", "c"]


def test_calls_with_open_arguments_repeat_only_in_the_same_words():
    assert mended(step("a", "look", "first"), step("b", "look", "second"))[0] == ["a", "b"]
    assert mended(step("a", "look", "first"), step("b", "look", "first"))[0] == ["a"]
    assert mended(step("a", "look", "first", key=None), step("b", "look", "second", key=None))[0] == ["a", "b"]
    assert mended(step("a"), step("b"))[0] == ["a", "b"]


def test_a_write_that_the_planner_meant_to_use_is_added_at_the_end():
    kept, remarks = mend([step("a", "look", key="x")], ["send", "look"], [LOOK, SEND, PAY], ["s2"], 8)
    assert (kept[-1].id, kept[-1].call) == ("s3", PlannedCall("send", None))
    assert remarks == ["the plan uses 'send' without a step for it; step 's3' was added"]


def test_nothing_is_added_where_it_is_planned_or_left_to_the_executor_or_too_much():
    look = step("a", "look", key="x")
    assert mended(look, step("b", "send"), uses=("send",))[1] == []
    assert mended(look, step("b"), uses=("send",))[1] == []
    assert mended(look, uses=("send",), max_steps=1)[0] == ["a"]
    assert mended(look, uses=("look",))[1] == []
    suggesting = Step(id="b", description="b", suggested_tools=("pay",), call=PlannedCall("look", {"key": "y"}))
    assert mended(look, suggesting, uses=("pay",))[1] == []


def test_calls_that_wait_for_results_come_behind_the_look_ups():
    waits, looks = step("a", "sum", expression=None), [step("b", "look", key="x"), step("c", "look", key="y")]
    assert mended(waits, *looks, step("d", "pay", sum=None))[0] == ["b", "c", "a", "d"]
    assert mended(step("a", "sum"), *looks)[0] == ["b", "c", "a"]
    assert mended(*looks, waits)[0] == ["b", "c", "a"]
    assert mended(waits, step("b"))[0] == ["a", "b"]
    assert mended(Step(id="a", description="a", call=PlannedCall("files", {})), *looks)[0] == ["a", "b", "c"]
