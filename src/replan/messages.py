"""Messages: what a conversation consists of, the same for every provider.

All are frozen; a history is a list of them. A history is valid when each tool call of an assistant message is answered
by exactly one `ToolResult`, in the order of the calls, before the next message of another role.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .encoding import JSON, JSONObject

__all__ = [
    "Assistant",
    "Audio",
    "Content",
    "File",
    "Image",
    "Message",
    "Part",
    "Refusal",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "User",
    "asked",
    "attachment",
    "from_json",
    "part_json",
    "repaired",
    "to_json",
    "user",
]


class Text(Struct, frozen=True, tag="text"):
    """Plain text."""

    text: str


class Thinking(Struct, frozen=True, tag="thinking", omit_defaults=True):
    """A thought of the model, in the place where it had it.

    `signature` and `data` are the provider's own and go back unchanged to the `model` (`provider:name`) that sent them,
    and to no other. A thought without text carries only these; where a provider signs other parts of a reply, it
    stands before the signed one.
    """

    text: str
    signature: str | None = None
    model: str | None = None
    data: JSON = None


class Refusal(Struct, frozen=True, tag="refusal"):
    """The model's words for refusing."""

    text: str


class ToolCall(Struct, frozen=True, tag="call", omit_defaults=True):
    """A call that the model asks for. `call_id` is unique in the run.

    `arguments` is always an object; where the model wrote something that is none, it is empty and `raw` holds what was
    written.
    """

    call_id: str
    name: str
    arguments: JSONObject
    raw: str | None = None


class Image(Struct, frozen=True, tag="image", omit_defaults=True):
    """An image: its bytes, or where it lies (`url`, also a path of an artifact)."""

    mime: str
    data: bytes | None = None
    url: str | None = None


class Audio(Struct, frozen=True, tag="audio", omit_defaults=True):
    """A sound: its bytes, or where it lies."""

    mime: str
    data: bytes | None = None
    url: str | None = None


class File(Struct, frozen=True, tag="file", omit_defaults=True):
    """Any other file: its bytes, or where it lies."""

    mime: str
    name: str = ""
    data: bytes | None = None
    url: str | None = None


Part: TypeAlias = Text | Thinking | Refusal | ToolCall | Image | Audio | File
Content: TypeAlias = Text | Image | Audio | File


class User(Struct, frozen=True, tag_field="role", tag="user"):
    """What the user, or the runtime in the user's place, says."""

    content: tuple[Content, ...]


class Assistant(Struct, frozen=True, tag_field="role", tag="assistant"):
    """One reply of a model."""

    content: tuple[Text | Thinking | Refusal | ToolCall, ...]

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.content if isinstance(part, ToolCall))

    @property
    def refusal(self) -> str | None:
        """The model's words for refusing, if it did."""
        return next((part.text for part in self.content if isinstance(part, Refusal)), None)


class ToolResult(Struct, frozen=True, tag_field="role", tag="tool", omit_defaults=True):
    """The one answer to a tool call. `structured` is for programs; a model gets `content`.

    With `outcome_unknown` it is an error of a call that may have taken effect.
    """

    call_id: str
    name: str
    content: tuple[Content, ...]
    is_error: bool = False
    structured: JSON = None
    outcome_unknown: bool = False

    @property
    def text(self) -> str:
        """The text parts, joined by line breaks."""
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


Message: TypeAlias = User | Assistant | ToolResult


def user(text: str, *parts: Content) -> User:
    """A user message of a text, and of images, sounds and files behind it."""
    return User((Text(text), *parts))


def attachment(path: str | Path) -> Content:
    """The file as a part of a message: an image, a sound, or a file, by the type that its name tells.

    Raises `OSError` where it cannot be read.
    """
    import mimetypes

    path = Path(path)
    mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    match mime.partition("/")[0]:
        case "image":
            return Image(mime, path.read_bytes())
        case "audio":
            return Audio(mime, path.read_bytes())
        case _:
            return File(mime, path.name, path.read_bytes())


def asked(text: str, parts: Iterable[JSONObject]) -> JSONObject:
    """`to_json` of a user message of a text and of parts that are JSON already."""
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts]}


def part_json(part: Content) -> JSONObject:
    """The part as plain JSON (bytes as base64)."""
    return msgspec.to_builtins(part)


def to_json(message: Message) -> JSONObject:
    """The message as plain JSON (bytes as base64)."""
    return {**msgspec.to_builtins(message), "content": [msgspec.to_builtins(part) for part in message.content]}


def from_json(data: JSON) -> Message:
    """The message that `to_json` described. Raises `ValueError` where it is none."""
    return msgspec.convert(data, Message)


def repaired(history: Iterable[Message]) -> list[Message]:
    """The history made valid: every call has an id of its own and one result behind it, in order, and every result its
    call.

    A missing result becomes an error that says so; results without a call, second results, and results that come too
    late are left out.
    """
    messages = list(history)
    valid: list[Message] = []
    known: set[str] = set()
    for index, message in enumerate(messages):
        if isinstance(message, Assistant) and message.calls:
            valid += _answered(message, _results_after(messages, index), known)
        elif not isinstance(message, ToolResult):
            valid.append(message)
    return valid


def _answered(message: Assistant, results: list[ToolResult], known: set[str]) -> list[Message]:
    """The message and the results of its calls; of several calls with one id, each takes the next result of that id."""
    content: list[Text | Thinking | Refusal | ToolCall] = []
    answers: list[Message] = []
    for part in message.content:
        if isinstance(part, ToolCall):
            found = next((result for result in results if result.call_id == part.call_id), None)
            if found:
                results.remove(found)
            call_id = part.call_id if part.call_id and part.call_id not in known else f"call_h{len(known)}"
            known.add(call_id)
            call = replace(part, call_id=call_id)
            answers.append(replace(found, call_id=call_id) if found else _interrupted(call))
            content.append(call)
        else:
            content.append(part)
    return [Assistant(tuple(content)), *answers]


def _results_after(messages: list[Message], index: int) -> list[ToolResult]:
    found: list[ToolResult] = []
    for message in messages[index + 1 :]:
        if not isinstance(message, ToolResult):
            break
        found.append(message)
    return found


def _interrupted(call: ToolCall) -> ToolResult:
    return ToolResult(call.call_id, call.name, (Text("Interrupted before it had a result."),), is_error=True)
