"""replan: the planning agent."""

from goals import functions

from replan import ModelSettings, PlanningAgent, tool
from replan.events import StepComplete, StepStart
from replan.models import resolve


def build(base_url, model, goal, clock):
    llm = resolve(f"openai-compatible:{model}", base_url=base_url, api_key="none", settings=ModelSettings())
    agent = PlanningAgent(llm, tools=[tool(read_only=True)(function) for function in functions()])

    async def run():
        starts, ends = [], []

        def note(event):
            if type(event) is StepStart:
                starts.append(clock())
            elif type(event) is StepComplete:
                ends.append(clock())

        result = await agent.run(goal, on_event=note)
        return result.text, {
            "tool_phase": max(ends) - min(starts) if ends else None,
            "steps": " ".join(f"{r.kind}{'' if r.ok else '!'}" for r in result.trace),
            "findings": [finding["text"] for finding in result.findings],
        }

    return run
