"""Which MCP servers to use: values of ours, dictionaries, or the `mcp.json` file that other clients read."""

import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from replan.encoding import decode
from replan.errors import ConfigError

__all__ = ["HeaderSource", "HttpServer", "McpServer", "StdioServer", "parse_servers"]

HeaderSource: TypeAlias = Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""A function, sync or async, that gives the headers of a new connection."""


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that is started as a process and spoken to over its standard input and output.

    The process gets a small safe environment (`PATH`, `HOME` and the like) plus `env`. `connect_timeout` is the
    seconds for starting it, shaking hands and listing its tools; `call_timeout` is how long a call may show no sign
    of life (progress counts as one), `max_call_time` how long it may take at all; None, or 0, means no limit.
    `trusted` makes the server's own read-only and idempotent hints count; `read_only` and `idempotent` name tools
    (globs such as `"get_*"`) of which you say so yourself.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None
    _: KW_ONLY
    connect_timeout: float | None = 30.0
    call_timeout: float | None = 120.0
    max_call_time: float | None = 3600.0
    trusted: bool = False
    read_only: tuple[str, ...] = ()
    idempotent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_type("command", self.command, str, "the program that starts the server")
        _check_type("cwd", self.cwd, (str, Path, type(None)), "a folder")
        object.__setattr__(self, "args", _texts("args", self.args))
        _check_mapping("env", self.env)
        _check_options(self)


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server behind a URL, spoken to over streamable HTTP. Proxies and certificates of the environment are honoured.

    `headers` go with every request; `get_headers` is called for each new connection and its headers win. When the
    server answers 401 it is called again, and the request repeated once. The other options are those of
    `StdioServer`.
    """

    url: str
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    get_headers: HeaderSource | None = None
    _: KW_ONLY
    connect_timeout: float | None = 30.0
    call_timeout: float | None = 120.0
    max_call_time: float | None = 3600.0
    trusted: bool = False
    read_only: tuple[str, ...] = ()
    idempotent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_url(self.url)
        _check_mapping("headers", self.headers)
        for name, value in (self.headers or {}).items():
            if any(mark in name + value for mark in "\r\n\0"):
                raise ConfigError(f"field 'headers': {name!r} contains a line break")
        if self.get_headers is not None and not callable(self.get_headers):
            raise ConfigError(f"field 'get_headers' is {self.get_headers!r}; give a function that returns headers")
        _check_options(self)


_log = logging.getLogger("replan.mcp")

McpServer: TypeAlias = StdioServer | HttpServer

_LIMITS = ("connect_timeout", "call_timeout", "max_call_time")
_HTTP_TYPES = ("http", "streamable-http", "streamableHttp", "streamable_http")
# What other clients write into the same file, and what means nothing here.
_FOREIGN = frozenset(
    {"alwaysAllow", "autoApprove", "description", "gallery", "icon", "name", "note", "timeout", "title", "version"}
)
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{([^}]*)\}")


def parse_servers(value: Any) -> dict[str, McpServer]:
    """The servers that `value` describes, by name, in its order; those with `"disabled": true` are left out.

    `value` is a dictionary of name to URL, dictionary or server object; or a dictionary of the `mcp.json` form
    (`{"mcpServers": {...}}`, or `{"servers": {...}}`); or the path of such a file; or its text. In dictionaries and
    files, `${NAME}`, `${env:NAME}` and `${NAME:-default}` stand for environment variables. Raises `ConfigError` that
    names the server and the field.
    """
    entries = _entries(value)
    parsed = ((name, _parse_server(name, entry)) for name, entry in entries.items())
    return {name: server for name, server in parsed if server is not None}


def _entries(value: Any) -> dict[Any, Any]:
    if value is None:
        return {}
    if isinstance(value, (str, Path)):
        value = _read(value)
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"MCP servers are {value!r}; give a dictionary of name to server, or the path of an mcp.json file"
        )
    entries = cast("dict[Any, Any]", dict(value))  # pyright: ignore[reportUnknownArgumentType]  # keys are checked below
    if "mcpServers" in entries:
        entries = _section(entries, "mcpServers")
    elif isinstance(inner := entries.get("servers"), Mapping) and not {"command", "url"} & set(cast("Any", inner)):
        entries = _section(entries, "servers")
    for name in entries:
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"an MCP server has the name {name!r}; give it a name that is a text")
    return entries


def _section(entries: dict[Any, Any], key: str) -> dict[Any, Any]:
    section = entries[key]
    if not isinstance(section, Mapping):
        raise ConfigError(f"field {key!r} is {section!r}; give a dictionary of name to server")
    return dict(cast("Mapping[str, Any]", section))


def _read(source: str | Path) -> Any:
    where, text = "the MCP servers", str(source)
    if isinstance(source, Path) or not text.lstrip("\ufeff \t\r\n").startswith("{"):
        if text.startswith(("http://", "https://")):
            raise ConfigError(f"MCP servers are the URL {text!r}; give the server a name: {{'name': {text!r}}}")
        where = f"the MCP configuration {text!r}"
        try:
            text = Path(source).expanduser().read_text("utf-8-sig")
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"{where} cannot be read: {error}") from error
    try:
        return decode(text.lstrip("\ufeff"))
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON ({error}); comments and trailing commas are not allowed") from error


def _parse_server(name: str, entry: Any) -> McpServer | None:
    if isinstance(entry, (StdioServer, HttpServer)):
        return entry
    try:
        if isinstance(entry, str):
            return HttpServer(_expand("url", entry))
        if not isinstance(entry, Mapping):
            raise ConfigError(f"it is {entry!r}; give a URL, or a dictionary with 'command' or 'url'")
        return _from_fields(dict(cast("Mapping[str, Any]", entry)))
    except ConfigError as error:
        raise ConfigError(f"MCP server {name!r}: {error}") from None


def _from_fields(entry: dict[str, Any]) -> McpServer | None:
    disabled = entry.pop("disabled", False)
    _check_type("disabled", disabled, bool, "true or false")
    if disabled:
        return None
    kind = _kind(entry)
    known = {spec.name for spec in fields(kind)}
    for key in [key for key in entry if key not in known]:
        if key not in _FOREIGN:
            raise ConfigError(f"unknown field {key!r}{_near(key, known)}")
        _log.info("field %r of an MCP server has no meaning here and is ignored", key)
        del entry[key]
    for key in ("command", "args", "env", "url", "headers", "cwd"):
        if key in entry:
            entry[key] = _expand(key, entry[key])
    return kind(**entry)


def _kind(entry: dict[str, Any]) -> type[StdioServer] | type[HttpServer]:
    stated = entry.pop("type", entry.pop("transport", None))
    if stated == "sse":
        raise ConfigError("the transport 'sse' is not supported; use the server's streamable HTTP URL with type 'http'")
    if stated not in (None, "stdio", *_HTTP_TYPES):
        raise ConfigError(f"field 'type' is {stated!r}; give 'stdio' or 'http'")
    if ("command" in entry) == ("url" in entry):
        found = "both 'command' and 'url'" if "url" in entry else "neither 'command' nor 'url'"
        raise ConfigError(f"it has {found}; give 'command' for a process, or 'url' for a server behind HTTP")
    if stated is not None and (stated == "stdio") != ("command" in entry):
        raise ConfigError(
            f"field 'type' is {stated!r}, which does not go with {'command' if 'command' in entry else 'url'!r}"
        )
    return StdioServer if "command" in entry else HttpServer


def _near(key: str, known: set[str]) -> str:
    import difflib

    spelt = key if "_" in key else re.sub(r"(?<=[a-z])[A-Z]", lambda match: "_" + match[0], key)
    close = difflib.get_close_matches(spelt.lower(), sorted(known), 1, 0.7)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"


def _expand(where: str, value: Any) -> Any:
    """The value with environment variables put into its texts, at every depth."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(where, match), value)
    if isinstance(value, Mapping):
        return {key: _expand(where, item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_expand(where, item) for item in cast("list[Any]", value)]
    return value


def _variable(where: str, match: re.Match[str]) -> str:
    name, default, odd = match.groups()
    if odd is not None:
        raise ConfigError(f"field {where!r} has {match[0]!r}, which is no environment variable; write '${{NAME}}'")
    found = os.environ.get(name) or default
    if found is None:
        found = os.environ.get(name)
    if found is None:
        raise ConfigError(f"field {where!r} needs the environment variable {name!r}, which is not set")
    return found


def _texts(where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise ConfigError(f"field {where!r} is {value!r}; give a list of texts")
    for item in cast("list[Any]", value):
        if not isinstance(item, str):
            raise ConfigError(f"field {where!r} holds {item!r}; give it as a text, in quotes")
    return tuple(cast("list[str]", value))


def _check_type(where: str, value: Any, kind: type | tuple[type, ...], wanted: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, str) and not value.strip()):
        raise ConfigError(f"field {where!r} is {value!r}; give {wanted}")


def _check_mapping(where: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ConfigError(f"field {where!r} is {value!r}; give a dictionary of texts")
    for key, item in cast("Mapping[Any, Any]", value).items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise ConfigError(
                f"field {where!r}: {key!r} is of type {type(item).__name__}; give it as a text, in quotes"
            )


def _check_url(url: Any) -> None:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"field 'url' is {url!r}; give a URL that starts with http:// or https://")


def _check_options(server: McpServer) -> None:
    for name in _LIMITS:
        value = getattr(server, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
            raise ConfigError(f"field {name!r} is {value!r}; give seconds, or 0 for no limit")
        object.__setattr__(server, name, float(value) if value else None)
    _check_type("trusted", server.trusted, bool, "true or false")
    for name in ("read_only", "idempotent"):
        object.__setattr__(server, name, _texts(name, getattr(server, name)))
