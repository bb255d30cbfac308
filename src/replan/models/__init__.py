"""Models: the wires that reach them, and the table of providers that a model string can name."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .caching import resolve_prompt_caching
    from .connecting import Provider
    from .fallback import Fallback
    from .options import merge_options
    from .profiles import profile_for
    from .providers import PROVIDERS, default_model, resolve
    from .thinking import resolve_thinking

__all__ = [
    "PROVIDERS",
    "Fallback",
    "Provider",
    "default_model",
    "merge_options",
    "profile_for",
    "resolve",
    "resolve_prompt_caching",
    "resolve_thinking",
]

_WHERE = {
    "PROVIDERS": "providers",
    "Fallback": "fallback",
    "Provider": "connecting",
    "default_model": "providers",
    "merge_options": "options",
    "profile_for": "profiles",
    "resolve": "providers",
    "resolve_prompt_caching": "caching",
    "resolve_thinking": "thinking",
}
"""Imported when it is first asked for: `import replan` does without."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    return value
