from typing import Any, get_args

import pytest
from anthropic.types.model import Model as AnthropicNames
from genai_prices import data_snapshot
from hypothesis import given
from hypothesis import strategies as st
from openai.types.shared.chat_model import ChatModel
from pydantic_ai.profiles.anthropic import AnthropicModelProfile, anthropic_model_profile
from pydantic_ai.profiles.google import google_model_profile
from pydantic_ai.profiles.grok import grok_model_profile
from pydantic_ai.profiles.openai import openai_model_profile

from replan.model import ModelProfile
from replan.models import PROVIDERS, profile_for, resolve_thinking

CLAUDES: tuple[str, ...] = get_args(get_args(AnthropicNames)[0])
GPTS: tuple[str, ...] = get_args(ChatModel)
SONNET = profile_for("anthropic", "claude-sonnet-4-5")


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929"),
        ("google-vertex", "claude-sonnet-4-5@20250929"),
        ("google-vertex", "publishers/anthropic/models/claude-sonnet-4-5"),
        ("bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("bedrock", "us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("amazon-bedrock", "global.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        (
            "bedrock",
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
    ],
)
def test_a_model_is_the_same_under_each_of_its_names(provider: str, model: str):
    assert profile_for(provider, model) == SONNET


def test_a_claude_behind_the_chat_format_thinks_by_effort():
    profile = profile_for("gateway", "anthropic/claude-sonnet-4.5")
    assert (profile.context_window, profile.images, profile.structured_output) == (200_000, True, "native")
    assert (profile.thinking, profile.caching, profile.result_images) == ("effort", "automatic", False)
    assert not profile.forced_calls_while_thinking
    assert profile_for("azure", "claude-sonnet-4-5") == profile


@pytest.mark.parametrize(
    ("model", "window", "structured", "images", "thinking", "levels"),
    [
        ("gpt-4o", 128_000, "native", True, "none", ""),
        ("gpt-4o-2024-05-13", 128_000, "tool", True, "none", ""),
        ("ft:gpt-4o-mini-2024-07-18:mine::id", 128_000, "native", True, "none", ""),
        ("gpt-4.1-nano", 1_047_576, "native", True, "none", ""),
        ("gpt-4-turbo-2024-04-09", 128_000, "tool", True, "none", ""),
        ("gpt-4-turbo-preview", 128_000, "tool", False, "none", ""),
        ("gpt-4-0613", 8_192, "tool", False, "none", ""),
        ("gpt-3.5-turbo", 16_385, "tool", False, "none", ""),
        ("gpt-5-mini", 400_000, "native", True, "effort", "minimal low medium high"),
        ("gpt-5-chat-latest", 128_000, "native", True, "none", ""),
        ("gpt-5-pro", 400_000, "native", True, "effort", "high"),
        ("gpt-5.1", 400_000, "native", True, "effort", "none low medium high"),
        ("gpt-5.1-codex-max", 400_000, "native", True, "effort", "low medium high xhigh"),
        ("gpt-5.2-chat-latest", 128_000, "native", True, "effort", "medium"),
        ("gpt-5.4-mini", 400_000, "native", True, "effort", "none low medium high xhigh"),
        ("gpt-6-astra", 1_050_000, "native", True, "effort", "low medium high xhigh"),
        ("gpt-6-sol", 1_050_000, "native", True, "effort", "none low medium high xhigh"),
        ("gpt-oss-120b", 131_072, "native", False, "effort", "low medium high"),
        ("o1-mini", 128_000, "prompted", False, "none", ""),
        ("o3-mini", 200_000, "native", False, "effort", "low medium high"),
        ("o3-pro", 200_000, "native", True, "effort", "low medium high"),
        ("o4-mini", 200_000, "native", True, "effort", "low medium high"),
        ("of-tomorrow", 128_000, "native", True, "effort", ""),
    ],
)
def test_models_of_openai(model: str, window: int, structured: str, images: bool, thinking: str, levels: str):
    profile = profile_for("openai", model)
    assert (profile.context_window, profile.structured_output, profile.images) == (window, structured, images)
    assert (profile.thinking, profile.thinking_levels) == (thinking, tuple(levels.split()))
    assert profile == profile_for("azure", model)


@pytest.mark.parametrize(
    ("model", "window", "most", "thinking", "forced", "sampling"),
    [
        ("claude-3-haiku-20240307", 200_000, 4_096, "none", True, True),
        ("claude-3-5-sonnet-latest", 200_000, 8_192, "none", True, True),
        ("claude-3-7-sonnet-latest", 200_000, 64_000, "budget", False, True),
        ("claude-sonnet-4-20250514", 200_000, 64_000, "budget", False, True),
        ("claude-opus-4-1-20250805", 200_000, 32_000, "budget", False, True),
        ("claude-opus-4-5", 200_000, 64_000, "budget", False, True),
        ("claude-haiku-4-5", 200_000, 64_000, "budget", False, True),
        ("claude-sonnet-4-6", 1_000_000, 128_000, "adaptive", True, True),
        ("claude-opus-4-8", 1_000_000, 128_000, "adaptive", True, False),
        ("claude-opus-5-5", 1_000_000, 128_000, "adaptive", False, False),
        ("claude-haiku-5-5", 1_000_000, 128_000, "adaptive", True, False),
        ("claude-of-tomorrow", 200_000, 64_000, "adaptive", False, False),
    ],
)
def test_models_of_anthropic(model: str, window: int, most: int, thinking: str, forced: bool, sampling: bool):
    profile = profile_for("anthropic", model)
    assert (profile.context_window, profile.max_output_tokens, profile.thinking) == (window, most, thinking)
    assert (profile.forced_calls_while_thinking, profile.sampling, profile.caching) == (forced, sampling, "marks")
    assert (profile.images, profile.files, profile.result_images) == (True, True, True)


@pytest.mark.parametrize(
    ("model", "most", "thinking", "levels", "result_images"),
    [
        ("gemini-2.0-flash-lite", 8_192, "none", "", False),
        ("gemini-2.5-pro", 65_536, "gemini-budget", "minimal low medium high xhigh", False),
        ("gemini-2.5-flash-lite", 65_536, "gemini-budget", "none minimal low medium high", False),
        ("gemini-3-pro-preview", 65_536, "gemini-level", "low high", True),
        ("gemini-3.1-pro-preview", 65_536, "gemini-level", "low medium high", True),
        ("gemini-3.5-flash", 65_536, "gemini-level", "minimal low medium high", True),
        ("models/gemini-3.8-flash", 65_536, "gemini-level", "low medium high", True),
        ("gemini-4-argon", 65_536, "gemini-level", "low medium high", True),
    ],
)
def test_models_of_google(model: str, most: int, thinking: str, levels: str, result_images: bool):
    profile = profile_for("google", model)
    assert (profile.context_window, profile.max_output_tokens) == (1_048_576, most)
    assert (profile.thinking, profile.thinking_levels) == (thinking, tuple(levels.split()))
    assert (profile.images, profile.audio, profile.files) == (True, True, True)
    assert profile.result_images == result_images
    assert profile == profile_for("google-vertex", model)


@pytest.mark.parametrize(
    ("provider", "model", "known"),
    [
        ("xai", "grok-4.5", {"context_window": 500_000, "thinking_levels": ("low", "medium", "high")}),
        ("xai", "grok-4-fast", {"context_window": 2_000_000, "images": True, "caching": "automatic"}),
        ("xai", "grok-code-fast-1", {"context_window": 256_000, "images": False, "thinking": "none"}),
        ("xai", "of-tomorrow", {"images": True, "structured_output": "native"}),
        ("deepseek", "deepseek-chat", {"structured_output": "prompted", "thinking": "switch", "images": False}),
        ("deepseek", "deepseek-reasoner", {"structured_output": "prompted", "thinking": "switch"}),
        ("deepseek", "deepseek-v4-pro", {"context_window": 1_000_000, "forced_calls_while_thinking": False}),
        ("deepseek", "of-tomorrow", {"context_window": 1_000_000, "thinking": "switch"}),
        ("google", "gemma-3-27b-it", {"context_window": 131_072, "structured_output": "prompted"}),
        ("bedrock", "us.amazon.nova-pro-v1:0", {"context_window": 300_000, "images": True, "caching": "marks"}),
        ("bedrock", "amazon.nova-micro-v1:0", {"context_window": 128_000, "images": False, "files": False}),
        ("bedrock", "global.amazon.nova-2-lite-v1:0", {"context_window": 1_000_000, "thinking": "effort"}),
        ("bedrock", "us.meta.llama3-3-70b-instruct-v1:0", {"structured_output": "prompted", "caching": "none"}),
        ("bedrock", "meta.llama3-8b-instruct-v1:0", {"context_window": 8_192}),
        ("bedrock", "us.meta.llama4-maverick-17b-instruct-v1:0", {"context_window": 1_000_000, "images": True}),
        ("bedrock", "mistral.mistral-large-2402-v1:0", {"context_window": 32_768, "structured_output": "tool"}),
        ("bedrock", "qwen.qwen3-coder-480b-a35b-v1:0", {"context_window": 262_144}),
        ("bedrock", "deepseek.r1-v1:0", {"structured_output": "prompted", "thinking": "none"}),
        ("bedrock", "deepseek.v3-v1:0", {"structured_output": "prompted", "thinking": "none"}),
        ("bedrock", "openai.gpt-oss-120b-1:0", {"structured_output": "prompted", "thinking": "effort"}),
        ("bedrock", "xai.grok-4.6", {"structured_output": "prompted", "thinking": "effort", "sampling": False}),
        ("bedrock", "us.anthropic.claude-fable-5", {"structured_output": "tool", "thinking": "adaptive"}),
        ("cloudflare", "@cf/meta/llama-3.3-70b-instruct-fp8-fast", {"context_window": 24_000, "caching": "none"}),
        ("cloudflare", "@cf/meta/llama-3.3-70b-instruct-fp8-fast", {"structured_output": "native"}),
        ("cloudflare", "@cf/meta/llama-3.2-11b-vision-instruct", {"images": True}),
        ("cloudflare", "@cf/openai/gpt-oss-20b", {"thinking": "effort", "structured_output": "prompted"}),
        ("cloudflare", "@cf/qwen/qwen2.5-coder-32b-instruct", {"context_window": 32_768, "images": False}),
        ("gateway", "openai/gpt-4.1", {"context_window": 1_047_576, "caching": "automatic"}),
        ("gateway", "xai/grok-4.5", {"context_window": 500_000, "thinking": "effort"}),
        ("gateway", "deepseek/deepseek-v3.2", {"thinking": "effort"}),
        ("anthropic", "kimi-k2", {"caching": "none", "structured_output": "tool"}),
        ("anthropic", "deepseek-v4-pro", {"thinking": "budget"}),
    ],
)
def test_models_of_others(provider: str, model: str, known: dict[str, Any]):
    profile = profile_for(provider, model)
    assert {name: getattr(profile, name) for name in known} == known


@pytest.mark.parametrize("model", ["anything", "gpt-4", "gpt-4o", "gpt-oss-20b", "qwen3-32b", "o3-mini"])
def test_a_server_that_is_not_known_says_itself_what_it_does_not_take(model: str):
    profile = profile_for("openai-compatible", model)
    assert (profile.structured_output, profile.thinking, profile.caching) == ("native", "effort", "automatic")
    assert (profile.sampling, profile.files) == (True, False)
    assert profile.images or model == "qwen3-32b"


@pytest.mark.parametrize("provider", ["bedrock", "cloudflare", "gateway", "google", "anthropic", "nobody"])
def test_a_model_that_is_not_known_reads_no_media(provider: str):
    profile = profile_for(provider, "of-tomorrow")
    assert (profile.context_window, profile.thinking) == (128_000, "none")
    assert (profile.images, profile.audio, profile.files, profile.result_images) == (False,) * 4
    assert profile.structured_output == {"gateway": "native", "anthropic": "tool"}.get(provider, "prompted")


def test_small_and_capital_letters_are_the_same():
    assert profile_for("azure", "GPT-4.1-Mini") == profile_for("azure", "gpt-4.1-mini")


@pytest.mark.parametrize("model", CLAUDES)
def test_what_others_know_of_claude(model: str):
    ours = profile_for("anthropic", model)
    theirs = AnthropicModelProfile(**(anthropic_model_profile(model) or {}))
    assert (ours.thinking == "adaptive") == theirs.get("anthropic_supports_adaptive_thinking", False)
    assert ours.sampling != theirs.get("anthropic_disallows_sampling_settings", False) or "preview" in model
    assert ours.max_output_tokens == theirs.get("anthropic_max_output_tokens") or "preview" in model
    assert (ours.structured_output == "native") == theirs.get("supports_json_schema_output", False)
    assert ours.forced_calls_while_thinking <= theirs.get("supports_forced_tool_choice", True)
    off = theirs.get("anthropic_disables_thinking_with_between_tools", False)
    if theirs.get("thinking_always_enabled", False) or off:
        assert resolve_thinking("none", ours)["thinking"]["type"] == "adaptive"
    else:
        assert resolve_thinking("none", ours) == {"thinking": {"type": "disabled"}}


@pytest.mark.parametrize("model", [m for m in GPTS if m.startswith(("gpt-5", "gpt-6", "o1", "o3", "o4"))])
def test_what_others_know_of_gpt(model: str):
    ours = profile_for("openai", model)
    theirs: dict[str, Any] = {**openai_model_profile(model)}
    if model.startswith(("o1-mini", "o1-preview", "gpt-6.2")):
        return
    assert (ours.thinking == "effort") == theirs["supports_thinking"]
    assert ("none" in ours.thinking_levels) == theirs["openai_supports_reasoning_effort_none"]
    if efforts := theirs.get("openai_reasoning_efforts"):
        assert set(ours.thinking_levels) == efforts - {"max"}


@pytest.mark.parametrize("model", ["gemini-2.0-flash", "gemini-2.5-pro", "gemini-3-flash-preview", "gemini-3.7-flash"])
def test_what_others_know_of_gemini(model: str):
    ours, theirs = profile_for("google", model), dict(google_model_profile(model) or {})
    assert (ours.thinking != "none") == theirs["supports_thinking"]
    assert (ours.thinking == "gemini-level") == theirs["google_supports_thinking_level"]
    assert ours.result_images == bool(theirs["google_supported_mime_types_in_tool_returns"])
    if levels := theirs.get("google_thinking_levels"):
        assert {level.upper() for level in ours.thinking_levels} == levels


@pytest.mark.parametrize(
    "model", ["grok-4.3", "grok-4.5", "grok-4.6", "grok-3-mini", "grok-4-0709", "grok-code-fast-1"]
)
def test_what_others_know_of_grok(model: str):
    ours, theirs = profile_for("xai", model), dict(grok_model_profile(model) or {})
    assert set(ours.thinking_levels) == theirs["grok_reasoning_efforts"]


def test_windows_are_those_of_the_table_of_prices():
    """To within 15%: the table rounds some."""
    wrong: list[tuple[str, int, int]] = []
    apart = (
        "realtime",
        "transcribe",
        "live",
        "image",
        "tts",
        "audio",
        "embed",
        "nano-banana",
        "deep-research",
        "robot",
    )
    providers = {"openai": "openai", "anthropic": "anthropic", "google": "google", "x-ai": "xai", "aws": "bedrock"}
    for provider in data_snapshot.get_snapshot().providers:
        for model in provider.models if provider.id in providers else []:
            profile, window = profile_for(providers[provider.id], model.id), model.context_window
            if window is None or any(word in model.id for word in apart) or not _of_the_vendor(provider.id, model.id):
                continue
            if not 0.85 < profile.context_window / window < 1.18:
                wrong.append((model.id, window, profile.context_window))
    assert wrong == []


def _of_the_vendor(provider: str, model: str) -> bool:
    known = {
        "openai": ("gpt-3", "gpt-4", "gpt-5", "gpt-6", "o1", "o3", "o4"),
        "anthropic": ("claude",),
        "google": ("gemini-2", "gemini-3", "gemini-4", "gemma"),
        "x-ai": ("grok",),
    }
    odd = ("gpt-3.5-turbo-instruct", "gpt-5.3", "claude-v1", "grok-2-1212", "gemini-3-pro-preview")
    if provider == "aws":
        return "claude" in model or "amazon.nova" in model or "meta.llama3" in model
    return model.startswith(known[provider]) and model not in odd


@given(st.sampled_from([*PROVIDERS, "nobody"]), st.text(max_size=60))
def test_any_name_has_a_profile(provider: str, model: str):
    assert isinstance(profile_for(provider, model), ModelProfile)
