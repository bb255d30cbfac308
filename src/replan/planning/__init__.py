"""The planning agent's parts: plans, the stages that write and follow them, and the loop."""

from .plan import Plan, PlannedCall, Step
from .trace import StepResult, ToolUse

__all__ = ["Plan", "PlannedCall", "Step", "StepResult", "ToolUse"]
