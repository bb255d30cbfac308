"""Fields of answers, read whatever their type: providers send null, strings for numbers, and other shapes than
documented.
"""

from typing import Any, cast

from replan.encoding import JSON, JSONObject, decode
from replan.errors import BadResponse

from .failures import Failure

__all__ = ["a_list", "a_number", "a_text", "an_object", "load", "load_object", "objects"]


def load(data: bytes) -> JSON:
    """The JSON value of bytes that may not be UTF-8; None where there is none."""
    try:
        return decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        return decode(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def load_object(data: bytes, model: str) -> JSONObject:
    """The JSON object of an event or an answer. Raises `Failure` where it is none; a web page is not asked again."""
    value = load(data)
    if isinstance(value, dict):
        return cast("JSONObject", value)
    if data.lstrip().startswith(b"<"):
        error = BadResponse(f"{model} answered with a web page; is the base URL right?", model=model)
        raise Failure(error, repeat=False)
    text = data[:200].decode(errors="replace")
    raise Failure(BadResponse(f"{model} sent what is not JSON: {text!r}", model=model), repeat=True)


def a_text(value: JSON) -> str:
    """The text; empty where it is none."""
    return value if isinstance(value, str) else ""


def a_number(value: JSON) -> int | None:
    """The whole number; None where it is none."""
    try:
        return None if value is None or isinstance(value, bool) else int(float(cast("float", value)))
    except (TypeError, ValueError, OverflowError):
        return None


def an_object(value: JSON) -> JSONObject:
    """The object; empty where it is none."""
    return cast("JSONObject", value) if isinstance(value, dict) else {}


def a_list(value: JSON) -> list[Any]:
    """The list; empty where it is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def objects(value: JSON) -> list[JSONObject]:
    """The objects of a list; one by itself counts as a list of one."""
    items = a_list(value) if isinstance(value, list) else [value]
    return [cast("JSONObject", item) for item in items if isinstance(item, dict)]
