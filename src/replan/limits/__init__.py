"""What a run has used, and whether that is more than it may."""

from .meter import Excess, Meter

__all__ = ["Excess", "Meter"]
