"""Standard input, read so that it can be given up at any moment."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable

__all__ = ["drop_typed", "read_all", "read_line"]

_BLOCK = 65536


async def read_all() -> str:
    """What standard input holds, to its end; nothing where it is closed. Raises `OSError`."""
    return await _in_thread(_read_to_end)


async def read_line() -> str | None:
    """A line that a person types at a terminal, None at the end of input."""
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    try:
        loop.add_reader(sys.stdin.fileno(), typed.set)
    except NotImplementedError:  # Windows
        return await _in_thread(_read_once) or None
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return _read_once().decode("utf-8", "replace") or None


def drop_typed() -> None:
    """Forget what was typed before there was a question: it is no answer."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows; no terminal
        import termios

        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def _in_thread(read: Callable[[], bytes]) -> str:
    """Read in a thread that nobody waits for: a read cannot be interrupted, and a signal may come just before it."""
    loop = asyncio.get_running_loop()
    text: asyncio.Future[str] = loop.create_future()

    def settle(data: bytes | OSError) -> None:
        if text.done():
            return
        if isinstance(data, OSError):
            text.set_exception(data)
        else:
            text.set_result(data.decode("utf-8-sig", "replace"))

    def work() -> None:
        try:
            data: bytes | OSError = read()
        except OSError as error:
            data = error
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(settle, data)

    threading.Thread(target=work, name="standard input", daemon=True).start()
    return await text


def _read_to_end() -> bytes:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # it is None where the descriptor was closed
        return b""
    descriptor = sys.stdin.fileno()
    data = bytearray()
    while block := os.read(descriptor, _BLOCK):
        data += block
    return bytes(data)


def _read_once() -> bytes:
    return os.read(sys.stdin.fileno(), _BLOCK)
