"""The stream of `streamGenerateContent?alt=sse`: server-sent events, and an error that comes as bare JSON."""

from replan.models.sse import Event, EventParser

__all__ = ["GeminiDecoder"]

_KEPT = 8192
"""Bytes: what is looked at for an error at the end of a stream."""


class GeminiDecoder:
    """Turns the bytes of a stream into events. JSON behind the last of them, in lines without `data:`, is one too."""

    __slots__ = ("_end", "_parser")

    def __init__(self) -> None:
        self._parser = EventParser()
        self._end = b""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes."""
        self._end = (self._end + piece)[-_KEPT:]
        return self._parser.feed(piece)

    def finish(self) -> list[Event]:
        """The events that the end of the stream completes."""
        events = self._parser.finish()
        behind = self._end.replace(b"\r\n", b"\n").strip().rpartition(b"\n\n")[2].lstrip()
        return [*events, Event(b"", behind)] if behind.startswith((b"{", b"[")) else events
