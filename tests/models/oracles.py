"""What the tests of several wires share: a conversation of every kind, and models on scripted servers."""

import itertools
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from replan.messages import (
    Assistant,
    Audio,
    File,
    Image,
    Message,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    user,
)
from replan.model import Conversation, Done, ModelProfile, ModelRequest, ToolSpec
from replan.models.retry import Backoff
from replan.models.wire import Decoder, Endpoint, HttpModel, Reply, Sent, StaticAuth
from replan.settings import ModelSettings
from replan.testing import ScriptedServer

PDF = File("application/pdf", name="a.pdf", data=b"%PDF-1")
PNG = Image("image/png", data=b"\x89PNG")
WAV = Audio("audio/wav", data=b"RIFF")
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}

AWKWARD = {
    "reference": {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    },
    "types": {
        "type": "object",
        "properties": {"map": {"type": ["object", "null"], "additionalProperties": {"type": "string"}}},
    },
    "union": {
        "type": "object",
        "properties": {
            "value": {
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}],
                "default": None,
            }
        },
    },
    "bare": {"type": "object"},
    "empty": {},
    "draft": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}},
        "required": ["n"],
    },
    "tuple": {
        "type": "object",
        "properties": {"at": {"type": "array", "items": [{"type": "number"}, {"type": "number"}]}},
    },
    "const": {"type": "object", "properties": {"kind": {"const": "a"}, "level": {"enum": ["low", None, 3]}}},
    "root_union": {"oneOf": [CLOSED, {"type": "object", "properties": {"b": {"type": "integer"}}}]},
}
TOOLS = tuple(ToolSpec(name, f"Tool {name}.", schema) for name, schema in AWKWARD.items())


def history(model: str) -> list[Message]:
    """Messages of every kind; thoughts of `model` and of another one."""
    return [
        User((Text("see"), PNG, Text("this"), PDF, WAV, File("text/plain", name="t.txt", data=b"text"))),
        Assistant(
            (
                Thinking("of another", signature="x", model="other:model"),
                Text("I look."),
                ToolCall("c1", "bare", {"key": "ü"}),
                ToolCall("c2", "odd name!", {}),
            )
        ),
        ToolResult("c1", "bare", (Text("one"), Text("two"), PNG)),
        ToolResult("c2", "odd name!", (), is_error=True),
        user("and?"),
        Assistant((Refusal("no"),)),
        user("go on"),
        Assistant(()),
        User(()),
        Assistant((ToolCall("c" * 80, "bare", {}, raw='{"key": '),)),
        ToolResult("c" * 80, "bare", (Text("failed"),), is_error=True),
    ]


def request(messages: Iterable[Message] | None = None, **fields: Any) -> ModelRequest:
    """A request of these messages; of a greeting where none are given."""
    return ModelRequest(conversation=Conversation(list(messages or [user("hello")])), **fields)


def endpoint(
    base_url: str = "http://127.0.0.1:9",
    *,
    provider: str = "test",
    model: str = "m",
    profile: ModelProfile | None = None,
    settings: ModelSettings | None = None,
    **options: Any,
) -> Endpoint:
    """An endpoint with a key."""
    return Endpoint(
        provider=provider,
        model=model,
        base_url=base_url,
        auth=StaticAuth({"x-api-key": "very-secret-key"}, ("very-secret-key",)),
        profile=profile or ModelProfile(images=True, files=True, result_images=True),
        settings=settings or ModelSettings(timeout=5),
        options=options,
    )


def model_at(server: ScriptedServer, wire: Any, *, retries: int = 0, **options: Any) -> HttpModel:
    """A model of that wire at a scripted server; retries do not wait."""

    async def no_sleep(seconds: float) -> None:
        return None

    at = endpoint(server.base_url.removesuffix("/v1"), **options)
    return HttpModel(at, wire(at), backoff=Backoff(max_retries=retries, sleep=no_sleep))


def play(reply: Reply, decoder: Decoder, data: bytes, cuts: Iterable[int] = ()) -> Done:
    """The reply to these bytes, cut at these places."""
    places = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    for start, end in itertools.pairwise(places):
        reply.events(decoder.feed(data[start:end]))
    reply.events(decoder.finish())
    assert reply.finished
    return reply.done(Sent(characters=lambda: 400, taken=lambda call_id: False, first_number=2))


CUTS = st.lists(st.integers(0, 4000), max_size=12)
