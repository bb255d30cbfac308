import dataclasses
import datetime
import decimal
import uuid
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pydantic
import pytest

from replan.encoding import decode, encode
from replan.messages import Audio, File, Image, Text, ToolResult, to_json
from replan.tool import ToolContext, ToolOutput
from replan.tools import tool

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8


class Model(pydantic.BaseModel):
    a: int
    when: datetime.date = datetime.date(2026, 1, 2)


@dataclasses.dataclass
class Point:
    x: int
    tags: set[str] = dataclasses.field(default_factory=lambda: {"a"})


class Struct(msgspec.Struct):
    data: bytes


class Broken:
    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("no")


@pytest.fixture
def call(context: ToolContext[Any]) -> Callable[[Any], Any]:
    async def run(value: Any) -> ToolOutput:
        async def f() -> Any:
            return value

        return await tool(f).call({}, context)

    return run


@pytest.mark.parametrize(
    ("value", "structured", "text"),
    [
        (
            datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC),
            "2026-01-02T03:00:00+00:00",
            "2026-01-02T03:00:00+00:00",
        ),
        (decimal.Decimal("1.10"), "1.10", "1.10"),
        ({3}, [3], "[3]"),
        (float("nan"), None, "null"),
        ({"a": float("inf")}, {"a": None}, '{"a":null}'),
        (Model(a=1), {"a": 1, "when": "2026-01-02"}, '{"a":1,"when":"2026-01-02"}'),
        (Point(1), {"x": 1, "tags": ["a"]}, '{"x":1,"tags":["a"]}'),
        (Struct(b"ab"), {"data": "YWI="}, '{"data":"YWI="}'),
        (ValueError("bad"), "ValueError: bad", "ValueError: bad"),
        (Broken(), "<Broken that cannot be shown: RuntimeError>", "<Broken that cannot be shown: RuntimeError>"),
        ({1: "a", None: "b"}, {"1": "a", "null": "b"}, '{"1":"a","null":"b"}'),
        (["a\ud800"], ["a\ufffd"], '["a\ufffd"]'),
        ([], [], "[]"),
        ({}, {}, "{}"),
        (0, 0, "0"),
        (False, False, "false"),
        ((1, "a"), [1, "a"], '[1,"a"]'),
        (["a", "b"], ["a", "b"], '["a","b"]'),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a"), "/a", "/a"),
        ({"raw": b"\xff"}, {"raw": "/w=="}, '{"raw":"/w=="}'),
        ({"g": (i for i in range(2))}, {"g": [0, 1]}, '{"g":[0,1]}'),
    ],
)
async def test_values_become_json_and_json_text(call: Callable[[Any], Any], value: Any, structured: Any, text: str):
    output = await call(value)
    assert output == ToolOutput((Text(text),), structured)
    assert decode(encode(output.structured)) == structured


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, (Text("done"),)),
        ("text", (Text("text"),)),
        ("", (Text("(empty)"),)),
        ("a\ud800b", (Text("a\ufffdb"),)),
        ("[1,2]", (Text("[1,2]"),)),
        (b"plain", (Text("plain"),)),
        (PNG, (Image("image/png", PNG),)),
        (b"\xff\xd8\xff1", (Image("image/jpeg", b"\xff\xd8\xff1"),)),
        (b"GIF89a..", (Image("image/gif", b"GIF89a.."),)),
        (bytearray(b"RIFF1234WEBP"), (Image("image/webp", b"RIFF1234WEBP"),)),
        (b"%PDF-1.7", (File("application/pdf", data=b"%PDF-1.7"),)),
        (b"a\0b", (File("application/octet-stream", data=b"a\0b"),)),
        (memoryview(b"\xfe\xff"), (File("application/octet-stream", data=b"\xfe\xff"),)),
        (Image("image/png", PNG), (Image("image/png", PNG),)),
        (
            ["see:", Image("image/png", PNG), Audio("audio/wav", b"1")],
            (Text("see:"), Image("image/png", PNG), Audio("audio/wav", b"1")),
        ),
    ],
)
async def test_texts_bytes_and_parts_become_content(call: Callable[[Any], Any], value: Any, content: tuple[Any, ...]):
    assert await call(value) == ToolOutput(content)


async def test_an_output_is_taken_as_it_is_but_for_what_json_cannot_hold(call: Callable[[Any], Any]):
    output = ToolOutput((Text("a\udfff"), Image("image/png", PNG)), {"when": datetime.date(2026, 1, 2)}, is_error=True)
    expected = ToolOutput((Text("a\ufffd"), Image("image/png", PNG)), {"when": "2026-01-02"}, is_error=True)
    assert await call(output) == expected
    assert await call(expected) == expected


async def test_a_list_with_something_else_among_parts_is_data(call: Callable[[Any], Any]):
    output = await call([Text("a"), 1])
    assert output.structured == [{"type": "text", "text": "a"}, 1]


async def test_every_output_can_be_stored(call: Callable[[Any], Any]):
    for value in (b"\xff", "\ud800", {"a": {1, 2}}, object(), Model(a=1), [PNG], lambda: 1, Model, iter([1])):
        output = await call(value)
        stored = encode(to_json(ToolResult("c1", "f", output.content, structured=output.structured)))
        assert decode(stored)["call_id"] == "c1"
