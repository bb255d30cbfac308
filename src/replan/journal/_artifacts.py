"""Artifacts: bytes kept as files, named by their hash, beside the journal."""

import os
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


def _keep(folder: Path, data: bytes, mime: str) -> Path:
    """Store the bytes in the folder under their hash; the same bytes are stored once. Raises `JournalError`."""
    import hashlib

    suffix = _SUFFIXES.get(mime.partition(";")[0].strip().lower(), ".bin")
    path = folder / (hashlib.sha256(data).hexdigest() + suffix)
    try:
        if not path.exists():
            make_private_folder(folder)
            _write(path, data)
    except OSError as error:
        raise JournalError(
            f"the artifact {str(path)!r} cannot be written: {error}; make room or fix its folder"
        ) from error
    return path


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.{id(data):x}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class ArtifactFolder:
    """The artifacts of one run: in the given folder, or in a temporary one that `remove` takes away."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._own: Path | None = None

    def keep(self, data: bytes, mime: str) -> Path:
        """Store bytes under their hash. Raises `JournalError`."""
        if self._folder is None:
            import tempfile

            self._folder = self._own = Path(tempfile.mkdtemp(prefix="replan-"))
        return _keep(self._folder, data, mime)

    def remove(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._own is not None:
            import shutil

            shutil.rmtree(self._own, ignore_errors=True)
            self._folder = self._own = None
