"""How tools are told to a model that plans with them."""

from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from replan.encoding import JSONObject
from replan.tool import ToolInfo

__all__ = ["catalogue", "catalogue_line", "short_named", "tool_names"]


def short_named(tools: Sequence[ToolInfo]) -> tuple[ToolInfo, ...]:
    """The tools under the names that their servers give them, where those are clear: shorter, and in the server's own
    words.
    """
    names = tool_names(tools)
    short = {alias: name for name, alias in names.items() if name != alias}
    return tuple(structs.replace(info, name=short.get(info.name, info.name)) for info in tools)


def tool_names(tools: Sequence[ToolInfo]) -> dict[str, str]:
    """What a planner may call the tools, and which they are: by their names, and by their servers' own where those are
    clear.
    """
    originals = Counter(info.original for info in tools if info.original)
    known = {info.original: info.name for info in tools if info.original and originals[info.original] == 1}
    return known | {info.name: info.name for info in tools}


def catalogue(tools: Sequence[ToolInfo]) -> str:
    """One line a tool: `name(argument: type, ...): description`; those that change something are marked."""
    return "\n".join(f"- {catalogue_line(info)}" for info in tools)


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
