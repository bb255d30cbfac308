"""Which wire an endpoint is spoken to with. Each is imported when it is first needed."""

from dataclasses import replace

from msgspec import structs

from replan.errors import ConfigError

from .wire import Endpoint, Wire

__all__ = ["OPENAI_URL", "chat", "converse", "for_wire", "gemini", "messages", "on_vertex", "openai"]

OPENAI_URL = "https://api.openai.com/v1"


def for_wire(endpoint: Endpoint) -> Endpoint:
    """The endpoint with what its wire can do: how thinking is asked for, and whether results may hold images."""
    thinking, responses = endpoint.profile.thinking, _speaks_responses(endpoint)
    if thinking in ("effort", "reasoning"):
        thinking = "reasoning" if responses else "effort"
    images = endpoint.profile.result_images and responses
    return replace(endpoint, profile=structs.replace(endpoint.profile, thinking=thinking, result_images=images))


def _speaks_responses(endpoint: Endpoint) -> bool:
    """Whether the Responses API is used: by `auto`, where the provider itself serves it, for models that think."""
    wanted = endpoint.options.get("responses", "auto")
    if wanted not in ("auto", "always", "never"):
        raise ConfigError(f"option 'responses' is {wanted!r}; give 'auto', 'always' or 'never'")
    if wanted != "auto":
        return wanted == "always"
    own = endpoint.base_url == OPENAI_URL or (endpoint.provider == "azure" and endpoint.base_url.endswith("/openai/v1"))
    return own and endpoint.profile.thinking in ("effort", "reasoning")


def openai(endpoint: Endpoint) -> Wire:
    """Chat Completions, or Responses where it is spoken."""
    if _speaks_responses(endpoint):
        from .responses import ResponsesWire

        return ResponsesWire(endpoint)
    return chat(endpoint)


def chat(endpoint: Endpoint) -> Wire:
    """Chat Completions."""
    from .chat import ChatWire

    return ChatWire(endpoint)


def messages(endpoint: Endpoint) -> Wire:
    """Anthropic Messages."""
    from .anthropic import AnthropicWire

    return AnthropicWire(endpoint)


def gemini(endpoint: Endpoint) -> Wire:
    """Gemini `generateContent`."""
    from .gemini import GeminiWire

    return GeminiWire(endpoint)


def on_vertex(endpoint: Endpoint) -> Wire:
    """Vertex serves Claude too, in the format of Anthropic."""
    endpoint = replace(endpoint, options={**endpoint.options, "vertex": True})
    return messages(endpoint) if endpoint.model.startswith("claude") else gemini(endpoint)


def converse(endpoint: Endpoint) -> Wire:
    """Bedrock Converse."""
    from .bedrock import BedrockWire

    return BedrockWire(endpoint)
