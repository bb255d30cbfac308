"""Tools for a model that cannot call any: one constrained JSON object stands for a call or for the answer.

A small model does not keep to a native tool-call format, but it does choose well between `{"tool": ..., "arguments":
...}` and `{"answer": ...}` when the grammar leaves nothing else. Here a conversation becomes the texts of such a
dialogue, and a reply of this form becomes a tool call or a text like any other model's.
"""

import json
import re
import secrets
from collections.abc import Sequence

from replan.encoding import JSON, JSONObject, encode
from replan.messages import Assistant, Message, Refusal, Text, ToolCall, ToolResult, User
from replan.model import ToolSpec

from ._local_schema import clean, is_list, is_object

__all__ = ["AnswerText", "calls_so_far", "chat", "read_call", "reply_schema", "tool_guide", "untried"]

_SPECIAL = re.compile(r"<\|(?=\w+\|>)")
_STRING = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
_ANSWER = '{"answer":"'


def reply_schema(tools: Sequence[ToolSpec], *, answer: JSONObject | None, strict: bool = True) -> JSONObject:
    """The schema of a reply: one branch for each tool, and one for an answer of the schema `answer`."""
    branches: list[JSONObject] = []
    definitions: JSONObject = {}
    parts = [(f"t{n}", tool.name, {"type": "object", **tool.parameters}) for n, tool in enumerate(tools)]
    for prefix, name, parameters in parts:
        arguments = clean(parameters, strict=strict, prefix=prefix)
        definitions.update(arguments.pop("$defs", {}))
        branches.append(_closed({"tool": {"const": name}, "arguments": arguments}))
    if answer is not None:
        content = clean(answer, strict=strict, prefix="a")
        definitions.update(content.pop("$defs", {}))
        branches.append(_closed({"answer": content}))
    schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {**schema, "$defs": definitions} if definitions else schema


def tool_guide(tools: Sequence[ToolSpec], *, answer: bool) -> str:
    """The tools and the form of a reply, for the instructions."""
    lines = [f"- {tool.name}({_signature(tool.parameters)})" + _summary(tool.description, 200, " - ") for tool in tools]
    rule = 'Reply with one JSON object. {"tool": name, "arguments": {...}} uses a tool, one at a time.'
    if answer:
        rule += (
            ' {"answer": text} ends the work. To do, look up or calculate something, always use the tool for it: you'
            " know and do nothing by yourself. Answer when the results above hold all that was asked, with the values"
            " from the results, or when no tool can help. Never repeat a call."
        )
    return "\n".join(["Tools:", *lines, rule])


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

    def __init__(self) -> None:
        self._raw = ""
        self._read = 0

    def feed(self, piece: str) -> str:
        """What the piece adds to the answer's text; nothing while it is a tool call or an answer that is no text."""
        self._raw += piece
        if not self._raw.startswith(_ANSWER):
            return ""
        start = len(_ANSWER) + self._read
        found = _STRING.match(self._raw, start)
        written = found.group() if found else ""
        written = _HIGH_SURROGATE.sub("", written)
        self._read += len(written)
        return json.loads(f'"{written}"', strict=False)


def read_call(reply: JSON) -> ToolCall | None:
    """The tool call that a reply stands for."""
    if not is_object(reply) or not isinstance(reply.get("tool"), str):
        return None
    arguments = reply.get("arguments")
    return ToolCall(f"call_{secrets.token_hex(8)}", reply["tool"], arguments if is_object(arguments) else {})


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
            return encode({"tool": name, "arguments": arguments}).decode()
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
