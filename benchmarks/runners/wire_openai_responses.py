"""The openai SDK by hand: Responses, streaming; the items of a reply go back as they came."""

import json

from common import PROMPT, RESULT, TOOL
from openai import AsyncOpenAI

TOOLS = [{"type": "function", **TOOL["function"], "strict": False}]


def lookup(key: str) -> str:
    return RESULT


def build(base_url, model, stream=True):
    client = AsyncOpenAI(base_url=base_url, api_key="none")

    async def step(items):
        events = await client.responses.create(model=model, input=items, tools=TOOLS, store=False, stream=True)
        async for event in events:
            if event.type == "response.completed":
                response = event.response
        return response

    async def run():
        items = [{"role": "user", "content": PROMPT}]
        while True:
            response = await step(items)
            items += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            for call in calls:
                result = lookup(**json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})

    return run
