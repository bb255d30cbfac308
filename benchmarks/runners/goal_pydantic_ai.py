"""pydantic-ai: one Agent, chat completions."""

from goals import functions
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def build(base_url, model, goal, clock):
    agent = Agent(OpenAIChatModel(model, provider=OpenAIProvider(base_url, "none")), tools=functions())

    async def run():
        return (await agent.run(goal)).output, {}

    return run
