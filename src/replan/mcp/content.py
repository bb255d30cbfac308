"""What an MCP server answers, as what a model reads and a program gets."""

import base64
import binascii
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..encoding import JSON, clean_text, decode, encode, normalise
from ..messages import Audio, Content, File, Image, Text
from ..tool import ToolOutput

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, EmbeddedResource, ResourceLink

__all__ = ["tool_output"]

_NO_RESULT = "(the tool gave no result)"
_NO_REASON = "(the tool failed and gave no reason)"

_LONG_ENOUGH = 256
"""Characters from which a text inside structured data is compared with the binary parts of the same result."""

Keep = Callable[[bytes, str], Path]


def tool_output(result: "CallToolResult", keep: Keep) -> ToolOutput:
    """The result of a tool call as an output; `keep(data, mime)` stores binary data and gives its path.

    The data reach the model once. Text parts and structured content that say the same become the text; where they differ, the
    structured content follows as JSON. Images and audio stay parts, with the path in a text; a failed call stores nothing. Parts that are
    meant for the user alone are left out. `structured` is the structured content, without a lone `{"result": ...}` around it, or
    the value of a single text that is a JSON object or list.
    """
    blocks = [block for block in result.content if _for_model(block)]
    texts = [block.text for block in blocks if block.type == "text"]
    structured = normalise(result.structured_content)
    parts: list[Content] = []
    for block in blocks:
        parts += _parts(block, None if result.is_error else keep)
    if structured is not None:
        encoded = {block.data for block in result.content if block.type in ("image", "audio")}
        shown = _without_binary(structured, encoded | _blobs(result))
        if not _says(texts, structured):
            parts.append(Text(encode(shown).decode()))
        structured = _unwrap(structured)
    elif len(texts) == 1:
        structured = _container(texts[0])
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        parts = [Text(_NO_REASON if result.is_error else _NO_RESULT)]
    return ToolOutput(tuple(parts), structured, result.is_error)


def _for_model(block: "ContentBlock") -> bool:
    audience = block.annotations.audience if block.annotations is not None else None
    return not audience or "assistant" in audience


def _parts(block: "ContentBlock", keep: Keep | None) -> list[Content]:
    match block.type:
        case "text":
            return [Text(clean_text(block.text))]
        case "image" | "audio":
            return _media(block.type, block.data, block.mime_type, keep)
        case "resource_link":
            return [Text(_link(block))]
        case "resource":
            return _resource(block, keep)


def _media(kind: str, data: str, mime: str, keep: Keep | None) -> list[Content]:
    raw = _bytes(data)
    if raw is None:
        return [Text(f"({kind} of type {mime} whose data is not valid base64)")]
    part = Image(mime, raw) if kind == "image" else Audio(mime, raw)
    where = "" if keep is None else f", kept as {keep(raw, mime)}"
    return [Text(f"({kind} of type {mime}, {len(raw)} bytes{where})"), part]


def _link(block: "ResourceLink") -> str:
    facts = [block.title or block.name, block.description, block.mime_type]
    described = ", ".join(clean_text(fact) for fact in facts if fact)
    return f"(resource {clean_text(block.uri)}: {described})"


def _resource(block: "EmbeddedResource", keep: Keep | None) -> list[Content]:
    resource = block.resource
    uri = clean_text(str(resource.uri))
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return [Text(f"(resource {uri})\n{clean_text(text)}")]
    blob = cast("BlobResourceContents", resource)
    mime = blob.mime_type or "application/octet-stream"
    raw = _bytes(blob.blob)
    if raw is None:
        return [Text(f"(resource {uri} of type {mime} whose data is not valid base64)")]
    if mime.startswith(("image/", "audio/")):
        return _media(mime.split("/")[0], blob.blob, mime, keep)
    if keep is None:
        return [Text(f"(resource {uri} of type {mime}, {len(raw)} bytes)")]
    path = keep(raw, mime)
    return [
        Text(f"(resource {uri} of type {mime}, {len(raw)} bytes, kept as {path})"),
        File(mime, path.name, url=str(path)),
    ]


def _bytes(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _blobs(result: "CallToolResult") -> set[str]:
    resources = [block.resource for block in result.content if block.type == "resource"]
    return {blob for resource in resources if isinstance(blob := getattr(resource, "blob", None), str)}


def _without_binary(value: JSON, encoded: set[str]) -> JSON:
    """The value with base64 that is a part of the result already replaced by a note."""
    if isinstance(value, str):
        known = len(value) >= _LONG_ENOUGH and any(value == text or value.endswith("," + text) for text in encoded)
        return f"({len(value)} characters of base64: the binary part above)" if known else value
    if isinstance(value, list):
        return [_without_binary(item, encoded) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _without_binary(item, encoded) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _says(texts: list[str], structured: JSON) -> bool:
    """Whether the text parts already hold the structured content."""
    inner = _unwrap(structured)
    whole = "\n".join(texts)
    if not whole.strip():
        return False
    if isinstance(inner, str) and inner in (whole, "".join(texts)):
        return True
    if _is_sole_text(structured, whole):
        return True
    parsed = _json(whole)
    if parsed is not None and parsed in (structured, inner):
        return True
    # A list of values may come as one text for each.
    if isinstance(inner, list) and len(texts) == len(cast("list[Any]", inner)):
        return all(
            text == item or _json(text) == item for text, item in zip(texts, cast("list[Any]", inner), strict=True)
        )
    return str(inner) == whole.strip() and not isinstance(inner, (dict, list))


def _is_sole_text(structured: JSON, whole: str) -> bool:
    """Whether the structured content is an object around nothing but the text, whatever its key."""
    if not isinstance(structured, dict):
        return False
    values = list(cast("dict[str, Any]", structured).values())
    return len(values) == 1 and values[0] == whole


def _unwrap(structured: JSON) -> JSON:
    if isinstance(structured, dict) and list(cast("dict[str, Any]", structured)) == ["result"]:
        return cast("dict[str, Any]", structured)["result"]
    return structured


def _json(text: str) -> JSON:
    try:
        return decode(text)
    except (ValueError, RecursionError):
        return None


def _container(text: str) -> JSON:
    if not text.lstrip().startswith(("{", "[")):
        return None
    value = _json(text)
    return value if isinstance(value, (dict, list)) else None
