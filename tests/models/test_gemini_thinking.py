"""Thoughts and signatures on the Gemini wire: asked for, sent back, and left out where they are refused."""

import base64
import json
from typing import Any

from oracles import endpoint, model_at
from test_gemini_request import ANSWER, FULL, NEWEST, body

from replan.encoding import decode, encode
from replan.messages import Assistant, Text, Thinking, ToolCall, ToolResult, from_json, to_json, user
from replan.model import Conversation, ModelProfile
from replan.models.gemini import GeminiWire
from replan.settings import Thinking as Ask
from replan.testing import ScriptedServer, error_reply

SIGNED = Assistant(
    (
        Thinking("hm", "dA==", "test:m"),
        Thinking("unsigned", None, "test:m"),
        Thinking("", "cw==", "test:m", {"signs": "next"}),
        ToolCall("c1", "look", {}),
        ToolCall("c2", "look", {}),
        Text("a"),
        Thinking("", "ZQ==", "test:m", {"signs": "nothing"}),
    )
)


def said(message: Assistant, model: str = "m", profile: ModelProfile = FULL) -> list[dict[str, Any]]:
    stored = from_json(decode(encode(to_json(message))))
    return body(GeminiWire(endpoint(model=model, profile=profile)), messages=[user("go"), stored])["contents"][1][
        "parts"
    ]


def test_signatures_go_back_on_what_they_signed_also_after_being_stored():
    assert said(SIGNED) == [
        {"text": "hm", "thought": True, "thoughtSignature": "dA=="},
        {"functionCall": {"id": "c1", "name": "look", "args": {}}, "thoughtSignature": "cw=="},
        {"functionCall": {"id": "c2", "name": "look", "args": {}}},
        {"text": "a"},
        {"text": "", "thoughtSignature": "ZQ=="},
    ]


def test_signatures_of_another_model_are_left_out_and_the_newest_are_told_to_do_without():
    assert "thoughtSignature" not in json.dumps(said(SIGNED, "other"))
    calls = [part for part in said(SIGNED, "other", NEWEST) if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in calls] == [
        base64.b64encode(b"skip_thought_signature_validator").decode(),
        None,
    ]
    own = [part for part in said(SIGNED, profile=NEWEST) if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in own] == ["cw==", None]


def test_a_signature_whose_part_is_gone_is_sent_alone():
    for behind in ((), (Thinking("", "ZQ==", "test:m", {"signs": "nothing"}),)):
        content = (Text("a"), Thinking("", "cw==", "test:m", {"signs": "next"}), *behind)
        assert said(Assistant(content))[:2] == [{"text": "a"}, {"text": "", "thoughtSignature": "cw=="}]
        assert len(said(Assistant(content))) == 2 + len(behind)


def test_a_signed_thought_without_words_is_one():
    thought = Thinking("", "cw==", "test:m", {"signs": "thought"})
    assert said(Assistant((thought, Text("a")))) == [
        {"text": "", "thought": True, "thoughtSignature": "cw=="},
        {"text": "a"},
    ]


async def test_signatures_that_are_refused_are_left_out_and_later_ones_are_not(collect):
    conversation = Conversation(
        [user("go"), SIGNED, *(ToolResult(c.call_id, "look", (Text("ok"),)) for c in SIGNED.calls)]
    )
    later = Assistant((Thinking("", "bg==", "test:m", {"signs": "next"}), ToolCall("c3", "look", {})))
    async with ScriptedServer(error_reply(400, "Thought signature is not valid."), otherwise=ANSWER) as server:
        model = model_at(server, GeminiWire, profile=FULL)
        await collect(model, conversation)
        conversation.messages += [later, ToolResult("c3", "look", (Text("ok"),))]
        await collect(model, conversation)
        await collect(model, Conversation([user("go"), SIGNED]))
    signed = [[part.get("thoughtSignature") for content in r.json["contents"] for part in content["parts"]
               if "thoughtSignature" in part] for r in server.requests]  # fmt: skip
    assert signed == [
        ["dA==", "cw==", "ZQ=="],
        ["skip_thought_signature_validator"],
        ["skip_thought_signature_validator", "bg=="],
        ["dA==", "cw==", "ZQ=="],
    ]
    assert server.requests[2].body.startswith(server.requests[1].body.removesuffix(b"]}"))


async def test_a_model_that_wants_signatures_unexpectedly_gets_them(collect):
    words = "Function call is missing a thought_signature in functionCall parts."
    foreign = Assistant((ToolCall("c", "look", {}),))
    async with ScriptedServer(error_reply(400, words), ANSWER) as server:
        await collect(
            model_at(server, GeminiWire, profile=FULL),
            Conversation([user("go"), foreign, ToolResult("c", "look", (Text("ok"),))]),
        )
    (call,) = server.requests[1].json["contents"][1]["parts"]
    assert call["thoughtSignature"] == "skip_thought_signature_validator"


def test_thinking_is_asked_for_in_the_models_own_way():
    assert body(thinking=Ask(budget_tokens=3000))["generationConfig"]["thinkingConfig"] == {
        "thinkingBudget": 3000,
        "includeThoughts": True,
    }
    level = body(GeminiWire(endpoint(profile=NEWEST)), thinking=Ask(level="high"))["generationConfig"]["thinkingConfig"]
    assert level["thinkingLevel"].lower() == "high"
