"""The Bedrock Converse wire, for all models that Amazon Bedrock serves in one format."""

from .request import BedrockWire

__all__ = ["BedrockWire"]
