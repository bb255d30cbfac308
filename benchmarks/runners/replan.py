"""replan: the plain Agent."""

from common import DESCRIPTION, PROMPT, RESULT

from replan import Agent, Limits, ModelSettings, tool
from replan.events import FinalTextDelta
from replan.models import resolve


def build(base_url, model, stream=False):
    @tool(description=DESCRIPTION, read_only=True)
    async def lookup(key: str) -> str:
        return RESULT

    llm = resolve(f"openai-compatible:{model}", base_url=base_url, api_key="none", settings=ModelSettings())
    agent = Agent(llm, tools=[lookup], limits=Limits(max_turns=200))

    async def run():
        return (await agent.run(PROMPT)).text

    async def run_stream():
        text = []
        async with agent.start(PROMPT) as handle:
            async for event in handle:
                if type(event) is FinalTextDelta:
                    text.append(event.delta)
        return "".join(text)

    return run_stream if stream else run
