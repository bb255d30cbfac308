"""The Gemini `generateContent` wire, as the Gemini API and Vertex AI speak it."""

from .request import GeminiWire

__all__ = ["GeminiWire"]
