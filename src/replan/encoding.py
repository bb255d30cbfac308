"""Values to JSON and back: what enters a run is plain JSON from then on.

Texts with lone surrogates, NaN and infinities are normalised where they enter, because `msgspec` refuses the first
and silently nulls the others. Decoding falls back to `json`, which accepts what some producers write.
"""

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import uuid
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypeAlias

import msgspec

JSON: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list of JSON or dict of str to JSON."""

JSONObject: TypeAlias = dict[str, Any]

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_AS_TEXT = (datetime.datetime, datetime.date, datetime.time, decimal.Decimal, uuid.UUID, pathlib.PurePath)
_SAFE_INT = 2**63


def encode(value: JSON) -> bytes:
    """JSON bytes of a plain value, or of a `msgspec` structure of ours."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return json.dumps(normalise(value), ensure_ascii=True, separators=(",", ":")).encode()


def decode(data: bytes | str) -> JSON:
    """The value of JSON text. Raises `ValueError` where it is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return normalise(json.loads(data))


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, so that it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def normalise(value: Any, depth: int = 64) -> JSON:
    """Any Python value as JSON, with its type kept where JSON has one.

    Dates, decimals, UUIDs and paths become text, bytes become base64, sets become lists, dataclasses, `msgspec`
    structures and pydantic models become objects, NaN and infinities become None. What has no such form, and a value whose own
    serialiser raises, becomes a placeholder that names the type: a value never fails the run that it enters.
    """
    match value:
        case None | bool():
            return value
        case enum.Enum():
            return normalise(value.value, depth - 1)
        case str():
            return clean_text(str(value))
        case int():
            return int(value) if -_SAFE_INT <= value < 2 * _SAFE_INT else str(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case _ if depth <= 0:
            return f"<{type(value).__name__} nested too deeply>"
        case _:
            return _normalise_object(value, depth - 1)


def _normalise_object(value: Any, depth: int) -> JSON:
    try:
        if isinstance(value, _AS_TEXT):
            return value.isoformat() if hasattr(value, "isoformat") else clean_text(str(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return base64.b64encode(value).decode()
        if isinstance(value, BaseException):
            return clean_text(f"{type(value).__name__}: {value}")
        if isinstance(value, msgspec.Struct):
            return normalise(msgspec.to_builtins(value, enc_hook=lambda other: normalise(other, depth)), depth)
        if hasattr(value, "model_dump"):
            return normalise(value.model_dump(mode="json"), depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: normalise(getattr(value, f.name), depth) for f in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {clean_text(str(k)): normalise(v, depth) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # the values are any
        if isinstance(value, (Sequence, Set)):
            return [normalise(v, depth) for v in value]  # pyright: ignore[reportUnknownVariableType]  # the values are any
    except Exception as error:  # noqa: BLE001  # whatever a user's serialiser raises concerns this one value only
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return f"<{type(value).__name__}>"
