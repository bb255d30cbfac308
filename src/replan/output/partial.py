"""The value of a JSON text that is still being written."""

from collections.abc import Callable

from replan.encoding import JSON

__all__ = ["PartialJson"]


class PartialJson:
    """Reads a JSON text that comes in pieces, as far as it has come.

    Each look reads the whole text, so the looks become rarer as it grows: what they cost together stays linear.
    """

    def __init__(self, shown: Callable[[JSON], JSON]) -> None:
        from pydantic_core import from_json as parse

        self._parse: Callable[..., JSON] = parse
        self._shown = shown
        self._text, self._next, self._last = "", 0, None

    def restart(self) -> None:
        """Forget what has come: the reply begins anew."""
        self._text, self._next, self._last = "", 0, None

    def feed(self, piece: str) -> JSON:
        """The value so far, where it has changed; else None. The last string of it may be cut."""
        self._text += piece
        if len(self._text) < self._next:
            return None
        self._next = len(self._text) + len(self._text) // 64
        start = min((at for at in (self._text.find("{"), self._text.find("[")) if at >= 0), default=-1)
        if start < 0:
            return None
        try:
            value = self._parse(self._text[start:].encode("utf-8", "replace"), allow_partial="trailing-strings")
        except ValueError:
            return None
        shown = self._shown(value)
        if shown is None or shown == self._last:
            return None
        self._last: JSON = shown
        return shown
