"""Agents that plan, act and re-plan over MCP and native tools, on any model."""

from ._version import __version__
from .agent import Agent
from .errors import ReplanError
from .messages import Message, user
from .model import Model, Stages
from .planning import Plan, Step, StepResult
from .planning_agent import PlanningAgent
from .run import PlanningResult, PlanPreview, Run, RunResult, current_run
from .settings import Limits, ModelSettings, Planning
from .tool import Tool, ToolContext, ToolError
from .tools import tool
from .usage import Usage

__all__ = [
    "Agent",
    "Limits",
    "Message",
    "Model",
    "ModelSettings",
    "Plan",
    "PlanPreview",
    "Planning",
    "PlanningAgent",
    "PlanningResult",
    "ReplanError",
    "Run",
    "RunResult",
    "Stages",
    "Step",
    "StepResult",
    "Tool",
    "ToolContext",
    "ToolError",
    "Usage",
    "__version__",
    "current_run",
    "tool",
    "user",
]
