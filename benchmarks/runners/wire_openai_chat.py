"""The openai SDK by hand: Chat Completions, streaming."""

import json

from common import PROMPT, RESULT, TOOL
from openai import AsyncOpenAI


def lookup(key: str) -> str:
    return RESULT


def build(base_url, model, stream=True):
    client = AsyncOpenAI(base_url=base_url, api_key="none")

    async def step(messages):
        text, calls = [], {}
        chunks = await client.chat.completions.create(model=model, messages=messages, tools=[TOOL], stream=True)
        async for chunk in chunks:
            for choice in chunk.choices:
                text.append(choice.delta.content or "")
                for part in choice.delta.tool_calls or ():
                    call = calls.setdefault(part.index, [part.id, part.function.name, ""])
                    call[2] += part.function.arguments
        return "".join(text) or None, list(calls.values())

    async def run():
        messages = [{"role": "user", "content": PROMPT}]
        while True:
            text, calls = await step(messages)
            if not calls:
                return text
            functions = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in calls
            ]
            messages.append({"role": "assistant", "content": text, "tool_calls": functions})
            for id, name, arguments in calls:
                result = lookup(**json.loads(arguments))
                messages.append({"role": "tool", "tool_call_id": id, "content": result})

    return run
