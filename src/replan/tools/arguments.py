"""From what a model wrote to arguments that fit the tool's schema, or to an error that the model can act on.

Valid arguments pass as they are. Only what failed is read again, and only where there is one reading: texts become the
list, object, number or truth value that the schema wants, nulls that the schema does not allow are left out, an
envelope around the arguments is taken off. What results must be valid, or nothing is changed.
"""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, cast

from replan.encoding import JSON, JSONObject, decode, encode, normalise
from replan.tool import InvalidArguments, Tool, ToolInfo

from ._problems import cap
from .coercion import coerce, property_schemas

__all__ = ["parse", "prepare"]

_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)\n?\s*```", re.DOTALL)
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_ENVELOPES = ("arguments", "input", "parameters", "args", "params")
_MAX_PYTHON = 100_000
_MAX_LISTED = 20
_MAX_PROBLEM = 300


def prepare(tool: Tool, raw: JSON) -> JSONObject:
    """The arguments for `tool.call`: an object, JSON text of one, or nothing (None, empty text) for no arguments.

    Changes nothing in `raw`. Raises `InvalidArguments`, whose problems end with a list of the tool's parameters.
    """
    info = tool.info
    try:
        arguments = parse(raw)
    except ValueError as error:
        raise InvalidArguments([str(error), _expected(info)]) from None
    problems: list[str] = []
    for candidate in _candidates(arguments, info):
        try:
            return tool.validate(candidate)
        except InvalidArguments as error:
            problems = error.problems
    raise InvalidArguments([*cap([problem[:_MAX_PROBLEM] for problem in problems]), _expected(info)])


def parse(raw: JSON) -> JSONObject:
    """The object that was written. Raises `ValueError`, saying what is wrong.

    Text is read as JSON; text that is no JSON also inside a Markdown fence, with trailing commas, with raw line breaks
    in strings, and as a Python literal. JSON text inside JSON text is read again. Cut-off text is never completed.
    """
    for _ in range(3):
        if raw is None or (isinstance(raw, str) and not raw.strip()):
            return {}
        if not isinstance(raw, str):
            break
        raw = _read(raw)
    if not isinstance(raw, dict):
        raise ValueError(f"the arguments must be one JSON object, not {_kind(raw)}")  # noqa: TRY004  # one kind of error for whatever was written
    return cast("JSONObject", raw)


def _read(text: str) -> JSON:
    try:
        return decode(text)
    except (ValueError, RecursionError) as error:
        message = f"the arguments are not valid JSON: {error}"
    fence = _FENCE.fullmatch(text.strip())
    inner = fence.group(1) if fence else text
    commaless = _STRING_OR_COMMA.sub(lambda match: "" if match.group() == "," else match.group(), inner)
    for reader in (lambda: json.loads(commaless, strict=False), lambda: _python(inner)):
        try:
            return normalise(reader())
        except (ValueError, RecursionError):
            continue
    raise ValueError(message)


def _python(text: str) -> JSON:
    if len(text) > _MAX_PYTHON:
        raise ValueError
    try:
        value = ast.literal_eval(text.strip())
    except (SyntaxError, MemoryError, TypeError) as error:
        raise ValueError from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in cast("dict[Any, Any]", value)):
        raise ValueError
    return cast("JSON", value)


def _candidates(arguments: JSONObject, info: ToolInfo) -> Iterator[JSONObject]:
    """The readings, in the order in which they are tried."""
    schema = info.parameters
    yield arguments
    seen = {encode(arguments)}
    inner = _unwrap(arguments, info)
    for reading in (arguments, *([inner] if inner is not None else [])):
        for candidate in (reading, cast("JSONObject", coerce(reading, schema))):
            written = encode(candidate)
            if written not in seen:
                seen.add(written)
                yield candidate


def _unwrap(arguments: JSONObject, info: ToolInfo) -> JSONObject | None:
    """The arguments inside an envelope that cannot be a parameter: `{"arguments": ...}`, also beside the name."""
    own = property_schemas(info.parameters)
    names = {key for key in arguments if not (key in ("name", "tool") and arguments[key] in (info.name, info.original))}
    if (
        len(names) != 1
        or not names.isdisjoint(own)
        or not names <= set(_ENVELOPES)
        or not arguments.keys().isdisjoint(own)
    ):
        return None
    inner = arguments[names.pop()]
    try:
        return parse(inner) if isinstance(inner, (dict, str)) else None
    except ValueError:
        return None


def _expected(info: ToolInfo) -> str:
    schema = info.parameters
    required = schema.get("required") or ()
    properties = property_schemas(schema)
    if not properties:
        return f"{info.name} takes no parameters"
    listed = [f"{name} ({_type_words(s)}{', required' if name in required else ''})" for name, s in properties.items()]
    more = len(listed) - _MAX_LISTED
    return f"{info.name} takes {', '.join(listed[:_MAX_LISTED])}{f' and {more} more' if more > 0 else ''}"


def _type_words(schema: JSON) -> str:
    if not isinstance(schema, dict):
        return "any"
    known = cast("JSONObject", schema)
    if "enum" in known:
        return "one of " + json.dumps(known["enum"], ensure_ascii=False)[1:-1][:100]
    if "type" in known:
        kind = known["type"]
        words = " or ".join(cast("list[str]", kind)) if isinstance(kind, list) else str(kind)
        return f"array of {_type_words(known['items'])}" if kind == "array" and known.get("items") else words
    branches = known.get("anyOf") or known.get("oneOf")
    if isinstance(branches, list):
        return " or ".join(dict.fromkeys(_type_words(branch) for branch in cast("list[JSON]", branches)))
    return "object" if "$ref" in known else "any"


def _kind(value: JSON) -> str:
    return {bool: "a truth value", str: "a text", list: "an array"}.get(cast("Any", type(value)), "a number")
