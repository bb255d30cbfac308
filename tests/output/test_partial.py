"""Values of JSON texts that are still being written."""

import json

from hypothesis import given
from hypothesis import strategies as st

from replan.output import PartialJson, TypedOutput


def values(pieces: list[str]) -> list[object]:
    reader = PartialJson(lambda value: value)
    return [value for piece in pieces if (value := reader.feed(piece)) is not None]


def test_a_value_grows_with_its_text():
    assert values(['Here: {"name": "Ann', ' Lee", "age"', ": 4", "7}"]) == [
        {"name": "Ann"},
        {"name": "Ann Lee"},
        {"name": "Ann Lee", "age": 4},
        {"name": "Ann Lee", "age": 47},
    ]


def test_what_does_not_change_is_not_told_again():
    assert values(["[1", " ", ", ", "2]"]) == [[1], [1, 2]]


def test_a_text_that_is_no_json_gives_nothing():
    assert values(["no", " json {here", "}"]) == [{}] or values(["no json"]) == []


def test_a_wrapped_type_shows_what_is_in_the_wrapping():
    reader = TypedOutput(list[int]).partial()
    assert reader.feed('{"res') is None
    assert reader.feed('ult": [1, 2') == [1, 2]


def test_a_reply_that_begins_anew_is_read_anew():
    reader = PartialJson(lambda value: value)
    assert reader.feed('{"a": 1') == {"a": 1}
    reader.restart()
    assert reader.feed('{"a": 1') == {"a": 1}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    ),
    st.integers(1, 7),
)
def test_an_object_in_pieces_ends_as_itself_or_as_a_part_of_it(value: object, size: int):
    text = json.dumps({"x": value})
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    reader = PartialJson(lambda value: value)
    last = None
    for piece in pieces:
        last = reader.feed(piece) or last
    assert last is None or set(last) <= {"x"}  # type: ignore[arg-type]


def test_long_texts_are_looked_at_ever_more_rarely():
    looks = 0

    def seen(value: object) -> object:
        nonlocal looks
        looks += 1
        return value

    reader = PartialJson(seen)  # type: ignore[arg-type]
    reader.feed('{"x": "')
    for _ in range(20_000):
        reader.feed("word ")
    assert looks < 1000
