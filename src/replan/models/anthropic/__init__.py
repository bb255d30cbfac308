"""The Anthropic Messages wire, as Anthropic and Vertex AI speak it."""

from .request import AnthropicWire

__all__ = ["AnthropicWire"]
