"""What computed steps make of JSON values: exact numbers, what orders them, and how they are said.

A text counts as a number only where it is exactly one: `"12 kg"` and `"1,184.70"` are refused rather than guessed.
"""

import math
import re
from collections.abc import Sequence
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Any

from replan.encoding import JSON, encode, is_list, is_object

__all__ = ["CONTEXT", "ComputeError", "described", "keys", "listed", "number", "plain", "reason", "same", "shown"]

_MAX_DIGITS, _MAX_EXPONENT, _MAX_SHOWN, _MAX_LISTED = 100, 400, 400, 20
CONTEXT = Context(prec=_MAX_DIGITS, Emax=2 * _MAX_EXPONENT, Emin=-2 * _MAX_EXPONENT)
"""How decimals are computed: 100 digits, and no infinities."""
CONTEXT.traps.update({InvalidOperation: True, DivisionByZero: True, Overflow: True})

_NUMBER = re.compile(r"\s*[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?\s*")
_LIKE_NUMBER = re.compile(r"[^\w]*\d[\d.,'\s]*(?:%|[^\W\d_]{1,12}(?:/\w{1,12})?\.?)?\s*")
_KINDS = {"NoneType": "null", "bool": "the boolean", "str": "the text", "list": "the list", "dict": "the object"}


class ComputeError(ValueError):
    """Something cannot be computed. The text names the reference, the value and what was wanted."""


def number(value: JSON, name: str) -> Decimal:
    """The value as an exact decimal: a number, or a text that is exactly one. `name` is used in errors.

    Raises `ComputeError`.
    """
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and _NUMBER.fullmatch(value):
        found = Decimal(value.strip())
    elif isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        found = Decimal(value)
    elif isinstance(value, float):
        found = Decimal(repr(value))  # what was written, not the binary fraction next to it
    else:
        raise ComputeError(f"{name} is {described(value)}, not a number{_hint(value)}")
    if not found.is_finite() or (found and abs(found.adjusted()) > _MAX_EXPONENT):
        raise ComputeError(f"{name} is not a finite number below 1e{_MAX_EXPONENT}")
    return found


def _hint(value: JSON) -> str:
    if isinstance(value, str) and any(character.isdigit() for character in value):
        return "; a text must be exactly a number, without a unit or separators"
    return f"; refer to one of its fields: {listed(map(repr, value))}" if is_object(value) and value else ""


def keys(values: Sequence[JSON], names: Sequence[str]) -> list[Decimal] | list[tuple[str, str]]:
    """What orders the values: numbers if all can be read as numbers, else texts. Raises `ComputeError` where mixed."""
    texts = all(isinstance(value, str) for value in values)
    if texts and not all(_NUMBER.fullmatch(value) for value in values):
        return [_text_key(value, name) for value, name in zip(values, names, strict=True)]
    return [number(value, name) for value, name in zip(values, names, strict=True)]


def _text_key(text: str, name: str) -> tuple[str, str]:
    if _LIKE_NUMBER.fullmatch(text[:_MAX_DIGITS]):
        raise ComputeError(f"{name} is {described(text)}, not a number{_hint(text)}")
    return text.casefold(), text


def same(left: JSON, right: JSON, names: Sequence[str]) -> bool:
    """Whether two values are equal: texts as they are, a text and a number as numbers. Null equals only null.

    Raises `ComputeError` for kinds that cannot be compared.
    """
    if left is None or right is None:
        return left is right
    if left.__class__ is right.__class__:
        return bool(left == right)
    return number(left, names[0]) == number(right, names[1])


def plain(value: Decimal) -> int | float:
    """The number as JSON has it: whole and within 64 bits as an integer, else the nearest float."""
    if -(2**63) <= value < 2**64 and value == value.to_integral_value():
        return int(value)
    found = float(value)
    if not math.isfinite(found):
        raise ComputeError(f"the result is too large: about 1e{value.adjusted()}")
    return found


def shown(value: JSON) -> str:
    """The value in a sentence: whole numbers with all digits, texts bare, the rest as JSON; long ones cut."""
    if isinstance(value, Decimal):
        whole = value.adjusted() < 30 and value == value.to_integral_value()
        return str(int(value)) if whole else repr(plain(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return shown(number(value, "a value"))
    text = value if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def described(value: JSON) -> str:
    """The value with its kind, for errors."""
    kind = _KINDS.get(value.__class__.__name__, "the number")
    text = repr(value) if isinstance(value, (str, float)) else encode(_bare(value)).decode()
    return kind if value is None else f"{kind} {text if len(text) <= 80 else f'{text[:77]}...'}"


def _bare(value: JSON) -> JSON:
    """The value with its decimals as JSON numbers."""
    if is_list(value):
        return [_bare(item) for item in value]
    return plain(value) if isinstance(value, Decimal) else value


def listed(texts: Any, separator: str = ", ") -> str:
    """The first of the texts, and how many more there are."""
    all_texts = list(texts)
    rest = len(all_texts) - _MAX_LISTED
    return separator.join(all_texts[:_MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def reason(error: Exception) -> str:
    """Why decimals could not be computed, in words."""
    if isinstance(error, ZeroDivisionError) or "DivisionUndefined" in str(error):
        return "division by zero"
    if isinstance(error, Overflow):
        return "a number becomes too large"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "there is no such number"
