"""Tools for a model that cannot call any: one constrained JSON object stands for a call or for the answer.

A small model does not keep to a native tool-call format, but it does choose well between `{"name": ..., "arguments":
...}` objects when the grammar leaves nothing else, best when the answer is a tool like the others. Here a conversation
becomes the texts of such a dialogue, and a reply of this form becomes a tool call or a text like any other model's.
"""

import json
import re
import secrets
from collections.abc import Sequence

from replan.encoding import JSON, JSONObject, encode
from replan.messages import Assistant, Message, Refusal, Text, ToolCall, ToolResult, User
from replan.model import ToolSpec

from ._local_schema import clean, is_list, is_object

__all__ = ["AnswerText", "answer_name", "calls_so_far", "chat", "read_call", "reply_schema", "tool_guide", "untried"]

_SPECIAL = re.compile(r"<\|(?=\w+\|>)")
_STRING = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
_ANSWER_NAMES = ("answer", "final_answer", "answer_the_user", "end_with_answer")


def answer_name(tools: Sequence[ToolSpec]) -> str:
    """What the answer is called among these tools."""
    taken = {tool.name for tool in tools}
    return next(name for name in (*_ANSWER_NAMES, "_".join(sorted(taken))) if name not in taken)


def reply_schema(
    tools: Sequence[ToolSpec], *, answer: JSONObject | None, name: str = "answer", strict: bool = True
) -> JSONObject:
    """The schema of a reply: one branch for each tool, and one called `name` for an answer of the schema `answer`."""
    branches: list[JSONObject] = []
    definitions: JSONObject = {}

    def part(schema: JSONObject, prefix: str) -> JSONObject:
        cleaned = clean(schema, strict=strict, prefix=prefix)
        definitions.update(cleaned.pop("$defs", {}))
        return cleaned

    for number, tool in enumerate(tools):
        branches.append(_offer(tool.name, part({"type": "object", **tool.parameters}, f"t{number}")))
    if answer is not None:
        branches.append(_offer(name, _closed({"text": part(answer, "a")})))
    schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {**schema, "$defs": definitions} if definitions else schema


def tool_guide(tools: Sequence[ToolSpec], answer: str | None) -> str:
    """The tools and the form of a reply, for the instructions; `answer` is the answer's name where one may be given."""
    lines = [f"- {tool.name}({_signature(tool.parameters)})" + _summary(tool.description, 200, " - ") for tool in tools]
    if answer is not None:
        lines.append(f"- {answer}(text: string) - Answer the user when no other tool is needed")
    return "\n".join(["Tools:", *lines, 'Reply with one JSON object: {"name": tool, "arguments": {...}}.'])


def chat(messages: Sequence[Message], instructions: str, closing: str = "") -> list[JSONObject]:
    """The conversation as alternating texts of a chat; `closing` is added to the last one that is not the model's."""
    turns: list[tuple[str, str]] = [("system", instructions)] if instructions else []
    for message in messages:
        role = "assistant" if isinstance(message, Assistant) else "user"
        text = _plain(_rendered(message))
        if turns and turns[-1][0] == role:
            turns[-1] = (role, f"{turns[-1][1]}\n{text}")
        else:
            turns.append((role, text))
    if closing and turns and turns[-1][0] == "user":
        turns[-1] = ("user", f"{turns[-1][1]}\n\n{_plain(closing)}")
    elif closing:
        turns.append(("user", _plain(closing)))
    return [{"role": role, "content": text} for role, text in turns]


def calls_so_far(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls since the user last said something."""
    calls: list[ToolCall] = []
    for message in messages:
        if isinstance(message, User):
            calls.clear()
        elif isinstance(message, Assistant):
            calls += message.calls
    return calls


def untried(tools: Sequence[ToolSpec], calls: Sequence[ToolCall]) -> list[ToolSpec]:
    """The tools without the calls that were made already, as far as a schema can say so.

    A tool without parameters is left out, and so are the used values of a choice that is a tool's only parameter.
    """
    left: list[ToolSpec] = []
    for tool in tools:
        used = [call.arguments for call in calls if call.name == tool.name]
        properties: JSONObject = tool.parameters.get("properties") or {}
        if not used or len(properties) > 1:
            left.append(tool)
        elif properties:
            left += _without(tool, next(iter(properties)), used)
    return left


def _without(tool: ToolSpec, name: str, used: Sequence[JSONObject]) -> list[ToolSpec]:
    schema = tool.parameters["properties"][name]
    if not is_object(schema) or not is_list(schema.get("enum")):
        return [tool]
    values = [value for value in schema["enum"] if {name: value} not in used]
    parameters = {**tool.parameters, "properties": {name: {**schema, "enum": values}}}
    return [ToolSpec(tool.name, tool.description, parameters)] if values else []


class AnswerText:
    """Reads the answer out of a reply that is still being written."""

    def __init__(self, name: str) -> None:
        self._start = f'{{"name":"{name}","arguments":{{"text":"'
        self._raw = ""
        self._read = 0

    def feed(self, piece: str) -> str:
        """What the piece adds to the answer's text; nothing while it is a tool call or an answer that is no text."""
        self._raw += piece
        if not self._raw.startswith(self._start):
            return ""
        start = len(self._start) + self._read
        found = _STRING.match(self._raw, start)
        written = found.group() if found else ""
        written = _HIGH_SURROGATE.sub("", written)
        self._read += len(written)
        return json.loads(f'"{written}"', strict=False)


def read_call(reply: JSON) -> ToolCall | None:
    """The tool call that a reply stands for, the answer being one too; None when it is none."""
    if not is_object(reply) or not isinstance(reply.get("name"), str):
        return None
    arguments = reply.get("arguments")
    return ToolCall(f"call_{secrets.token_hex(8)}", reply["name"], arguments if is_object(arguments) else {})


def _offer(name: str, arguments: JSONObject) -> JSONObject:
    return _closed({"name": {"const": name}, "arguments": arguments})


def _closed(properties: JSONObject) -> JSONObject:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _rendered(message: Message) -> str:
    match message:
        case User(content):
            return "\n".join(part.text if isinstance(part, Text) else f"[{part.mime}]" for part in content)
        case ToolResult():
            kind = "Error" if message.is_error else "Result"
            others = "".join(f"\n[{part.mime}]" for part in message.content if not isinstance(part, Text))
            return f"{kind} of {message.name}: {message.text}{others}"
        case Assistant(content):
            return "\n".join(filter(None, map(_part, content)))


def _part(part: object) -> str:
    match part:
        case Text(text) | Refusal(text):
            return text
        case ToolCall(_, name, arguments):
            return encode({"name": name, "arguments": arguments}).decode()
        case _:
            return ""


def _plain(text: str) -> str:
    """The text without the marks that end a turn for the model."""
    return _SPECIAL.sub("< |", text)


def _signature(parameters: JSONObject) -> str:
    required = parameters.get("required") or ()
    properties: JSONObject = parameters.get("properties") or {}
    return ", ".join(f"{name}{'' if name in required else '?'}: {_kind(schema)}" for name, schema in properties.items())


def _kind(schema: JSON) -> str:
    if not is_object(schema):
        return "any"
    if choices := schema.get("enum"):
        kind = "|".join(encode(choice).decode() for choice in choices[:12])
    elif schema.get("type") == "array":
        kind = f"list of {_kind(schema.get('items'))}"
    else:
        kind = str(schema.get("type", "any"))
    return kind + _summary(schema.get("description"), 80, " = ")


def _summary(text: JSON, limit: int, before: str) -> str:
    if not isinstance(text, str) or not text.strip():
        return ""
    sentence = re.split(r"(?<=[.!?])\s|\n\s*\n", " ".join(text.split()), maxsplit=1)[0].rstrip(".")
    return before + sentence[:limit]
