"""The command, run in this process or as a real one, with a journal and folders of its own."""

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from replan.cli import main
from replan.testing import ScriptedServer


@dataclass
class Outcome:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def plan(*steps: object, thought: str = "") -> str:
    """A planner's reply: each step is a description, or a pair of a tool and its arguments."""
    made = []
    for number, step in enumerate(steps, 1):
        if isinstance(step, str):
            made.append({"id": f"s{number}", "description": step})
        else:
            tool, arguments = step
            made.append(
                {"id": f"s{number}", "description": f"Call {tool}", "call": {"tool": tool, "arguments": arguments}}
            )
    return json.dumps({"thought": thought, "steps": made})


@dataclass
class Command:
    """Runs `replan`. `model(server)` are the options that make it talk to a scripted server."""

    folder: Path
    environment: dict[str, str]
    capture: pytest.CaptureFixture[str]
    nowhere: tuple[str, ...] = ("--model", "openai-compatible:x", "--base-url", "http://127.0.0.1:1")
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def journal(self) -> Path:
        """The journal that is used unless another one is named."""
        return Path(self.environment["REPLAN_JOURNAL"])

    @staticmethod
    def model(server: ScriptedServer) -> list[str]:
        return ["--model", "openai-compatible:x", "--base-url", server.base_url]

    def __call__(self, *words: str) -> Outcome:
        """Run it in this process."""
        self.capture.readouterr()
        code = main(words)
        said = self.capture.readouterr()
        return Outcome(code, said.out, said.err)

    def process(self, *words: str, **options) -> subprocess.Popen[bytes]:
        """Start it as a process; one that still runs when the test ends is killed."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [*COMMAND, *words], env=os.environ | self.environment, cwd=self.folder, **(pipes | options)
        )
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes], timeout: float = 20) -> Outcome:
        """Wait for a process."""
        out, err = process.communicate(timeout=timeout)
        return Outcome(process.returncode, (out or b"").decode(), (err or b"").decode())


COMMAND = (sys.executable, "-m", "replan.cli")


@pytest.fixture
def replan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """The command."""
    environment = {
        "REPLAN_JOURNAL": str(tmp_path / "runs.db"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "OPENAI_COMPATIBLE_API_KEY": "key",
        "TERM": "xterm-256color",
        "COLUMNS": "100",
    }
    for name in ("REPLAN_MODEL", "REPLAN_LOCAL_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    command = Command(tmp_path, environment, capsys)
    yield command
    for process in command.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until something is the case; fails when that takes too long."""

    def wait(happens: Callable[[], object], within: float = 15.0) -> None:
        deadline = time.monotonic() + within
        while not happens():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)

    return wait


@pytest.fixture
def planned() -> Callable[..., str]:
    """Makes a planner's reply."""
    return plan


class Terminal:
    """A command on a terminal of 100 columns and 30 lines."""

    def __init__(self, words: tuple[str, ...], environment: dict[str, str], folder: Path) -> None:
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(COMMAND[0], [*COMMAND, *words], environment)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self._code: int | None = None

    @property
    def text(self) -> str:
        """What was written, without control sequences."""
        return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", self.raw)

    def until(self, text: str, within: float = 20.0) -> None:
        """Read until that was written since the last call that found something."""
        deadline = time.monotonic() + within
        while text not in self.text:
            assert time.monotonic() < deadline, f"{text!r} was not written, but: {self.text[-2000:]!r}"
            self._read(0.1)

    def type(self, keys: str) -> None:
        """Type on the keyboard."""
        os.write(self._fd, keys.encode())

    def hang_up(self) -> None:
        """Close the terminal."""
        os.close(self._fd)
        self._fd = -1

    def wait(self, within: float = 20.0) -> int:
        """The exit code, when the command has ended."""
        deadline = time.monotonic() + within
        while self._code is None:
            assert time.monotonic() < deadline, f"the command does not end: {self.text[-2000:]!r}"
            self._read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        while self._read(0.05):
            pass
        return self._code

    def screen(self) -> list[str]:
        """The lines that are left on the terminal at the end, as far as lines are moved over and cleared."""
        lines, row = [""], 0
        for piece in re.findall(r"\x1b\[[0-?]*[ -/]*[@-~]|\r|\n|[^\x1b\r\n]+", self.raw):
            if piece == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif piece == "\x1b[2K":
                lines[row] = ""
            elif up := re.fullmatch(r"\x1b\[(\d+)A", piece):
                row = max(0, row - int(up[1]))
            elif piece[0] not in "\r\x1b":
                lines[row] += piece
        return [line.rstrip() for line in lines if line.strip()]

    def _read(self, timeout: float) -> bool:
        if self._fd < 0 or not select.select([self._fd], [], [], timeout)[0]:
            if self._fd < 0:
                time.sleep(timeout)
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.raw += self._decoder.decode(data)
        return bool(data)

    def close(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self._fd >= 0:
            os.close(self._fd)


@pytest.fixture
def in_terminal(replan: Command) -> Iterator[Callable[..., Terminal]]:
    """Starts the command on a terminal."""
    started: list[Terminal] = []

    def start(*words: str, **environment: str) -> Terminal:
        terminal = Terminal(words, {**os.environ, **replan.environment, **environment}, replan.folder)
        started.append(terminal)
        return terminal

    yield start
    for terminal in started:
        terminal.close()
