"""What tokens cost, from the price table that `genai-prices` keeps."""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TypeAlias

from .usage import Usage

__all__ = ["CostEstimator", "estimated_price", "price"]

CostEstimator: TypeAlias = Callable[[str, Usage], Decimal | float | None]
"""Gives the US dollars for the tokens of a `provider:name`, or None to leave it to the table."""

_TABLES = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google",
    "google-vertex": "google",
    "bedrock": "aws",
    "amazon-bedrock": "aws",
    "azure": "azure",
    "xai": "x-ai",
    "deepseek": "deepseek",
    "cloudflare": "cloudflare",
}
_VENDORS = {"xai": "x-ai", "amazon": "aws", "moonshotai": "moonshotai", "zai": "zai", "meta": "meta"} | {
    vendor: vendor for vendor in ("anthropic", "cohere", "deepseek", "google", "mistral", "minimax", "openai")
}
"""Tables by the first part of a gateway's names."""

_REGION = re.compile(r"[a-z-]+\.(?=[a-z0-9]+\.)")


def price(model: str, usage: Usage) -> Decimal | None:
    """US dollars for `usage` of `provider:name`; 0 for a local model, None where the price is not known.

    Of several calls each is taken to be as long as the others, which matters only where long requests cost more a
    token. Cached tokens cost what a read of the cache costs, written ones what a write for five minutes does.
    """
    provider, _, name = model.partition(":")
    if provider == "local":
        return Decimal(0)
    for table, known in _names(provider, name):
        if (found := _looked_up(table, known, usage)) is not None:
            return found
    return None


def estimated_price(model: str, usage: Usage, estimator: CostEstimator | None = None) -> Decimal | None:
    """US dollars for `usage` of `provider:name` as the estimator has it, else as the table has it (see `price`)."""
    said = None if estimator is None else estimator(model, usage)
    return price(model, usage) if said is None else Decimal(str(said))


def _names(provider: str, name: str) -> Iterator[tuple[str, str]]:
    """Where to look, and under which names, best first."""
    if provider == "gateway":
        vendor, _, name = name.partition("/")
        table = _VENDORS.get(vendor.lower())
        name = f"{vendor}.{name}" if table == "aws" else name
    else:
        table = _TABLES.get(provider)
    if table is None or not name:
        return
    yield table, name
    if table in ("anthropic", "google"):
        name = name.rsplit("/", 1)[-1]
        yield table, name
        yield table, name.replace(".", "-")
    if table == "aws":
        yield table, _REGION.sub("", name.rsplit("/", 1)[-1], count=1)


def _looked_up(table: str, name: str, usage: Usage) -> Decimal | None:
    import genai_prices

    calls = max(usage.model_calls, 1)
    cached, written = usage.cached_input_tokens, usage.cache_write_tokens
    read = max(usage.input_tokens, cached + written)
    counts = genai_prices.Usage(
        input_tokens=Decimal(read) / calls,
        output_tokens=Decimal(usage.output_tokens) / calls,
        cache_read_tokens=Decimal(cached) / calls if cached else None,
        cache_write_tokens=Decimal(written) / calls if written else None,
    )
    try:
        return round(genai_prices.calc_price(counts, name, provider_id=table).total_price * calls, 12)
    except (LookupError, ValueError):
        return None
