"""Names of tools: which are allowed, and what to say to a model that calls one that does not exist."""

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

from replan.errors import ConfigError
from replan.tool import Tool

__all__ = ["check_name", "nearest", "unknown_tool_text"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PARTS = re.compile(r"__|[./:]")
_ALIKE = 0.6
_FEW = 8


def check_name(name: object) -> str:
    """The name, if a model may see it: `[A-Za-z0-9_-]{1,64}`. Raises `ConfigError` where it may not."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a tool: give name=... of 1 to 64 letters (a-z), digits, '_' and '-'"
        )
    return name


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known names that are most like this one, best first; none where nothing is alike.

    The last part of a name (after `__`, `.`, `/` or `:`) counts as well, so that `serch` finds `docs__search`.
    """
    wanted = {form for form in _forms(name[:80]) if form}
    matcher = SequenceMatcher(autojunk=False)
    scored: list[tuple[float, str]] = []
    for candidate in known:
        score = max((_likeness(matcher, w, form) for w in wanted for form in _forms(candidate)), default=0.0)
        if score >= _ALIKE:
            scored.append((-score, candidate))
    return [candidate for _, candidate in sorted(scored)[:limit]]


def _forms(name: str) -> tuple[str, ...]:
    folded = name.casefold().replace("-", "_")
    last = _PARTS.split(folded)[-1]
    return (folded,) if last == folded else (folded, last)


def _likeness(matcher: SequenceMatcher[str], one: str, other: str) -> float:
    matcher.set_seqs(one, other)
    if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE:
        return 0.0
    return matcher.ratio()


def unknown_tool_text(name: str, tools: Mapping[str, Tool]) -> str:
    """What a model reads that called an unknown tool: the names it may have meant, never a whole catalogue."""
    if not tools:
        return f"There is no tool {name[:80]!r}: no tools are available. Answer without one."
    start = f"There is no tool {name[:80]!r}." if name.strip() else "The call names no tool."
    by_original = sorted(alias for alias, tool in tools.items() if tool.info.original == name)
    alike = by_original or nearest(name, tools)
    if len(alike) == 1:
        return f"{start} Did you mean {alike[0]!r}? Call it by exactly that name."
    if alike or len(tools) <= _FEW:
        return f"{start} Call one of these by exactly its name: {', '.join(alike or tools)}."
    return f"{start} None of the {len(tools)} available tools has a similar name; call one that you were given."
