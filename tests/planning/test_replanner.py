import json
from functools import partial
from typing import Any

import pytest

from replan.model import Conversation, ModelProfile
from replan.output import OutputProblem
from replan.planning import Step, StepResult, ToolUse
from replan.planning.planner import plan_reader
from replan.planning.replanner import replanner_prompt, replanner_stage
from replan.settings import ModelSettings
from replan.testing import ScriptedModel
from replan.tool import ToolInfo

LOOK = ToolInfo(name="look", description="Look.", parameters={"type": "object"}, read_only=True)
ARGS = {"goal": "go", "max_steps": 2, "taken": ["s1"], "revision": 1}


def stage(*, constrained: bool = False, prompt: str = "") -> Any:
    model = ScriptedModel(profile=ModelProfile(constrained=constrained))
    return replanner_stage(model, [LOOK], partial(plan_reader, [LOOK]), prompt, ModelSettings())


def read(text: str) -> Any:
    return stage().read(ARGS, text)


def test_the_instructions_have_the_tools_and_the_users_own_prompt():
    instructions = stage(prompt="Be brief.").instructions
    assert "Tools:\n- look()" in instructions
    assert instructions.endswith("Be brief.")


def test_the_schema_asks_for_a_mode_a_reason_and_steps():
    schema = stage().request({**ARGS, "tools": None}, Conversation()).output.schema
    assert schema["properties"]["mode"]["enum"] == ["continue", "revise", "finish"]
    assert schema["required"] == ["reason", "mode", "steps"]
    assert "maxItems" not in json.dumps(schema)
    constrained = stage(constrained=True).request(ARGS, Conversation()).output.schema
    assert constrained["properties"]["steps"]["maxItems"] == 2


@pytest.mark.parametrize("mode", ["continue", "finish"])
def test_a_decision_without_steps_is_its_mode_and_reason(mode: str):
    assert read(f'So: {{"mode": "{mode}", "reason": "because", "steps": []}}') == {"mode": mode, "reason": "because"}
    assert read(f'{{"mode": "{mode}", "steps": [{{"description": "x"}}]}}') == {"mode": mode, "reason": ""}


def test_a_revision_has_a_plan_with_new_ids_and_no_more_steps_than_allowed():
    steps = [{"id": "s1", "description": "a"}, {"description": "b"}, {"description": "c"}]
    decision = read(json.dumps({"mode": "revise", "reason": "r", "steps": steps}))
    assert (decision["mode"], decision["reason"], decision["plan"]["revision"]) == ("revise", "r", 1)
    assert [step["id"] for step in decision["plan"]["steps"]] == ["s2", "s3"]
    assert "left out" in decision["findings"][0]["text"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I would go on.", 'it needs "mode", one of continue, revise, finish'),
        ('{"mode": "stop", "reason": ""}', 'it needs "mode"'),
        ('{"mode": "revise", "reason": ""}', 'a plan is an object with "steps"'),
        ('{"mode": "revise", "steps": ["do it"]}', 'each of the "steps" is an object'),
    ],
)
def test_what_is_no_decision_is_a_problem_that_the_model_can_read(text: str, words: str):
    with pytest.raises(OutputProblem) as caught:
        read(text)
    assert words in str(caught.value)


def result(ident: str, **more: Any) -> StepResult:
    return StepResult(step=Step(id=ident, description=f"do {ident}"), kind="open", **{"summary": "", **more})


def test_the_prompt_has_what_was_done_what_failed_and_what_is_left():
    failed = result("s2", calls=(ToolUse("look", {"key": "a"}, "no such key", False),), summary="could not")
    left = [Step(id="s4", description="send", depends_on=("s3",))]
    trace = [result("s1", summary="x" * 5000), failed]
    prompt = replanner_prompt("Go.", trace, [failed], [Step(id="s3", description="wait")], left)
    assert prompt.startswith("Goal: Go.\n\nResults so far:\n- s1: do s1\n")
    assert "x" * 1501 not in prompt
    assert 'look({"key":"a"}) FAILED: no such key' in prompt
    assert "The step s2 (do s2) did not work: could not" in prompt
    assert "Running, and not to be planned again:\n- s3: wait\n" in prompt
    assert prompt.endswith("Still planned:\n- s4: send (after s3)")


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (result("s1", calls=(ToolUse("look", {}, "no", False),)), "the last call of look failed"),
        (result("s1", blocked=True), "it is blocked"),
        (result("s1", blocked=True, summary="no access"), "no access"),
    ],
)
def test_the_prompt_says_why_a_step_did_not_work(last: StepResult, why: str):
    prompt = replanner_prompt("Go.", [last], [last], [], [])
    assert f"did not work: {why}\n" in prompt
    assert prompt.endswith("Still planned:\n- nothing")


def test_the_prompt_does_not_call_a_step_failed_that_worked():
    found = result("s1", summary="found it")
    prompt = replanner_prompt("Go.", [found], [found], [], [])
    assert "The step s1 (do s1) worked." in prompt
    assert "did not work" not in prompt
