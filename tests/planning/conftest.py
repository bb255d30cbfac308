import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from replan import PlanningAgent, Stages
from replan.messages import User
from replan.model import ModelRequest
from replan.testing import Reply, ScriptedModel


@pytest.fixture(scope="session")
def plan_of() -> Callable[..., str]:
    """A planner's reply: steps are given as dicts, or as texts, which become open steps of that description."""

    def make(*steps: dict[str, Any] | str, thought: str = "Look, then answer.", **more: Any) -> str:
        rows = [step if isinstance(step, dict) else {"description": step} for step in steps]
        numbered = [{"id": f"s{number}", **row} for number, row in enumerate(rows, 1)]
        return json.dumps({"thought": thought, "steps": numbered, **more})

    return make


@pytest.fixture(scope="session")
def revision_of() -> Callable[..., str]:
    """A replanner's reply that revises; steps as for `plan_of`, without ids."""

    def make(*steps: dict[str, Any] | str, reason: str = "try another way") -> str:
        rows = [step if isinstance(step, dict) else {"description": step} for step in steps]
        return json.dumps({"reason": reason, "mode": "revise", "steps": rows})

    return make


@dataclass
class Cast:
    """A planning agent whose stages have a scripted model each; the replanner's replies are among the planner's."""

    planner: ScriptedModel
    executor: ScriptedModel
    synthesizer: ScriptedModel
    options: dict[str, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)

    def agent(self, **options: Any) -> PlanningAgent[Any]:
        models = Stages(planner=self.planner, executor=self.executor, synthesizer=self.synthesizer)
        return PlanningAgent(**{"models": models, "on_event": self.events.append, **self.options, **options})

    async def run(self, goal: str = "Reach the goal.", **options: Any) -> Any:
        return await self.agent().run(goal, **options)

    def kinds(self, *only: type) -> list[str]:
        """The types of the events, live ones left out; or the events of some types."""
        return [e.__struct_config__.tag for e in self.events if (isinstance(e, only) if only else not e.live)]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def cast() -> Callable[..., Cast]:
    """Makes a `Cast`: lists of replies for each stage, and options of the agent."""

    def make(
        planner: list[Reply],
        executor: list[Reply] | None = None,
        synthesizer: list[Reply] | None = None,
        **options: Any,
    ) -> Cast:
        return Cast(
            ScriptedModel(*planner, name="scripted:planner"),
            ScriptedModel(*(executor or []), name="scripted:executor"),
            ScriptedModel(*(synthesizer or []), otherwise="The answer.", name="scripted:synthesizer"),
            options,
        )

    return make


@pytest.fixture(scope="session")
def prompt_of() -> Callable[[ModelRequest], str]:
    """The text of the first user message of a request."""

    def read(request: ModelRequest) -> str:
        message = next(m for m in request.conversation.messages if isinstance(m, User))
        return "".join(part.text for part in message.content if hasattr(part, "text"))

    return read
