"""Conversations of APIs whose roles alternate: neighbours with the same role are one message of several blocks."""

from collections.abc import Callable

from replan.encoding import encode

__all__ = ["Turns"]


class Turns:
    """The encoded messages of a conversation, as far as it has got.

    What is complete is kept joined, so that a turn costs no more in a long conversation than in a short one. `field`
    is the name of a message's list of blocks.
    """

    __slots__ = ("_blocks", "_done", "_field", "_role", "count")

    def __init__(self, field: str) -> None:
        self._field = encode(field)
        self._done = bytearray()
        self._role = ""
        self._blocks: list[bytes] = []
        self.count = 0
        """How many messages of the conversation are in it; the caller counts."""

    @property
    def role(self) -> str:
        """The role of the last message; empty where there is none."""
        return self._role

    def add(self, role: str, blocks: list[bytes]) -> None:
        """Add blocks, to the last message where it has that role."""
        if role != self._role and self._blocks:
            self._done += self._message(self._blocks) + b","
            self._blocks = []
        self._role = role
        self._blocks += blocks

    def encoded(
        self, mark: Callable[[list[bytes]], list[bytes]] | None = None, closing: tuple[str, list[bytes]] | None = None
    ) -> bytes:
        """The JSON array of the messages. `mark` gives the blocks of the last message with a mark for caches; `closing`
        is a message behind it that is not kept.
        """
        blocks = mark(self._blocks) if mark and self._blocks else self._blocks
        last = self._message(blocks) if blocks else b""
        if closing:
            role, more = closing
            last += (b"," if last else b"") + self._whole(role, more)
        return b"".join((b"[", self._done, last, b"]"))

    def _message(self, blocks: list[bytes]) -> bytes:
        return self._whole(self._role, blocks)

    def _whole(self, role: str, blocks: list[bytes]) -> bytes:
        return b'{"role":%s,%s:[%s]}' % (encode(role), self._field, b",".join(blocks))
