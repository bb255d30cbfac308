"""Models: the wires that reach them, and the table of providers that a model string can name."""

from .providers import default_model, resolve

__all__ = ["default_model", "resolve"]
