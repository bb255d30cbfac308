"""Prompt caching: what a setting comes to for a model."""

import hashlib

from replan.encoding import JSONObject
from replan.model import ModelProfile, ModelRequest
from replan.settings import PromptCaching

__all__ = ["cache_key", "resolve_prompt_caching"]

_KEY_LENGTH = 64


def cache_key(request: ModelRequest) -> str | None:
    """The key under which a provider keeps the beginning of this request; at most 64 characters, None for none."""
    if not request.prompt_caching:
        return None
    key = request.prompt_caching.key or request.cache_key
    return (key if len(key) <= _KEY_LENGTH else hashlib.sha256(key.encode()).hexdigest()) or None


def resolve_prompt_caching(setting: PromptCaching | bool, profile: ModelProfile) -> JSONObject:
    """What is sent for a setting: nothing, `prompt_cache_key` (None stands for the agent's name and the stage), or the
    `mark` that is put behind the instructions and behind the newest message.
    """
    caching = PromptCaching.of(setting)
    if caching is None or profile.caching in ("none", "automatic"):
        return {}
    if profile.caching == "key":
        return {"prompt_cache_key": caching.key}
    return {"mark": {"type": "ephemeral", **({"ttl": "1h"} if caching.ttl == "1h" else {})}}
