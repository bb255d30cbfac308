from typing import Any

import pytest

from replan.messages import to_json, user
from replan.model import Conversation
from replan.output import TypedOutput
from replan.planning import Step, StepResult, ToolUse
from replan.planning.synthesizer import synthesizer_prompt, synthesizer_stage, with_substitutes
from replan.settings import ModelSettings
from replan.testing import ScriptedModel

TASK: dict[str, Any] = {"history": [], "goal": "What is the weather in Lisbn?"}


def result(*calls: ToolUse, **more: Any) -> StepResult:
    return StepResult(step=Step(id="s1", description="Look it up"), kind="direct", summary="", calls=calls, **more)


def use(city: str, output: str, *, ok: bool = True, tool: str = "weather") -> ToolUse:
    return ToolUse(tool, {"city": city, "unit": "C"}, output, ok)


REPLACED = result(use("Lisbn", "no such city", ok=False), use("Lisbon", "21"))


def test_the_prompt_has_the_history_the_goal_the_results_and_what_is_missing():
    task = {**TASK, "history": [to_json(user("Hi."))]}
    prompt = synthesizer_prompt(task, [result(use("Rome", "25"))], ["Mail it (no time)"])
    assert prompt == (
        "Conversation so far:\nUser: Hi.\n\nGoal: What is the weather in Lisbn?\n\n"
        'Results so far:\n- s1: Look it up\n  weather({"city":"Rome","unit":"C"}) -> 25\n\n'
        "Not done:\n- Mail it (no time)"
    )
    assert synthesizer_prompt(TASK, [], []) == "Goal: What is the weather in Lisbn?"


def test_the_prompt_says_what_failed_and_leaves_what_was_used_instead_to_the_program():
    assert "must say" not in synthesizer_prompt(TASK, [REPLACED], [])
    failed = result(use("Lisbn", "There is no Lisbn.", ok=False), blocked=True)
    assert synthesizer_prompt(TASK, [failed], []).endswith(
        "Besides what was asked, the answer must say:\n- Look it up: failed. There is no Lisbn."
    )


@pytest.mark.parametrize(
    "trace",
    [
        [],
        [result(use("Rome", "25"))],
        [result(use("Lisbn", "no", ok=False), use("Lisbn", "21", tool="other"))],
        [result(use("Rome", "25"), use("Oslo", "5"))],
        [result(use("Lisbn", "no", ok=False), use("Lisbn", "21"))],
    ],
)
def test_nothing_is_added_to_an_answer_where_nothing_was_replaced(trace: list[StepResult]):
    assert with_substitutes("It is 21.", trace) == "It is 21."


def test_what_was_used_instead_is_added_where_the_answer_does_not_say_it():
    assert with_substitutes("It is 21.", [REPLACED]) == "It is 21.\nLisbon was used instead of Lisbn."
    assert with_substitutes("In LISBON it is 21.", [REPLACED]) == "In LISBON it is 21."
    assert with_substitutes("", [REPLACED]) == ""


def test_the_stage_asks_for_the_type_of_the_answer():
    typed = synthesizer_stage(ScriptedModel(), TypedOutput(int), "Be brief.", ModelSettings())
    assert typed.instructions.endswith("Be brief.")
    request = typed.request({}, Conversation())
    assert request.output is not None
    assert request.tools == ()
    assert typed.read is not None
    assert typed.read({}, '{"result": 5}') == 5
    free = synthesizer_stage(ScriptedModel(), None, "", ModelSettings())
    assert free.request({}, Conversation()).output is None
