"""The providers that a model string can name, and what each needs: one row a provider."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from replan.errors import ConfigError
from replan.model import Model, ModelProfile
from replan.settings import ModelSettings

__all__ = ["PROVIDERS", "Endpoint", "Provider", "default_model", "resolve"]

LOCAL_MODEL = "local:qwen2.5-coder-1.5b"
"""The model that runs in this process, used where no provider is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model with all that a wire needs to reach it."""

    provider: str
    model: str
    base_url: str
    api_key: str | None
    settings: ModelSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A row of the table.

    `wire` builds the model. Names of environment variables; of several the first that is set counts.
    """

    wire: Callable[[Endpoint], Model]
    base_url: str = ""
    base_url_variables: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    needs_base_url: bool = True
    needs_key: bool = True
    default_name: str = ""


def resolve(
    model: str | Model,
    *,
    settings: ModelSettings | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> Model:
    """The model that a string `provider:name` means; a `Model` is given back as it is.

    Base URL and key are looked up in the provider's environment variables where they are not given. Raises
    `ConfigError` for a malformed string, an unknown provider, and a missing key or base URL; it says what to set.
    Nothing is requested.
    """
    if not isinstance(model, str):
        return model
    provider, _, name = (part.strip() for part in model.partition(":"))
    row = _row(model, provider)
    name = name or row.default_name
    if not name:
        raise ConfigError(f"model {model!r} names no model; write 'provider:name', such as 'openai:gpt-4.1-mini'")
    endpoint = Endpoint(
        provider=provider,
        model=name,
        base_url=_found(base_url, row.base_url_variables) or row.base_url,
        api_key=_found(api_key, row.key_variables) or None,
        settings=settings or ModelSettings(),
    )
    if row.needs_base_url and not endpoint.base_url:
        raise ConfigError(f"model {model!r} needs a base URL; {_remedy('base_url', row.base_url_variables)}")
    if row.needs_key and endpoint.api_key is None:
        raise ConfigError(f"model {model!r} needs an API key; {_remedy('api_key', row.key_variables)}")
    return row.wire(endpoint)


def default_model() -> str:
    """The model to use where none is named: `REPLAN_MODEL`, else OpenAI's if `OPENAI_API_KEY` is set, else the local
    one.
    """
    if named := _found(None, ("REPLAN_MODEL",)):
        return named
    return "openai:gpt-4.1-mini" if _found(None, ("OPENAI_API_KEY",)) else LOCAL_MODEL


def _row(model: str, provider: str) -> Provider:
    if provider in PROVIDERS and ":" in model:
        return PROVIDERS[provider]
    known = ", ".join(f"'{name}:'" for name in sorted(PROVIDERS))
    if ":" not in model:
        raise ConfigError(f"model {model!r} names no provider; write 'provider:name' with one of {known}")
    from difflib import get_close_matches

    close = get_close_matches(provider.lower(), PROVIDERS, 1)
    hint = f"did you mean '{close[0]}:'? " if close else ""
    raise ConfigError(
        f"model {model!r} names an unknown provider; {hint}known are {known}; "
        "any other OpenAI-compatible service works as 'openai-compatible:name' with its base URL"
    )


def _found(given: str | None, variables: tuple[str, ...]) -> str:
    texts = [given, *(os.environ.get(name) for name in variables)]
    return next((text.strip() for text in texts if text and text.strip()), "")


def _remedy(argument: str, variables: tuple[str, ...]) -> str:
    return f"set {' or '.join(variables)}, or give {argument}="


def _openai_chat(endpoint: Endpoint) -> Model:
    from .openai_chat import OpenAIChat

    return OpenAIChat(
        endpoint.model,
        base_url=endpoint.base_url,
        api_key=endpoint.api_key,
        provider=endpoint.provider,
        settings=endpoint.settings,
        profile=_profile(endpoint.model) if endpoint.provider == "openai" else ModelProfile(images=True),
    )


def _local(endpoint: Endpoint) -> Model:
    from .local import LocalModel

    return LocalModel(endpoint.model, endpoint.settings)


_OPENAI = {
    "gpt-4.1": ModelProfile(context_window=1_047_576, images=True),
    "gpt-4o": ModelProfile(context_window=128_000, images=True),
    "gpt-5": ModelProfile(context_window=400_000, images=True),
    "o1": ModelProfile(context_window=200_000, images=True),
    "o3": ModelProfile(context_window=200_000, images=True),
    "o4": ModelProfile(context_window=200_000, images=True),
    "gpt-4-turbo": ModelProfile(context_window=128_000, json_schema=False, images=True),
    "gpt-4": ModelProfile(context_window=8_192, json_schema=False),
    "gpt-3.5-turbo": ModelProfile(context_window=16_385, json_schema=False),
}
"""OpenAI's models by the beginning of their names (https://platform.openai.com/docs/models)."""


def _profile(name: str) -> ModelProfile:
    fitting = (start for start in _OPENAI if name == start or name.startswith((f"{start}-", f"{start}.")))
    return _OPENAI.get(max(fitting, key=len, default=""), ModelProfile(images=True))


PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        wire=_openai_chat,
        base_url="https://api.openai.com/v1",
        base_url_variables=("OPENAI_BASE_URL",),
        key_variables=("OPENAI_API_KEY",),
    ),
    "openai-compatible": Provider(
        wire=_openai_chat,
        base_url_variables=("OPENAI_COMPATIBLE_BASE_URL",),
        key_variables=("OPENAI_COMPATIBLE_API_KEY",),
        needs_key=False,
    ),
    "local": Provider(
        wire=_local, needs_base_url=False, needs_key=False, default_name=LOCAL_MODEL.removeprefix("local:")
    ),
}
