"""Looking at plans before they run: what can be mended is mended, the rest is said."""

from .lint import lint
from .report import Context, Finding

__all__ = ["Context", "Finding", "lint"]
