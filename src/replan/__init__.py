"""Agents that plan, act and re-plan over MCP and native tools, on any model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .agent import Agent
from .errors import ReplanError
from .messages import Audio, File, Image, Message, attachment, user
from .model import Model, StageModel, Stages
from .run import Run, RunResult, current_run
from .settings import Limits, ModelSettings, Planning, PromptCaching, Thinking
from .tool import Tool, ToolContext, ToolError
from .tools import tool
from .usage import Usage

if TYPE_CHECKING:
    from .planning import Plan, Step, StepResult
    from .planning_agent import PlanningAgent, PlanningResult, PlanPreview

__all__ = [
    "Agent",
    "Audio",
    "File",
    "Image",
    "Limits",
    "Message",
    "Model",
    "ModelSettings",
    "Plan",
    "PlanPreview",
    "Planning",
    "PlanningAgent",
    "PlanningResult",
    "PromptCaching",
    "ReplanError",
    "Run",
    "RunResult",
    "StageModel",
    "Stages",
    "Step",
    "StepResult",
    "Thinking",
    "Tool",
    "ToolContext",
    "ToolError",
    "Usage",
    "__version__",
    "attachment",
    "current_run",
    "tool",
    "user",
]

_LATER = {
    "Plan": "planning",
    "Step": "planning",
    "StepResult": "planning",
    "PlanPreview": "planning_agent",
    "PlanningAgent": "planning_agent",
    "PlanningResult": "planning_agent",
}
"""What planning needs is imported when it is first asked for: the plain agent does without."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return value
