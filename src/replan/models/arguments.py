"""The arguments of a tool call, as models write them."""

import json
from typing import Any, cast

from replan.encoding import JSON, JSONObject, decode

__all__ = ["parse_arguments"]


def parse_arguments(text: str) -> tuple[JSONObject, str | None]:
    """The arguments that a model wrote, and what it wrote where that is no object.

    Nothing, `null` and an empty text mean an empty object.
    """
    if not text.strip():
        return {}, None
    try:
        value: JSON = decode(text)
    except (ValueError, RecursionError):
        value = _only_object(text)
    if isinstance(value, dict):
        return cast("JSONObject", value), None
    return {}, None if value is None or value == "" else text


def _only_object(text: str) -> JSON:
    """The object that a text of several repeats, or has after empty ones: servers send `{}` first, or everything
    twice.
    """
    decoder, found, position = json.JSONDecoder(), list[Any](), 0
    text = text.strip()
    try:
        while position < len(text):
            value, position = decoder.raw_decode(text, position)
            if value != {} and value not in found:
                found.append(value)
    except (ValueError, RecursionError):
        return text
    return found[0] if len(found) == 1 else text
