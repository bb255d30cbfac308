"""What a provider needs to be reached: its row in the table, and how base URL, key and options become an address and a
proof of who asks.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from replan.errors import ConfigError

from .wire import Auth, Endpoint, StaticAuth, Wire

__all__ = [
    "Connected",
    "Given",
    "KeyHeader",
    "Provider",
    "anthropic",
    "azure",
    "bedrock",
    "by_key",
    "checked_key",
    "found",
    "remedy",
    "vertex",
]

_SHORTEST_SECRET = 8
"""Shorter keys are placeholders, and would black out words."""

KeyHeader: TypeAlias = Literal["Authorization", "api-key", "x-api-key", "x-goog-api-key"]


@dataclass(frozen=True, slots=True)
class Given:
    """What is known of how to reach a model: arguments, else environment variables, else the row."""

    text: str
    provider: str
    model: str
    base_url: str
    api_key: str | None = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)


class Connected(NamedTuple):
    """Where a model is reached, and what proves who asks."""

    base_url: str
    auth: Auth


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A row of the table.

    `wire` speaks the API. Of several environment variables the first that is set counts. `options` are the provider's
    own ways of being reached, each with its environment variables; those in `option_headers` are sent as headers.
    `connect` is for providers that take more than a key. `example` is the name of a model there; with `by_default` it
    is used where nothing but the key says what to use. `quirks` are for people.
    """

    title: str
    wire: Callable[[Endpoint], Wire]
    base_url: str = ""
    base_url_variables: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    key_header: KeyHeader = "Authorization"
    needs_key: bool = True
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    option_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    connect: "Callable[[Provider, Given], Connected] | None" = None
    example: str
    by_default: bool = False
    extra: str = ""
    quirks: str = ""


def found(given: str | None, variables: tuple[str, ...]) -> str:
    """What is given, else the first of the environment variables that is set; empty where there is none."""
    texts = [given, *(os.environ.get(name) for name in variables)]
    return next((text.strip() for text in texts if text and text.strip()), "")


def remedy(argument: str, variables: tuple[str, ...]) -> str:
    """What to do where something is missing."""
    return f"set {' or '.join(variables)}, or give {argument}=" if variables else f"give {argument}="


def checked_key(provider: str, name: str, key: str) -> str | None:
    """The key; None where it is empty. Raises `ConfigError` for one that cannot be sent."""
    if not key.isprintable():
        raise ConfigError(f"the API key for '{provider}:{name}' has a line break or another control character in it")
    return key or None


def by_key(row: Provider, given: Given) -> Connected:
    """A key in a header, or none where none is wanted."""
    return Connected(_base_url(row, given), _key_auth(row, given))


def _base_url(row: Provider, given: Given) -> str:
    """The base URL, checked, with the options that it is made of. Raises `ConfigError`."""
    base = given.base_url or row.base_url
    if not base:
        raise ConfigError(f"model {given.text!r} needs a base URL; {remedy('base_url', row.base_url_variables)}")
    for name, variables in row.options.items():
        if f"{{{name}}}" in base and name not in given.options:
            raise ConfigError(f"model {given.text!r} needs {name!r}; {remedy(name, variables)}")
    base = base if given.base_url else base.format(**given.options)
    try:
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(base)
    except ValueError:
        raise ConfigError(f"base URL {base!r} is none; give one such as 'https://api.example.com/v1'") from None
    return base.rstrip("/")


def _key_auth(row: Provider, given: Given) -> Auth:
    key = given.api_key
    if key is None:
        if row.needs_key:
            raise ConfigError(f"model {given.text!r} needs an API key; {remedy('api_key', row.key_variables)}")
        return StaticAuth()
    value = f"Bearer {key}" if row.key_header == "Authorization" else key
    return StaticAuth({row.key_header: value}, (key,) if len(key) >= _SHORTEST_SECRET else ())


def anthropic(row: Provider, given: Given) -> Connected:
    """A key, or a bearer token as gateways give them out (`auth_token`)."""
    token = given.options.get("auth_token")
    if token is None or given.api_key is not None:
        return by_key(row, given)
    return Connected(_base_url(row, given), StaticAuth({"Authorization": f"Bearer {token}"}, (token,)))


def azure(row: Provider, given: Given) -> Connected:
    """The v1 API; with an `api_version`, or a base URL of a deployment, the API of deployments."""
    base = _base_url(row, given).rstrip("/")
    version = given.options.get("api_version")
    path = urlsplit(base).path
    if "/deployments/" not in path:
        start = base.removesuffix("/v1").removesuffix("/openai")
        deployment = given.options.get("deployment", given.model)
        base = f"{start}/openai/deployments/{deployment}" if version else f"{start}/openai/v1"
    if version and "api-version=" not in base:
        base = f"{base}?api-version={version}"
    return Connected(base, _azure_auth(row, given))


def _azure_auth(row: Provider, given: Given) -> Auth:
    token = given.options.get("access_token")
    if token is None or given.api_key is not None:
        return _key_auth(row, given)
    return StaticAuth({"Authorization": f"Bearer {token}"}, (token,))


def bedrock(row: Provider, given: Given) -> Connected:
    """A bearer key, or AWS credentials that sign each request."""
    from .aws_auth import AwsAuth, bedrock_base_url

    region = given.options.get("region")
    if region is None and not given.base_url:
        raise ConfigError(f"model {given.text!r} needs 'region'; {remedy('region', row.options['region'])}")
    base = given.base_url or bedrock_base_url(region or "")
    if given.api_key is not None:
        return Connected(base, _key_auth(row, given))
    names = ("access_key_id", "secret_access_key", "session_token", "profile")
    return Connected(base, AwsAuth(region=region or "us-east-1", **{n: given.options.get(n) for n in names}))


def vertex(row: Provider, given: Given) -> Connected:
    """Google's credentials; a key is not used."""
    from .google_auth import GoogleAuth, vertex_base_url

    auth = GoogleAuth(credentials=given.options.get("credentials"), access_token=given.options.get("access_token"))
    if given.base_url:
        return Connected(given.base_url, auth)
    project = given.options.get("project") or auth.project
    if not project:
        raise ConfigError(f"model {given.text!r} needs 'project'; {remedy('project', row.options['project'])}")
    return Connected(vertex_base_url(project, given.options.get("location", "global")), auth)
