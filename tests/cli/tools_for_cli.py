"""Tools that the command's tests give it through a server process. Files in `CLI_TEST_FOLDER` tell what happened."""

import os
import signal
import time
from pathlib import Path

if "CLI_TEST_STUBBORN" in os.environ:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def folder() -> Path:
    return Path(os.environ["CLI_TEST_FOLDER"])


def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


def send(text: str) -> str:
    "Send a text to somebody."
    with (folder() / "sent").open("a") as file:
        file.write(f"{text}\n")
    return f"sent {text}"


def hang(text: str) -> str:
    "Never come back."
    (folder() / "hangs").write_text(str(os.getpid()))
    time.sleep(60)
    return text
