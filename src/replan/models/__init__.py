"""Models: the wires that reach them, and the table of providers that a model string can name."""

from .caching import resolve_prompt_caching
from .fallback import Fallback
from .options import merge_options
from .profiles import profile_for
from .providers import PROVIDERS, default_model, resolve
from .thinking import resolve_thinking

__all__ = [
    "PROVIDERS",
    "Fallback",
    "default_model",
    "merge_options",
    "profile_for",
    "resolve",
    "resolve_prompt_caching",
    "resolve_thinking",
]
