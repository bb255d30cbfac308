import subprocess
import sys
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.types import ModelPrice, TieredPrices
from hypothesis import given
from hypothesis import strategies as st

from replan.prices import estimated_price, price
from replan.usage import Usage

USAGE = Usage(
    input_tokens=1000,
    output_tokens=300,
    reasoning_tokens=200,
    cached_input_tokens=400,
    cache_write_tokens=100,
    model_calls=1,
)

MODELS = [
    ("openai:gpt-4o", "openai", "gpt-4o"),
    ("openai:gpt-5.6-sol", "openai", "gpt-5.6-sol"),
    ("anthropic:claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
    ("anthropic:claude-opus-5-5", "anthropic", "claude-opus-5-5"),
    ("google:gemini-2.5-flash", "google", "gemini-2.5-flash"),
    ("google:models/gemini-2.5-flash", "google", "gemini-2.5-flash"),
    ("google-vertex:gemini-2.5-flash", "google", "gemini-2.5-flash"),
    ("google-vertex:claude-sonnet-4-5@20250929", "google", "claude-sonnet-4-5"),
    ("bedrock:amazon.nova-pro-v1:0", "aws", "amazon.nova-pro-v1:0"),
    ("bedrock:us.amazon.nova-pro-v1:0", "aws", "amazon.nova-pro-v1:0"),
    ("amazon-bedrock:eu.meta.llama3-3-70b-instruct-v1:0", "aws", "meta.llama3-3-70b-instruct-v1:0"),
    ("azure:gpt-4o", "openai", "gpt-4o"),
    ("xai:grok-4", "x-ai", "grok-4-0709"),
    ("deepseek:deepseek-chat", "deepseek", "deepseek-chat"),
    ("gateway:anthropic/claude-sonnet-4.5", "anthropic", "claude-sonnet-4-5"),
    ("gateway:openai/gpt-4o", "openai", "gpt-4o"),
    ("gateway:xai/grok-4", "x-ai", "grok-4-0709"),
    ("gateway:amazon/nova-pro", "aws", "amazon.nova-pro-v1:0"),
    ("gateway:google/gemini-2.5-flash", "google", "gemini-2.5-flash"),
    (
        "cloudflare:@cf/meta/llama-3.3-70b-instruct-fp8-fast",
        "cloudflare",
        "@cf/meta/llama-3.3-70b-instruct-fp8-fast",
    ),
]


def rates(provider: str, name: str) -> dict[str, Decimal]:
    """Dollars for a million tokens, as the table has them for short requests."""
    found = genai_prices.calc_price(genai_prices.Usage(input_tokens=1), name, provider_id=provider)
    assert found.model.id == name
    table: ModelPrice = found.model_price

    def of(value: Decimal | TieredPrices | None, otherwise: Decimal) -> Decimal:
        return otherwise if value is None else value.base if isinstance(value, TieredPrices) else value

    read = of(table.input_mtok, Decimal(0))
    return {
        "input": read,
        "output": of(table.output_mtok, Decimal(0)),
        "cached": of(table.cache_read_mtok, read),
        "written": of(table.cache_write_mtok, read),
    }


@pytest.mark.parametrize(("model", "provider", "name"), MODELS)
def test_each_token_is_counted_once(model: str, provider: str, name: str):
    rate = rates(provider, name)
    by_hand = 500 * rate["input"] + 400 * rate["cached"] + 100 * rate["written"] + 300 * rate["output"]
    assert price(model, USAGE) == by_hand / 1_000_000


def test_the_sum_of_a_model_by_hand():
    """At 3, 3.75 and 0.3 dollars for a million read, written and cached tokens, and 15 for what comes out."""
    assert price("anthropic:claude-sonnet-4-5", USAGE) == Decimal("0.0015") + Decimal("0.00012") + Decimal(
        "0.000375"
    ) + Decimal("0.0045")


def test_a_region_has_its_own_price():
    name = "anthropic.claude-sonnet-4-5-20250929-v1:0"
    everywhere, regional = price(f"bedrock:global.{name}", USAGE), price(f"bedrock:us.{name}", USAGE)
    assert everywhere is not None
    assert regional == everywhere * Decimal("1.1")


def test_a_profile_of_bedrock_is_found_by_its_arn():
    arn = "bedrock:arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-pro-v1:0"
    assert price(arn, USAGE) == price("bedrock:amazon.nova-pro-v1:0", USAGE)


def test_many_short_calls_do_not_cost_what_a_long_one_does():
    """Sonnet 4.5 costs twice as much for requests of more than 200,000 tokens."""
    once = Usage(input_tokens=600_000, model_calls=1)
    often = Usage(input_tokens=600_000, model_calls=10)
    assert price("anthropic:claude-sonnet-4-5", often) == Decimal("1.8")
    assert price("anthropic:claude-sonnet-4-5", once) == Decimal("3.6")


@given(st.integers(1, 50), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_number_of_calls_changes_nothing_where_tokens_cost_the_same(calls: int, read: int, cached: int, out: int):
    counts = Usage(input_tokens=read + cached, cached_input_tokens=cached, output_tokens=out, model_calls=calls)
    by_hand = (Decimal("2.5") * read + Decimal("1.25") * cached + 10 * out) / 1_000_000
    found = price("openai:gpt-4o", counts)
    assert found is not None
    assert abs(found - by_hand) < Decimal("1e-11")


def test_more_cached_than_read_is_priced_as_what_was_cached():
    odd = Usage(input_tokens=10, cached_input_tokens=1000, model_calls=1)
    assert price("openai:gpt-4o", odd) == Decimal("0.00125")


@pytest.mark.parametrize(
    "model",
    [
        "openai:of-tomorrow",
        "openai-compatible:gpt-4o",
        "nobody:gpt-4o",
        "gateway:nobody/gpt-4o",
        "gateway:gpt-4o",
        "azure:my-deployment",
        "bedrock:arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc",
        "gpt-4o",
        "openai:",
        "",
    ],
)
def test_what_is_not_known_has_no_price(model: str):
    assert price(model, USAGE) is None


def test_a_local_model_costs_nothing():
    assert price("local:qwen", USAGE) == 0


def test_the_estimator_comes_first_and_may_leave_it_to_the_table():
    asked: list[tuple[str, Usage]] = []

    def own(model: str, usage: Usage) -> float | None:
        asked.append((model, usage))
        return 0.1 if model == "openai:mine" else None

    assert estimated_price("openai:mine", USAGE, own) == Decimal("0.1")
    assert estimated_price("openai:gpt-4o", USAGE, own) == price("openai:gpt-4o", USAGE)
    assert estimated_price("openai:of-tomorrow", USAGE, own) is None
    assert estimated_price("openai:gpt-4o", USAGE) == price("openai:gpt-4o", USAGE)
    assert asked[0] == ("openai:mine", USAGE)


def test_an_estimate_of_nothing_is_an_estimate():
    assert estimated_price("openai:gpt-4o", USAGE, lambda model, usage: 0) == 0


def test_importing_it_loads_no_table():
    script = "import sys, replan.prices; print('genai_prices' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
