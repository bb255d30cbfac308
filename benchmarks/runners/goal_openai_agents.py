"""openai-agents: Agent + Runner over chat completions, tracing off."""

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from goals import functions
from openai import AsyncOpenAI


def build(base_url, model, goal, clock):
    set_tracing_disabled(True)
    llm = OpenAIChatCompletionsModel(model, openai_client=AsyncOpenAI(base_url=base_url, api_key="none"))
    agent = Agent("bench", tools=[function_tool(function) for function in functions()], model=llm)

    async def run():
        return (await Runner.run(agent, goal)).final_output, {}

    return run
