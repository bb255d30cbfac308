"""Calls whose arguments come in pieces, as Vertex AI streams them."""

from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from oracles import play
from test_gemini_reply import SIGN, call, chunk, read, sse

from replan.messages import Thinking, ToolCall
from replan.model import CallDelta
from replan.models.gemini.arguments import Arguments
from replan.models.gemini.reply import GeminiReply
from replan.models.gemini.stream import GeminiDecoder
from replan.models.sse import EventParser


def piece(
    name: str = "", *, more: bool = True, signature: str = "", call_id: str = "", **places: Any
) -> dict[str, Any]:
    """A part with a piece of a call: `places` are JSON paths, with `__` for a dot, and texts for them."""
    args = [{"jsonPath": "$." + path.replace("__", "."), "stringValue": text} for path, text in places.items()]
    call: dict[str, Any] = {"name": name} if name else {}
    call |= {"id": call_id} if call_id else {}
    call |= {"partialArgs": args} if args else {}
    call |= {"willContinue": True} if more else {}
    return {"functionCall": call, **({"thoughtSignature": signature} if signature else {})}


def test_arguments_in_pieces_are_put_together():
    reply = GeminiReply("test:m")
    data = sse(
        chunk(piece("look", signature=SIGN)),
        chunk(piece(key="New ", at__city="O")),
        chunk(piece(key="York", at__city="slo")),
        chunk(piece(more=False)),
        chunk(piece("stop", call_id="x", key="a"), piece(more=False)),
        chunk({"functionCall": {}}),
        chunk(call("look", key="whole"), piece("stop", key="never ends"), finish="STOP"),
    )
    deltas = reply.events(EventParser().feed(data))
    done = play(GeminiReply("test:m"), GeminiDecoder(), data)
    assert deltas[0] == CallDelta("look", "")
    assert [(each.name, each.arguments) for each in done.message.calls] == [
        ("look", {"key": "New York", "at": {"city": "Oslo"}}),
        ("stop", {"key": "a"}),
        ("look", {"key": "whole"}),
        ("stop", {"key": "never ends"}),
    ]
    assert done.message.calls[1].call_id == "x"
    assert done.message.content[0] == Thinking("", SIGN, "test:m", {"signs": "next"})
    assert len(done.message.content) == 5


def test_a_signature_and_an_id_may_come_with_a_later_piece():
    later = piece("look", signature=SIGN, call_id="x", key="b", more=False)
    data = sse(chunk(piece("look", key="a")), chunk(piece(signature=SIGN)), chunk(later, finish="STOP"))
    content = read(data).message.content
    assert content == (Thinking("", SIGN, "test:m", {"signs": "next"}), ToolCall("x", "look", {"key": "ab"}))


def test_a_call_of_another_name_begins_although_one_is_open():
    data = sse(chunk(piece("look", key="a")), chunk(call("stop", key="b")), chunk(finish="STOP"))
    assert [(each.name, each.arguments) for each in read(data).message.calls] == [
        ("look", {"key": "a"}),
        ("stop", {"key": "b"}),
    ]


NAMES = st.text(st.characters(codec="utf-8"), max_size=4)
LEAVES: Any = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6)


def tables(inner: Any, least: int = 1) -> Any:
    return st.dictionaries(NAMES, inner, min_size=least, max_size=3)


VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, min_size=1, max_size=3) | tables(inner), max_leaves=8)


def pieces_of(value: Any, path: str, cut: int) -> list[dict[str, Any]]:
    match value:
        case dict():
            names = {name: name.replace("\\", "\\\\").replace("'", "\\'") for name in value}
            return [each for name, part in value.items() for each in pieces_of(part, f"{path}['{names[name]}']", cut)]
        case list():
            return [each for at, part in enumerate(value) for each in pieces_of(part, f"{path}[{at}]", cut)]
        case str():
            return [{"jsonPath": path, "stringValue": text} for text in (value[:cut], value[cut:])]
        case bool():
            return [{"jsonPath": path, "boolValue": value}]
        case None:
            return [{"jsonPath": path, "nullValue": "NULL_VALUE"}]
        case _:
            return [{"jsonPath": path, "numberValue": value}]


@given(tables(VALUES, 0), st.integers(0, 6))
def test_any_arguments_come_together_from_their_pieces(value: dict[str, Any], cut: int):
    arguments = Arguments()
    for each in pieces_of(value, "$", cut):
        types.PartialArg.model_validate(each)
        arguments.add(each)
    assert arguments.value == value


@pytest.mark.parametrize("path", ["", "key", "$", "$[0]", "$.a[", "$.a[*]", "$..a", "$.a[99999]", "$.a b]", None, 7])
def test_a_piece_without_a_place_is_passed_over(path: Any):
    arguments = Arguments()
    arguments.add({"jsonPath": "$.a", "stringValue": "x"})
    arguments.add({"jsonPath": path, "stringValue": "y"})
    arguments.add({"jsonPath": "$.a"})
    assert arguments.value == {"a": "x"}
