"""The providers that a model string can name, and what each needs: one row a provider."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from msgspec import structs

from replan.errors import ConfigError
from replan.model import Model, ModelProfile
from replan.settings import ModelSettings

from .profiles import profile_for
from .wire import Auth, Endpoint, HttpModel, StaticAuth, Wire

__all__ = ["PROVIDERS", "Provider", "default_model", "resolve"]

LOCAL_MODEL = "local:qwen2.5-coder-1.5b"
"""The model that runs in this process, used where no provider is configured."""

_SHORTEST_SECRET = 8
"""Shorter keys are placeholders, and would black out words."""

KeyHeader: TypeAlias = Literal["Authorization", "api-key", "x-api-key", "x-goog-api-key"]


class Given(NamedTuple):
    """What is known of how to reach a model: arguments, else environment variables, else the row."""

    text: str
    provider: str
    model: str
    base_url: str
    api_key: str | None
    options: Mapping[str, Any]


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


def resolve(
    model: str | Model,
    *,
    settings: ModelSettings | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    profile: ModelProfile | None = None,
    **options: Any,
) -> Model:
    """The model that a string `provider:name` means; a `Model` is given back as it is.

        resolve("azure:gpt-5", base_url="https://mine.example.com", api_version="2025-04-01-preview")

    Base URL, key and `options` (`region`, `project`, ...; see the table in `docs/providers.md`) are looked up in the
    provider's environment variables where they are not given. `headers` are added to each request. `profile` is used
    in place of what is known of the model. Raises `ConfigError` for a malformed string, an unknown provider or option,
    and a missing key or base URL; it says what to set. Nothing is requested.
    """
    if not isinstance(model, str):
        return model
    provider, _, name = (part.strip() for part in model.partition(":"))
    if provider == "local":
        return _local(name, settings)
    row = _row(model, provider)
    if not name:
        raise ConfigError(f"model {model!r} names no model; write 'provider:name', such as 'openai:gpt-4.1-mini'")
    provider = _ALIASES.get(provider, provider)
    given = Given(
        model,
        provider,
        name,
        _found(base_url, row.base_url_variables),
        _checked_key(provider, name, _found(api_key, row.key_variables)),
        _options(row, model, options),
    )
    base, auth = (row.connect or _by_key)(row, given)
    sent = {row.option_headers[key]: str(value) for key, value in given.options.items() if key in row.option_headers}
    endpoint = Endpoint(
        provider=provider,
        model=name,
        base_url=base,
        auth=auth,
        headers={**sent, **(headers or {})},
        settings=settings or ModelSettings(),
        profile=profile or profile_for(provider, name),
        options=given.options,
    )
    endpoint = _for_wire(endpoint) if row.wire is _openai else endpoint
    return HttpModel(endpoint, row.wire(endpoint))


def default_model() -> str:
    """The model to use where none is named: `REPLAN_MODEL`, else the example of the first provider whose key is set
    and that is used by default, else the local one.
    """
    if named := _found(None, ("REPLAN_MODEL",)):
        return named
    for provider, row in PROVIDERS.items():
        if row.by_default and _found(None, row.key_variables):
            return f"{provider}:{row.example}"
    return LOCAL_MODEL


# ---- finding what is needed


def _row(model: str, provider: str) -> Provider:
    provider = _ALIASES.get(provider, provider)
    if provider in PROVIDERS and ":" in model:
        return PROVIDERS[provider]
    names = sorted([*PROVIDERS, "local"])
    known = ", ".join(f"'{name}:'" for name in names)
    if ":" not in model:
        raise ConfigError(f"model {model!r} names no provider; write 'provider:name' with one of {known}")
    from difflib import get_close_matches

    close = get_close_matches(provider.lower(), names, 1)
    hint = f"did you mean '{close[0]}:'? " if close else ""
    raise ConfigError(
        f"model {model!r} names an unknown provider; {hint}known are {known}; "
        "any other OpenAI-compatible service works as 'openai-compatible:name' with its base URL"
    )


def _options(row: Provider, model: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    if unknown := [name for name in given if name not in row.options]:
        known = ", ".join(map(repr, row.options)) or "none"
        raise ConfigError(f"model {model!r} has no option {unknown[0]!r}; its options are: {known}")
    found = {name: given.get(name) or _found(None, variables) or None for name, variables in row.options.items()}
    return {name: value for name, value in found.items() if value is not None}


def _found(given: str | None, variables: tuple[str, ...]) -> str:
    texts = [given, *(os.environ.get(name) for name in variables)]
    return next((text.strip() for text in texts if text and text.strip()), "")


def _remedy(argument: str, variables: tuple[str, ...]) -> str:
    return f"set {' or '.join(variables)}, or give {argument}=" if variables else f"give {argument}="


def _checked_key(provider: str, name: str, key: str) -> str | None:
    if not key.isprintable():
        raise ConfigError(f"the API key for '{provider}:{name}' has a line break or another control character in it")
    return key or None


# ---- connecting


def _by_key(row: Provider, given: Given) -> Connected:
    return Connected(_base_url(row, given), _key_auth(row, given))


def _base_url(row: Provider, given: Given) -> str:
    """The base URL, checked, with the options that it is made of. Raises `ConfigError`."""
    base = given.base_url or row.base_url
    if not base:
        raise ConfigError(f"model {given.text!r} needs a base URL; {_remedy('base_url', row.base_url_variables)}")
    for name, variables in row.options.items():
        if f"{{{name}}}" in base and name not in given.options:
            raise ConfigError(f"model {given.text!r} needs {name!r}; {_remedy(name, variables)}")
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
            raise ConfigError(f"model {given.text!r} needs an API key; {_remedy('api_key', row.key_variables)}")
        return StaticAuth()
    value = f"Bearer {key}" if row.key_header == "Authorization" else key
    return StaticAuth({row.key_header: value}, (key,) if len(key) >= _SHORTEST_SECRET else ())


def _anthropic_key(row: Provider, given: Given) -> Connected:
    """A key, or a bearer token as gateways give them out (`auth_token`)."""
    token = given.options.get("auth_token")
    if token is None or given.api_key is not None:
        return _by_key(row, given)
    return Connected(_base_url(row, given), StaticAuth({"Authorization": f"Bearer {token}"}, (token,)))


def _azure(row: Provider, given: Given) -> Connected:
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


def _bedrock(row: Provider, given: Given) -> Connected:
    """A bearer key, or AWS credentials that sign each request."""
    from .aws_auth import AwsAuth, bedrock_base_url

    region = given.options.get("region")
    if region is None and not given.base_url:
        raise ConfigError(f"model {given.text!r} needs 'region'; {_remedy('region', row.options['region'])}")
    base = given.base_url or bedrock_base_url(region or "")
    if given.api_key is not None:
        return Connected(base, _key_auth(row, given))
    names = ("access_key_id", "secret_access_key", "session_token", "profile")
    return Connected(base, AwsAuth(region=region or "us-east-1", **{n: given.options.get(n) for n in names}))


def _vertex(row: Provider, given: Given) -> Connected:
    """Google's credentials; a key is not used."""
    from .google_auth import GoogleAuth, vertex_base_url

    auth = GoogleAuth(credentials=given.options.get("credentials"), access_token=given.options.get("access_token"))
    if given.base_url:
        return Connected(given.base_url, auth)
    project = given.options.get("project") or auth.project
    if not project:
        raise ConfigError(f"model {given.text!r} needs 'project'; {_remedy('project', row.options['project'])}")
    return Connected(vertex_base_url(project, given.options.get("location", "global")), auth)


# ---- wires


def _for_wire(endpoint: Endpoint) -> Endpoint:
    """The endpoint with thinking as its wire asks for it."""
    thinking = endpoint.profile.thinking
    if thinking in ("effort", "reasoning"):
        thinking = "reasoning" if _speaks_responses(endpoint) else "effort"
    return replace(endpoint, profile=structs.replace(endpoint.profile, thinking=thinking))


def _speaks_responses(endpoint: Endpoint) -> bool:
    """Whether the Responses API is used: by `auto`, where the provider itself serves it, for models that think."""
    wanted = endpoint.options.get("responses", "auto")
    if wanted not in ("auto", "always", "never"):
        raise ConfigError(f"option 'responses' is {wanted!r}; give 'auto', 'always' or 'never'")
    if wanted != "auto":
        return wanted == "always"
    own = endpoint.base_url == PROVIDERS["openai"].base_url or (
        endpoint.provider == "azure" and endpoint.base_url.endswith("/openai/v1")
    )
    return own and endpoint.profile.thinking in ("effort", "reasoning")


def _openai(endpoint: Endpoint) -> Wire:
    if _speaks_responses(endpoint):
        from .responses import ResponsesWire

        return ResponsesWire(endpoint)
    return _chat(endpoint)


def _chat(endpoint: Endpoint) -> Wire:
    from .chat import ChatWire

    return ChatWire(endpoint)


def _messages(endpoint: Endpoint) -> Wire:
    from .anthropic import AnthropicWire

    return AnthropicWire(endpoint)


def _gemini(endpoint: Endpoint) -> Wire:
    from .gemini import GeminiWire

    return GeminiWire(endpoint)


def _on_vertex(endpoint: Endpoint) -> Wire:
    """Vertex serves Claude too, in the format of Anthropic."""
    endpoint = replace(endpoint, options={**endpoint.options, "vertex": True})
    return _messages(endpoint) if endpoint.model.startswith("claude") else _gemini(endpoint)


def _converse(endpoint: Endpoint) -> Wire:
    from .bedrock import BedrockWire

    return BedrockWire(endpoint)


def _local(name: str, settings: ModelSettings | None) -> Model:
    from .local import LocalModel

    return LocalModel(name or LOCAL_MODEL.removeprefix("local:"), settings or ModelSettings())


_ALIASES = {"amazon-bedrock": "bedrock"}

PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        title="OpenAI",
        wire=_openai,
        base_url="https://api.openai.com/v1",
        base_url_variables=("OPENAI_BASE_URL",),
        key_variables=("OPENAI_API_KEY",),
        options={"organization": ("OPENAI_ORG_ID",), "project": ("OPENAI_PROJECT_ID",), "responses": ()},
        option_headers={"organization": "OpenAI-Organization", "project": "OpenAI-Project"},
        example="gpt-4.1-mini",
        by_default=True,
        quirks=(
            "Models that think are asked through the Responses API, without storing (`responses='never'`: "
            "Chat Completions); at another base URL it is Chat Completions unless `responses='always'`."
        ),
    ),
    "anthropic": Provider(
        title="Anthropic",
        wire=_messages,
        base_url="https://api.anthropic.com",
        base_url_variables=("ANTHROPIC_BASE_URL",),
        key_variables=("ANTHROPIC_API_KEY",),
        key_header="x-api-key",
        options={"anthropic_version": (), "betas": (), "auth_token": ("ANTHROPIC_AUTH_TOKEN",)},
        connect=_anthropic_key,
        example="claude-sonnet-4-5",
        by_default=True,
    ),
    "google": Provider(
        title="Google Gemini",
        wire=_gemini,
        base_url="https://generativelanguage.googleapis.com/v1beta",
        base_url_variables=("GOOGLE_GEMINI_BASE_URL",),
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
        key_header="x-goog-api-key",
        example="gemini-2.5-flash",
        by_default=True,
    ),
    "google-vertex": Provider(
        title="Google Vertex AI",
        example="gemini-2.5-flash",
        wire=_on_vertex,
        base_url_variables=("GOOGLE_VERTEX_BASE_URL",),
        needs_key=False,
        options={
            "project": ("GOOGLE_VERTEX_PROJECT", "GOOGLE_CLOUD_PROJECT"),
            "location": ("GOOGLE_VERTEX_LOCATION", "GOOGLE_CLOUD_LOCATION"),
            "credentials": (),
            "access_token": (),
        },
        connect=_vertex,
        extra="google",
        quirks=(
            "Gemini, and Claude by its names there. No key: application default credentials, a service "
            "account or a token. The location is `global` where none is given."
        ),
    ),
    "bedrock": Provider(
        title="Amazon Bedrock",
        example="us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        wire=_converse,
        base_url_variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
        options={
            "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
            "access_key_id": ("AWS_ACCESS_KEY_ID",),
            "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
            "session_token": ("AWS_SESSION_TOKEN",),
            "profile": ("AWS_PROFILE",),
        },
        connect=_bedrock,
        extra="bedrock",
        quirks="Also `amazon-bedrock:`. A bearer key needs no extra; other credentials sign each request.",
    ),
    "azure": Provider(
        title="Azure OpenAI",
        example="gpt-5-mini",
        wire=_openai,
        base_url_variables=("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL"),
        key_variables=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        key_header="api-key",
        options={
            "api_version": ("OPENAI_API_VERSION", "AZURE_OPENAI_API_VERSION"),
            "deployment": ("AZURE_OPENAI_DEPLOYMENT",),
            "access_token": ("AZURE_OPENAI_AD_TOKEN",),
            "responses": (),
        },
        connect=_azure,
        quirks=(
            "The base URL is required. The v1 API, or with `api_version` the one of deployments (the model's "
            "name, or `deployment`)."
        ),
    ),
    "xai": Provider(
        title="xAI",
        wire=_openai,
        base_url="https://api.x.ai/v1",
        base_url_variables=("XAI_BASE_URL",),
        key_variables=("XAI_API_KEY",),
        options={"responses": ()},
        example="grok-4-fast",
        by_default=True,
    ),
    "deepseek": Provider(
        title="DeepSeek",
        wire=_chat,
        base_url="https://api.deepseek.com",
        base_url_variables=("DEEPSEEK_BASE_URL",),
        key_variables=("DEEPSEEK_API_KEY",),
        example="deepseek-chat",
        by_default=True,
        quirks="Thoughts before tool calls are sent back within the run, as the API wants.",
    ),
    "gateway": Provider(
        title="Vercel AI Gateway",
        example="anthropic/claude-sonnet-4.5",
        wire=_openai,
        base_url="https://ai-gateway.vercel.sh/v1",
        base_url_variables=("AI_GATEWAY_BASE_URL",),
        key_variables=("AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
        options={"responses": ()},
        quirks="Names are `vendor/model`.",
    ),
    "cloudflare": Provider(
        title="Cloudflare Workers AI",
        example="@cf/meta/llama-3.3-70b-instruct-fp8-fast",
        wire=_chat,
        base_url="https://api.cloudflare.com/client/v4/accounts/{account_id}/ai/v1",
        base_url_variables=("CLOUDFLARE_BASE_URL",),
        key_variables=("CLOUDFLARE_API_TOKEN", "CLOUDFLARE_API_KEY"),
        options={"account_id": ("CLOUDFLARE_ACCOUNT_ID",)},
        quirks="Names are `@cf/vendor/model`.",
    ),
    "openai-compatible": Provider(
        title="any other OpenAI-compatible service",
        example="any-name",
        wire=_openai,
        base_url_variables=("OPENAI_COMPATIBLE_BASE_URL",),
        key_variables=("OPENAI_COMPATIBLE_API_KEY",),
        needs_key=False,
        options={"responses": ()},
        quirks="The base URL is required. What a server refuses is left out and remembered.",
    ),
}
