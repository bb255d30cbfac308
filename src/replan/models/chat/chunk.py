"""The fields that are read of a Chat Completions answer, and what is made of fields of other types than documented.

Format: the `chat.completion` and `chat.completion.chunk` objects of the OpenAI API; `reasoning_content` is DeepSeek's
and vLLM's, `reasoning` OpenRouter's and Groq's, `reasoning_details` those of
gateways that pass on signed thoughts, `prompt_cache_hit_tokens` DeepSeek's.
"""

from typing import Any, cast

import msgspec
from msgspec import Struct

from replan.encoding import JSON, JSONObject, decode, encode

__all__ = ["CallPiece", "Choice", "Chunk", "Counts", "Function", "Piece", "load", "read_chunk"]


class Function(Struct, gc=False):
    """The called function, or a piece of it."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(Struct, gc=False):
    """A tool call, or a piece of it."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Piece(Struct, gc=False):
    """What a chunk adds to the message, or the whole message."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: Any = None
    tool_calls: list[CallPiece] | None = None
    function_call: Function | None = None


class InputDetails(Struct, gc=False):
    """What the input consists of."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(Struct, gc=False):
    """What the output consists of."""

    reasoning_tokens: int | None = None


class Counts(Struct, gc=False):
    """Token counts; which of them come differs."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class Choice(Struct, gc=False):
    """One alternative; only that of index 0 is read."""

    index: int | None = None
    delta: Piece | None = None
    message: Piece | None = None
    finish_reason: str | None = None
    usage: Counts | None = None


class Chunk(Struct, gc=False):
    """A chunk of a stream, or a whole answer."""

    choices: list[Choice] | None = None
    usage: Counts | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(Chunk)


def read_chunk(data: bytes) -> Chunk | None:
    """The chunk that `data` holds; None where it is no JSON object.

    Fields of odd types are turned into what they mean.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        value = load(data)
    if not isinstance(value, dict):
        return None
    fields = cast("JSONObject", value)
    choices = [_choice(choice) for choice in _dicts(fields.get("choices"))] if "choices" in fields else None
    return Chunk(choices, _counts(fields.get("usage")), fields.get("error"))


def load(data: bytes) -> JSON:
    """The JSON value of bytes that may not be UTF-8; None where there is none."""
    try:
        return decode(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _choice(fields: JSONObject) -> Choice:
    reason = fields.get("finish_reason")
    return Choice(
        _whole(fields.get("index")),
        _piece(fields.get("delta")),
        _piece(fields.get("message")),
        reason if isinstance(reason, str) else None,
        _counts(fields.get("usage")),
    )


def _piece(value: JSON) -> Piece | None:
    if not isinstance(value, dict):
        return None
    fields = cast("JSONObject", value)
    content = fields.get("content")
    return Piece(
        _joined(content, "text") if isinstance(content, list) else _text(content),
        _text(fields.get("refusal")) or _joined(content, "refusal"),
        _text(fields.get("reasoning_content")) or _joined(content, "thinking"),
        _text(fields.get("reasoning")),
        fields.get("reasoning_details"),
        [_call(call) for call in _dicts(fields.get("tool_calls"))] or None,
        _function(fields.get("function_call")),
    )


def _call(fields: JSONObject) -> CallPiece:
    call_id = fields.get("id")
    function = fields if "function" not in fields and "name" in fields else fields.get("function")
    return CallPiece(_whole(fields.get("index")), None if call_id is None else str(call_id), _function(function))


def _function(value: JSON) -> Function | None:
    if not isinstance(value, dict):
        return None
    fields = cast("JSONObject", value)
    arguments = fields.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = encode(arguments).decode()
    return Function(_text(fields.get("name")), arguments)


def _counts(value: JSON) -> Counts | None:
    if not isinstance(value, dict):
        return None
    fields = cast("JSONObject", value)
    inputs, outputs = (_dict(fields.get(f"{kind}_tokens_details")) for kind in ("prompt", "completion"))
    return Counts(
        _whole(fields.get("prompt_tokens")),
        _whole(fields.get("completion_tokens")),
        _whole(fields.get("total_tokens")),
        _whole(fields.get("prompt_cache_hit_tokens")),
        InputDetails(_whole(inputs.get("cached_tokens")), _whole(inputs.get("cache_write_tokens"))),
        OutputDetails(_whole(outputs.get("reasoning_tokens"))),
    )


def _joined(content: JSON, kind: str) -> str | None:
    """The texts of the content parts of that kind: `{"type": kind, kind: text or list of text parts}`, or bare
    texts.
    """
    if not isinstance(content, list):
        return None
    texts: list[str] = []
    for part in cast("list[Any]", content):
        if isinstance(part, str) and kind == "text":
            texts.append(part)
        inner = _dict(part).get(kind) if _dict(part).get("type", "text") in (kind, f"output_{kind}") else None
        texts.append((_joined(inner, "text") if isinstance(inner, list) else _text(inner)) or "")
    return "".join(texts) or None


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: JSON) -> int | None:
    try:
        return None if value is None or isinstance(value, bool) else int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def _dict(value: JSON) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}


def _dicts(value: JSON) -> list[JSONObject]:
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [cast("JSONObject", item) for item in items if isinstance(item, dict)]
