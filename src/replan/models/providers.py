"""The providers that a model string can name, and what each needs: one row a provider."""

from collections.abc import Mapping
from typing import Any

from replan.errors import ConfigError
from replan.model import Model, ModelProfile
from replan.settings import ModelSettings

from .connecting import Given, Provider, anthropic, azure, bedrock, by_key, checked_key, found, vertex
from .profiles import profile_for
from .speaking import OPENAI_URL, chat, converse, for_wire, gemini, messages, on_vertex, openai
from .wire import Endpoint, HttpModel

__all__ = ["PROVIDERS", "Provider", "default_model", "resolve"]

LOCAL_MODEL = "local:qwen2.5-coder-1.5b"
"""The model that runs in this process, used where no provider is configured."""


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
        found(base_url, row.base_url_variables),
        checked_key(provider, name, found(api_key, row.key_variables)),
        _options(row, model, options),
    )
    base, auth = (row.connect or by_key)(row, given)
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
    endpoint = for_wire(endpoint) if row.wire is openai else endpoint
    return HttpModel(endpoint, row.wire(endpoint))


def default_model() -> str:
    """The model to use where none is named: `REPLAN_MODEL`, else the example of the first provider whose key is set
    and that is used by default, else the local one.
    """
    if named := found(None, ("REPLAN_MODEL",)):
        return named
    for provider, row in PROVIDERS.items():
        if row.by_default and found(None, row.key_variables):
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
    known = {name: given.get(name) or found(None, variables) or None for name, variables in row.options.items()}
    return {name: value for name, value in known.items() if value is not None}


def _local(name: str, settings: ModelSettings | None) -> Model:
    from .local import LocalModel

    return LocalModel(name or LOCAL_MODEL.removeprefix("local:"), settings or ModelSettings())


_ALIASES = {"amazon-bedrock": "bedrock"}

PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        title="OpenAI",
        wire=openai,
        base_url=OPENAI_URL,
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
        wire=messages,
        base_url="https://api.anthropic.com",
        base_url_variables=("ANTHROPIC_BASE_URL",),
        key_variables=("ANTHROPIC_API_KEY",),
        key_header="x-api-key",
        options={"anthropic_version": (), "betas": (), "auth_token": ("ANTHROPIC_AUTH_TOKEN",)},
        connect=anthropic,
        example="claude-sonnet-4-5",
        by_default=True,
    ),
    "google": Provider(
        title="Google Gemini",
        wire=gemini,
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
        wire=on_vertex,
        base_url_variables=("GOOGLE_VERTEX_BASE_URL",),
        needs_key=False,
        options={
            "project": ("GOOGLE_VERTEX_PROJECT", "GOOGLE_CLOUD_PROJECT"),
            "location": ("GOOGLE_VERTEX_LOCATION", "GOOGLE_CLOUD_LOCATION"),
            "credentials": (),
            "access_token": (),
        },
        connect=vertex,
        extra="google",
        quirks=(
            "Gemini, and Claude by its names there. No key: application default credentials, a service "
            "account or a token. The location is `global` where none is given."
        ),
    ),
    "bedrock": Provider(
        title="Amazon Bedrock",
        example="us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        wire=converse,
        base_url_variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
        options={
            "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
            "access_key_id": ("AWS_ACCESS_KEY_ID",),
            "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
            "session_token": ("AWS_SESSION_TOKEN",),
            "profile": ("AWS_PROFILE",),
        },
        connect=bedrock,
        extra="bedrock",
        quirks="Also `amazon-bedrock:`. A bearer key needs no extra; other credentials sign each request.",
    ),
    "azure": Provider(
        title="Azure OpenAI",
        example="gpt-5-mini",
        wire=openai,
        base_url_variables=("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL"),
        key_variables=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        key_header="api-key",
        options={
            "api_version": ("OPENAI_API_VERSION", "AZURE_OPENAI_API_VERSION"),
            "deployment": ("AZURE_OPENAI_DEPLOYMENT",),
            "access_token": ("AZURE_OPENAI_AD_TOKEN",),
            "responses": (),
        },
        connect=azure,
        quirks=(
            "The base URL is required. The v1 API, or with `api_version` the one of deployments (the model's "
            "name, or `deployment`)."
        ),
    ),
    "xai": Provider(
        title="xAI",
        wire=openai,
        base_url="https://api.x.ai/v1",
        base_url_variables=("XAI_BASE_URL",),
        key_variables=("XAI_API_KEY",),
        options={"responses": ()},
        example="grok-4-fast",
        by_default=True,
    ),
    "deepseek": Provider(
        title="DeepSeek",
        wire=chat,
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
        wire=openai,
        base_url="https://ai-gateway.vercel.sh/v1",
        base_url_variables=("AI_GATEWAY_BASE_URL",),
        key_variables=("AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
        options={"responses": ()},
        quirks="Names are `vendor/model`.",
    ),
    "cloudflare": Provider(
        title="Cloudflare Workers AI",
        example="@cf/meta/llama-3.3-70b-instruct-fp8-fast",
        wire=chat,
        base_url="https://api.cloudflare.com/client/v4/accounts/{account_id}/ai/v1",
        base_url_variables=("CLOUDFLARE_BASE_URL",),
        key_variables=("CLOUDFLARE_API_TOKEN", "CLOUDFLARE_API_KEY"),
        options={"account_id": ("CLOUDFLARE_ACCOUNT_ID",)},
        quirks="Names are `@cf/vendor/model`.",
    ),
    "openai-compatible": Provider(
        title="any other OpenAI-compatible service",
        example="any-name",
        wire=openai,
        base_url_variables=("OPENAI_COMPATIBLE_BASE_URL",),
        key_variables=("OPENAI_COMPATIBLE_API_KEY",),
        needs_key=False,
        options={"responses": ()},
        quirks="The base URL is required. What a server refuses is left out and remembered.",
    ),
}
