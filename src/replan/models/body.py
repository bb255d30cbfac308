"""What wires share in writing request bodies."""

import logging
import re
from collections.abc import Callable

from replan.encoding import JSON, encode
from replan.model import ToolSpec

__all__ = ["ToolList", "object_bytes", "tool_name"]

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_log = logging.getLogger("replan")


def object_bytes(fields: dict[str, bytes]) -> bytes:
    """A JSON object of values that are encoded already."""
    pieces: list[bytes] = []
    for name, value in fields.items():
        pieces += (b"," if pieces else b"{", encode(name), b":", value)
    return b"".join((*pieces, b"}")) if pieces else b"{}"


def tool_name(name: str) -> str:
    """The name of a call in the history as a provider accepts it, whatever the model wrote."""
    return _NOT_IN_NAME.sub("_", name)[:64] or "unnamed"


class ToolList:
    """The tools of a request, encoded once for each tuple of them.

    `described` gives a tool as the API wants it; a tool for which it raises `ValueError` is left out, with a warning.
    """

    def __init__(self, described: Callable[[ToolSpec], JSON]) -> None:
        self._described = described
        self._known: dict[int, tuple[tuple[ToolSpec, ...], bytes, frozenset[str]]] = {}

    def encoded(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """The JSON array."""
        return self._find(tools)[1]

    def names(self, tools: tuple[ToolSpec, ...]) -> frozenset[str]:
        """The names of the tools that are in it."""
        return self._find(tools)[2]

    def _find(self, tools: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], bytes, frozenset[str]]:
        known = self._known.get(id(tools))
        if known is None:
            if len(self._known) >= 64:
                self._known.clear()
            known = self._known[id(tools)] = self._make(tools)
        return known

    def _make(self, tools: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], bytes, frozenset[str]]:
        entries: list[JSON] = []
        names: set[str] = set()
        for tool in tools:
            try:
                entries.append(self._described(tool))
            except ValueError as error:
                _log.warning("the tool %r is left out: %s", tool.name, error)
            else:
                names.add(tool.name)
        return tools, encode(entries), frozenset(names)
