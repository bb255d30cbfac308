"""Values to JSON and back: what enters a run is plain JSON from then on.

Texts with lone surrogates, NaN and infinities are normalised where they enter, because `msgspec` refuses the first
and silently nulls the others. Decoding falls back to `json`, which accepts what some producers write.
"""

import base64
import dataclasses
import datetime
import decimal
import enum
import itertools
import json
import math
import pathlib
import uuid
from collections.abc import Callable, Iterable, Mapping, MappingView, Sequence, Set
from types import GeneratorType
from typing import Any, TypeAlias, TypeGuard, cast

import msgspec

JSON: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list of JSON or dict of str to JSON."""

JSONObject: TypeAlias = dict[str, Any]


def is_object(value: JSON) -> TypeGuard[JSONObject]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: JSON) -> TypeGuard[list[JSON]]:
    """Whether a JSON value is a list."""
    return isinstance(value, list)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_BYTES: tuple[type, ...] = (bytes, bytearray, memoryview)
_AS_TEXT: tuple[type, ...] = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
    pathlib.PurePath,
    BaseException,
    *_BYTES,
)
_SAFE_INT = 2**63
_MAX_GENERATED = 100_000
_MAX_INT_BITS = 14_000  # Python writes no more than 4300 digits


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
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        try:
            return normalise(json.loads(data))
        except RecursionError:
            raise ValueError("the JSON text is nested too deeply") from None


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, so that it can be written as UTF-8."""
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def normalise(value: Any, depth: int = 64) -> JSON:
    """Any Python value as JSON, with its type kept where JSON has one.

    Dates, durations, decimals, UUIDs and paths become text, bytes become base64, sets, views, arrays and generators
    become lists, dataclasses, `msgspec` structures, attrs classes and pydantic models become objects, NaN and
    infinities become None; keys become text. Other objects become what their own `str` says. What has no such form,
    contains itself or lies deeper than `depth`, and a value whose own serialiser raises, becomes a placeholder that
    names the type: a value never fails the run that it enters.
    """
    return _Normaliser().read(value, depth)


def _same(value: Any) -> JSON:
    return value


def _finite(value: float) -> JSON:
    return value if math.isfinite(value) else None


def _safe_int(value: int) -> JSON:
    if -_SAFE_INT <= value < 2 * _SAFE_INT:
        return value
    return str(value) if value.bit_length() <= _MAX_INT_BITS else "<int that is too large>"


_SCALARS: dict[type, Callable[[Any], JSON]] = {
    type(None): _same,
    bool: _same,
    str: clean_text,
    int: _safe_int,
    float: _finite,
}


class _Normaliser:
    """Remembers the containers that it is inside of, to stop at one that contains itself."""

    __slots__ = ("_inside",)

    def __init__(self) -> None:
        self._inside: set[int] = set()

    def read(self, value: Any, depth: int) -> JSON:
        scalar = _SCALARS.get(type(value))  # pyright: ignore[reportUnknownArgumentType]  # of any type
        if scalar is not None:
            return scalar(value)
        try:
            return self._read(value, depth)
        except Exception as error:  # noqa: BLE001  # whatever a user's serialiser raises concerns this one value only
            return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"

    def _read(self, value: Any, depth: int) -> JSON:
        if isinstance(value, enum.Enum):
            return self.read(value.value, depth - 1)
        for kind in (str, int, float):
            if isinstance(value, kind):
                return _SCALARS[kind](kind(value))
        if depth <= 0:
            return f"<{type(value).__name__} nested too deeply>"
        if id(value) in self._inside:
            return f"<{type(value).__name__} that contains itself>"
        self._inside.add(id(value))
        try:
            return self._read_text(value) if isinstance(value, _AS_TEXT) else self._read_object(value, depth - 1)
        finally:
            self._inside.discard(id(value))

    def _read_text(self, value: Any) -> JSON:
        if isinstance(value, datetime.timedelta):
            return msgspec.to_builtins(value)
        if isinstance(value, _BYTES):
            return base64.b64encode(value).decode()
        if isinstance(value, BaseException):
            return clean_text(f"{type(value).__name__}: {value}")
        return value.isoformat() if hasattr(value, "isoformat") else clean_text(str(value))

    def _read_object(self, value: Any, depth: int) -> JSON:
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {self._key(k, depth): self.read(v, depth) for k, v in items}
        if isinstance(value, type):
            return f"<class {value.__name__}>"
        if (fields := _fields(value)) is not None:
            return self.read(fields, depth)
        if hasattr(value, "tolist"):
            return self.read(value.tolist(), depth)
        if isinstance(value, (Sequence, Set, MappingView, GeneratorType)):
            return [self.read(v, depth) for v in _items(cast("Any", value))]
        own_text = type(value).__str__ is not object.__str__
        return clean_text(str(value)) if own_text else f"<{type(value).__name__}>"

    def _key(self, key: Any, depth: int) -> str:
        plain = self.read(key, depth)
        return plain if isinstance(plain, str) else encode(plain).decode()


def _fields(value: Any) -> Any:
    """The fields of a structured object, as its own serialiser gives them; None where it is none."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value, enc_hook=normalise)
    if hasattr(value, "model_dump"):
        try:
            return value.model_dump(mode="json")
        except Exception:  # noqa: BLE001  # one of the values may be none that pydantic can write: they are read one by one
            return value.model_dump()
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    attributes = getattr(cast("Any", type(value)), "__attrs_attrs__", None)
    return None if attributes is None else {a.name: getattr(value, a.name) for a in attributes}


def _items(values: Iterable[Any]) -> list[Any]:
    if not isinstance(values, GeneratorType):
        return list(values)
    items = list(itertools.islice(cast("Iterable[Any]", values), _MAX_GENERATED + 1))
    if len(items) > _MAX_GENERATED:
        raise OverflowError
    return items
