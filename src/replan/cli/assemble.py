"""From a recipe to an agent with its models and servers."""

from dataclasses import dataclass
from typing import Any

from replan import Agent, Limits, Model, ModelSettings, Planning, PlanningAgent, Stages, Thinking
from replan.errors import ConfigError
from replan.journal import Journal
from replan.models import resolve
from replan.settings import ThinkingLevel, ThinkingSetting

from .ask import Asker
from .recipe import Recipe

__all__ = ["Assembly", "assemble", "mcp_servers"]


@dataclass(slots=True)
class Assembly:
    """An agent, and the models that it does not own. Close it when the run is over."""

    agent: Agent[Any] | PlanningAgent[Any]
    models: list[Model]

    async def close(self) -> None:
        """End the agent with its servers, then the models."""
        try:
            await self.agent.close()
        finally:
            for model in self.models:
                await model.close()


def assemble(recipe: Recipe, journal: Journal | None, asker: Asker | None) -> Assembly:
    """The agent of the recipe. Raises `ConfigError` for whatever in it cannot be used; nothing is connected yet."""
    settings = ModelSettings(
        **_given(timeout=recipe.timeout, max_retries=recipe.max_retries, thinking=_thinking(recipe.thinking))
    )
    models = _models(recipe, settings)
    options: dict[str, Any] = {
        "mcp_servers": mcp_servers(recipe.mcp),
        "system_prompt": recipe.system_prompt or "",
        "limits": Limits(**recipe.limits),
        "settings": settings,
        "journal": journal,
        "unattended": recipe.unattended,
        "answerer": asker,
    }
    if recipe.plain:
        agent = Agent(models[recipe.model], **options)
    else:
        stages = Stages(
            planner=models[recipe.planner_model or recipe.model],
            executor=models[recipe.model],
            synthesizer=models[recipe.synthesizer_model or recipe.model],
        )
        planning = Planning(
            replan_after=recipe.replan_after,
            tool_selection=recipe.tool_selection,
            review=recipe.review,
            with_cost=True,
        )
        agent = PlanningAgent(models[recipe.model], models=stages, planning=planning, **options)
    return Assembly(agent, list(models.values()))


def mcp_servers(sources: tuple[Any, ...]) -> dict[str, Any]:
    """The servers of all sources. Raises `ConfigError` where two have the same name."""
    from replan.mcp import parse_servers

    servers: dict[str, Any] = {}
    for source in sources:
        for name, server in parse_servers(source).items():
            if name in servers:
                raise ConfigError(f"two --mcp options have a server {name!r}; rename one of them")
            servers[name] = server
    return servers


def _models(recipe: Recipe, settings: ModelSettings) -> dict[str, Model]:
    """The recipe's models by name. The base URL is that of the provider of the main one."""
    provider = recipe.model.partition(":")[0]
    names = dict.fromkeys(filter(None, (recipe.model, recipe.planner_model, recipe.synthesizer_model)))
    return {
        name: resolve(name, settings=settings, base_url=recipe.base_url if name.partition(":")[0] == provider else None)
        for name in names
    }


def _thinking(given: ThinkingLevel | int | None) -> ThinkingSetting:
    return Thinking(budget_tokens=given) if isinstance(given, int) else given


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
