"""What is wrong with arguments, in words that a model can act on."""

from typing import Any, cast

from replan.encoding import JSON, JSONObject, encode

from .names import nearest

MAX_PROBLEMS = 8
_CLIP = 60


def read_problems(error: Exception, arguments: JSONObject, schema: JSONObject) -> list[str]:
    """One text for each parameter that a validation error (of pydantic) complains of."""
    if not hasattr(error, "errors"):
        return [f"the arguments could not be read: {type(error).__name__}: {error}"]
    by_path: dict[str, list[str]] = {}
    for item in _likely(cast("Any", error).errors(include_url=False, include_context=False), arguments):
        path, text = _problem(item, arguments, schema)
        texts = by_path.setdefault(path, [])
        if text not in texts:
            texts.append(text)
    problems = [_sentence(path, texts) for path, texts in by_path.items()]
    return cap(problems)


def cap(problems: list[str]) -> list[str]:
    """At most eight of them, and how many more there are."""
    more = len(problems) - MAX_PROBLEMS
    return problems if more <= 0 else [*problems[:MAX_PROBLEMS], f"and {more} more problems"]


def unknown_text(name: str, known: list[str]) -> str:
    """What to say of a parameter that the tool does not have."""
    alike = nearest(name, known, 1)
    return f"is not a parameter of this tool{f'; did you mean {alike[0]!r}?' if alike else ''}"


def clip_value(value: JSON) -> str:
    """A value as short JSON text."""
    text = encode(value).decode()
    return text if len(text) <= _CLIP else f"{text[:_CLIP]}..."


def _likely(items: list[dict[str, Any]], arguments: JSONObject) -> list[dict[str, Any]]:
    """Of a union of structures only what is wrong with the member that has the fewest faults."""
    members: dict[str, dict[str | int, list[dict[str, Any]]]] = {}
    for item in items:
        path, rest = _split(item, arguments)
        if rest:
            members.setdefault(path, {}).setdefault(rest[0], []).append(item)
    dropped: list[dict[str, Any]] = []
    for by_member in members.values():
        inner = [found for found in by_member.values() if any(len(_split(i, arguments)[1]) > 1 for i in found)]
        if inner:
            best = min(inner, key=len)
            dropped += [item for found in by_member.values() if found is not best for item in found]
    return [item for item in items if not any(item is other for other in dropped)]


def _split(item: dict[str, Any], value: JSON) -> tuple[str, tuple[str | int, ...]]:
    """The path up to the first part that names the member of a union, and the parts from there on."""
    location: tuple[str | int, ...] = item["loc"][:-1] if item["type"] == "missing" else item["loc"]
    path = ""
    for position, part in enumerate(location):
        if not _is_in(part, value):
            return path, item["loc"][position:]
        path, value = _join(path, part), value[part]
    return path, ()


def _is_in(part: str | int, value: JSON) -> bool:
    return (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int))


def _problem(item: dict[str, Any], arguments: JSONObject, schema: JSONObject) -> tuple[str, str]:
    location: tuple[str | int, ...] = item["loc"]
    match item["type"]:
        case "missing":
            return _join(_locate(location[:-1], arguments), location[-1]), "is missing"
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = list(schema.get("properties", {})) if len(location) == 1 else []
            return _locate(location, arguments), unknown_text(str(location[-1]), known)
        case _:
            text = item["msg"].removeprefix("Input ").removeprefix("Value error, ")
            return _locate(location, arguments), f"{text}, got {clip_value(item['input'])}"


def _sentence(path: str, texts: list[str]) -> str:
    name = path or "the arguments"
    if len(texts) == 1 or not all(", got " in text for text in texts):
        return f"{name}: {' or '.join(texts)}"
    wanted = [text.rsplit(", got ", 1)[0] for text in texts]
    return f"{name}: {' or '.join(wanted)}, got {texts[0].rsplit(', got ', 1)[1]}"


def _join(path: str, part: str | int) -> str:
    if isinstance(part, int):
        return f"{path}[{part}]"
    return f"{path}.{part}" if path else part


def _locate(location: tuple[str | int, ...], value: JSON) -> str:
    """The path of a location, without the parts that name members of unions."""
    path = ""
    for part in location:
        if _is_in(part, value):
            path, value = _join(path, part), value[part]
    return path
