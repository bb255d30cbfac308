"""Moved: see `body`."""

from .body import object_bytes

__all__ = ["object_bytes"]
