"""Messages of `application/vnd.amazon.eventstream` from byte pieces cut anywhere (Smithy, "Amazon Event Stream
Specification").

A message is its length, the length of its headers, a checksum of both, the headers, the payload, and a checksum of all
of it; numbers are big-endian.
"""

import struct
from zlib import crc32

from replan.encoding import encode
from replan.errors import BadResponse
from replan.models.failures import Failure
from replan.models.sse import Event

__all__ = ["EventStreamDecoder"]

_PRELUDE = struct.Struct(">III")
_LEAST = 16
_MOST = 2**25
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type; 6 (bytes) and 7 (text) have their length before them."""


class EventStreamDecoder:
    """Turns pieces of a stream into events. The name is the event's type; of an exception it is `exception:<type>`.

    Raises `Failure` for a message that was damaged on its way; `model` is the name for errors.
    """

    __slots__ = ("_buffer", "_model", "_names")

    def __init__(self, model: str) -> None:
        self._model = model
        self._buffer = bytearray()
        self._names: dict[bytes, tuple[bytes, bytes | None]] = {}

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes. Those before a damaged message come first, and then the failure."""
        self._buffer += piece
        found: list[Event] = []
        start, data = 0, bytes(self._buffer)
        try:
            while (length := self._length(data, start)) and start + length <= len(data):
                found.append(self._event(data[start : start + length]))
                start += length
        except (ValueError, struct.error, IndexError):
            if not found:
                error = BadResponse(f"{self._model} sent a damaged event stream", model=self._model)
                raise Failure(error, repeat=True) from None
        del self._buffer[:start]
        return found

    def finish(self) -> list[Event]:
        """Nothing: a message that broke off is none."""
        return self.feed(b"")

    def _length(self, data: bytes, start: int) -> int:
        """The length of the message that begins there; 0 where that is not known yet. Raises `ValueError`."""
        if len(data) - start < _PRELUDE.size:
            return 0
        length, headers, checksum = _PRELUDE.unpack_from(data, start)
        if checksum != crc32(data[start : start + 8]) or not headers + _LEAST <= length <= _MOST:
            raise ValueError(length)
        return length

    def _event(self, message: bytes) -> Event:
        if crc32(message[:-4]) != int.from_bytes(message[-4:]):
            raise ValueError(len(message))
        end = _PRELUDE.size + int.from_bytes(message[4:8])
        headers = message[_PRELUDE.size : end]
        known = self._names.get(headers)
        if known is None:
            known = _name(_headers(headers))
            if len(self._names) < 64:  # those of errors differ
                self._names[headers] = known
        name, said = known
        return Event(name, message[end:-4] if said is None else said)


def _name(headers: dict[bytes, bytes]) -> tuple[bytes, bytes | None]:
    """The name of an event with these headers, and its data where they are in the headers."""
    match headers.get(b":message-type"):
        case b"exception":
            return b"exception:" + headers.get(b":exception-type", b""), None
        case b"error":
            said = headers.get(b":error-message", b"").decode(errors="replace")
            return b"exception:" + headers.get(b":error-code", b""), encode({"message": said})
        case _:
            return headers.get(b":event-type", b""), None


def _headers(data: bytes) -> dict[bytes, bytes]:
    """The headers, each with the bytes of its value."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        end = at + 1 + data[at]
        name, kind = data[at + 1 : end], data[end]
        at = end + 1
        if kind in (6, 7):
            size = int.from_bytes(data[at : at + 2])
            at += 2
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise ValueError(kind)
        found[name] = data[at : at + size]
        at += size
    return found
