"""What an MCP server answers, as what a model reads and a program gets."""

import base64
import binascii
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from replan.encoding import JSON, JSONObject, clean_text, decode, encode, normalise
from replan.messages import Audio, Content, File, Image, Text
from replan.tool import ToolOutput

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, EmbeddedResource, ResourceLink

__all__ = ["tool_output"]

_NO_RESULT = "(the tool gave no result)"
_NO_REASON = "(the tool failed and gave no reason)"


def tool_output(result: "CallToolResult", keep: Callable[[bytes, str], Path]) -> ToolOutput:
    """The result of a tool call as an output; `keep(data, mime)` stores binary data and gives its path.

    The data reach the model once: structured content takes the place of texts that say the same, and follows texts
    that say something else. Images and audio stay parts, with their paths in a
    text; base64 in structured content gives way to a note; a failed call stores nothing. Parts that are meant for the
    user alone are left out. `structured` is the structured content, without a lone `{"result": ...}` around it, or
    the value of a single text that is a JSON object or list.
    """
    binaries = _Binaries(None if result.is_error else keep)
    blocks = [block for block in result.content if _for_model(block)]
    texts = [clean_text(block.text) for block in blocks if block.type == "text"]
    parts = [part for block in blocks for part in _parts(block, binaries)]
    structured: JSON = None
    if result.structured_content is not None:
        structured = _unwrap(binaries.replace(normalise(result.structured_content)))
        parts = _with_data(parts, texts, structured, result)
    elif len(texts) == 1:
        structured = _container(texts[0])
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        parts = [Text(_NO_REASON if result.is_error else _NO_RESULT)]
    return ToolOutput(tuple(parts), structured, result.is_error)


def _for_model(block: "ContentBlock") -> bool:
    audience = block.annotations.audience if block.annotations is not None else None
    return not audience or "assistant" in audience


class _Binaries:
    """The binary data of one result, each stored once."""

    def __init__(self, keep: Callable[[bytes, str], Path] | None) -> None:
        self._keep = keep
        self._paths: dict[str, Path | None] = {}

    def store(self, data: str, mime: str) -> tuple[bytes, Path | None] | None:
        """The decoded data and where they are kept; None where they are no base64."""
        try:
            raw = base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            return None
        if data not in self._paths:
            self._paths[data] = self._keep(raw, mime) if self._keep else None
        return raw, self._paths[data]

    def replace(self, value: JSON) -> JSON:
        """The value with notes in place of base64, where it is a part of the result too or states its type."""
        if isinstance(value, str):
            return self._note(value) if value in self._paths else value
        if isinstance(value, list):
            return [self.replace(item) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        found = cast("JSONObject", value)
        mime = found.get("mimeType")
        if isinstance(mime, str):
            for key in ("data", "blob"):
                if isinstance(data := found.get(key), str) and data:
                    self.store(data, mime)
        return {key: self.replace(item) for key, item in found.items()}

    def _note(self, data: str) -> str:
        path = self._paths[data]
        return f"({len(data)} characters of base64{'' if path is None else f', kept as {path}'})"


def _parts(block: "ContentBlock", binaries: _Binaries) -> list[Content]:
    match block.type:
        case "text":
            return [Text(clean_text(block.text))]
        case "image" | "audio":
            return _media(block.type, block.data, block.mime_type, binaries)
        case "resource_link":
            return [Text(_link(block))]
        case "resource":
            return _resource(block, binaries)


def _media(kind: str, data: str, mime: str, binaries: _Binaries) -> list[Content]:
    stored = binaries.store(data, mime)
    if stored is None:
        return [Text(f"({kind} of type {mime} whose data are no base64)")]
    raw, path = stored
    part = Image(mime, raw) if kind == "image" else Audio(mime, raw)
    return [Text(f"({kind} of type {mime}, {_size(raw, path)})"), part]


def _size(raw: bytes, path: Path | None) -> str:
    return f"{len(raw)} bytes{'' if path is None else f', kept as {path}'}"


def _link(block: "ResourceLink") -> str:
    facts = [block.title or block.name, block.description, block.mime_type]
    return clean_text(f"(resource {block.uri}: {', '.join(fact for fact in facts if fact)})")


def _resource(block: "EmbeddedResource", binaries: _Binaries) -> list[Content]:
    uri = clean_text(block.resource.uri)
    text = getattr(block.resource, "text", None)
    if isinstance(text, str):
        return [Text(f"(resource {uri})\n{clean_text(text)}")]
    resource = cast("BlobResourceContents", block.resource)
    mime = resource.mime_type or "application/octet-stream"
    kind = mime.split("/")[0]
    if kind in ("image", "audio"):
        return _media(kind, resource.blob, mime, binaries)
    stored = binaries.store(resource.blob, mime)
    if stored is None:
        return [Text(f"(resource {uri} of type {mime} whose data are no base64)")]
    raw, path = stored
    note = Text(f"(resource {uri} of type {mime}, {_size(raw, path)})")
    return [note] if path is None else [note, File(mime, path.name, url=str(path))]


def _with_data(parts: list[Content], texts: list[str], structured: JSON, result: "CallToolResult") -> list[Content]:
    """The parts, and the structured content where they do not hold it already."""
    compact = structured if isinstance(structured, str) else encode(structured).decode()
    if _repeats_blocks(result):
        return parts
    whole = "\n".join(texts)
    if whole.strip() and _same_json(texts, whole, structured):
        others = [part for part in parts if not (isinstance(part, Text) and part.text in texts)]
        return [Text(compact), *others]
    return parts if _same_text(texts, whole, structured) else [*parts, Text(compact)]


def _same_json(texts: list[str], whole: str, structured: JSON) -> bool:
    """Whether the texts are JSON of the structured content, with or without `{"result": ...}`, whole or one for each
    item.
    """
    parsed = _json(whole)
    if parsed is not None and _unwrap(parsed) == structured:
        return True
    if not isinstance(structured, list) or len(texts) != len(cast("list[Any]", structured)):
        return False
    pairs = zip(texts, cast("list[Any]", structured), strict=True)
    return all(text == item or _json(text) == item for text, item in pairs)


def _same_text(texts: list[str], whole: str, structured: JSON) -> bool:
    """Whether the structured content is nothing but the text, itself or as the only value of an object."""
    if isinstance(structured, dict) and len(cast("JSONObject", structured)) == 1:
        (structured,) = cast("JSONObject", structured).values()
    if isinstance(structured, str):
        return structured in (whole, "".join(texts))
    return not isinstance(structured, (dict, list)) and whole.strip() == str(structured)


def _repeats_blocks(result: "CallToolResult") -> bool:
    """Whether the structured content is the list of content blocks over again."""
    content: JSON = result.structured_content
    if isinstance(content, dict) and len(cast("JSONObject", content)) == 1:
        (content,) = cast("JSONObject", content).values()
    if not isinstance(content, list) or not content:
        return False
    return content == [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]


def _unwrap(structured: JSON) -> JSON:
    if isinstance(structured, dict) and list(cast("JSONObject", structured)) == ["result"]:
        return cast("JSONObject", structured)["result"]
    return cast("JSON", structured)


def _json(text: str) -> JSON:
    try:
        return decode(text)
    except (ValueError, RecursionError):
        return None


def _container(text: str) -> JSON:
    return _json(text) if text.lstrip()[:1] in ("{", "[") else None
