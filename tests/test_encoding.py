import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import math
import uuid
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import msgspec
import pydantic
import pytest

from replan.encoding import clean_text, decode, encode, normalise


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Pair(NamedTuple):
    a: int
    b: str


@dataclasses.dataclass
class Point:
    x: int
    inner: Any = None


class Struct(msgspec.Struct, tag="struct"):
    a: Any


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    text: str = "t"
    data: bytes = b""
    anything: Any = None
    hidden: int = pydantic.Field(default=0, exclude=True)


class Broken:
    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("no")


class BrokenText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no")


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Evasive:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Array:
    """As numpy's arrays and scalars do."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def tolist(self) -> Any:
        return self.values


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (1, 1),
        (1.5, 1.5),
        ("a", "a"),
        (2**63, 2**63),
        (2**64, str(2**64)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (10**6000, "<int that is too large>"),
        (float("nan"), None),
        (float("inf"), None),
        (datetime.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.time(3, 4), "03:04:00"),
        (datetime.timedelta(days=1, seconds=2), "P1DT2S"),
        (decimal.Decimal("1.10"), "1.10"),
        (decimal.Decimal("NaN"), "NaN"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (PurePosixPath("/a/b"), "/a/b"),
        (fractions.Fraction(1, 3), "1/3"),
        (ipaddress.ip_address("127.0.0.1"), "127.0.0.1"),
        (b"\xff", "/w=="),
        (bytearray(b"ab"), "YWI="),
        (memoryview(b"ab"), "YWI="),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        ({"b"}, ["b"]),
        (frozenset({1}), [1]),
        ((1, (2,)), [1, [2]]),
        (Pair(1, "b"), [1, "b"]),
        (range(3), [0, 1, 2]),
        (collections.deque([1, 2]), [1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        ({"a": 1}.items(), [["a", 1]]),
        ((i for i in "ab"), ["a", "b"]),
        (Array([1, [2.5]]), [1, [2.5]]),
        (Array(3), 3),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ({1: "i", 1.5: "f", None: "n"}, {"1": "i", "1.5": "f", "null": "n"}),
        (
            {True: 0, Colour.RED: 1, (1, 2): 2, datetime.date(2026, 1, 2): 3},
            {"true": 0, "red": 1, "[1,2]": 2, "2026-01-02": 3},
        ),
        (Point(1, Point(2)), {"x": 1, "inner": {"x": 2, "inner": None}}),
        (Struct({"k": {1}}), {"type": "struct", "a": {"k": [1]}}),
        (Struct(object()), {"type": "struct", "a": "<object>"}),
        (Model(text="x", data=b"y"), {"text": "x", "data": "y", "anything": None}),
        (Model(data=b"\xff"), {"text": "t", "data": "/w==", "anything": None}),
        (Model(anything=object()), {"text": "t", "data": "", "anything": "<object>"}),
        (Model.model_construct(text="\ud800"), {"text": "\ufffd", "data": "", "anything": None}),
        (ValueError("bad"), "ValueError: bad"),
        (Model, "<class Model>"),
        (object(), "<object>"),
        (len, "<builtin_function_or_method>"),
        (Broken(), "<Broken that cannot be shown: RuntimeError>"),
        ([1, Broken()], [1, "<Broken that cannot be shown: RuntimeError>"]),
        (BrokenText("a"), "<BrokenText that cannot be shown: RuntimeError>"),
        (BrokenError(), "<BrokenError that cannot be shown: RuntimeError>"),
        (Evasive(), "<Evasive that cannot be shown: RuntimeError>"),
        ("a\ud800b", "a\ufffdb"),
        ({"\ud800": "\udfff"}, {"\ufffd": "\ufffd"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_becomes_json(value: Any, plain: Any):
    result = normalise(value)
    assert result == plain
    assert type(result) is type(plain)
    assert decode(encode(result)) == plain


def test_a_value_that_contains_itself_stops():
    loop: list[Any] = [1]
    loop += [loop, loop]
    assert normalise(loop) == [1, "<list that contains itself>", "<list that contains itself>"]
    point = Point(1)
    point.inner = {"back": point}
    assert normalise(point) == {"x": 1, "inner": {"back": "<Point that contains itself>"}}


def test_the_same_value_twice_is_no_loop():
    shared = [1]
    assert normalise([shared, shared, {"k": shared}]) == [[1], [1], {"k": [1]}]


def test_what_lies_too_deep_is_named():
    deep: Any = "bottom"
    for _ in range(100):
        deep = [deep]
    text = json.dumps(normalise(deep))
    assert text == "[" * 64 + '"<list nested too deeply>"' + "]" * 64
    assert normalise([[1]], depth=1) == ["<list nested too deeply>"]


def test_a_generator_without_end_is_not_waited_for():
    def forever() -> Any:
        while True:
            yield 1

    assert normalise({"g": forever()}) == {"g": "<generator that cannot be shown: OverflowError>"}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain", "plain"),
        ("naïve 😀", "naïve 😀"),
        ("\ud83d\ude00", "😀"),
        ("\ud800a\udc00", "\ufffda\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("", ""),
    ],
)
def test_lone_surrogates_are_replaced(text: str, clean: str):
    assert clean_text(text) == clean


any_text = st.text(st.characters(codec=None, categories=None), max_size=8)
wild = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | any_text
    | st.binary(max_size=5)
    | st.datetimes()
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.complex_numbers()
    | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(any_text | st.integers() | st.none() | st.dates(), inner, max_size=4)
        | st.builds(Point, st.integers(), inner)
        | st.builds(Struct, inner)
        | st.builds(lambda value: Model(anything=value), inner)
    ),
    max_leaves=12,
)


@hypothesis.given(wild)
@hypothesis.settings(max_examples=200, deadline=None)
def test_what_is_normalised_survives_encoding(value: Any):
    plain = normalise(value)
    assert decode(encode(plain)) == plain
    assert normalise(plain) == plain
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


@hypothesis.given(wild)
@hypothesis.settings(max_examples=100, deadline=None)
def test_encode_takes_anything(value: Any):
    json.loads(encode(value))


@hypothesis.given(any_text)
def test_clean_text_is_utf8_and_changes_no_more_than_it_must(text: str):
    clean = clean_text(text)
    clean.encode()
    assert clean_text(clean) == clean
    assert clean.replace("\ufffd", "").count("a") == text.count("a")


def test_encode_is_compact_json():
    assert encode({"a": [1, None, "é"]}) == '{"a":[1,null,"é"]}'.encode()
    assert encode({"t": "\ud800", "n": float("nan")}) == b'{"t":"\\ufffd","n":null}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (b"[1.0]", [1.0]),
        ("NaN", None),
        ('{"a": Infinity, "b": [-Infinity]}', {"a": None, "b": [None]}),
        ('"\\ud800"', "\ufffd"),
        ('"\ud800"', "\ufffd"),
        ("1e999", None),
        ("18446744073709551616", 18446744073709551616),
    ],
)
def test_decode_reads_what_some_producers_write(text: Any, value: Any):
    assert decode(text) == value


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "[1,]", b"\xff", "[" * 200_000, '{"a":' * 200_000, "nope"])
def test_decode_raises_a_value_error_for_anything_else(text: Any):
    with pytest.raises(ValueError):
        decode(text)


@hypothesis.given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**64 - 1))
def test_numbers_keep_their_value_and_kind(number: float):
    result = decode(encode(number))
    assert result == number
    assert type(result) is type(number)
    assert math.copysign(1, result) == math.copysign(1, number)
