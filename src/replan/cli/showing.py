"""Where the picture of a plan goes: to the terminal, to standard output, or to a file."""

import os
import shutil
import sys
from argparse import Namespace
from pathlib import Path

from replan.encoding import encode
from replan.errors import ConfigError

from .output import is_terminal, write_bytes, write_error, write_text
from .picture import Picture, label, picture_json
from .picture_mermaid import mermaid
from .picture_svg import svg
from .picture_text import diagram, listing, painted

__all__ = ["show_picture", "wants_picture", "write_file"]


def wants_picture(args: Namespace) -> bool:
    """Whether `show` is to draw the plan."""
    return args.plan or args.mermaid or args.svg is not None


def show_picture(args: Namespace, picture: Picture, title: str) -> None:
    """Give the picture in the form that the options ask for. Raises `ConfigError` for a file that cannot be written."""
    if args.svg is not None:
        write_file(args.svg, svg(picture, title))
    elif args.mermaid:
        write_bytes(mermaid(picture, title).encode())
    elif args.json:
        write_bytes(encode(picture_json(picture)) + b"\n")
    else:
        write_text(_text(picture))


def _text(picture: Picture) -> str:
    """The drawing, where standard output is a terminal that can show it; else the list."""
    can_draw = is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"
    if can_draw and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8":
        lines = diagram(picture, shutil.get_terminal_size().columns)
        if lines is not None:
            drawn = painted(lines, colours=not os.environ.get("NO_COLOR"))
            return f"{drawn}\nThick: {label(picture)}\n" if label(picture) else drawn
    return "".join(f"{line}\n" for line in listing(picture))


def write_file(name: str, text: str) -> None:
    """Write a text to a file; `-` is standard output. Raises `ConfigError` where that cannot be done."""
    if name == "-":
        write_bytes(text.encode())
        return
    try:
        Path(name).expanduser().write_bytes(text.encode())
    except (OSError, ValueError) as error:
        raise ConfigError(f"the file {name!r} cannot be written: {error}; name another one") from error
    write_error(f"written to {name}\n")
