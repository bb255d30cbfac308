"""Images, sounds and files on their way to a provider: read, encoded, or described where they cannot be taken."""

import base64
import binascii
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from replan.messages import Audio, Content, File, Image, Text

__all__ = ["Loaded", "base64_text", "data_url", "described", "loaded", "written"]

_KINDS: dict[type[Image | Audio | File], str] = {Image: "image", Audio: "audio", File: "file"}
_WRITTEN = frozenset(["application/json", "application/xml", "application/yaml", "application/x-yaml"])


class Loaded(NamedTuple):
    """A part's bytes, or the http(s) address where the provider can get it: exactly one of the two."""

    data: bytes | None
    url: str | None
    mime: str


def loaded(part: Image | Audio | File) -> Loaded | None:
    """The part, read where it lies in a file or in a `data:` URL; None where it cannot be read."""
    if part.data is not None:
        return Loaded(part.data, None, part.mime)
    url = part.url or ""
    if url.startswith(("http://", "https://")):
        return Loaded(None, url, part.mime)
    try:
        data = _from_data_url(url) if url.startswith("data:") else Path(url.removeprefix("file://")).read_bytes()
    except (OSError, ValueError, binascii.Error):
        return None
    return Loaded(data, None, part.mime)


def described(part: Content) -> str:
    """The part as text: other than text, what it is, so that the model knows that there is something."""
    if isinstance(part, Text):
        return part.text
    name = f" {part.name!r}" if isinstance(part, File) and part.name else ""
    size = f", {len(part.data)} bytes" if part.data is not None else ""
    place = f" at {part.url}" if part.url and not part.url.startswith("data:") else ""
    return f"[{_KINDS[type(part)]}{name} of type {part.mime}{size}{place}, not shown]"


def written(part: File) -> str | None:
    """The text of a file that is one, under its name; None where it is none or cannot be read."""
    if not part.mime.startswith("text/") and part.mime not in _WRITTEN:
        return None
    found = loaded(part)
    if found is None or found.data is None:
        return None
    text = found.data.decode(errors="replace")
    return f"{part.name}:\n{text}" if part.name else text


def base64_text(data: bytes) -> str:
    """The bytes in base64."""
    return base64.b64encode(data).decode()


def data_url(mime: str, data: bytes) -> str:
    """The bytes as a `data:` URL (RFC 2397)."""
    return f"data:{mime};base64,{base64_text(data)}"


def _from_data_url(url: str) -> bytes:
    head, _, data = url.partition(",")
    return base64.b64decode(data, validate=True) if head.endswith(";base64") else unquote_to_bytes(data)
