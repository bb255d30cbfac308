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
    for item in cast("Any", error).errors(include_url=False, include_context=False):
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
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            path, value = _join(path, part), cast("Any", value)[part]
    return path
