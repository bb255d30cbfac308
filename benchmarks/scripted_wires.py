"""The deterministic server of scripted_openai.py, which also speaks the APIs of Anthropic, Gemini and Bedrock, streaming.

    python scripted_wires.py [--port 0]     # prints "PORT <n>" once it listens

The model's name ends with ``script-tools-<N>``. The path tells the API: ``/v1/chat/completions``, ``/v1/responses``,
``/v1/messages``, ``/v1beta/models/<model>:streamGenerateContent``, ``/model/<model>/converse-stream``. Standard library only.
"""

import argparse
import asyncio
import re
import struct
import zlib
from functools import lru_cache

from scripted_openai import MARKER, Server, Stats, chat, dumps, http, main, pieces, plan, responses

MODEL = re.compile(rb"script-tools-(\d+)")


def anthropic(model, i, tool, args, text):
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    opening = {"id": f"msg_{i}", "type": "message", "role": "assistant", "model": model, "content": []}
    opening |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    if tool:
        block = {"type": "tool_use", "id": f"toolu_{i}", "name": tool, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(args))]
    else:
        block = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(text)]
    end = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    events = [
        {"type": "message_start", "message": opening},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 10}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {dumps(event)}\n\n" for event in events)


def gemini(model, i, tool, args, text):
    """A call comes whole, in one chunk, as Gemini sends it."""
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
    head = {"usageMetadata": usage, "modelVersion": model, "responseId": f"resp_{i}"}
    if tool:
        parts = [{"functionCall": {"name": tool, "args": {"key": f"k{i}"}, "id": f"fc_{i}"}}]
    else:
        parts = [{"text": piece} for piece in pieces(text)]
    candidates = [{"content": {"role": "model", "parts": [part]}, "index": 0} for part in parts]
    candidates.append({"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP", "index": 0})
    return "".join(f"data: {dumps({'candidates': [candidate], **head})}\r\n\r\n" for candidate in candidates)


def bedrock(model, i, tool, args, text):
    if tool:
        start = [{"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": f"tooluse_{i}", "name": tool}}}]
        deltas = [{"toolUse": {"input": piece}} for piece in pieces(args)]
    else:
        start, deltas = [], [{"text": piece} for piece in pieces(text)]
    usage = {"inputTokens": 100, "outputTokens": 10, "totalTokens": 110}
    events = [
        ("messageStart", {"role": "assistant"}),
        *(("contentBlockStart", value) for value in start),
        *(("contentBlockDelta", {"contentBlockIndex": 0, "delta": delta}) for delta in deltas),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "tool_use" if tool else "end_turn"}),
        ("metadata", {"usage": usage, "metrics": {"latencyMs": 100}}),
    ]
    return b"".join(frame(name, dumps({**value, "p": "abcdefghij"}).encode()) for name, value in events)


def frame(name: str, payload: bytes) -> bytes:
    """A message of AWS's binary event stream; all header values are texts."""
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    head = b"".join(
        struct.pack(">B", len(key)) + key.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for key, value in headers.items()
    )
    prelude = struct.pack(">II", len(payload) + len(head) + 16, len(head))
    data = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return data + struct.pack(">I", zlib.crc32(data))


ENDS = {  # what the path ends with: what makes the answer
    "/v1/chat/completions": lambda *step: chat(*step, stream=True),
    "/v1/responses": lambda *step: responses(*step, stream=True),
    "/v1/messages": anthropic,
    ":streamGenerateContent": gemini,
    "/converse-stream": bedrock,
}


@lru_cache(maxsize=4096)
def answer(end: str, i: int, n: int) -> bytes:
    body = ENDS[end](f"script-tools-{n}", i, *plan(i, n, 0, False))
    if isinstance(body, str):
        return http(body.encode(), stream=True)
    return http(body).replace(b"application/json", b"application/vnd.amazon.eventstream", 1)


class Wires(Server):
    def respond(self, method: str, path: str, body: bytes) -> bytes:
        end = next((end for end in ENDS if path.partition("?")[0].endswith(end)), None)
        if method != "POST" or end is None:
            return super().respond(method, path, body)
        Stats.requests += 1
        Stats.body_bytes += len(body)
        model = MODEL.search(path.encode()) or MODEL.search(body)
        if not model:
            return http(b'{"error":{"message":"unknown model"}}', "404 Not Found")
        return answer(end, body.count(MARKER), int(model[1]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(main(parser.parse_args().port, Wires))
