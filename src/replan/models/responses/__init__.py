"""The OpenAI Responses wire, stateless: nothing is stored at the provider, encrypted reasoning goes back and forth."""

from .request import ResponsesWire

__all__ = ["ResponsesWire"]
