"""Artifacts: bytes kept as files, named by their hash, beside the journal."""

import os
import threading
from pathlib import Path

from replan.errors import JournalError

__all__ = ["ArtifactFolder", "make_private_folder"]

_SUFFIXES = {
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/webp": ".webp",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/plain": ".txt",
    "video/mp4": ".mp4",
}


def make_private_folder(folder: Path) -> None:
    """Make the folder, and what is missing above it, for this user only."""
    if not folder.exists():
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _keep(folder: Path, data: bytes, mime: str, *, synced: bool) -> Path:
    """Store the bytes in the folder under their hash; the same bytes are stored once. Raises `JournalError`."""
    import hashlib

    suffix = _SUFFIXES.get(mime.partition(";")[0].strip().lower(), ".bin")
    path = folder / (hashlib.sha256(data).hexdigest() + suffix)
    try:
        if not path.exists() or path.stat().st_size != len(data):
            make_private_folder(folder)
            _write(path, data, synced=synced)
    except OSError as error:
        raise JournalError(
            f"the artifact {str(path)!r} cannot be written: {error}; make room or fix its folder"
        ) from error
    return path


def _write(path: Path, data: bytes, *, synced: bool) -> None:
    """Put the file in place whole: a reader never sees a part of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        if synced:
            _sync(draft)
        draft.replace(path)
        if synced:
            _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ArtifactFolder:
    """The artifacts of one run: in the given folder, or in a temporary one that `close` takes away.

    `synced` artifacts survive a power cut.
    """

    def __init__(self, folder: Path | None, *, synced: bool) -> None:
        self._folder, self._synced = folder, synced
        self._own: Path | None = None
        self._closed = False

    def keep(self, data: bytes, mime: str) -> Path:
        """Store bytes under their hash. Raises `JournalError`."""
        if self._closed:
            raise JournalError("the run is closed in this process; it can keep no more artifacts")
        if self._folder is None:
            import tempfile

            self._folder = self._own = Path(tempfile.mkdtemp(prefix="replan-"))
        return _keep(self._folder, data, mime, synced=self._synced)

    def close(self) -> None:
        """Take no more; remove the temporary folder, if there is one."""
        self._closed = True
        if self._own is not None:
            import shutil

            shutil.rmtree(self._own, ignore_errors=True)
            self._own = None
