"""Texts as a terminal may show them: nothing in them is a control sequence, and what is long is clipped."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from replan.encoding import clean_text, encode

__all__ = ["amount", "call_text", "clean", "dollars", "duration", "one_line"]

_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f\n]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links
    r"|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SPACES = re.compile(r"\s+")


def clean(text: str) -> str:
    """The text without escape sequences and control characters other than tab and newline; fit to be written."""
    text = _SEQUENCES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return clean_text(_CONTROLS.sub("", text))


def one_line(text: str, width: int = 100) -> str:
    """The text on one line of at most `width` characters."""
    line = _SPACES.sub(" ", clean(text[: 20 * width])).strip()
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def call_text(tool: str, arguments: Mapping[str, Any], width: int = 90) -> str:
    """A tool call as one would write it: `lookup(key="a")`."""
    shown = (f"{name}={one_line(encode(value).decode(), 40)}" for name, value in arguments.items())
    return one_line(f"{tool}({', '.join(shown)})", width)


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `4 d`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min" if whole < 86400 else f"{whole // 86400} d"


def dollars(cost: Decimal) -> str:
    """`$0.0012`, `$0`."""
    return f"${cost:.4f}" if cost else "$0"


def amount(count: int) -> str:
    """The number with thousands separated."""
    return f"{count:,}"
