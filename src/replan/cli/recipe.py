"""What a run is started with: kept in the run's `meta`, so that `resume` needs only the id. Secrets are not kept."""

import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from replan.encoding import JSON, JSONObject, clean_text, decode
from replan.errors import ConfigError
from replan.settings import Review, ThinkingLevel, ToolSelection

__all__ = ["Recipe", "from_options", "from_stored", "source_of", "stored"]

NOT_STORED = "<not stored>"
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_:]*\}")
_SCHEME = re.compile(r"(?:(?:Bearer|Basic|Token)\s*)?", re.IGNORECASE)
_NAMED_LIKE_SECRETS = re.compile(r"(?i)-{0,2}[\w-]*(?:token|secret|passw|api[-_]?key)[\w-]*")


class Recipe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options that make an agent.

    `mcp` holds absolute paths and the content of inline JSON; `folder` is where the run was started.
    """

    version: int = 1
    plain: bool = False
    model: str
    planner_model: str | None = None
    synthesizer_model: str | None = None
    base_url: str | None = None
    timeout: float | None = None
    max_retries: int | None = None
    thinking: ThinkingLevel | int | None = None
    system_prompt: str | None = None
    mcp: tuple[str | JSONObject, ...] = ()
    unattended: Literal["deny", "wait"] = "deny"
    tool_selection: ToolSelection = "all"
    replan_after: Literal["failure", "always"] = "failure"
    review: Review = "never"
    limits: dict[str, int] = {}
    env_file: str | None = None
    folder: str = ""


_LIMITS = {
    "max_turns": "max_turns",
    "max_iterations": "max_iterations",
    "max_plan_steps": "max_plan_steps",
    "max_revisions": "max_revisions",
    "max_tool_calls": "max_tool_calls",
    "max_tokens": "max_total_tokens",
}
_PLAIN_OPTIONS = (
    "planner_model",
    "synthesizer_model",
    "base_url",
    "timeout",
    "max_retries",
    "thinking",
    "unattended",
    "tool_selection",
    "replan_after",
    "review",
)


def from_options(args: Namespace) -> Recipe:
    """The recipe of `replan run`. Raises `ConfigError` for a file that cannot be read and a `--mcp` that is no JSON."""
    from replan.models import default_model

    if args.plain and args.review not in (None, "never"):
        raise ConfigError(f"--review {args.review} is for plans, and with --plain there is none; leave one of them out")
    limits = {limit: getattr(args, option) for option, limit in _LIMITS.items()}
    return Recipe(
        plain=args.plain,
        model=args.model or default_model(),
        limits={name: value for name, value in limits.items() if value is not None},
        folder=str(Path.cwd()),
        **_given(args),
    )


def from_stored(meta: JSONObject, args: Namespace, run_id: str) -> Recipe:
    """The recipe of a run that is resumed, with what was given anew.

    Raises `ConfigError` where the run has none, or where a secret that is needed was not stored.
    """
    if "cli" not in meta:
        raise ConfigError(f"run {run_id!r} was not started by `replan run`; resume it with the program that started it")
    try:
        recipe = msgspec.convert(meta["cli"], Recipe)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"run {run_id!r} was started by another version of replan: {error}; resume it with that one"
        ) from error
    model = {"model": args.model} if args.model else {}
    recipe = msgspec.structs.replace(recipe, **model, **_given(args))
    if missing := list(_not_stored(recipe.mcp)):
        raise ConfigError(f"run {run_id!r} needs secrets that are not stored ({', '.join(missing)}); give --mcp again")
    if recipe.base_url == NOT_STORED:
        raise ConfigError(
            f"run {run_id!r} needs the base URL, which held a secret and is not stored; give --base-url again"
        )
    return recipe


def stored(recipe: Recipe) -> JSONObject:
    """The recipe as it is kept in the run's `meta`."""
    kept = msgspec.to_builtins(recipe)
    if recipe.mcp:
        kept["mcp"] = [_without_secrets(source) if isinstance(source, dict) else source for source in recipe.mcp]
    if recipe.base_url:
        kept["base_url"] = _url(recipe.base_url)
    return {"cli": kept}


def _given(args: Namespace) -> JSONObject:
    """The options that were given, by their names in the recipe."""
    given = {name: getattr(args, name, None) for name in _PLAIN_OPTIONS}
    if args.system_prompt is not None:
        given["system_prompt"] = _prompt(args.system_prompt)
    if args.mcp:
        given["mcp"] = tuple(map(source_of, args.mcp))
    if args.env_file:
        given["env_file"] = str(Path(args.env_file).expanduser().absolute())
    return {name: value for name, value in given.items() if value is not None}


def _prompt(given: str) -> str:
    if not given.startswith("@"):
        return clean_text(given)
    try:
        return Path(given[1:]).expanduser().read_text("utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"the system prompt {given[1:]!r} cannot be read: {error}") from error


def source_of(given: str) -> str | JSONObject:
    """A `--mcp` as it is kept: an absolute path, or the JSON. Raises `ConfigError`."""
    text = given.strip()
    if not text.startswith("{"):
        if text.startswith(("http://", "https://")):
            raise ConfigError('--mcp got a URL; give the server a name: --mcp \'{"name": "https://..."}\'')
        return str(Path(text).expanduser().absolute())
    try:
        return decode(text)
    except ValueError as error:
        raise ConfigError(
            f"--mcp is no JSON: {error}; give an object of name to server, or the path of a file"
        ) from error


# ---- secrets


def _without_secrets(value: JSON, inside: str = "") -> JSON:
    """The JSON with the literal secrets in it replaced; references to environment variables stay."""
    if isinstance(value, dict):
        return {name: _without_secrets(item, _place(inside, name)) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # JSON
    if isinstance(value, list):
        return _arguments(value) if inside == "args" else [_without_secrets(item, inside) for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # JSON
    if inside == "secret":
        return value if isinstance(value, str) and _is_reference(value) else NOT_STORED
    return _url(value) if isinstance(value, str) else value


def _place(inside: str, name: str) -> str:
    if inside == "secret" or name in ("env", "headers"):
        return "secret"
    return "args" if name == "args" else ""


def _is_reference(text: str) -> bool:
    return "${" in text and _SCHEME.fullmatch(_REFERENCE.sub("", text).strip()) is not None


def _arguments(words: list[Any]) -> list[Any]:
    """A command's words without the values of options that are named like secrets: `--token x`, `--api-key=x`."""
    kept: list[Any] = []
    follows = False
    for word in words:
        text = str(word)
        name, equals, value = text.partition("=")
        named = _NAMED_LIKE_SECRETS.fullmatch(name) is not None
        if follows and not text.startswith("-"):
            kept.append(text if _is_reference(text) else NOT_STORED)
        elif named and equals:
            kept.append(text if _is_reference(value) else f"{name}={NOT_STORED}")
        else:
            kept.append(_url(word) if isinstance(word, str) else word)
        follows = named and not equals and text.startswith("-")
    return kept


def _url(text: str) -> str:
    """A URL without what may be a secret in it: then the whole is left out."""
    if "://" not in text:
        return text
    try:
        parts = urlsplit(_REFERENCE.sub("", text))
    except ValueError:
        return NOT_STORED
    return NOT_STORED if "@" in parts.netloc or parts.query else text


def _not_stored(value: Any, path: str = "") -> Iterator[str]:
    """Where something was left out."""
    if isinstance(value, str) and NOT_STORED in value:
        yield path or "url"
    elif isinstance(value, dict):
        for name, item in value.items():  # pyright: ignore[reportUnknownVariableType]  # JSON
            yield from _not_stored(item, f"{path}.{name}" if path and name != "mcpServers" else str(name))  # pyright: ignore[reportUnknownArgumentType]  # JSON
    elif isinstance(value, (list, tuple)):
        for item in value:  # pyright: ignore[reportUnknownVariableType]  # JSON
            yield from _not_stored(item, path)
