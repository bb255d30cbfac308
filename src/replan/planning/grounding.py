"""Where the values of arguments may come from, as JSON schemas for models whose output is constrained.

A value in a plan is a span or number of the goal, or open (null) until results are there; a value that is filled in
later is a leaf of a result, of the goal, or something that an error offers. What only the model can know (the name of a
time zone, the code of a currency) stays free in calls that only read.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from replan.encoding import JSON, JSONObject, is_list
from replan.tool import ToolInfo

from .words import MAX_LEAVES, is_stop, leaves, numbers, singulars, spans

_EXAMPLES = re.compile(r"(?:such as|e\.g\.,?|for example|like|as in)\s+([^\s,;)]+)|'([^'\n]{1,60})'", re.I)
_FREE_NAMES = re.compile(
    r"body|text|message|content|comment|note|description|summary|subject|query|prompt|expression|formula|equation", re.I
)
_LONG = {"lb": "pound", "oz": "ounce", "kg": "kilogram", "km": "kilomet", "cm": "centimet", "ft": "feet"}
_FORMS = ((re.compile(r"e-?mail", re.I), "@"), (re.compile(r"\b(?:url|uri|link)\b", re.I), "://"))
_ITEM = r"[^\s,;.:()\"']{1,12}"
_LIST = re.compile(rf"(?<![\w'\"]){_ITEM}(?:(?:[,;] (?:and |or )?| and | or ){_ITEM}){{2,}}(?=\s*[.;:)]|\s*$)")


def one_of(arguments: JSONObject) -> JSONObject | None:
    """The arguments with a text that may be a plural in the singular: what a catalogue knows may be called that."""
    for name, value in arguments.items():
        if isinstance(value, str) and (found := singulars(value)):
            return {**arguments, name: found[0]}
    return None


def plan_arguments(info: ToolInfo, goal: str, *, reserved: Sequence[str] = ()) -> JSONObject:
    """The schema of a planned call's arguments: grounded in the goal, or null.

    What is `reserved` is no value of a look-up.
    """
    root = info.parameters
    properties: JSONObject = root.get("properties") or {}
    if not properties:
        return {"const": {}}
    required = [name for name in properties if name in root.get("required", ())]
    found = {name: _or_null(_planned(name, schema, info, goal, reserved)) for name, schema in properties.items()}
    return {"type": "object", "properties": found, "required": required, "additionalProperties": False}


def _or_null(schemas: list[JSONObject]) -> JSONObject:
    return {"anyOf": [*schemas, {"type": "null"}]} if schemas else {"type": "null"}


def reserved(tools: Iterable[ToolInfo], goal: str) -> list[str]:
    """What a goal gives for a named argument of a tool that writes (`with the title Shopping`): nothing to look up."""
    stems: dict[str, None] = {}
    for info in tools:
        properties: JSONObject = {} if info.read_only else info.parameters.get("properties") or {}
        stems |= {name[:4]: None for name, schema in properties.items() if len(name) >= 4 and _type(schema) == "string"}
    found: list[str] = []
    for stem in stems:
        pattern = rf"\b(?i:{re.escape(stem)})\w*:?\s+(?:is |as |of )?[\"'“]?([A-Z\d][\w-]*(?: [A-Z\d][\w-]*)*)"
        found += [match[1] for match in re.finditer(pattern, goal)]
    return found


def _planned(
    name: str, schema: JSONObject, info: ToolInfo, goal: str, reserved: Sequence[str] = ()
) -> list[JSONObject]:
    """What a plan may write for an argument.

    Texts to be composed, and whatever is written or sent, wait for the results.
    """
    if not info.read_only or _FREE_NAMES.search(name):
        return []
    if "enum" in schema or "const" in schema:
        return [schema]
    kind = _type(schema)
    if kind == "string":
        return _planned_text(name, schema, info, goal, reserved)
    if kind in ("integer", "number"):
        known = [n for n in numbers(goal) if kind == "number" or isinstance(n, int)]
        return [{"enum": known}] if known else []
    return [{"type": "boolean"}] if kind == "boolean" else []


def _planned_text(
    name: str, schema: JSONObject, info: ToolInfo, goal: str, reserved: Sequence[str]
) -> list[JSONObject]:
    names, examples = spans(goal), _examples(schema)
    names = [span for span in names if not any(value in span for value in reserved)] or names
    if examples and not (names := _of_shape(schema, names)):
        return [{"type": "string", "maxLength": 60}] if _only_model_knows(examples) else []
    if listed := {item.casefold() for item in _listed(name, schema, info)}:
        names = [span for span in names if span.casefold() in listed]
    return [{"enum": names}] if names else []


def asked_for(info: ToolInfo, goal: str) -> bool:
    """Whether a goal has a word in common with the name or description of a tool that writes: one that reads needs
    none.

    A model that only follows a grammar takes up whatever is offered; what nobody asked for must not be written or sent.
    """
    words, offered = _words(goal), _words(f"{info.name} {info.description}")
    return info.read_only or any(
        w == o or (len(w) >= 4 and len(o) >= 4 and w[:4] == o[:4]) for w in words for o in offered
    )


_ARITHMETIC = re.compile(r"arithmetic|\bcalculator|\bmath|\b(?:formula|expression)s? of\b", re.I)


def calculates(info: ToolInfo) -> bool:
    """Whether a tool is a calculator: all that it is given is one text, and it is said to be arithmetic."""
    properties: JSONObject = info.parameters.get("properties") or {}
    required = [name for name in properties if name in info.parameters.get("required", ())]
    if not info.read_only or len(required) != 1 or _type(properties[required[0]]) != "string":
        return False
    said = f"{info.description} {properties[required[0]].get('description', '')}"
    return bool(_FREE_NAMES.search(required[0]) and _ARITHMETIC.search(said))


def _words(text: str) -> set[str]:
    found = {word.casefold() for word in re.findall(r"[^\W\d_]+", text)}
    return {word for word in found if len(word) > 2 and not is_stop(word)}


def _listed(name: str, schema: JSONObject, info: ToolInfo) -> list[str]:
    """Values that a description lists for an argument: its own (`kitchen, electric or wear`), else the tool's behind
    the argument's name (`between units: km, mi and ft`).
    """
    runs = [match[0] for match in _LIST.finditer(str(schema.get("description") or ""))]
    described: list[str] = re.findall(r"[a-z]{4,}", str(schema.get("description") or "").casefold())
    words = [] if runs else [*name.split("_"), *described]
    for word in dict.fromkeys(words):
        runs += [
            match[1] for match in re.finditer(rf"\b{re.escape(word)}\w*:\s*({_LIST.pattern})", info.description, re.I)
        ]
    return [item for run in runs for item in re.split(r"[,;]\s*(?:and |or )?|\s+(?:and|or)\s+", run) if item]


def takes_ids(info: ToolInfo) -> bool:
    """Whether a tool takes ids (`such as C-1234`), which people do not know and results tell."""
    properties: JSONObject = info.parameters.get("properties") or {}
    examples = [found for name in info.parameters.get("required", ()) if (found := _examples(properties.get(name, {})))]
    return bool(examples) and not any(_only_model_knows(found) for found in examples)


def converts(info: ToolInfo) -> list[str]:
    """What a tool that takes a number can turn it into, as far as its description lists that; empty for other tools."""
    properties: JSONObject = info.parameters.get("properties") or {}
    if not info.read_only or not any(_type(schema) in ("number", "integer") for schema in properties.values()):
        return []
    texts = [name for name, schema in properties.items() if _type(schema) == "string"]
    return list(dict.fromkeys(unit for name in texts for unit in _listed(name, properties[name], info)))


def asks_for(goal: str, units: Iterable[str], *, surely: bool) -> bool:
    """Whether a goal has one of the units, in full or in short: `inches` is `in`, `kilometres` may be `km`."""
    words = [word for word in re.findall(r"[^\W\d_]+", goal) if not is_stop(word.casefold())]
    return any(_is_unit(word, unit, surely=surely) for unit in units for word in words) or any(
        f" {unit} " in f" {re.sub('[?.!,;]', ' ', goal)} " for unit in units if not unit.isalpha() or unit.isupper()
    )


def _is_unit(word: str, unit: str, *, surely: bool) -> bool:
    low, short = word.casefold(), unit.casefold()
    if len(unit) == 1:
        return unit.isupper() and word.startswith(unit)
    if low.startswith((short, _LONG.get(short, short))):
        return True
    letters = iter(low[1:])
    return not surely and low[:1] == short[:1] and all(letter in letters for letter in short[1:])


def bound_arguments(
    info: ToolInfo,
    given: JSONObject,
    sources: Iterable[JSON],
    goal: str,
    *,
    offered: Sequence[str] = (),
    refused: Iterable[JSONObject] = (),
) -> JSONObject:
    """The schema of the arguments that are still open: leaves of the results in `sources`, else values of the goal.

    `given` arguments are fixed. Where an error has `offered` values, a text is one of these. Values that were `refused`
    before are left out.
    """
    root = info.parameters
    properties: JSONObject = root.get("properties") or {}
    required = [name for name in properties if name in root.get("required", ()) or name in given]
    found = leaves(list(sources))
    calls = list(refused)
    schemas: JSONObject = {}
    for name in required:
        if name in given:
            schemas[name] = {"enum": [given[name]]}
        elif offered and _type(properties[name]) == "string":
            schemas[name] = {"enum": [*offered]}
        else:
            schemas[name] = _bound(name, properties[name], info, found, goal, [call.get(name) for call in calls])
    definitions = {"$defs": root["$defs"]} if "$defs" in root else {}
    return {
        "type": "object",
        "properties": schemas,
        "required": required,
        "additionalProperties": False,
        **definitions,
    }


def _bound(
    name: str, schema: JSONObject, info: ToolInfo, found: list[JSON], goal: str, tried: list[JSON]
) -> JSONObject:
    kind = _type(schema)
    if "enum" in schema or "const" in schema or (kind == "string" and _FREE_NAMES.search(name)):
        return schema
    if kind == "string":
        offered = _offered_texts(name, schema, info, [leaf for leaf in found if isinstance(leaf, str)], goal)
    elif kind in ("integer", "number"):
        offered = [leaf for leaf in [*found, *numbers(goal)] if not isinstance(leaf, str)]
        offered = [leaf for leaf in offered if kind == "number" or isinstance(leaf, int)]
    else:
        return schema
    offered = [leaf for leaf in dict.fromkeys(offered) if leaf not in tried][:MAX_LEAVES]
    return {"enum": offered} if offered else schema


def _offered_texts(name: str, schema: JSONObject, info: ToolInfo, found: list[JSON], goal: str) -> list[JSON]:
    """Texts that an argument may take; none where only the model can know it."""
    known = [*_listed(name, schema, info), *found, *spans(goal)]
    for form, mark in _FORMS:
        if form.search(f"{name} {schema.get('format', '')} {schema.get('description', '')}"):
            known = [value for value in known if mark in value] or known
    if shaped := _of_shape(schema, known):
        return shaped
    return [] if info.read_only and _only_model_knows(_examples(schema)) else known


def _type(schema: JSONObject) -> str | None:
    kind = schema.get("type")
    if is_list(kind):
        return next((k for k in kind if k != "null"), None)
    if kind is None and is_list(schema.get("anyOf")):
        return next((_type(branch) for branch in schema["anyOf"] if branch.get("type") != "null"), None)
    return kind


def _examples(schema: JSONObject) -> list[str]:
    text = str(schema.get("description") or "")
    listed = [str(example) for example in schema.get("examples", ()) if isinstance(example, str)]
    return listed + [(match[1] or match[2]).strip("'\"`.:") for match in _EXAMPLES.finditer(text)]


def _shape(text: str) -> str:
    """Runs of letters and digits by kind, everything else as it is:

    `C-1234` is `A-9`, `Europe/Lisbon` is `a/a`, `EUR` is `A`.
    """
    text = re.sub(r"[A-Z][A-Z]+|\b[A-Z]\b", "A", re.sub(r"\d+", "9", text))
    return re.sub(r"[A-Z]?[^\W\d_A-Z]+(?:[ _][A-Z]?[^\W\d_A-Z]+)*", "a", text)


def _of_shape(schema: JSONObject, offered: Iterable[JSON]) -> list[Any]:
    shapes = {_shape(example) for example in _examples(schema)}
    return [value for value in offered if isinstance(value, str) and _shape(value) in shapes]


def _only_model_knows(examples: Iterable[str]) -> bool:
    """Whether values like these can come from world knowledge, as names and codes do, and ids with digits do not."""
    shapes = {_shape(example) for example in examples}
    return bool(shapes) and not any("9" in shape for shape in shapes)
