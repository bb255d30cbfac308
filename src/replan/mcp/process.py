"""The process of a stdio server: started in a session of its own, watched, and ended with all that it started."""

import asyncio
import contextlib
import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

__all__ = ["ServerProcess", "child_environment"]

_log = logging.getLogger("replan.mcp")

_EOF_GRACE, _TERM_GRACE, _KILL_GRACE = 1.5, 1.5, 0.7
"""Seconds that a server has to end after its input closed, after SIGTERM, and after SIGKILL."""

_GROUP_GRACE = 0.4
"""Seconds that what a server started may outlive it before it is ended too."""

_SETTLE = 0.3
"""Seconds in which the end of output and the exit, which are seen one by one, must both be seen."""

_LONGEST_LINE = 256 * 2**20
"""Bytes after which a line without an end is given up."""

_KEPT_LINES, _SHOWN_LINES, _LINE_WIDTH = 50, 8, 400


_INHERITED = (
    ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
    if os.name == "posix"
    else (
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
    )
)


def child_environment() -> dict[str, str]:
    """The variables that a server gets unasked: those that the official SDK holds safe to pass on."""
    found = ((name, os.environ.get(name)) for name in _INHERITED)
    return {name: value for name, value in found if value is not None and not value.startswith("()")}


_SHELLS = frozenset(("ash", "bash", "dash", "fish", "ksh", "sh", "zsh"))
_LAUNCHERS = _SHELLS | frozenset(
    (
        *("bun", "bunx", "deno", "npm", "npx", "pnpm", "pnpx", "tsx", "yarn"),
        *("conda", "hatch", "mamba", "pdm", "pipx", "pixi", "poetry", "rye", "uv", "uvx"),
        *("docker", "nerdctl", "podman"),
        *("cargo", "dotnet", "go", "just", "make", "mise", "nix", "nix-shell"),
        *("doas", "env", "nice", "nohup", "ssh", "sudo", "timeout", "xargs"),
    )
)
"""Commands that start servers: told to end, they hand that on. A server of any other name is killed itself."""


class _Writable(Protocol):
    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def is_closing(self) -> bool: ...


class _Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self, emit: Callable[[bytes], None]) -> None:
        self._emit = emit
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        start = len(self._rest)
        self._rest += data
        if self._rest.find(b"\n", start) < 0:
            if len(self._rest) > _LONGEST_LINE:
                self._emit(bytes(self._rest[:_LINE_WIDTH]))
                self._rest.clear()
            return
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            self._emit(line)

    def flush(self) -> None:
        if self._rest:
            self._emit(bytes(self._rest))
            self._rest.clear()


class ServerProcess(asyncio.SubprocessProtocol):
    """A running server. `ended` is true when nothing more can come from it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = False
        self._early: list[bytes] = []
        self._on_line: Callable[[bytes], None] = self._early.append
        self._at_end: list[Callable[[], None]] = []
        self._stderr: deque[str] = deque(maxlen=_KEPT_LINES)
        self._splitters = {1: _Lines(self._print), 2: _Lines(self._said)}
        self._exited = asyncio.Event()
        self._silent = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    @classmethod
    async def start(
        cls, name: str, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | Path | None
    ) -> "ServerProcess":
        """Start the command. Raises `OSError` with a message for people where that is impossible."""
        program = _find(command, env, cwd)
        process = cls(name)
        await asyncio.get_running_loop().subprocess_exec(
            lambda: process,
            *_guard("TERM" if _is_launcher(program) else "KILL"),
            program,
            *args,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        return process

    @property
    def pid(self) -> int:
        """The process id, which is the id of its process group too."""
        assert self._transport is not None
        return self._transport.get_pid()

    def listen(self, on_line: Callable[[bytes], None]) -> None:
        """Give the lines of the server's output to `on_line`, those already there first."""
        self._on_line = on_line
        for line in self._early:
            on_line(line)
        self._early.clear()

    def at_end(self, call: Callable[[], None]) -> None:
        """Call this once when nothing more can come from the server."""
        if self.ended:
            call()
        else:
            self._at_end.append(call)

    def send(self, line: bytes) -> bool:
        """Write one line to the server's input; false where that is closed."""
        pipe = self._input()
        if self.ended or pipe is None or pipe.is_closing():
            return False
        pipe.write(line + b"\n")
        return True

    def describe(self) -> str:
        """How the server ended and what it said last on stderr, for an error message."""
        lines = list(self._stderr)[-_SHOWN_LINES:]
        said = "; its last words on stderr:\n  " + "\n  ".join(lines) if lines else "; it said nothing on stderr"
        return f"{self._fate()}{said}"

    def _fate(self) -> str:
        code = None if self._transport is None else self._transport.get_returncode()
        if code is None:
            return "closed its output" if self._silent else "is running"
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"

    async def stop(self) -> None:
        """End the server and its children: end of input, then SIGTERM, then SIGKILL. Takes a few seconds at most."""
        try:
            if pipe := self._input():
                pipe.close()
            if await self._exit(_EOF_GRACE) and await self._empty(_GROUP_GRACE):
                return
            self._signal(signal.SIGTERM)
            if await self._exit(_TERM_GRACE) and await self._empty(_TERM_GRACE):
                return
            _log.warning("MCP server %r ignores the end of its input and SIGTERM; killing it", self.name)
        finally:
            self._kill()
        await self._exit(_KILL_GRACE)
        await self._empty(_KILL_GRACE / 2)

    def kill_group(self) -> None:
        """Kill the server and its children at once, from any thread, with no event loop; only `stop` tidies up."""
        if self._transport is not None and self._transport.get_returncode() is None:
            self._signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
        if self._transport is not None:
            self._transport.close()
        self._end()

    def _input(self) -> _Writable | None:
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        return cast("_Writable | None", pipe)

    async def _exit(self, within: float) -> bool:
        """Whether the process ends within that time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), within)
        return self._exited.is_set()

    async def _empty(self, within: float) -> bool:
        """Whether what the process started ends within that time."""
        deadline = time.monotonic() + within
        while self._signal(0):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    def _signal(self, number: int) -> bool:
        """Send the signal to the whole group; false where nobody is left."""
        try:
            if os.name == "posix":
                os.killpg(self.pid, number)
            elif number and not self._exited.is_set():
                cast("asyncio.SubprocessTransport", self._transport).terminate()
            else:
                return False
        except ProcessLookupError:
            return False
        except PermissionError:
            return not self._exited.is_set()
        return True

    def _print(self, line: bytes) -> None:
        self._on_line(line)

    def _said(self, line: bytes) -> None:
        text = "".join(c if c.isprintable() else " " for c in line.decode("utf-8", "replace")).strip()[:_LINE_WIDTH]
        if text:
            self._stderr.append(text)
            _log.debug("MCP server %r on stderr: %s", self.name, text)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        """Called by the event loop."""
        self._splitters[fd].feed(cast("bytes", data))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Called by the event loop."""
        if fd == 1:
            self._splitters[1].flush()
            self._silent = True
            self._settle()
        elif fd == 2:
            self._splitters[2].flush()

    def process_exited(self) -> None:
        """Called by the event loop."""
        self._exited.set()
        self._settle()

    def _settle(self) -> None:
        if self._silent and self._exited.is_set():
            self._end()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SETTLE, self._end)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended:
            self.ended = True
            for call in self._at_end:
                call()


def _find(command: str, env: Mapping[str, str], cwd: str | Path | None) -> str:
    if cwd is not None and not Path(cwd).is_dir():
        raise FileNotFoundError(f"the folder {str(cwd)!r} given as 'cwd' does not exist")
    if Path(command).name != command:
        path = Path(cwd or ".", Path(command).expanduser())
        if not path.exists():
            raise FileNotFoundError(f"the command {command!r} does not exist")
        if path.is_dir() or not os.access(path, os.X_OK):
            raise PermissionError(f"the command {command!r} cannot be executed")
        return str(path.absolute())
    found = shutil.which(command, path=env.get("PATH"))
    if found is None:
        raise FileNotFoundError(f"the command {command!r} is not found in PATH")
    return found


def _is_launcher(program: str) -> bool:
    """Whether the program starts the server as a child, which it can only take along where it is not itself killed."""
    if Path(program).name in _LAUNCHERS:
        return True
    try:
        with Path(program).open("rb") as file:
            words = file.readline(200).decode("utf-8", "replace")
    except OSError:
        return True
    return words.startswith("#!") and any(Path(word).name in _SHELLS for word in words[2:].split()[:2])


@functools.cache
def _guard(number: str) -> tuple[str, ...]:
    """A prefix that lets Linux end the server with the signal when this process is killed.

    Without it, only the server's input ends.
    """
    tool = shutil.which("setpriv") if sys.platform == "linux" else None
    if tool is None:
        return ()
    prefix = (tool, "--pdeathsig", number, "--")
    try:
        done = subprocess.run([*prefix, "true"], capture_output=True, timeout=2, check=False)  # noqa: S603  # fixed words
    except (OSError, subprocess.SubprocessError):
        return ()
    return prefix if done.returncode == 0 else ()
