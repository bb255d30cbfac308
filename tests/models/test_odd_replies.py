"""Whatever a provider sends: a reply is read, or it is a `Failure`; nothing else is raised."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.model import Done
from replan.models.anthropic.reply import AnthropicReply
from replan.models.bedrock.reply import BedrockReply
from replan.models.chat.reply import ChatReply
from replan.models.failures import Failure
from replan.models.gemini.reply import GeminiReply
from replan.models.responses.reply import ResponsesReply
from replan.models.sse import Event
from replan.models.wire import Reply, Sent

WORDS = """
type index delta content_block message usage error text id name input item response output output_index content
content_index summary status candidates parts functionCall args thought thoughtSignature finishReason usageMetadata
promptFeedback blockReason choices tool_calls function arguments finish_reason stop_reason stopReason
contentBlockIndex start toolUse reasoningContent reasoningText signature redactedContent reasoning_details
stop_details input_tokens code phase encrypted_content incomplete_details
"""
LEAVES: Any = (
    st.none()
    | st.booleans()
    | st.integers(-2, 5)
    | st.floats(allow_nan=False)
    | st.sampled_from(
        [
            "",
            "x",
            "text",
            "tool_use",
            "function_call",
            "reasoning",
            "message",
            "thinking",
            "refusal",
            "STOP",
            "SAFETY",
            "stop",
        ]
    )
)
FIELDS = st.sampled_from(WORDS.split())
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5), max_leaves=12
)
KINDS: dict[str, tuple[Callable[[], Reply], list[str]]] = {
    "anthropic": (
        lambda: AnthropicReply("m"),
        ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop"],
    ),
    "responses": (
        lambda: ResponsesReply("m"),
        [
            f"response.{kind}"
            for kind in (
                "output_item.added", "output_item.done", "output_text.delta", "completed", "refusal.delta",
                "function_call_arguments.delta", "reasoning_summary_text.delta",
            )
        ],
    ),
    "gemini": (lambda: GeminiReply("m"), [""]),
    "bedrock": (
        lambda: BedrockReply("m"),
        ["messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"],
    ),
    "chat": (lambda: ChatReply(model="m"), [""]),
}  # fmt: skip
SENT = Sent(characters=lambda: 400, taken=lambda call_id: False, first_number=2)


@pytest.mark.parametrize("wire", KINDS)
@given(st.data())
def test_odd_events_are_read_or_are_a_failure(wire: str, data: Any):
    make, names = KINDS[wire]
    reply = make()
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from(names))
        value = data.draw(VALUES)
        if isinstance(value, dict) and name and data.draw(st.booleans()):
            value = {**value, "type": name}
        try:
            reply.events([Event(name.encode(), json.dumps(value).encode())])
        except Failure:
            return
    done = reply.done(SENT)
    assert isinstance(done, Done)
    assert len({call.call_id for call in done.message.calls}) == len(done.message.calls)


@pytest.mark.parametrize("wire", KINDS)
@given(VALUES | st.binary(max_size=40))
def test_odd_answers_are_read_or_are_a_failure(wire: str, value: Any):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    reply = KINDS[wire][0]()
    try:
        reply.whole(body)
    except Failure:
        return
    assert isinstance(reply.done(SENT), Done)
