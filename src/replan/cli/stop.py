"""Ctrl-C and its kin: the first one stops the work cleanly, the second one ends the process at once."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from .output import close_output, is_terminal, write_error

__all__ = ["Stopper", "run_async"]

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_PS = ("ps", "-A", "-o", "pid=,ppid=")
_SHOW_CURSOR = b"\x1b[?25h"


class Stopper:
    """Handles the signals that ask the process to end, as a context manager.

    `signal` is the one that came, or None. What the first one does is set with `stops`: it is called in the event loop.
    Signals that are ignored when the process starts (`nohup`, a shell's background jobs) stay ignored.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._seen: list[int] = []
        self._stop: Callable[[], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[int, Any] = {}

    @property
    def code(self) -> int:
        """The exit code for the signal that came."""
        return 128 + (self.signal or signal.SIGINT)

    def stops(self, stop: Callable[[], object]) -> None:
        """Have the first signal call `stop`; at once where it has come already."""
        self._loop, self._stop = asyncio.get_running_loop(), stop
        if self.signal is not None:
            stop()

    def __enter__(self) -> Self:
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if number != getattr(signal, "SIGHUP", None):
                leave(128 + number, self._seen)
            return
        self.signal = number
        self._seen = _descendants(os.getpid())
        if self._loop is None:
            raise KeyboardInterrupt
        with contextlib.suppress(RuntimeError):  # the loop has just been closed
            self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        if self._stop is not None:
            self._stop()


def run_async(work: Callable[[Stopper], Coroutine[Any, Any, int]]) -> int:
    """Run `work` in an event loop and give its exit code. The first signal cancels it, unless it says otherwise."""
    with Stopper() as stopper:
        try:
            return asyncio.run(_guarded(work, stopper))
        except KeyboardInterrupt:
            return stopper.code


async def _guarded(work: Callable[[Stopper], Coroutine[Any, Any, int]], stopper: Stopper) -> int:
    task = asyncio.current_task()
    assert task is not None
    stopper.stops(task.cancel)
    try:
        code = await work(stopper)
    except asyncio.CancelledError:
        if stopper.signal is None:
            raise
        write_error("replan: interrupted\n")
        code = stopper.code
    if stopper.signal is not None:
        await _end_rest()
        _leave_threads(code)
    return code


async def _end_rest() -> None:
    """End what an interrupted connecting has left."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=5.0)


def _leave_threads(code: int) -> None:
    """Do not wait for threads that nothing can stop, such as one that looks up a name."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        close_output()
        os._exit(code)


def leave(code: int, seen: Iterable[int] = ()) -> None:
    """End this process and all that it started, now.

    `seen` are processes that were there before: of one that has ended since, the rest of its group may still run.
    """
    if is_terminal(sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            os.write(sys.stderr.fileno(), _SHOW_CURSOR)
    for pid in seen if os.name == "posix" else ():
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    for pid in _descendants(os.getpid()):
        _kill(pid)
    os._exit(code)


def _kill(pid: int) -> None:
    if os.name != "posix":
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
        return
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):  # no such group, or gone
            kill(pid, signal.SIGKILL)


def _descendants(root: int) -> list[int]:
    """The processes that `root` has started, and theirs; nothing where the system does not tell."""
    parents = _parents()
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid and child not in found]
    return found[1:]


def _parents() -> dict[int, int]:
    proc = Path("/proc")
    if (proc / "self" / "stat").exists():
        return dict(filter(None, (_parent(folder) for folder in proc.iterdir() if folder.name.isdigit())))
    if os.name != "posix":
        return {}
    try:
        listed = subprocess.run(_PS, capture_output=True, timeout=1, check=False)  # noqa: S603  # fixed words
    except (OSError, subprocess.SubprocessError):
        return {}
    words = [int(word) for word in listed.stdout.split()]
    return dict(zip(words[::2], words[1::2], strict=False))


def _parent(folder: Path) -> tuple[int, int] | None:
    try:
        stat = (folder / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return int(folder.name), int(stat.rpartition(")")[2].split()[1])
