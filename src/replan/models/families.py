"""What is known of models, by the beginnings of the names that their vendors give them. Of several the longest counts.

Sources: the vendors' pages of models (OpenAI "Models", Anthropic "Models overview", Gemini "Models" and "Thinking", xAI
"Models", DeepSeek "Models and pricing", Amazon Bedrock "Supported foundation models"). The profiles are those at the
vendor itself, or for open models at Amazon Bedrock.
"""

from msgspec.structs import replace

from replan.model import ModelProfile
from replan.settings import ThinkingLevel

__all__ = ["ANTHROPIC", "DEEPSEEK", "GOOGLE", "GPT", "GROK", "OPENAI", "OTHERS", "XAI"]

_Levels = tuple[ThinkingLevel, ...]

# ---- OpenAI

_LOW: _Levels = ("low", "medium", "high")
_NO_MINIMAL: _Levels = ("none", *_LOW, "xhigh")

GPT = ModelProfile(images=True, files=True, result_images=True, caching="key", max_output_tokens=16_384)
_GPT_OLD = ModelProfile(structured_output="tool", caching="key", max_output_tokens=4_096)
_GPT_AUDIO = replace(GPT, images=False, files=False, result_images=False, audio=True, structured_output="tool")


def _reasons(window: int, *levels: ThinkingLevel, images: bool = True, most: int = 128_000) -> ModelProfile:
    """A model of OpenAI that reasons. It takes `temperature` where it can be without."""
    return replace(
        GPT,
        context_window=window,
        max_output_tokens=most,
        images=images,
        files=images,
        result_images=images,
        thinking="effort",
        thinking_levels=levels,
        sampling="none" in levels,
    )


OPENAI = {
    "gpt-3.5": replace(_GPT_OLD, context_window=16_385),
    "gpt-4": replace(_GPT_OLD, context_window=8_192, max_output_tokens=8_192),
    "gpt-4-32k": replace(_GPT_OLD, context_window=32_768),
    "gpt-4-0125": _GPT_OLD,
    "gpt-4-1106": _GPT_OLD,
    "gpt-4-turbo": replace(_GPT_OLD, images=True),
    "gpt-4-turbo-preview": _GPT_OLD,
    "gpt-4-vision": replace(_GPT_OLD, images=True, structured_output="prompted"),
    "gpt-4o": GPT,
    "gpt-4o-2024-05-13": replace(GPT, structured_output="tool", max_output_tokens=4_096),
    "gpt-4o-audio": _GPT_AUDIO,
    "gpt-4o-mini-audio": _GPT_AUDIO,
    "gpt-audio": _GPT_AUDIO,
    "chatgpt-4o": replace(GPT, structured_output="prompted"),
    "gpt-4.1": replace(GPT, context_window=1_047_576, max_output_tokens=32_768),
    "gpt-4.5": GPT,
    "gpt-5": _reasons(400_000, "minimal", *_LOW),
    "gpt-5-chat": GPT,
    "gpt-5-codex": _reasons(400_000, *_LOW),
    "gpt-5-pro": _reasons(400_000, "high", most=272_000),
    "gpt-5.1": _reasons(400_000, "none", *_LOW),
    "gpt-5.1-chat": _reasons(128_000, "medium", most=16_384),
    "gpt-5.1-codex": _reasons(400_000, *_LOW),
    "gpt-5.1-codex-max": _reasons(400_000, *_LOW, "xhigh"),
    "gpt-5.2": _reasons(400_000, *_NO_MINIMAL),
    "gpt-5.2-chat": _reasons(128_000, "medium", most=16_384),
    "gpt-5.2-codex": _reasons(400_000, *_LOW, "xhigh"),
    "gpt-5.2-pro": _reasons(400_000, "medium", "high", "xhigh"),
    "gpt-5.3": _reasons(400_000, *_NO_MINIMAL),
    "gpt-5.3-chat": _reasons(128_000, "medium", most=16_384),
    "gpt-5.4": _reasons(1_050_000, *_NO_MINIMAL),
    "gpt-5.4-mini": _reasons(400_000, *_NO_MINIMAL),
    "gpt-5.4-nano": _reasons(400_000, *_NO_MINIMAL),
    "gpt-5.4-pro": _reasons(1_050_000, "medium", "high", "xhigh"),
    "gpt-5.5": _reasons(1_000_000, *_NO_MINIMAL),
    "gpt-5.5-pro": _reasons(1_000_000, "medium", "high", "xhigh"),
    "gpt-5.6": _reasons(1_050_000, *_NO_MINIMAL),
    "gpt-6": _reasons(1_050_000, *_LOW, "xhigh"),
    "gpt-6-sol": _reasons(1_050_000, *_NO_MINIMAL),
    "gpt-6-luna": _reasons(1_050_000, *_NO_MINIMAL),
    "gpt-6.1-terra": _reasons(1_050_000, *_NO_MINIMAL),
    "gpt-oss": replace(_reasons(131_072, *_LOW, images=False, most=131_072), sampling=True, caching="automatic"),
    "codex-mini": _reasons(200_000, *_LOW, most=100_000),
    "o1": _reasons(200_000, *_LOW, most=100_000),
    "o1-mini": replace(_GPT_OLD, structured_output="prompted", sampling=False, max_output_tokens=65_536),
    "o1-preview": replace(_GPT_OLD, structured_output="prompted", sampling=False, max_output_tokens=32_768),
    "o3": _reasons(200_000, *_LOW, most=100_000),
    "o3-mini": _reasons(200_000, *_LOW, images=False, most=100_000),
    "o4": _reasons(200_000, *_LOW, most=100_000),
}


# ---- Anthropic

_CLAUDE = ModelProfile(
    context_window=200_000,
    max_output_tokens=64_000,
    images=True,
    files=True,
    result_images=True,
    caching="marks",
)
_CLAUDE_3 = replace(_CLAUDE, structured_output="tool", max_output_tokens=4_096)
_CLAUDE_4 = replace(_CLAUDE, structured_output="tool", thinking="budget", forced_calls_while_thinking=False)
_CLAUDE_OPUS_4 = replace(_CLAUDE_4, max_output_tokens=32_000)
_CLAUDE_4_5 = replace(_CLAUDE_4, structured_output="native")


def _adapts(*levels: ThinkingLevel, forced: bool = True, sampling: bool = False) -> ModelProfile:
    """A Claude with adaptive thinking."""
    return replace(
        _CLAUDE,
        context_window=1_000_000,
        max_output_tokens=128_000,
        thinking="adaptive",
        thinking_levels=levels,
        forced_calls_while_thinking=forced,
        sampling=sampling,
    )


_ALWAYS: _Levels = (*_LOW, "xhigh")
ANTHROPIC = {
    "claude": replace(_adapts(*_LOW, forced=False), context_window=200_000, max_output_tokens=64_000),
    "claude-2": ModelProfile(context_window=200_000, max_output_tokens=4_096, structured_output="prompted"),
    "claude-instant": ModelProfile(context_window=100_000, max_output_tokens=4_096, structured_output="prompted"),
    "claude-3": _CLAUDE_3,
    "claude-3-5": replace(_CLAUDE_3, max_output_tokens=8_192),
    "claude-3-7": _CLAUDE_4,
    "claude-4": _CLAUDE_4,
    "claude-4-opus": _CLAUDE_OPUS_4,
    "claude-sonnet-4": _CLAUDE_4,
    "claude-sonnet-4-5": _CLAUDE_4_5,
    "claude-sonnet-4-6": _adapts("none", *_LOW, sampling=True),
    "claude-opus-4": _CLAUDE_OPUS_4,
    "claude-opus-4-5": _CLAUDE_4_5,
    "claude-opus-4-6": _adapts("none", *_LOW, sampling=True),
    "claude-opus-4-7": _adapts("none", *_ALWAYS),
    "claude-opus-4-8": _adapts("none", *_ALWAYS),
    "claude-haiku-4": _CLAUDE_4_5,
    "claude-sonnet-5": _adapts("none", *_ALWAYS),
    "claude-sonnet-5-5": _adapts(*_ALWAYS, forced=False),
    "claude-opus-5": _adapts("none", *_ALWAYS),
    "claude-opus-5-5": _adapts(*_ALWAYS, forced=False),
    "claude-haiku-5": _adapts("none", *_ALWAYS),
    "claude-fable-5": _adapts(*_ALWAYS),
    "claude-fable-5-": _adapts(*_ALWAYS, forced=False),
    "claude-mythos-5": _adapts(*_ALWAYS),
    "claude-mythos-5-": _adapts(*_ALWAYS, forced=False),
    "claude-mythos-preview": replace(_adapts(*_LOW, forced=False), structured_output="tool"),
}


# ---- Google

_GEMINI = ModelProfile(
    context_window=1_048_576,
    max_output_tokens=65_536,
    images=True,
    audio=True,
    files=True,
    caching="automatic",
)
_GEMINI_2_0 = replace(_GEMINI, max_output_tokens=8_192)
_GEMINI_2_5 = replace(_GEMINI, thinking="gemini-budget", thinking_levels=("none", "minimal", *_LOW))
_GEMINI_3 = replace(_GEMINI, thinking="gemini-level", result_images=True, thinking_levels=("minimal", *_LOW))
_GEMINI_IMAGE = replace(_GEMINI, context_window=32_768, max_output_tokens=8_192, structured_output="prompted")
_GEMMA = ModelProfile(
    context_window=131_072, max_output_tokens=8_192, images=True, structured_output="prompted", caching="none"
)

GOOGLE = {
    "gemini": replace(_GEMINI_3, thinking_levels=_LOW),
    "gemini-1": _GEMINI_2_0,
    "gemini-1.5-pro": replace(_GEMINI_2_0, context_window=2_097_152),
    "gemini-2.0": _GEMINI_2_0,
    "gemini-2.5": _GEMINI_2_5,
    "gemini-2.5-pro": replace(_GEMINI_2_5, thinking_levels=("minimal", *_LOW, "xhigh")),
    "gemini-2.5-flash-image": _GEMINI_IMAGE,
    "gemini-3": _GEMINI_3,
    "gemini-3-pro": replace(_GEMINI_3, thinking_levels=("low", "high")),
    "gemini-3-pro-image": replace(_GEMINI_IMAGE, context_window=65_536, max_output_tokens=32_768),
    "gemini-3.1-pro": replace(_GEMINI_3, thinking_levels=_LOW),
    "gemini-3.7": replace(_GEMINI_3, thinking_levels=_LOW),
    "gemini-3.8": replace(_GEMINI_3, thinking_levels=_LOW),
    "gemma": _GEMMA,
    "gemma-2": replace(_GEMMA, context_window=8_192, images=False),
    "gemma-3-1b": replace(_GEMMA, context_window=32_768, images=False),
    "gemma-3n": replace(_GEMMA, context_window=32_768),
    "gemma-4": replace(_GEMMA, context_window=262_144),
}


# ---- others

GROK = ModelProfile(context_window=256_000, images=True, caching="automatic")
_GROK_4 = replace(GROK, thinking="effort", thinking_levels=("none", *_LOW))
_DEEPSEEK_3 = ModelProfile(
    structured_output="prompted", thinking="switch", forced_calls_while_thinking=False, caching="automatic"
)
DEEPSEEK = replace(_DEEPSEEK_3, context_window=1_000_000, thinking_levels=("none", "low", "high"))
_NOVA = ModelProfile(
    context_window=300_000,
    max_output_tokens=10_000,
    structured_output="tool",
    images=True,
    files=True,
    result_images=True,
    caching="marks",
)
_OPEN = ModelProfile(structured_output="prompted")
_SEES = replace(_OPEN, images=True)

XAI = {
    "grok": GROK,
    "grok-2": replace(GROK, context_window=131_072, images=False),
    "grok-2-vision": replace(GROK, context_window=32_768),
    "grok-3": replace(GROK, context_window=131_072, images=False),
    "grok-3-mini": replace(
        GROK, context_window=131_072, images=False, thinking="effort", thinking_levels=("none", "low", "high")
    ),
    "grok-4": _GROK_4,
    "grok-4-fast": replace(_GROK_4, context_window=2_000_000),
    "grok-4-1": replace(_GROK_4, context_window=2_000_000),
    "grok-4.1": replace(_GROK_4, context_window=2_000_000),
    "grok-4.20": replace(GROK, context_window=1_000_000),
    "grok-4.3": replace(_GROK_4, context_window=1_000_000),
    "grok-4.5": replace(_GROK_4, context_window=500_000, thinking_levels=_LOW),
    "grok-4.6": replace(_GROK_4, context_window=500_000, thinking_levels=_LOW),
    "grok-4.7": replace(_GROK_4, context_window=500_000, thinking_levels=_ALWAYS),
    "grok-code": replace(GROK, images=False),
}
OTHERS = {
    "deepseek": DEEPSEEK,
    "deepseek-chat": replace(_DEEPSEEK_3, context_window=128_000),
    "deepseek-v3": replace(_DEEPSEEK_3, context_window=128_000),
    "deepseek-reasoner": replace(_DEEPSEEK_3, context_window=128_000, thinking_levels=("high",)),
    "deepseek-r1": replace(_DEEPSEEK_3, context_window=128_000, thinking="none"),
    "deepseek-v4": DEEPSEEK,
    "nova": _NOVA,
    "nova-micro": replace(_NOVA, context_window=128_000, images=False, files=False, result_images=False),
    "nova-premier": replace(_NOVA, context_window=1_000_000),
    "nova-2": replace(
        _NOVA,
        context_window=1_000_000,
        max_output_tokens=64_000,
        thinking="effort",
        thinking_levels=("none", *_LOW),
        forced_calls_while_thinking=False,
    ),
    "glm": replace(_OPEN, structured_output="native"),
    "kimi-k2": replace(_OPEN, context_window=262_144, structured_output="native"),
    "kimi-k3": replace(_SEES, context_window=1_000_000, structured_output="native"),
    "magistral": replace(_OPEN, structured_output="native"),
    "ministral-3": replace(_SEES, structured_output="native"),
    "mistral-7b": replace(_OPEN, context_window=32_768),
    "mistral-large": replace(_OPEN, structured_output="tool"),
    "mistral-large-2402": replace(_OPEN, context_window=32_768, structured_output="tool"),
    "mistral-large-3": replace(_SEES, context_window=262_144, structured_output="native"),
    "mistral-small-3": _SEES,
    "mixtral": replace(_OPEN, context_window=32_768),
    "pixtral": _SEES,
    "qwen3": replace(_OPEN, context_window=131_072, structured_output="native"),
    "qwen3-32b": replace(_OPEN, context_window=32_768, structured_output="native"),
    "qwen3-coder": replace(_OPEN, context_window=262_144, structured_output="native"),
    "qwen3-vl": replace(_SEES, context_window=262_144, structured_output="native"),
    "qwen2.5-coder": replace(_OPEN, context_window=32_768),
} | {
    start: profile
    for names, profile in {
        ("llama-2", "llama2"): replace(_OPEN, context_window=4_096),
        ("llama-3-", "llama3-"): replace(_OPEN, context_window=8_192),
        ("llama-3.", "llama3."): _OPEN,
        ("llama3-1", "llama3-2", "llama3-3"): _OPEN,
        ("llama-3.2-11b", "llama3-2-11b", "llama-3.2-90b", "llama3-2-90b"): _SEES,
        ("llama-4", "llama4"): replace(_SEES, context_window=1_000_000),
    }.items()
    for start in names
}
