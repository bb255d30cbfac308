"""What is known of a model at a provider: what its family can do, as far as the provider's API lets it."""

import re
from collections.abc import Callable

from msgspec.structs import replace

from replan.model import ModelProfile

from .families import ANTHROPIC, DEEPSEEK, GOOGLE, GPT, GROK, OPENAI, OTHERS, XAI

__all__ = ["profile_for"]

_FAMILIES = OPENAI | ANTHROPIC | GOOGLE | XAI | OTHERS


def profile_for(provider: str, model: str) -> ModelProfile:
    """What is known of a model at a provider; a careful guess where nothing is.

    The name may be one of OpenAI's, Anthropic's and so on, also with what providers put around it: a vendor
    (`anthropic/claude-sonnet-4.5`, `@cf/meta/llama-...`), a region (`us.anthropic.claude-...-v1:0`), an ARN.
    """
    name = _plain(model)
    start = max((start for start in _FAMILIES if name.startswith(start)), key=len, default="")
    return _AT.get(provider, _elsewhere)(name, start, _FAMILIES.get(start))


_VENDORS = (
    "ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshot|moonshotai|nvidia|openai|qwen|"
    "writer|xai|zai"
)
_BEDROCK = re.compile(rf"(?:[a-z-]+\.)?({_VENDORS})\.(.+)")


def _plain(model: str) -> str:
    """The name as its vendor has it, in small letters; Claude's without dots."""
    name = model.strip().lower().rsplit("/", 1)[-1].removeprefix("ft:")
    if found := _BEDROCK.fullmatch(name):
        name = f"deepseek-{found[2]}" if found[1] == "deepseek" else found[2]
    return name.replace(".", "-") if name.startswith("claude") else name


# ---- providers


def _own_openai(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    if start in OPENAI:
        return _FAMILIES[start]
    return _by_chat(name, start, known) if known else replace(GPT, max_output_tokens=None, thinking="effort")


def _by_chat(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    """A model behind the Chat format of another: thoughts are asked for as an effort, and never sent back."""
    if known is None:
        return ModelProfile(caching="automatic")
    return replace(
        known,
        result_images=False,
        thinking="none" if known.thinking == "none" else "effort",
        caching="automatic",
    )


def _compatible(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    """A server of which nothing is known: what it refuses is left out when it says so."""
    profile = _by_chat(name, start, known)
    images = profile.images or known is None or start in OPENAI
    return replace(profile, structured_output="native", images=images, files=False, thinking="effort", sampling=True)


def _cloudflare(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    """Workers AI keeps no prompts, reads no files, and holds some models to a schema (page "JSON Mode")."""
    profile = _by_chat(name, start, known or ModelProfile())
    native = name.startswith(("llama-3.1-8b", "llama-3.1-70b", "llama-3.3-70b", "llama-3-8b", "deepseek-r1-distill"))
    windows = {"llama-3.3-70b-instruct-fp8-fast": 24_000, "llama-4-scout-17b-16e-instruct": 131_000}
    return replace(
        profile,
        context_window=windows.get(name, profile.context_window),
        structured_output="native" if native else "prompted",
        files=False,
        audio=False,
        caching="none",
    )


def _messages(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    """The Messages format; other models than Claude behind it take a budget, if they think."""
    if start in ANTHROPIC:
        return _FAMILIES[start]
    if known is None:
        return ModelProfile(structured_output="tool")
    thinking = "none" if known.thinking == "none" else "budget"
    return replace(known, thinking=thinking, structured_output="tool", caching="none")


def _gemini(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    return known or ModelProfile(structured_output="prompted")


def _bedrock(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    """Converse: fewer models are held to a schema there, and only Claude and Nova keep prompts."""
    if known is None:
        return ModelProfile(structured_output="prompted")
    if start in ANTHROPIC:
        return replace(known, structured_output="tool") if start.startswith("claude-fable-5") else known
    if start.startswith("nova"):
        return known
    elsewhere = start in OPENAI or start in XAI or start.startswith("deepseek")
    return replace(
        known,
        structured_output="prompted" if elsewhere else known.structured_output,
        thinking="none" if known.thinking in ("none", "switch") else "effort",
        sampling=known.sampling and start not in XAI,
        result_images=False,
        files=False,
        audio=False,
        caching="none",
    )


def _deepseek(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    return known if known is not None and start.startswith("deepseek") else DEEPSEEK


def _xai(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    return known if known is not None and start in XAI else GROK


def _elsewhere(name: str, start: str, known: ModelProfile | None) -> ModelProfile:
    return known or ModelProfile(structured_output="prompted")


_AT: dict[str, Callable[[str, str, ModelProfile | None], ModelProfile]] = {
    "openai": _own_openai,
    "azure": _own_openai,
    "anthropic": _messages,
    "google": _gemini,
    "google-vertex": _gemini,
    "bedrock": _bedrock,
    "amazon-bedrock": _bedrock,
    "xai": _xai,
    "deepseek": _deepseek,
    "gateway": _by_chat,
    "cloudflare": _cloudflare,
    "openai-compatible": _compatible,
}
