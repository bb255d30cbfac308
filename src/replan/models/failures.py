"""Why one attempt at a model call failed: what providers answer, sorted into the errors of `replan.errors`."""

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

from replan.encoding import JSON, clean_text, decode
from replan.errors import (
    AuthError,
    BadRequest,
    BadResponse,
    ContextTooLong,
    ModelError,
    ModelTimeout,
    Overloaded,
    RateLimited,
)

__all__ = ["MAX_RETRY_AFTER", "Failure", "answer_failure", "event_failure", "retry_after"]

MAX_RETRY_AFTER = 60.0
"""Seconds: the longest wait that a provider can ask for."""

_EXCERPT = 500
_HTML = re.compile(rb"\s*(<!doctype html|<html|<head|<\?xml)", re.I)
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.I | re.S)
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|string_above_max_length|model_max_prompt_tokens|request_too_large"
    r"|(prompt|input|request|messages?|conversation) (is|are|was) too (long|large)|request too large"
    r"|too many input tokens|too many tokens(?!,? ?(please )?(wait|per|try))"
    r"|input tokens? (exceeded|count|length)|input length and `?max_tokens`? exceed|number of input tokens"
    r"|input token count|maximum (prompt|input) length|reduce the length of|maximum number of (input )?tokens"
    r"|context[ _-]?(length|window|size)\b.*(exceed|too |request|great|larg|fit|reduce|overflow|beyond)"
    r"|(exceed|maximum|too |great|larg|fit|overflow|beyond|limit)\w*\b.*\bcontext[ _-]?(length|window|size)",
    re.I | re.S,
)
_QUOTA = re.compile(r"insufficient_quota|billing|insufficient (balance|credits?)|credit balance", re.I)
_EVENT_KINDS = (
    ("rate_limit|too_many_requests|resource_exhausted|throttl", 429),
    ("overloaded|unavailable|capacity", 503),
    ("auth|api_key|permission|denied|forbidden", 401),
    ("invalid_request|bad_?request|validation|invalid_argument", 400),
    ("timeout|deadline", 408),
    ("server|internal|api_error", 500),
)


class Failure(Exception):
    """One attempt failed. `error` is what the caller gets if it stays at that.

    `repeat` says whether trying again can help, `wait` how many seconds the provider asked to wait. `text` is the
    beginning of the answer.
    """

    def __init__(self, error: ModelError, *, repeat: bool, wait: float | None = None, text: str = "") -> None:
        super().__init__(str(error))
        self.error, self.repeat, self.wait, self.text = error, repeat, wait, text


def answer_failure(
    status: int, headers: Mapping[str, str], body: bytes, *, model: str, secrets: Iterable[str] = ()
) -> Failure:
    """The failure that an HTTP answer other than 2xx means. `secrets` are blacked out of what the provider says."""
    data = _json(body)
    said = _blacken(_message(data) or _excerpt(body), secrets)
    where = headers.get("location", "").split("?")[0]
    if 300 <= status < 400:
        said = f"the server redirects to {where!r}, which is not followed; give that address as the base URL"
    text = f"{model} answered {status}: {said or 'no text'}"
    if status == 404 and _HTML.match(body):
        text += " (is the base URL right?)"
    wait = retry_after(headers)
    error, repeat = _sorted(status, f"{_code(data)} {said}", html=bool(_HTML.match(body)))
    failure = error(text, model=model, status=status, retry_after=wait)
    raw = _blacken(body[:4000].decode(errors="replace"), secrets)
    return Failure(failure, repeat=repeat, wait=wait if wait is None else min(wait, MAX_RETRY_AFTER), text=raw)


def event_failure(data: JSON, *, model: str, secrets: Iterable[str] = ()) -> Failure:
    """The failure that an error inside a stream means: `data` is what the provider sent in it."""
    code = _code(data)
    said = _blacken(_message(data) or (data if isinstance(data, str) else ""), secrets)
    number = re.search(r"\b([45]\d\d)\b", code)
    named = (status for words, status in _EVENT_KINDS if re.search(words, code, re.I))
    status = int(number[1]) if number else next(named, 0)
    error, repeat = _sorted(status, f"{code} {said}") if status else _unknown(f"{code} {said}")
    failure = error(
        f"{model} broke off with an error: {said or code.strip() or 'no text'}", model=model, status=status or None
    )
    return Failure(failure, repeat=repeat, text=said)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a provider asks to wait: `retry-after-ms`, or `Retry-After` as seconds or HTTP date (RFC
    9110, 10.2.3).
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,12}(\.\d*)?", value):
            return float(value) * unit
    return _until(headers.get("retry-after", ""))


def _until(date: str) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _sorted(status: int, said: str, *, html: bool = False) -> tuple[type[ModelError], bool]:
    """The class of error, and whether a repeat can help."""
    if status == 413 or (400 <= status <= 500 and status not in (401, 403, 404) and _TOO_LONG.search(said)):
        return ContextTooLong, False
    if status in (401, 403):
        return AuthError, False
    if status == 408:
        return ModelTimeout, True
    if status == 429:
        return RateLimited, not _QUOTA.search(said)
    if status >= 500 or status in (409, 424):
        return Overloaded, status != 501
    return (BadResponse if html else BadRequest), False


def _unknown(said: str) -> tuple[type[ModelError], bool]:
    return (ContextTooLong, False) if _TOO_LONG.search(said) else (BadResponse, True)


def _json(body: bytes) -> JSON:
    try:
        return decode(body)
    except (ValueError, RecursionError):
        return None


def _message(data: JSON, depth: int = 4) -> str:
    """The provider's own words: `error.message`, `error`, `message`, `detail`, or the first of a list of such."""
    if isinstance(data, str) or depth <= 0:
        return clean_text(data).strip()[:_EXCERPT] if isinstance(data, str) else ""
    if isinstance(data, list):
        found = (_message(item, depth - 1) for item in cast("list[Any]", data))
        return "; ".join(text for text in found if text)[:_EXCERPT]
    if not isinstance(data, dict):
        return ""
    fields = cast("dict[str, Any]", data)
    place = ".".join(str(step) for step in fields["loc"]) + ": " if isinstance(fields.get("loc"), list) else ""
    names = ("error", "message", "Message", "detail", "msg", "errors", "error_description", "title")
    return next((place + text for name in names if (text := _message(fields.get(name), depth - 1))), "")


def _code(data: JSON) -> str:
    """Codes and types of an error, as one text to search in."""
    if isinstance(data, list):
        return " ".join(_code(item) for item in cast("list[Any]", data)[:3])
    if not isinstance(data, dict):
        return ""
    fields = cast("dict[str, Any]", data)
    own = [str(fields[name]) for name in ("code", "type", "status") if isinstance(fields.get(name), str | int)]
    return " ".join([*own, _code(fields.get("error"))]).strip()


def _excerpt(body: bytes) -> str:
    text = body[:20_000].decode(errors="replace")
    if _HTML.match(body):
        title = re.search(r"<title[^>]*>(.*?)</title", text, re.I | re.S)
        text = title[1] if title and title[1].strip() else _TAGS.sub(" ", text)
    return " ".join(text.split())[:200]


def _blacken(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text
