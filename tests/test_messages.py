import json
from typing import Any

import pytest

from replan.encoding import decode, encode
from replan.messages import (
    Assistant,
    Audio,
    File,
    Image,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    from_json,
    repaired,
    to_json,
    user,
)

MESSAGES = [
    user("hello"),
    User(
        (
            Text("see"),
            Image("image/png", b"\x00\xff"),
            Audio("a/b", url="f"),
            File("text/plain", "a.txt", b"x"),
        )
    ),
    User(()),
    Assistant(()),
    Assistant(
        (
            Thinking("hm", signature="s", model="anthropic:claude", data={"k": [1, None]}),
            Text("I call "),
            ToolCall("c1", "search", {"q": "x", "n": [1.5]}),
            ToolCall("c2", "search", {}, raw="{"),
            Text("two"),
        )
    ),
    Assistant((Refusal("no"),)),
    ToolResult("c1", "search", (Text("a"), Image("image/png", b"1"), Text("b")), structured={"rows": [1]}),
    ToolResult("c2", "search", (Text("bad"),), is_error=True),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_survives_being_stored(message: Any):
    data = to_json(message)
    stored = decode(encode(data))
    assert from_json(stored) == message
    assert stored == data, "what is given is plain JSON: lists, not tuples"
    json.dumps(data, allow_nan=False)


def test_the_json_form_is_small_and_tagged():
    assert to_json(user("hi")) == {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    assert to_json(MESSAGES[7]) == {
        "role": "tool",
        "call_id": "c2",
        "name": "search",
        "content": [{"type": "text", "text": "bad"}],
        "is_error": True,
    }
    assert to_json(User((Image("image/png", b"\x00\xff"),)))["content"] == [
        {"type": "image", "mime": "image/png", "data": "AP8="}
    ]


def test_parts_are_found_by_kind():
    message = MESSAGES[4]
    assert isinstance(message, Assistant)
    assert message.text == "I call two"
    assert [call.call_id for call in message.calls] == ["c1", "c2"]
    assert message.refusal is None
    assert Assistant((Refusal("no"),)).refusal == "no"
    result = MESSAGES[6]
    assert isinstance(result, ToolResult)
    assert result.text == "a\nb"


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        [],
        {"role": "system", "content": []},
        {"role": "user", "content": "hi"},
        {"role": "user", "content": [{"type": "call", "call_id": "c", "name": "n", "arguments": {}}]},
        {"role": "assistant", "content": [{"type": "call", "call_id": "c", "name": "n", "arguments": [1]}]},
        {"role": "user", "content": [{"type": "image", "mime": "image/png", "data": "no base64!"}]},
    ],
)
def test_what_is_no_message_is_a_value_error(data: Any):
    with pytest.raises(ValueError):
        from_json(data)


def test_fields_of_a_later_version_are_ignored():
    assert from_json({"role": "user", "content": [{"type": "text", "text": "hi", "new": 1}], "more": 2}) == user("hi")


def test_messages_are_frozen():
    with pytest.raises(AttributeError):
        user("hi").content = ()  # type: ignore[misc]


def test_calls_of_one_id_get_ids_and_results_of_their_own():
    calls = tuple(ToolCall(i, "look", {"n": n}) for n, i in enumerate(["x", "x", ""]))
    results = [ToolResult(i, "look", (Text(t),)) for i, t in [("x", "one"), ("x", "two"), ("", "three")]]
    first, *answers = repaired([Assistant(calls), *results])
    assert isinstance(first, Assistant)
    ids = [c.call_id for c in first.calls]
    assert len(set(ids)) == 3
    assert all(ids)
    found = [(a.call_id, a.text) for a in answers if isinstance(a, ToolResult)]
    assert found == list(zip(ids, ["one", "two", "three"], strict=True))
