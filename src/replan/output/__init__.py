"""Reading structured output out of what a model wrote."""

from .extract import OutputProblem, candidates
from .partial import PartialJson
from .typed import TypedOutput

__all__ = ["OutputProblem", "PartialJson", "TypedOutput", "candidates"]
