"""JSON schemas as each provider takes them. Nothing is changed in place.

Parameters of tools only get wider: arguments are checked against the tool's own schema anyway. A schema that no object
fulfils cannot be the parameters of a tool, and raises `ValueError`. Outputs only get narrower where objects are closed,
and what a provider does not take is said in descriptions; None where that would not do.
"""

from .anthropic import anthropic_output, anthropic_parameters, bedrock_parameters
from .gemini import gemini_output, gemini_parameters
from .openai import openai_output, openai_parameters, openai_strict
from .references import inline

__all__ = [
    "anthropic_output",
    "anthropic_parameters",
    "bedrock_parameters",
    "gemini_output",
    "gemini_parameters",
    "inline",
    "openai_output",
    "openai_parameters",
    "openai_strict",
]
