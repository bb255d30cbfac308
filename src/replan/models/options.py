"""Options for request bodies, in layers."""

from typing import Any, cast

from replan.encoding import JSON, JSONObject

__all__ = ["merge_options"]


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
