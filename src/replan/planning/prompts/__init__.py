"""The standing instructions of the stages, one Markdown file each."""

from functools import cache
from pathlib import Path

__all__ = ["instructions", "load"]

_FOLDER = Path(__file__).parent


@cache
def load(name: str) -> str:
    """The text of `<name>.md`."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()


def instructions(name: str, *sections: str) -> str:
    """The stage's instructions with further sections behind them; empty ones are left out."""
    return "\n\n".join(section for section in (load(name), *sections) if section)
