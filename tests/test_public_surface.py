import asyncio
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, get_args

import pytest

import replan
from replan import (
    Agent,
    Limits,
    ModelSettings,
    Planning,
    PlanningAgent,
    ReplanError,
    StageModel,
    Stages,
    Usage,
    tool,
)
from replan.errors import ConfigError
from replan.events import AnyEvent, Retry, StepComplete, StepStart
from replan.journal import InboxItem
from replan.model import ModelRequest
from replan.models import resolve
from replan.testing import HttpReply, ScriptedModel, ScriptedServer, call, error_reply

# ---- names


def public_modules() -> list[str]:
    found = pkgutil.walk_packages(replan.__path__, "replan.")
    names = [info.name for info in found if not any(part.startswith("_") for part in info.name.split("."))]
    return ["replan", *names]


def with_names() -> list[str]:
    return [name for name in public_modules() if hasattr(importlib.import_module(name), "__all__")]


def public_objects() -> list[Any]:
    found = {}
    for module in map(importlib.import_module, with_names()):
        for name in module.__all__:
            found.setdefault(f"{module.__name__}.{name}", getattr(module, name, None))
    return [pytest.param(name, value, id=name) for name, value in sorted(found.items())]


def rank(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, each by name: the order that the linter keeps."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("name", with_names())
def test_the_list_of_public_names_is_sorted_and_true(name: str):
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(set(module.__all__), key=rank)
    assert [each for each in module.__all__ if not hasattr(module, each)] == []


@pytest.mark.parametrize("name", public_modules())
def test_every_public_module_says_what_it_is_for(name: str):
    assert (importlib.import_module(name).__doc__ or "").strip()


def test_every_package_lists_its_public_names():
    packages = [m for m in map(importlib.import_module, public_modules()) if hasattr(m, "__path__")]
    assert [m.__name__ for m in packages if not hasattr(m, "__all__")] == []


def undocumented(owner: type) -> list[str]:
    """The public methods and properties that the class itself defines without a word."""
    missing: list[str] = []
    for name, value in vars(owner).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        written = inspect.isfunction(function) and function.__module__ == owner.__module__
        if written and not name.startswith("_") and not function.__doc__:
            missing.append(name)
    return missing


@pytest.mark.parametrize(("name", "value"), public_objects())
def test_every_public_name_is_documented(name: str, value: Any):
    if isinstance(value, ModuleType) or not (inspect.isclass(value) or inspect.isroutine(value)):
        return
    assert (value.__doc__ or "").strip(), name
    if inspect.isclass(value) and value.__module__.startswith("replan"):
        assert not value.__doc__.startswith(f"{value.__name__}("), f"{name} has no words of its own"
        assert undocumented(value) == []


@pytest.mark.parametrize("kind", get_args(AnyEvent))
def test_every_event_says_what_it_means(kind: type):
    assert (vars(kind).get("__doc__") or "").strip()


def test_the_public_names_of_the_package_are_few_and_known():
    assert len(replan.__all__) < 45
    assert replan.__version__.count(".") == 2


# ---- options: each has an effect that is seen here


@tool(read_only=True)
async def look(key: str) -> str:
    "Look up a key."
    if key == "bad":
        raise LookupError("no such key")
    return f"value of {key}"


@tool(read_only=True)
async def other() -> str:
    "Something else."
    return "other"


PLAN = """{"thought": "t", "steps": [
    {"id": "a", "description": "one", "suggested_tools": ["look"]},
    {"id": "b", "description": "two", "call": {"tool": "look", "arguments": {"key": "bad"}}},
    {"id": "c", "description": "three"}]}"""
CALLS = 0


def play(request: ModelRequest) -> Any:
    """The same small run for every option: a step that looks something up, one that fails, one that is left."""
    name = request.output.name if request.output else None
    if name == "plan":
        return PLAN
    if name == "decision":
        return f'{{"mode": "revise", "reason": "r", "steps": [{{"description": "new {len(str(request))}"}}]}}'
    if request.tools and len(request.conversation.messages) == 1:
        return call("look", key="a") if request.tools[0].name == "look" else "nothing to look with"
    return "done [BLOCKER]" if request.tools else "the answer"


USED = Usage(input_tokens=100, output_tokens=10, reasoning_tokens=5)


async def seen(**options: Any) -> Any:
    """What can be seen of a planning run with these options."""
    model = ScriptedModel(otherwise=play, usage=USED)
    result = await PlanningAgent(model, tools=[look, other], **options).run("go")
    requests = [
        ([t.name for t in r.tools], r.max_output_tokens, r.temperature, r.options, r.output and r.output.name,
         r.top_p, r.stop, r.thinking, r.prompt_caching)
        for r in model.requests
    ]  # fmt: skip
    trace = [(s.step.description[:5], [use.ok for use in s.calls]) for s in result.trace]
    return result.status, result.stop_reason, result.iterations, result.revisions, trace, requests


async def answered(stages: Callable[[ScriptedModel], Stages]) -> list[str | None]:
    """What a stage's own model was asked for."""
    own = ScriptedModel(otherwise=play)
    await PlanningAgent(ScriptedModel(otherwise=play), models=stages(own), tools=[look, other]).run("go")
    return sorted({r.output.name if r.output else ("step" if r.tools else "answer") for r in own.requests})


async def outcome(server: ScriptedServer, settings: ModelSettings) -> str:
    """What becomes of a run against a server."""
    async with server:
        agent = Agent(resolve("openai-compatible:x", base_url=server.base_url, settings=settings))
        try:
            return (await agent.run("go")).text
        except ReplanError as error:
            return type(error).__name__


async def differs(**options: Any) -> None:
    assert await seen(**options) != await seen()


async def retries() -> None:
    def failing() -> ScriptedServer:
        return ScriptedServer(error_reply(503, retry_after="0"), "at last")

    assert await outcome(failing(), ModelSettings(max_retries=1)) == "at last"
    assert await outcome(failing(), ModelSettings(max_retries=0)) == "Overloaded"


async def timeout() -> None:
    silent = ScriptedServer(otherwise=HttpReply(then="hang"))
    assert await outcome(silent, ModelSettings(timeout=0.05, max_retries=0)) == "ModelTimeout"


async def max_seconds() -> None:
    silent = ScriptedServer(otherwise=HttpReply(then="hang"))
    assert await outcome(silent, ModelSettings(max_seconds=0.05)) == "ModelTimeout"


async def waits(**settings: Any) -> list[float]:
    """How long after one another a failing model is asked again."""
    delays: list[float] = []
    async with ScriptedServer(error_reply(503), error_reply(503), "at last") as server:
        model = resolve(
            "openai-compatible:x", base_url=server.base_url, settings=ModelSettings(max_retries=2, **settings)
        )
        await Agent(model, on_event=lambda e: delays.append(e.delay) if isinstance(e, Retry) else None).run("go")
    return delays


async def retry_delay() -> None:
    assert await waits(retry_delay=0) == [0, 0]
    assert all(0 <= delay < 0.05 for delay in await waits(retry_delay=0.01))


async def retry_max_delay() -> None:
    assert await waits(retry_delay=100, retry_max_delay=0) == [0, 0]


async def retry_if() -> None:
    def refusing() -> ScriptedServer:
        return ScriptedServer(error_reply(400, "no"), "at last")

    assert await outcome(refusing(), ModelSettings(retry_delay=0)) == "BadRequest"
    assert await outcome(refusing(), ModelSettings(retry_delay=0, retry_if=lambda error: True)) == "at last"


async def most_at_once(settings: ModelSettings) -> int:
    """How many of three runs reach the model at once."""
    async with ScriptedServer(otherwise=HttpReply(then="hang")) as server:
        agent = Agent(resolve("openai-compatible:x", base_url=server.base_url, settings=settings))
        async with asyncio.timeout(5), agent:
            runs = [agent.start(str(number)) for number in range(3)]
            while len(server.requests) < (settings.max_concurrent_calls or 3):
                await asyncio.sleep(0)
            for _ in range(50):
                await asyncio.sleep(0.001)
            reached = len(server.requests)
            for run in runs:
                run.cancel()
    return reached


async def max_concurrent_calls() -> None:
    assert await most_at_once(ModelSettings(max_concurrent_calls=2)) == 2
    assert await most_at_once(ModelSettings()) == 3


async def max_calls_per_minute() -> None:
    settings = ModelSettings(max_calls_per_minute=1, max_seconds=0.2)
    async with ScriptedServer(otherwise="ok") as server:
        agent = Agent(resolve("openai-compatible:x", base_url=server.base_url, settings=settings))
        await agent.run("go")
        with pytest.raises(ReplanError, match=r"in 0\.2 s"):
            await agent.run("go")


async def cost_estimator() -> None:
    settings = ModelSettings(cost_estimator=lambda model, usage: 2)
    assert (await Agent(ScriptedModel("ok"), settings=settings).run("go")).cost == 2


async def replanner() -> None:
    await differs(models=Stages(replanner=StageModel(thinking="high")))


async def stage_model() -> None:
    assert await answered(lambda own: Stages(planner=StageModel(model=own))) == ["decision", "plan"]


async def stage_address() -> None:
    async with ScriptedServer(otherwise="ok") as server:
        stage = StageModel(model="openai-compatible:x", base_url=server.base_url, api_key="own-key-own-key")
        agent = PlanningAgent(ScriptedModel(otherwise=play), models=Stages(synthesizer=stage), tools=[look, other])
        await agent.run("go")
    assert server.requests[0].headers["authorization"] == "Bearer own-key-own-key"


def stage(**options: Any) -> Callable[[], Awaitable[None]]:
    return lambda: differs(models=Stages(executor=StageModel(**options)))


def asked(**settings: Any) -> Callable[[], Awaitable[None]]:
    return lambda: differs(settings=ModelSettings(**settings))


async def planner() -> None:
    assert await answered(lambda own: Stages(planner=own)) == ["decision", "plan"]


async def executor() -> None:
    assert await answered(lambda own: Stages(executor=own)) == ["step"]


async def synthesizer() -> None:
    assert await answered(lambda own: Stages(synthesizer=own)) == ["answer"]


async def step_kinds() -> None:
    plan = {"steps": [{"id": "a", "description": "d", "call": {"tool": "look", "arguments": {"key": "a"}}}]}

    async def kinds(*allowed: Any) -> list[str]:
        agent = PlanningAgent(ScriptedModel(otherwise=play), tools=[look], planning=Planning(step_kinds=allowed))
        return [result.kind for result in (await agent.run("go", plan=plan)).trace]

    assert (await kinds("direct"), await kinds("bound"), await kinds("open")) == (["direct"], ["bound"], ["open"])


async def max_parallel_steps() -> None:
    plan = {"steps": [{"id": f"s{n}", "description": "d", "depends_on": []} for n in range(3)]}

    async def order(most: int) -> list[str]:
        planning, events = Planning(max_parallel_steps=most), list[Any]()
        model = ScriptedModel(otherwise="done")
        await PlanningAgent(model, planning=planning, on_event=events.append).run("go", plan=plan)
        return [type(e).__name__ for e in events if isinstance(e, StepStart | StepComplete)]

    assert await order(1) == ["StepStart", "StepComplete"] * 3
    assert (await order(3))[:3] == ["StepStart"] * 3


async def review_with() -> None:
    def accept(item: InboxItem) -> Any:
        return {"decision": "accept"}

    accepted = await seen(planning=Planning(review="always", review_with=accept))
    assert accepted[0] == "complete"
    assert (await seen(planning=Planning(review="always")))[:2] == ("stopped", "plan-rejected")


async def checks() -> None:
    step = {"id": "a", "description": "d", "check": {"function": "good"}}
    planning = Planning(checks={"good": lambda outputs: outputs["result"] == "done"})
    model = ScriptedModel(otherwise="done")
    result = await PlanningAgent(model, planning=planning).run("go", plan={"steps": [step]})
    assert result.trace[0].ok
    with pytest.raises(ConfigError, match="good"):
        await PlanningAgent(model).run("go", plan={"steps": [step]})


async def with_cost() -> None:
    async def cost(**options: Any) -> Any:
        model = ScriptedModel(otherwise="done", name="openai:gpt-4.1-mini")
        agent = PlanningAgent(model, planning=Planning(**options))
        return (await agent.run("go", plan={"steps": [{"id": "a", "description": "d"}]})).price["cost"]

    low, high = await cost(with_cost=True)
    assert 0 < low < high
    assert await cost() is None


def limit(name: str, value: int) -> Callable[[], Awaitable[None]]:
    return lambda: differs(limits=Limits(**{name: value}))


EFFECTS: dict[tuple[type, str], Callable[[], Awaitable[None]]] = {
    (Limits, "max_turns"): limit("max_turns", 1),
    (Limits, "max_iterations"): limit("max_iterations", 1),
    (Limits, "max_plan_steps"): limit("max_plan_steps", 1),
    (Limits, "max_revisions"): limit("max_revisions", 0),
    (Limits, "max_tool_calls"): limit("max_tool_calls", 0),
    (Limits, "max_input_tokens"): limit("max_input_tokens", 100),
    (Limits, "max_output_tokens"): limit("max_output_tokens", 10),
    (Limits, "max_reasoning_tokens"): limit("max_reasoning_tokens", 5),
    (Limits, "max_total_tokens"): limit("max_total_tokens", 110),
    (ModelSettings, "max_output_tokens"): lambda: differs(settings=ModelSettings(max_output_tokens=7)),
    (ModelSettings, "temperature"): lambda: differs(settings=ModelSettings(temperature=0.5)),
    (ModelSettings, "options"): lambda: differs(settings=ModelSettings(options={"seed": 1})),
    (ModelSettings, "top_p"): asked(top_p=0.5),
    (ModelSettings, "stop"): asked(stop=("END",)),
    (ModelSettings, "thinking"): asked(thinking="high"),
    (ModelSettings, "prompt_caching"): asked(prompt_caching=False),
    (ModelSettings, "max_seconds"): max_seconds,
    (ModelSettings, "retry_delay"): retry_delay,
    (ModelSettings, "retry_max_delay"): retry_max_delay,
    (ModelSettings, "retry_if"): retry_if,
    (ModelSettings, "max_concurrent_calls"): max_concurrent_calls,
    (ModelSettings, "max_calls_per_minute"): max_calls_per_minute,
    (ModelSettings, "cost_estimator"): cost_estimator,
    (ModelSettings, "timeout"): timeout,
    (ModelSettings, "max_retries"): retries,
    (Planning, "replan_after"): lambda: differs(planning=Planning(replan_after=lambda result: False)),
    (Planning, "tool_selection"): lambda: differs(planning=Planning(tool_selection="plan-narrowed")),
    (Planning, "step_kinds"): step_kinds,
    (Planning, "max_parallel_steps"): max_parallel_steps,
    (Planning, "review"): lambda: differs(planning=Planning(review="always")),
    (Planning, "review_with"): review_with,
    (Planning, "checks"): checks,
    (Planning, "with_cost"): with_cost,
    (Stages, "planner"): planner,
    (Stages, "executor"): executor,
    (Stages, "replanner"): replanner,
    (Stages, "synthesizer"): synthesizer,
    (StageModel, "model"): stage_model,
    (StageModel, "thinking"): stage(thinking="high"),
    (StageModel, "max_output_tokens"): stage(max_output_tokens=7),
    (StageModel, "temperature"): stage(temperature=0.5),
    (StageModel, "options"): stage(options={"seed": 1}),
    (StageModel, "base_url"): stage_address,
    (StageModel, "api_key"): stage_address,
}


def test_every_option_has_an_effect_that_is_tested():
    kinds = (Limits, ModelSettings, Planning, StageModel, Stages)
    options = {(kind, field.name) for kind in kinds for field in dataclasses.fields(kind)}
    assert options == set(EFFECTS)


@pytest.mark.parametrize(("kind", "name"), EFFECTS, ids=lambda value: getattr(value, "__name__", value))
async def test_the_option_changes_what_a_run_does(kind: type, name: str):
    await EFFECTS[kind, name]()
