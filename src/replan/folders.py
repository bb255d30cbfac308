"""The user's folders, as the platform has them."""

from pathlib import Path

__all__ = ["cache_folder", "state_folder"]


def cache_folder() -> Path:
    """Where what can be fetched again is kept."""
    from platformdirs import user_cache_path

    return user_cache_path("replan", appauthor=False)


def state_folder() -> Path:
    """Where what must be kept from run to run lies."""
    from platformdirs import user_state_path

    return user_state_path("replan", appauthor=False)
