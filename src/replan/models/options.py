"""What is asked of a model: settings and options in layers."""

from typing import Any, cast

from msgspec import structs

from replan.encoding import JSON, JSONObject
from replan.model import ModelRequest
from replan.settings import ModelSettings, PromptCaching, Thinking

__all__ = ["completed", "merge_options"]


def completed(request: ModelRequest, own: ModelSettings) -> ModelRequest:
    """The request with the model's own settings in the places that it leaves open; False there becomes None."""
    thinking = Thinking.of(own.thinking) if request.thinking is None else request.thinking or None
    caching = PromptCaching.of(own.prompt_caching) if request.prompt_caching is None else request.prompt_caching
    return structs.replace(
        request,
        max_output_tokens=_first(request.max_output_tokens, own.max_output_tokens),
        temperature=_first(request.temperature, own.temperature),
        top_p=_first(request.top_p, own.top_p),
        stop=request.stop or own.stop,
        thinking=thinking,
        prompt_caching=caching or None,
        options=merge_options(own.options, request.options),
    )


def merge_options(*layers: JSONObject | None) -> JSONObject:
    """The layers in one, later ones over earlier ones. Objects in the same place are merged too; lists are replaced."""
    merged: JSONObject = {}
    for layer in layers:
        for name, value in (layer or {}).items():
            merged[name] = _merge(merged.get(name), value)
    return merged


def _merge(below: JSON, above: JSON) -> JSON:
    if isinstance(below, dict) and isinstance(above, dict):
        return merge_options(cast("dict[str, Any]", below), cast("dict[str, Any]", above))
    return above


def _first(given: Any, own: Any) -> Any:
    return own if given is None else given
