"""Reading structured output out of what a model wrote."""

from .extract import OutputProblem, candidates
from .typed import TypedOutput

__all__ = ["OutputProblem", "TypedOutput", "candidates"]
