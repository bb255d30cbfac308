"""replan: the plain Agent."""

from goals import functions

from replan import Agent, ModelSettings, tool
from replan.models import resolve


def build(base_url, model, goal, clock):
    llm = resolve(f"openai-compatible:{model}", base_url=base_url, api_key="none", settings=ModelSettings())
    agent = Agent(llm, tools=[tool(read_only=True)(function) for function in functions()])

    async def run():
        return (await agent.run(goal)).text, {}

    return run
