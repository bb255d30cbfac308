"""The anthropic SDK by hand: its stream helper, and the message's content back as it came."""

from anthropic import AsyncAnthropic
from common import DESCRIPTION, PROMPT, RESULT, TOOL

TOOLS = [{"name": "lookup", "description": DESCRIPTION, "input_schema": TOOL["function"]["parameters"]}]


def lookup(key: str) -> str:
    return RESULT


def build(base_url, model, stream=True):
    client = AsyncAnthropic(base_url=base_url.removesuffix("/v1"), api_key="none")
    model = f"claude-sonnet-4-5-{model}"

    async def step(messages):
        async with client.messages.stream(model=model, max_tokens=1024, messages=messages, tools=TOOLS) as stream:
            return await stream.get_final_message()

    async def run():
        messages = [{"role": "user", "content": PROMPT}]
        while True:
            message = await step(messages)
            messages.append({"role": "assistant", "content": message.content})
            if message.stop_reason != "tool_use":
                return "".join(block.text for block in message.content if block.type == "text")
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": lookup(**block.input)}
                for block in message.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})

    return run
