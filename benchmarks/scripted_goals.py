"""The scripted server for goals: answers like a model that makes no mistake, and takes its time.

    python scripted_goals.py [--port 0]     # prints "PORT <n>" once it listens

Stateless; chat completions only, with and without `stream`. The model `goal-<name>` is a goal of `goals.py`.

* A request with tools is a loop's: all calls that can be made now come in one reply, their arguments taken from the
  results in the conversation; when every step's result is there, the answer.
* A request without tools that asks for a plan (a schema named `plan`) gets the plan.
* Any other without tools is to write the answer: it gets it where the results that it is made of are in the request,
  else "MISSING" and what is not there.

A reply takes SECONDS and its tokens / RATE (`goal-<name>-fast`: no time). Tokens are bytes / 4: of the whole body that
came in; of the text, or the tools' names and arguments, that went out. GET /calls lists what was asked and answered since the
last POST /reset.
"""

import argparse
import asyncio
import json

import scripted_openai
from goals import GOALS, RECORDS
from scripted_openai import CREATED, dumps, http

SECONDS, RATE = 0.4, 100
"""Seconds before the first token of a reply; tokens a second after that."""


def texts(message):
    """The text of a message, whatever way its content is given."""
    content = message.get("content")
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content or ())


def found(messages):
    """The results in a conversation by what was called: frameworks may give calls ids of their own."""
    made = {call["id"]: call["function"] for message in messages for call in message.get("tool_calls") or ()}
    results = {m["tool_call_id"]: json.loads(texts(m)) for m in messages if m["role"] == "tool"}
    return {dumps((made[i]["name"], json.loads(made[i]["arguments"]))): result for i, result in results.items()}


def decide(body):
    """What a model that makes no mistake replies: (kind of call, text or None, calls by id)."""
    goal = GOALS[body["model"].removeprefix("goal-").removesuffix("-fast")]
    if body.get("tools"):
        results = found(body["messages"])
        done, calls = {}, goal.next_calls({})
        while known := {ident: results[dumps(call)] for ident, call in calls.items() if dumps(call) in results}:
            done |= known
            calls = goal.next_calls(done)
        return "loop", None if calls else goal.answer, calls
    form = body.get("response_format", {}).get("json_schema", {}).get("name")
    if form == "plan":
        return "plan", dumps(goal.plan()), {}
    if form:
        return form, "MISSING: this reply is not in the script", {}
    return "answer", _missing(goal, " ".join(map(texts, body["messages"]))) or goal.answer, {}


def _missing(goal, text):
    """What a good model would miss in the results: nothing is made up."""
    results = {}
    while calls := goal.next_calls(results):
        results |= {ident: RECORDS[tool](**arguments) for ident, (tool, arguments) in calls.items()}
    lost = [ident for ident in goal.shown if dumps(results[ident]) not in text]
    return f"MISSING: {', '.join(lost)}" if lost else ""


def reply(body, text, calls):
    """The reply on the wire."""
    usage = {"prompt_tokens": len(dumps(body)) // 4, "completion_tokens": 10}
    usage["total_tokens"] = sum(usage.values())
    tool_calls = [
        {"id": ident, "type": "function", "function": {"name": tool, "arguments": dumps(arguments)}}
        for ident, (tool, arguments) in calls.items()
    ]
    message = {"role": "assistant", "content": text} | ({"tool_calls": tool_calls} if calls else {})
    finish = "tool_calls" if calls else "stop"
    head = {"id": "chatcmpl-1", "created": CREATED, "model": body["model"]}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    if calls:
        message["tool_calls"] = [{"index": n, **call} for n, call in enumerate(tool_calls)]
    choices = (
        [{"index": 0, "delta": message, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": finish}],
    )
    chunks = [{**head, "object": "chat.completion.chunk", "choices": choice} for choice in choices]
    chunks.append({**chunks[0], "choices": [], "usage": usage})
    return "".join(f"data: {dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


CALLS = []


class Server(scripted_openai.Server):
    def answer(self, method, path, body):
        if (method, path) == ("POST", "/v1/chat/completions"):
            self.complete(body)
        elif (method, path) == ("GET", "/calls"):
            self.transport.write(http(dumps(CALLS).encode()))
        elif (method, path) == ("POST", "/reset"):
            CALLS.clear()
            self.transport.write(http(b"{}"))
        else:
            self.transport.write(http(b'{"error":{"message":"no such path"}}', "404 Not Found"))

    def complete(self, raw):
        body = json.loads(raw)
        kind, text, calls = decide(body)
        received = len((text or "").encode()) + sum(len(tool) + len(dumps(args)) for tool, args in calls.values())
        seconds = 0 if body["model"].endswith("-fast") else SECONDS + received / 4 / RATE
        CALLS.append({"kind": kind, "sent": len(raw) / 4, "received": received / 4, "seconds": seconds})
        data = http(reply(body, text, calls).encode(), stream=bool(body.get("stream")))
        asyncio.get_running_loop().call_later(seconds, self.transport.write, data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(scripted_openai.main(parser.parse_args().port, Server))
