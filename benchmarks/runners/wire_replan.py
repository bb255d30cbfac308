"""A loop by hand over one of replan's wires; the environment variable WIRE says which."""

import os

from common import DESCRIPTION, PROMPT, RESULT, TOOL

from replan.messages import Text, ToolResult, user
from replan.model import Conversation, Done, ModelRequest, ToolSpec
from replan.models import resolve

MODELS = {  # wire: (start of the model's name, what the base URL ends with, options)
    "chat": ("openai:gpt-4.1-mini-", "/v1", {"responses": "never"}),
    "responses": ("openai:gpt-4.1-mini-", "/v1", {"responses": "always"}),
    "anthropic": ("anthropic:claude-sonnet-4-5-", "", {}),
    "gemini": ("google:gemini-2.5-flash-", "/v1beta", {}),
    "bedrock-key": ("bedrock:us.amazon.nova-pro-v1:0-", "", {"region": "us-east-1"}),
    "bedrock": (
        "bedrock:us.amazon.nova-pro-v1:0-",
        "",
        {"region": "us-east-1", "access_key_id": "AKIDEXAMPLE", "secret_access_key": "none-at-all"},
    ),
}
START, END, OPTIONS = MODELS[os.environ["WIRE"]]
KEY = None if "access_key_id" in OPTIONS else "none"
TOOLS = (ToolSpec("lookup", DESCRIPTION, TOOL["function"]["parameters"]),)


def lookup(key: str) -> str:
    return RESULT


def build(base_url, model, stream=True):
    spoken = resolve(START + model, base_url=base_url.removesuffix("/v1") + END, api_key=KEY, **OPTIONS)

    async def run():
        conversation = Conversation([user(PROMPT)])
        while True:
            async for delta in spoken.stream(ModelRequest(conversation=conversation, tools=TOOLS)):
                if isinstance(delta, Done):
                    message = delta.message
            conversation.messages.append(message)
            if not message.calls:
                return message.text
            for call in message.calls:
                result = (Text(lookup(**call.arguments)),)
                conversation.messages.append(ToolResult(call.call_id, call.name, result))

    return run


resolve(START + "none", base_url="http://127.0.0.1:1", api_key=KEY, **OPTIONS)  # so that importing has its wire too
