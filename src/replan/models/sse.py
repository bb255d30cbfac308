"""Server-sent events from byte pieces cut anywhere (WHATWG HTML, 9.2.6)."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple

__all__ = ["Event", "EventParser", "events"]


class Event(NamedTuple):
    """One event: its name (empty where none was given) and its data, the lines joined by line breaks."""

    name: bytes
    data: bytes


class EventParser:
    """Turns pieces of a stream into events. More lenient than the standard: an event at the end needs no blank line."""

    __slots__ = ("_data", "_name", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes."""
        if b"\n" not in piece and b"\r" not in piece:
            self._rest.append(piece)
            return []
        text = b"".join((*self._rest, piece)) if self._rest else piece
        if b"\r" in text:
            held = text.endswith(b"\r")  # the line feed of this line end may come with the next piece
            text = text[: len(text) - held].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            lines = text.split(b"\n")
            rest = lines.pop() + b"\r" * held
        else:
            lines = text.split(b"\n")
            rest = lines.pop()
        self._rest = [rest] if rest else []
        return self._take(lines)

    def finish(self) -> list[Event]:
        """The event that the end of the stream completes, if there is one."""
        line = b"".join(self._rest).rstrip(b"\r")
        self._rest = []
        return self._take([line, b""])

    def _take(self, lines: list[bytes]) -> list[Event]:
        found: list[Event] = []
        for line in lines:
            if not line:
                if self._data:
                    found.append(Event(self._name, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
                    self._data = []
                self._name = b""
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            else:
                self._field(line)
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        if name == b"event":
            self._name = value.strip()
        elif name == b"data":
            self._data.append(value.removeprefix(b" "))


async def events(pieces: AsyncIterable[bytes]) -> AsyncIterator[list[Event]]:
    """The events of a stream, in lists of what came together."""
    parser = EventParser()
    async for piece in pieces:
        if found := parser.feed(piece):
            yield found
    if found := parser.finish():
        yield found
