"""Answers and what was computed."""

import pytest

from replan.encoding import JSONObject
from replan.planning.agreement import agreeing, said
from replan.planning.plan import Step
from replan.planning.trace import StepResult, ToolUse


def looked_up(name: str, output: str) -> StepResult:
    use = ToolUse("part", {"name": name}, output, ok=True)
    return StepResult(
        step=Step(id=f"x_{name.lower()[:3]}", description=name), kind="direct", summary=output, calls=(use,)
    )


def computed(**outputs: object) -> StepResult:
    found: JSONObject = dict(outputs)
    return StepResult(step=Step(id="c", description="Compare"), kind="compute", summary="", outputs=found)


PARTS = [looked_up("Lamp", '{"kg": 18}'), looked_up("Vase", '{"kg": 61}'), looked_up("Stool", '{"kg": 9}')]
HEAVIEST = computed(result=61, label="Vase", text="highest: Vase (61)")
ORDER = computed(
    result=[{"label": label, "value": n} for label, n in (("Stool", 9), ("Lamp", 18), ("Vase", 61))],
    text="Stool (9) < Lamp (18) < Vase (61)",
)
TOTAL = computed(result=455.2175, text="7 * 34.15 = 455.2175")


@pytest.mark.parametrize(
    "text",
    [
        "The Vase is heavier.",
        "Lamp has 18 kg and Vase 61, so the Vase is heavier.",
        "The Lamp weighs 18.\nHeaviest: the Vase",
    ],
)
def test_the_right_winner_stays(text: str):
    assert agreeing(text, [*PARTS, HEAVIEST]) == text


@pytest.mark.parametrize("text", ["The Lamp is heavier, 18 against 61 of the Vase.", "It is the Lamp.", "Hard to say."])
def test_another_winner_is_replaced(text: str):
    assert agreeing(text, [*PARTS, HEAVIEST]).startswith("highest: Vase (61).")
    assert "Lamp" not in agreeing(text, [*PARTS, HEAVIEST])


def test_an_order_is_kept_or_put_right():
    right = "Lamp 18, Stool 9, Vase 61. In order: Stool, Lamp, Vase."
    assert agreeing(right, [*PARTS, ORDER]) == right
    assert agreeing("Stool is the lightest.", [*PARTS, ORDER]) == "Stool is the lightest."
    assert agreeing("Vase, Lamp, Stool.", [*PARTS, ORDER]) == "Stool (9) < Lamp (18) < Vase (61)."


@pytest.mark.parametrize("text", ["You pay 455.22 EUR.", "About 455.", "455,22 kr", "1. You pay 455.2"])
def test_a_rounded_result_is_the_result(text: str):
    assert agreeing(text, [TOTAL]) == text


def test_a_wrong_result_is_replaced_and_what_was_found_stays():
    found = looked_up("Lamp", '{"price": 34.15}')
    text = "The Lamp costs 34.15. You pay 1000.00 EUR."
    assert agreeing(text, [found, TOTAL]) == "7 * 34.15 = 455.2175, that is 455.22.\nThe Lamp costs 34.15."


def test_without_a_computation_nothing_changes():
    assert agreeing("It is 12.", PARTS) == "It is 12."
    assert said({"result": "x"}) is None
