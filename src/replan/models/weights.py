"""The embedded model's weights: where they are, and how they get there."""

import os
from pathlib import Path

from replan.errors import ConfigError

__all__ = ["weights_path"]


def weights_path() -> Path | None:
    """The file of weights that may be loaded: `REPLAN_LOCAL_MODEL`, else the verified one in the user's cache folder."""
    if named := os.environ.get("REPLAN_LOCAL_MODEL"):
        path = Path(named).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"REPLAN_LOCAL_MODEL names {named!r}, which is no file; correct it, or unset it and run `replan model pull`"
            )
        return path
    return None
