"""Computed steps: arithmetic, aggregates and orderings over the outputs of earlier steps."""

from .compute import OPERATORS, compute, open_operand, problems
from .quantities import ComputeError

__all__ = ["OPERATORS", "ComputeError", "compute", "open_operand", "problems"]
