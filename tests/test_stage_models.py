"""Models and settings of single stages."""

import pytest

from replan import ModelSettings, PlanningAgent, StageModel, Stages
from replan.errors import ConfigError
from replan.settings import Thinking
from replan.stage_models import resolve_stages
from replan.testing import ScriptedModel


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "XAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_stage_on_another_provider_needs_its_own_key_and_says_which():
    with pytest.raises(ConfigError, match=r"stage 'synthesizer': .*ANTHROPIC_API_KEY"):
        PlanningAgent("openai:gpt-4.1", models=Stages(synthesizer="anthropic:claude-sonnet-4-5"))
    own = StageModel(model="anthropic:claude-sonnet-4-5", api_key="own")
    calls = resolve_stages("openai:gpt-4.1", Stages(synthesizer=own), ModelSettings())
    assert {name: call.model.name for name, call in calls.items()} == {
        "planner": "openai:gpt-4.1",
        "executor": "openai:gpt-4.1",
        "replanner": "openai:gpt-4.1",
        "synthesizer": "anthropic:claude-sonnet-4-5",
    }
    assert "own'" not in repr(own).replace("own=", "")


def test_the_same_string_is_the_same_model_and_is_closed_once():
    calls = resolve_stages("openai:gpt-4.1", Stages(planner="openai:gpt-4.1"), ModelSettings())
    assert len({id(call.model) for call in calls.values()}) == 1
    own = ScriptedModel()
    assert not any(call.own for call in resolve_stages(own, Stages(), ModelSettings()).values())


def test_a_stage_counts_before_the_agent_and_false_is_said():
    stages = Stages(planner=StageModel(thinking="high"), executor=StageModel(thinking=False))
    settings = ModelSettings(thinking="low", options={"a": {"x": 1}})
    calls = resolve_stages(ScriptedModel(), stages, settings)
    thinking = {name: call.settings.thinking for name, call in calls.items()}
    assert thinking == {"planner": "high", "executor": False, "replanner": "high", "synthesizer": "low"}


def test_the_replanner_may_think_otherwise_with_the_planners_model():
    planner = ScriptedModel(name="scripted:planner")
    stages = Stages(planner=planner, replanner=StageModel(thinking=Thinking(level="minimal")))
    calls = resolve_stages(ScriptedModel(), stages, ModelSettings())
    assert calls["replanner"].model is planner
    assert calls["replanner"].settings.thinking == Thinking(level="minimal")
    with pytest.raises(ConfigError, match="'replanner'"):
        resolve_stages(planner, Stages(replanner=StageModel(model=planner)), ModelSettings())


def test_options_of_a_stage_are_merged_over_the_agents():
    stage = StageModel(options={"a": {"y": 2}}, max_output_tokens=7, temperature=0.5)
    settings = resolve_stages(ScriptedModel(), Stages(executor=stage), ModelSettings(options={"a": {"x": 1}}))
    own = settings["executor"].settings
    assert (own.options, own.max_output_tokens, own.temperature) == ({"a": {"x": 1, "y": 2}}, 7, 0.5)


async def test_each_stages_request_says_how_to_think():
    plan = '{"thought": "t", "steps": [{"id": "a", "description": "Think about it."}]}'
    model = ScriptedModel(plan, "done", "The answer.")
    stages = Stages(
        planner=StageModel(thinking="high"),
        executor=StageModel(thinking=False),
        synthesizer=StageModel(max_output_tokens=99),
    )
    async with PlanningAgent(model, models=stages, settings=ModelSettings(thinking=True), name="mine") as agent:
        await agent.run("What is it?")
    plan_request, step, answer = model.requests
    assert (plan_request.thinking, step.thinking, answer.thinking) == (Thinking(level="high"), False, Thinking())
    assert [r.cache_key for r in model.requests] == ["mine:planner", "mine:executor", "mine:synthesizer"]
    assert answer.max_output_tokens == 99
