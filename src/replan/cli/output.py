"""Standard output and standard error, whatever has become of them."""

import errno
import os
import sys
from contextlib import suppress
from typing import TextIO

__all__ = ["OutputClosed", "close_output", "is_terminal", "prepare_output", "write_bytes", "write_error", "write_text"]


class OutputClosed(Exception):
    """Nobody reads standard output any more: a signal to end quietly."""


def prepare_output() -> None:
    """Let characters that the terminal's encoding lacks be replaced instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def write_text(text: str) -> None:
    """Write to standard output at once. Raises `OutputClosed` where nobody reads it, `OSError` where it is full."""
    write_bytes(text.encode(sys.stdout.encoding or "utf-8", "replace") if sys.stdout else b"")


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output at once; raises as `write_text` does."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # it is None where the descriptor was closed
        raise OutputClosed
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except ValueError:
        raise OutputClosed from None
    except OSError as error:
        _discard(sys.stdout)
        if error.errno in (errno.EPIPE, errno.EIO, errno.EBADF, errno.EINVAL):
            raise OutputClosed from None
        raise


def write_error(text: str) -> None:
    """Write to standard error; what cannot be written is dropped."""
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]  # it is None where the descriptor was closed
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            _discard(sys.stderr)


def close_output() -> bool:
    """Write out what is buffered; False where nobody reads standard output."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # it is None where the descriptor was closed
        return True
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _discard(sys.stdout)
        return False
    return True


def _discard(stream: TextIO) -> None:
    """Let the rest of the buffer go nowhere, so that the interpreter does not complain of it when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
