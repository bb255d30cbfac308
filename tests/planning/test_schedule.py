from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replan.planning import PlannedCall, Step
from replan.planning.schedule import Schedule, dependencies, in_order


def step(ident: str, *, needs: Collection[str] | None = None, uses: str = "", writes: bool = False) -> Step:
    call = PlannedCall("write" if writes else "read", {"x": uses} if uses else {})
    return Step(id=ident, description=ident, depends_on=None if needs is None else tuple(needs), call=call)


def schedule(*steps: Step, finished: Collection[str] = (), running: tuple[Step, ...] = ()) -> Schedule:
    return Schedule(steps, finished=finished, running=running, writes=lambda s: bool(s.call and s.call.tool == "write"))


def ready(plan: Schedule, *, hold_writes: bool = False) -> list[str]:
    found: list[str] = []
    while (started := plan.start_next(hold_writes=hold_writes)) is not None:
        found.append(started.id)
    return found


def test_a_step_that_says_nothing_waits_for_the_one_before_it():
    assert dependencies([step("a"), step("b"), step("c")]) == {"a": (), "b": ("a",), "c": ("b",)}


def test_a_step_with_references_waits_for_what_it_refers_to_only():
    steps = [step("a"), step("b", needs=[]), step("c", uses="${a.result.id} of ${b.result}")]
    assert dependencies(steps)["c"] == ("a", "b")


def test_references_add_to_what_is_stated():
    steps = [step("a", needs=[]), step("b", needs=[]), step("c", needs=["b"], uses="${a}")]
    assert dependencies(steps)["c"] == ("b", "a")


@pytest.mark.parametrize(
    "late",
    [
        Step(id="c", description="use ${a.result}"),
        Step(id="c", description="c", compute={"sum": ["${a.result}", 1]}),
        Step(id="c", description="c", check={"call": {"tool": "read", "arguments": {"x": "${a.result}"}}}),
    ],
)
def test_references_count_wherever_a_step_has_them(late: Step):
    assert dependencies([step("a"), step("b"), late])["c"] == ("a",)


def test_steps_of_the_run_that_were_planned_before_can_be_needed_and_others_cannot():
    steps = [step("d", needs=["a", "nobody", "d"])]
    assert dependencies(steps, ["a"]) == {"d": ("a",)}
    assert ready(schedule(*steps, running=(step("a"),))) == []
    assert ready(schedule(*steps, finished=["a"])) == ["d"]


def test_everything_that_is_ready_may_start_in_the_order_of_the_plan():
    plan = schedule(step("a", needs=[]), step("b", needs=["a"]), step("c", needs=[]), step("d", needs=["b", "c"]))
    assert ready(plan) == ["a", "c"]
    plan.finish("c")
    assert ready(plan) == []
    plan.finish("a")
    assert ready(plan) == ["b"]
    plan.finish("b")
    assert ready(plan) == ["d"]
    assert not plan


def test_steps_that_write_keep_their_order_unless_both_say_what_they_need():
    plan = schedule(step("r", needs=[]), step("w1", needs=[], writes=True), step("w2", writes=True, uses="${r}"))
    assert ready(plan) == ["r", "w1"]
    plan.finish("r")
    assert ready(plan) == []  # w2 says nothing of w1, and comes after it
    plan.finish("w1")
    assert ready(plan) == ["w2"]
    free = schedule(step("w1", needs=[], writes=True), step("w2", needs=[], writes=True))
    assert ready(free) == ["w1", "w2"]


def test_a_write_waits_for_the_writes_that_run():
    plan = schedule(step("w2", uses="${r}", writes=True), finished=["r"], running=(step("w1", writes=True),))
    assert ready(plan) == []
    plan.finish("w1")
    assert ready(plan) == ["w2"]


def test_writes_can_be_held():
    plan = schedule(step("w", needs=[], writes=True), step("r", needs=[]))
    assert ready(plan, hold_writes=True) == ["r"]
    assert ready(plan) == ["w"]


def test_a_write_that_needs_a_later_write_comes_after_it():
    plan = schedule(step("w1", uses="${w2.result}", writes=True), step("w2", needs=[], writes=True))
    assert ready(plan) == ["w2"]
    plan.finish("w2")
    assert ready(plan) == ["w1"]


def test_steps_on_a_cycle_never_start():
    plan = schedule(step("a", needs=["b"]), step("b", needs=["a"]), step("c", needs=[]))
    assert ready(plan) == ["c"]
    plan.finish("c")
    assert ready(plan) == []
    assert [left.id for left in plan.remaining] == ["a", "b"]


def test_an_order_keeps_to_the_given_one_where_it_can():
    assert in_order({"a": ["c"], "b": [], "c": ["b"], "d": []}) == ["b", "c", "a", "d"]
    assert in_order({"a": ["b"], "b": ["a"], "c": ["a"], "d": []}) == ["d"]


@st.composite
def plans(draw: st.DrawFn) -> list[Step]:
    size = draw(st.integers(1, 12))
    steps: list[Step] = []
    for number in range(size):
        earlier = st.lists(st.sampled_from([f"s{n}" for n in range(number)]), max_size=3) if number else st.just([])
        needs = draw(st.none() | earlier)
        uses = "".join(f"${{{ident}}}" for ident in draw(earlier)) if draw(st.booleans()) else ""
        steps.append(step(f"s{number}", needs=needs, uses=uses, writes=draw(st.booleans())))
    return draw(st.permutations(steps)) if draw(st.booleans()) else steps


@settings(max_examples=300)
@given(plans(), st.randoms(use_true_random=False), st.integers(1, 4))
def test_every_schedule_respects_what_steps_need_and_starts_each_once(steps: list[Step], random, most: int):
    plan, needs = schedule(*steps), dependencies(steps)
    running: list[Step] = []
    ended: list[str] = []
    started: list[str] = []
    while True:
        while len(running) < most and (begun := plan.start_next()) is not None:
            assert set(needs[begun.id]) <= set(ended)
            assert begun.id not in started
            writing = [s for s in running if s.call.tool == "write"]
            if begun.call.tool == "write":
                assert all(s.depends_on is not None and begun.depends_on is not None for s in writing)
            started.append(begun.id)
            running.append(begun)
        if not running:
            break
        over = running.pop(random.randrange(len(running)))
        ended.append(over.id)
        plan.finish(over.id)
    on_cycles = set(needs) - set(in_order(needs))
    assert {left.id for left in plan.remaining} == on_cycles
    assert len(started) == len(steps) - len(on_cycles)
