"""The JSON schema of a plan; for a model that is held to it token by token, one of real tools and grounded values."""

from collections.abc import Sequence

from replan.encoding import JSONObject
from replan.model import ModelProfile, OutputSchema
from replan.tool import ToolInfo

from .grounding import plan_arguments

__all__ = ["plan_schema", "steps_schema"]


def plan_schema(profile: ModelProfile, tools: Sequence[ToolInfo], args: JSONObject) -> OutputSchema:
    """The JSON schema of a planner's reply.

    Where it is enforced token by token, it offers only real tools and grounded values, and steps only where tools are
    used.
    """
    steps = steps_schema(profile, tools, args)
    if not profile.constrained:
        return OutputSchema("plan", _plan_object({"type": "string"}, _names(tools), steps))
    thought: JSONObject = {"type": "string", "maxLength": 150}
    none: JSONObject = {"type": "array", "items": {"type": "null"}, "maxItems": 0}
    if not tools:
        return OutputSchema("plan", _plan_object(thought, none, none))
    uses = {**_names(tools), "minItems": 1, "maxItems": 4}
    planned = _plan_object(thought, uses, {**steps, "minItems": 1})
    return OutputSchema("plan", {"anyOf": [planned, _plan_object(thought, none, none)]})


def steps_schema(profile: ModelProfile, tools: Sequence[ToolInfo], args: JSONObject) -> JSONObject:
    """The JSON schema of a list of steps."""
    if not profile.constrained:
        return {"type": "array", "items": _step_schema(tools)}
    return {"type": "array", "items": _grounded_step(tools, args["goal"]), "maxItems": args["max_steps"]}


def _plan_object(thought: JSONObject, uses: JSONObject, steps: JSONObject) -> JSONObject:
    properties = {"thought": thought, "uses": uses, "steps": steps}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _names(tools: Sequence[ToolInfo]) -> JSONObject:
    return {"type": "array", "items": {"enum": [info.name for info in tools]} if tools else {"type": "string"}}


def _step_schema(tools: Sequence[ToolInfo]) -> JSONObject:
    call = {
        "type": ["object", "null"],
        "properties": {"tool": {"type": "string"}, "arguments": {"type": ["object", "null"]}},
        "required": ["tool", "arguments"],
    }
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "s1, s2, ..."},
            "description": {"type": "string"},
            "expected_outcome": {"type": "string"},
            **({"suggested_tools": _names(tools), "call": call} if tools else {}),
        },
        "required": ["id", "description"],
    }


def _grounded_step(tools: Sequence[ToolInfo], goal: str) -> JSONObject:
    text: JSONObject = {"type": "string", "maxLength": 120}
    calls = [
        {
            "type": "object",
            "properties": {"tool": {"const": info.name}, "arguments": plan_arguments(info, goal)},
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }
        for info in tools
    ]
    return {
        "type": "object",
        "properties": {"description": text, "call": {"anyOf": calls}},
        "required": ["description", "call"],
        "additionalProperties": False,
    }
