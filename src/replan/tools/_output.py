"""What a function returned, as the output of a tool call."""

import itertools
import threading
from collections.abc import Iterator
from types import AsyncGeneratorType, GeneratorType
from typing import Any, TypeGuard, cast

from replan.encoding import clean_text, encode, normalise
from replan.messages import Audio, Content, File, Image, Text
from replan.tool import ToolOutput

NOTHING = "done"
EMPTY = "(empty)"
_CONTENT = (Text, Image, Audio, File)
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def to_output(value: Any) -> ToolOutput:
    """A tool output for any value.

    Text stays text, content parts (alone or in a list, also mixed with texts) stay parts, bytes become an image, text
    or file by what they hold, None becomes "done". Everything else is normalised: `structured` holds it, and the model
    reads it as JSON.
    """
    match value:
        case ToolOutput():
            return ToolOutput(_parts(value.content), normalise(value.structured), value.is_error, value.outcome_unknown)
        case None:
            return ToolOutput((Text(NOTHING),))
        case str() | Text() | Image() | Audio() | File() | bytes() | bytearray() | memoryview():
            return ToolOutput(_parts((value,)))
        case list() | tuple() if _is_content(cast("list[Any]", value)):
            return ToolOutput(_parts(value))
        case _:
            plain = normalise(value)
            return ToolOutput((Text(plain if isinstance(plain, str) else encode(plain).decode()),), plain)


def collect(value: Any, cancelled: threading.Event) -> Any:
    """The items of a generator as a list, until the call is cancelled; any other value as it is."""
    if not isinstance(value, GeneratorType):
        return value
    return list(itertools.takewhile(lambda _: not cancelled.is_set(), cast("Iterator[Any]", value)))


async def collect_async(value: Any) -> Any:
    """The items of an async generator as a list; any other value as it is."""
    return [item async for item in cast("Any", value)] if isinstance(value, AsyncGeneratorType) else value


def _is_content(values: list[Any] | tuple[Any, ...]) -> TypeGuard[tuple[Any, ...]]:
    return any(isinstance(v, _CONTENT) for v in values) and all(isinstance(v, (str, *_CONTENT)) for v in values)


def _parts(values: Any) -> tuple[Content, ...]:
    return tuple(_part(value) for value in ((values,) if isinstance(values, (str, *_CONTENT)) else values))


def _part(value: Any) -> Content:
    match value:
        case Text():
            return Text(clean_text(value.text))
        case str():
            return Text(clean_text(value) or EMPTY)
        case Image() | Audio() | File():
            return value
        case bytes() | bytearray() | memoryview():
            return _bytes_part(bytes(cast("bytes", value)))
        case _:
            return Text(encode(normalise(value)).decode())


def _bytes_part(data: bytes) -> Content:
    mime = next((mime for magic, mime in _MAGIC if data.startswith(magic)), None)
    if mime is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        mime = "image/webp"
    if mime is not None:
        return Image(mime, data)
    if data.startswith(b"%PDF-"):
        return File("application/pdf", data=data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return File("application/octet-stream", data=data) if "\0" in text else Text(text or EMPTY)
