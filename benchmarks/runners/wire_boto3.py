"""boto3 by hand: `converse_stream`. With WIRE=bedrock-key nothing is signed.

boto3 sends a bearer key only over TLS; what it does for one is to add a header.
"""

import json
import os

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from common import DESCRIPTION, PROMPT, RESULT, TOOL

SPEC = {"name": "lookup", "description": DESCRIPTION, "inputSchema": {"json": TOOL["function"]["parameters"]}}
TOOLS = {"tools": [{"toolSpec": SPEC}]}
SIGNED = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "none-at-all"}


def lookup(key: str) -> str:
    return RESULT


def build(base_url, model, stream=True):
    signed = os.environ["WIRE"] == "bedrock"
    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=base_url.removesuffix("/v1"),
        **(SIGNED if signed else {"config": Config(signature_version=UNSIGNED)}),
    )
    model = f"us.amazon.nova-pro-v1:0-{model}"

    def step(messages):
        text, call, written = [], None, []
        answer = client.converse_stream(modelId=model, messages=messages, toolConfig=TOOLS)
        for event in answer["stream"]:
            if "contentBlockStart" in event:
                call = event["contentBlockStart"]["start"]["toolUse"]
            elif "contentBlockDelta" in event:
                delta = event["contentBlockDelta"]["delta"]
                if "toolUse" in delta:
                    written.append(delta["toolUse"]["input"])
                elif "text" in delta:
                    text.append(delta["text"])
            elif "messageStop" in event:
                reason = event["messageStop"]["stopReason"]
        content = [{"text": "".join(text)}] if text else []
        if call:
            content.append({"toolUse": {**call, "input": json.loads("".join(written))}})
        return reason, content

    def run():
        messages = [{"role": "user", "content": [{"text": PROMPT}]}]
        while True:
            reason, content = step(messages)
            messages.append({"role": "assistant", "content": content})
            if reason != "tool_use":
                return content[0]["text"]
            calls = [block["toolUse"] for block in content if "toolUse" in block]
            results = [
                {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": lookup(**call["input"])}]}}
                for call in calls
            ]
            messages.append({"role": "user", "content": results})

    return run
