"""Names of MCP tools as models can say them: `server__tool`, in letters, digits, `_` and `-`, at most 64."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

__all__ = ["tool_aliases"]

_LONGEST = 64
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def tool_aliases(server: str, tools: Iterable[str]) -> dict[str, str]:
    """An alias for each tool of one server, by the tool's own name.

    An alias depends on the server's name and on the server's own tools, not on their order and not on other servers.
    It ends with a hash of the full name where it had to be cut, or where two names differ only in characters that had
    to be replaced.
    """
    names = sorted(set(tools))
    label = _label(server)
    plain = {name: f"{label}__{_FORBIDDEN.sub('_', name)}" for name in names}
    shared = Counter(plain.values())
    aliases = {name: text for name, text in plain.items() if _keeps(text, f"{label}__{name}", shared)}
    taken = set(aliases.values())
    for name in names:
        if name not in aliases:
            aliases[name] = _hashed(plain[name], f"{server}\0{name}", taken)
            taken.add(aliases[name])
    return aliases


def _keeps(alias: str, unchanged: str, shared: Counter[str]) -> bool:
    return len(alias) <= _LONGEST and (shared[alias] == 1 or alias == unchanged)


def _label(server: str) -> str:
    """The server's part of an alias. Different servers have different ones and none contains `__`, so aliases never
    meet.
    """
    label = re.sub("_+", "_", _FORBIDDEN.sub("_", server)).rstrip("_")
    if label == server and not label[:1].isdigit() and not label.startswith("-"):
        return label
    label = label if label[:1].isalpha() or label.startswith("_") else f"_{label}"
    return f"{label[:32]}_{_digest(server)[:6]}"


def _hashed(text: str, full: str, taken: set[str]) -> str:
    digest = _digest(full)
    for length in range(8, len(digest)):
        alias = f"{text[: _LONGEST - length - 1]}_{digest[:length]}"
        if alias not in taken:
            return alias
    raise AssertionError("a hash of every length is taken")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:56]
