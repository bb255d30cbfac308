"""How tools are told to a model that plans with them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from replan.encoding import JSON, JSONObject, is_list, is_object
from replan.tool import ToolInfo
from replan.tools import read_docstring

from .references import read_text

__all__ = ["catalogue", "catalogue_line", "for_planner", "result_fields", "tool_names"]

_MOST_FIELDS = 20


def for_planner(tools: Sequence[ToolInfo]) -> tuple[ToolInfo, ...]:
    """The tools as a planner sees them: under the names that their servers give them, where those are clear, and with
    what their descriptions say of an argument put to that argument (servers in Python keep it in the docstring).
    """
    names = tool_names(tools)
    short = {alias: name for name, alias in names.items() if name != alias}
    return tuple(_described(structs.replace(info, name=short.get(info.name, info.name))) for info in tools)


def _described(info: ToolInfo) -> ToolInfo:
    text, notes = read_docstring(info.description)
    properties: JSONObject = info.parameters.get("properties") or {}
    notes = {name: note for name, note in notes.items() if name in properties}
    if not notes:
        return info
    filled = {
        name: {"description": notes[name], **schema} if name in notes and is_object(schema) else schema
        for name, schema in properties.items()
    }
    return structs.replace(info, description=text, parameters={**info.parameters, "properties": filled})


def tool_names(tools: Sequence[ToolInfo]) -> dict[str, str]:
    """What a planner may call the tools, and which they are: by their names, and by their servers' own where those are
    clear.
    """
    originals = Counter(info.original for info in tools if info.original)
    known = {info.original: info.name for info in tools if info.original and originals[info.original] == 1}
    return known | {info.name: info.name for info in tools}


def catalogue(tools: Sequence[ToolInfo], results: Mapping[str, Sequence[str]] = {}) -> str:
    """One line a tool: `name(argument: type, ...): description -> {fields}`; those that change something are marked.

    `results` are the fields of tools' results, as far as they are known.
    """
    fields = {name: f" -> {{{', '.join(found)}}}" for name, found in results.items() if found}
    return "\n".join(f"- {catalogue_line(info)}{fields.get(info.name, '')}" for info in tools)


def result_fields(info: ToolInfo, samples: Iterable[JSON]) -> list[str]:
    """The fields of a tool's result: those that it publishes, else those of results that it gave, `samples`; of the
    elements, where it is a list.
    """
    schema: JSON = info.output_schema
    if is_object(schema):
        properties: JSON = schema.get("properties")
        if is_object(properties) and list(properties) == ["result"] and is_object(properties["result"]):
            schema = properties["result"]
        schema = schema.get("items") if is_object(schema.get("items")) else schema
        properties = schema.get("properties")
        return list(properties)[:_MOST_FIELDS] if is_object(properties) else []
    for sample in samples:
        value = read_text(sample) if isinstance(sample, str) else sample
        value = value["result"] if is_object(value) and list(value) == ["result"] else value
        value = value[0] if is_list(value) and value else value
        if is_object(value):
            return list(value)[:_MOST_FIELDS]
    return []


def catalogue_line(info: ToolInfo) -> str:
    """One tool, as in the catalogue."""
    properties: JSONObject = info.parameters.get("properties") or {}
    required = info.parameters.get("required", ())
    arguments = [f"{name}{'' if name in required else '?'}: {_type_words(s)}" for name, s in properties.items()]
    described = " ".join(info.description.split())
    return f"{info.name}({', '.join(arguments)}){'' if info.read_only else ' [writes]'}: {described[:400]}"


def _type_words(schema: JSONObject) -> str:
    if "enum" in schema:
        return "|".join(map(str, schema["enum"][:12]))
    kind = schema.get("type") or next(
        (s.get("type") for s in schema.get("anyOf", ()) if s.get("type") != "null"), "any"
    )
    note = " ".join(str(schema.get("description", "")).split())
    return f"{kind} ({note[:120]})" if note else str(kind)
