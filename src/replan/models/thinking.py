"""How thinking is asked for, in the words of each API.

Sources: OpenAI, guide "Reasoning models"; Anthropic, "Adaptive thinking", "Extended thinking" and "Effort"; Gemini,
"Thinking"; DeepSeek, "Thinking mode". Budgets of levels are our own choice.
"""

from collections.abc import Callable

from replan.encoding import JSONObject
from replan.model import ModelProfile, ThinkingStyle
from replan.settings import Thinking, ThinkingLevel, ThinkingSetting

__all__ = ["resolve_thinking"]

_BUDGETS: dict[ThinkingLevel, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768}
"""Tokens of a level. Where a level stands for a budget it is the one that is closest, the lower of two: `minimal` up
to 1536, `low` up to 5120, `medium` up to 12288, `high` up to 24576, `xhigh` beyond.
"""

_ORDER: list[ThinkingLevel] = list(_BUDGETS)
_TAKEN: dict[ThinkingStyle, tuple[ThinkingLevel, ...]] = {
    "adaptive": ("none", "low", "medium", "high", "xhigh"),
    "gemini-level": ("minimal", "low", "medium", "high"),
}
_LEAST_ANTHROPIC = 1024
_LEAST_GEMINI = 128
"""The least of a model that always thinks (Gemini 2.5 Pro)."""


def resolve_thinking(setting: ThinkingSetting, profile: ModelProfile) -> JSONObject:
    """The request fields that a setting comes to for a model; nothing where nothing is asked or can be.

        >>> resolve_thinking("high", ModelProfile(thinking="effort"))
        {'reasoning_effort': 'high'}

    True is `medium`. A level that the model does not take becomes the nearest that it takes, the higher of two. `none`
    switches thinking off, or asks for the least where it cannot be. `provider-default` asks for nothing.
    `budget_tokens` count instead of the level: as they are for a model that takes a budget (Anthropic takes no less
    than 1024), as the nearest level for others; a budget of 0 is `none`. Raises `ConfigError` for what is no setting.
    """
    thinking = Thinking.of(setting)
    build = _BUILD.get(profile.thinking)
    if thinking is None or build is None or _wanted(thinking) == "provider-default":
        return {}
    return build(thinking, profile)


def _wanted(thinking: Thinking) -> ThinkingLevel:
    """The level that is asked for, whichever way."""
    budget = thinking.budget_tokens
    if budget is None:
        return thinking.level
    return min(_ORDER, key=lambda level: abs(_BUDGETS[level] - budget)) if budget else "none"


def _taken(level: ThinkingLevel, profile: ModelProfile) -> ThinkingLevel | None:
    """The level that is sent: the nearest that the model takes; None where it takes none at all."""
    possible = _TAKEN.get(profile.thinking, ("none", *_ORDER))
    taken = [known for known in possible if known in profile.thinking_levels] or possible
    known: list[ThinkingLevel] = [known for known in _ORDER if known in taken]
    if level == "none":
        return "none" if "none" in taken else next(iter(known), None)
    at = _ORDER.index(level)
    return min(reversed(known), key=lambda known: abs(_ORDER.index(known) - at), default=None)


def _tokens(thinking: Thinking, profile: ModelProfile) -> int | None:
    """The budget that is sent, 0 for no thinking; None where the model cannot be without."""
    if thinking.budget_tokens:
        return thinking.budget_tokens
    level = _taken(_wanted(thinking), profile)
    if level == "none":
        return 0
    return None if level is None or _wanted(thinking) == "none" else _BUDGETS[level]


def _effort(thinking: Thinking, profile: ModelProfile) -> JSONObject:
    level = _level(thinking, profile)
    return {} if level is None else {"reasoning_effort": level}


def _reasoning(thinking: Thinking, profile: ModelProfile) -> JSONObject:
    level = _level(thinking, profile)
    if level is None:
        return {}
    summary = {"summary": "auto"} if _shown(thinking) else {}
    return {"reasoning": {"effort": level, **summary}}


def _switch(thinking: Thinking, profile: ModelProfile) -> JSONObject:
    """On or off, and how much where the model is known to take several levels."""
    level = _level(thinking, profile)
    if level is None or level == "none":
        return {} if level is None else {"thinking": {"type": "disabled"}}
    effort = {"reasoning_effort": level} if len({*profile.thinking_levels} - {"none"}) > 1 else {}
    return {"thinking": {"type": "enabled"}, **effort}


def _budget(thinking: Thinking, profile: ModelProfile) -> JSONObject:
    tokens = _tokens(thinking, profile)
    if tokens == 0:
        return {"thinking": {"type": "disabled"}}
    hidden = {} if _shown(thinking) else {"display": "omitted"}
    return {"thinking": {"type": "enabled", "budget_tokens": max(_LEAST_ANTHROPIC, tokens or 0), **hidden}}


def _adaptive(thinking: Thinking, profile: ModelProfile) -> JSONObject:
    level = _level(thinking, profile)
    if level is None:
        return {}
    if level == "none":
        return {"thinking": {"type": "disabled"}}
    display = "summarized" if _shown(thinking) else "omitted"
    return {"thinking": {"type": "adaptive", "display": display}, "output_config": {"effort": level}}


def _gemini_budget(thinking: Thinking, profile: ModelProfile) -> JSONObject:
    shown: JSONObject = {"includeThoughts": _shown(thinking)}
    tokens = _tokens(thinking, profile)
    return {"thinkingConfig": {"thinkingBudget": _LEAST_GEMINI if tokens is None else tokens, **shown}}


def _gemini_level(thinking: Thinking, profile: ModelProfile) -> JSONObject:
    shown: JSONObject = {"includeThoughts": _shown(thinking)}
    level = _level(thinking, profile)
    return {} if level is None else {"thinkingConfig": {"thinkingLevel": level, **shown}}


def _level(thinking: Thinking, profile: ModelProfile) -> ThinkingLevel | None:
    """The level that is sent; None where the model takes none at all."""
    return _taken(_wanted(thinking), profile)


def _shown(thinking: Thinking) -> bool:
    return thinking.include_thoughts and _wanted(thinking) != "none"


_BUILD: dict[ThinkingStyle, Callable[[Thinking, ModelProfile], JSONObject]] = {
    "effort": _effort,
    "reasoning": _reasoning,
    "switch": _switch,
    "budget": _budget,
    "adaptive": _adaptive,
    "gemini-budget": _gemini_budget,
    "gemini-level": _gemini_level,
}
