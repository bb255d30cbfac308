"""A run's folder for files."""

from pathlib import Path

__all__ = ["Sandbox"]


class Sandbox:
    """The run's folder for files, made on first use and removed with the run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._path: Path | None = None

    def path(self) -> Path:
        """The folder."""
        if self._path is None:
            import tempfile

            self._path = Path(tempfile.mkdtemp(prefix=f"replan-{self._run_id}-"))
        return self._path

    def remove(self) -> None:
        """Remove it with all that is in it."""
        if self._path is not None:
            import shutil

            shutil.rmtree(self._path, ignore_errors=True)
