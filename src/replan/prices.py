"""What tokens cost, from the price table that `genai-prices` keeps."""

from decimal import Decimal

from .usage import Usage

_PROVIDERS = {"google-vertex": "google", "bedrock": "aws", "openai": "openai", "azure": "azure", "xai": "x-ai"}


def price(model: str, usage: Usage) -> Decimal | None:
    """US dollars for `usage` of `provider:name`; 0 for a local model, None where the price is not known."""
    provider, _, name = model.partition(":")
    if provider == "local":
        return Decimal(0)
    import genai_prices

    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens or None,
        cache_write_tokens=usage.cache_write_tokens or None,
    )
    try:
        return genai_prices.calc_price(counts, name, provider_id=_PROVIDERS.get(provider, provider)).total_price
    except (LookupError, ValueError):
        return None
