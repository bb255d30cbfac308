"""What a request of the Anthropic Messages API asks for besides its content: length, sampling, thinking, tool choice,
the form of the answer. They depend on each other.
"""

from collections.abc import Collection
from typing import Any

from replan.encoding import JSONObject, is_object
from replan.model import ModelProfile, ModelRequest, OutputSchema
from replan.models.options import merge_options
from replan.models.schemas import anthropic_output
from replan.models.structured import form_of
from replan.models.thinking import resolve_thinking

__all__ = ["fields_of", "parts_of"]

_MAX_TOKENS = 4096
_LEAST_BUDGET = 1024
_OPTIONS = ("thinking", "output_config")
"""Options on which other fields depend."""


def fields_of(request: ModelRequest, profile: ModelProfile, off: Collection[str], *, cold: bool) -> JSONObject:
    """The fields, without the parts in `off`. With `cold`, the turn that goes on began without thoughts: it cannot have
    a budget for them now.
    """
    chosen = {name: request.options[name] for name in _OPTIONS if is_object(request.options.get(name))}
    asked = merge_options(_thinking(request, profile, off, cold=cold), chosen)
    on = _on(asked, profile)
    limit, asked = _limit(request, profile, asked)
    fields: JSONObject = {"max_tokens": limit, "stream": True}
    if request.stop:
        fields["stop_sequences"] = list(request.stop)
    if profile.sampling and not on:
        fields |= _sampling(request, off)
    output = None if "output" in off else _output(request, profile)
    fields = merge_options(fields, asked, {"output_config": output} if output else None)
    choice = None if "tool_choice" in off else _choice(request, profile, on=on)
    return {**fields, "tool_choice": {"type": choice}} if choice else fields


def parts_of(fields: JSONObject) -> dict[str, bool]:
    """Which of the parts that a server may refuse are in the fields."""
    form = fields.get("output_config", {})
    return {
        "tool_choice": "tool_choice" in fields,
        "effort": "effort" in form,
        "thinking": "thinking" in fields,
        "output": "format" in form,
        "top_p": {"temperature", "top_p"} <= fields.keys(),
        "sampling": bool({"temperature", "top_p"} & fields.keys()),
    }


def _thinking(request: ModelRequest, profile: ModelProfile, off: Collection[str], *, cold: bool) -> JSONObject:
    if "thinking" in off:
        return {}
    asked = resolve_thinking(request.thinking or None, profile)
    if cold and profile.thinking == "budget" and _on(asked, profile):
        return {}
    return {name: value for name, value in asked.items() if name == "thinking" or "effort" not in off}


def _on(asked: JSONObject, profile: ModelProfile) -> bool:
    """Whether the model will think. Some always do."""
    if "thinking" not in asked:
        levels = profile.thinking_levels
        return profile.thinking == "adaptive" and bool(levels) and "none" not in levels
    return asked["thinking"].get("type") in ("enabled", "adaptive")


def _limit(request: ModelRequest, profile: ModelProfile, asked: JSONObject) -> tuple[int, JSONObject]:
    """The cap of the reply, which must be above the budget for thoughts, and thinking with a budget below it. What the
    caller gives as the cap is raised by the budget as far as the model goes, and never lowered.
    """
    given, most = request.max_output_tokens, profile.max_output_tokens
    limit = given or most or _MAX_TOKENS
    budget: Any = asked.get("thinking", {}).get("budget_tokens")
    if not isinstance(budget, int):
        return limit, asked
    if given or not most:
        limit = max(limit, min(limit + budget, most)) if most else limit + budget
    budget = max(_LEAST_BUDGET, min(budget, limit - 1))
    return max(limit, budget + 1), merge_options(asked, {"thinking": {"budget_tokens": budget}})


def _sampling(request: ModelRequest, off: Collection[str]) -> JSONObject:
    """Temperature and top_p; newer models take only one of them, or none."""
    given = {"temperature": request.temperature, "top_p": request.top_p}
    found = {name: value for name, value in given.items() if value is not None and "sampling" not in off}
    if "top_p" in off and len(found) > 1:
        del found["top_p"]
    return found


def _choice(request: ModelRequest, profile: ModelProfile, *, on: bool) -> str | None:
    if not request.tools or request.tool_choice == "auto":
        return None
    if request.tool_choice == "none":
        return "none"
    return None if on and not profile.forced_calls_while_thinking else "any"


def _output(request: ModelRequest, profile: ModelProfile) -> JSONObject | None:
    if request.output is None or profile.structured_output != "native":
        return None
    schema = form_of(request.output, _schema)
    return None if schema is None else {"format": {"type": "json_schema", "schema": schema}}


def _schema(output: OutputSchema) -> JSONObject | None:
    return anthropic_output(output.schema)
