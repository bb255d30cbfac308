"""Who drives a run: enough about a process to know later, on the same machine, whether it still lives."""

import os
import secrets
import socket
import time
from functools import cache
from pathlib import Path

from msgspec import Struct

from .records import RunOwner

__all__ = ["Owner", "is_gone", "this_process"]


class Owner(Struct, frozen=True, kw_only=True):
    """The holder of a lease.

    `place` is where `pid` means something, `started` tells processes of one pid apart; both may be empty.
    """

    host: str
    place: str
    pid: int
    started: str
    since: float
    token: str

    def shown(self) -> RunOwner:
        """What callers are told."""
        return RunOwner(host=self.host, pid=self.pid, since=self.since)

    def described(self) -> str:
        """What error messages say."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on host {self.host!r} (since {since})"


def this_process() -> Owner:
    """This process as a new holder."""
    pid = os.getpid()
    started = _started(pid) or ""
    token = secrets.token_hex(8)
    return Owner(host=socket.gethostname(), place=_place(), pid=pid, started=started, since=time.time(), token=token)


def is_gone(owner: Owner) -> bool:
    """Whether the holder is known to have ended.

    False where that cannot be told: another machine, container or system.
    """
    if not owner.place or owner.place != _place():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return bool(owner.started) and _started(owner.pid) != owner.started


@cache
def _place() -> str:
    """The host and its process numbers: containers may share a host name.

    Empty where asking for a process would harm it (Windows).
    """
    if os.name != "posix":
        return ""
    try:
        return f"{socket.gethostname()}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str | None:
    """When a process began, in a form that only this function reads (proc(5))

    None where it is gone, a zombie, or not told.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else f"{boot}/{fields[19]}"
