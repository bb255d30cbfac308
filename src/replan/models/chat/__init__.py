"""The OpenAI Chat Completions wire, as OpenAI and the many servers compatible with it speak it."""

from .request import ChatWire

__all__ = ["ChatWire"]
