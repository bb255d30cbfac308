"""The JSON schema of a plan; for a model that is held to it token by token, one of real tools and grounded values."""

from collections.abc import Collection, Sequence

from replan.encoding import JSONObject
from replan.model import ModelProfile, OutputSchema
from replan.tool import ToolInfo

from .grounding import asked_for, plan_arguments, reserved
from .words import numbers

__all__ = ["plan_schema", "steps_schema"]

_FEW_TOOLS = 8


def plan_schema(profile: ModelProfile, tools: Sequence[ToolInfo], args: JSONObject) -> OutputSchema:
    """The JSON schema of a planner's reply.

    Where it is enforced token by token, it offers only real tools and grounded values; of each tool (of a few) is said
    whether the goal needs it, and a plan that needs none has no steps.
    """
    tools = _offered(profile, tools, args["goal"])
    steps = steps_schema(profile, tools, args)
    names = [info.name for info in tools]
    if not profile.constrained:
        return OutputSchema("plan", _plan_object({"type": "string"}, _some(names), steps))
    thought: JSONObject = {"type": "string", "maxLength": 150}
    nothing: JSONObject = {"type": "array", "items": {"type": "null"}, "maxItems": 0}
    if len(names) > _FEW_TOOLS:
        return OutputSchema("plan", _plan_object(thought, {**_some(names), "minItems": 1, "maxItems": 4}, steps))
    planned = _plan_object(thought, _each(names, {"type": "boolean"}), {**steps, "minItems": 1})
    direct = _plan_object(thought, _each(names, {"const": False}), nothing)
    return OutputSchema("plan", {"anyOf": [planned, direct] if tools else [direct]})


def _offered(profile: ModelProfile, tools: Sequence[ToolInfo], goal: str) -> Sequence[ToolInfo]:
    return [info for info in tools if asked_for(info, goal)] if profile.constrained else tools


def steps_schema(profile: ModelProfile, tools: Sequence[ToolInfo], args: JSONObject) -> JSONObject:
    """The JSON schema of a list of steps. `kinds` in the request says which kinds of steps there may be."""
    if not profile.constrained:
        return {"type": "array", "items": _step_schema(tools, args.get("kinds") or ("direct", "bound", "open"))}
    offered = _offered(profile, tools, args["goal"])
    kinds = args.get("kinds") or ("direct", "bound")
    if "direct" in kinds or "bound" in kinds:
        call, computation = _grounded_steps(offered, args["goal"])
        item: JSONObject = {"anyOf": [call, computation]} if "direct" in kinds else call
        looks_first = offered and not args.get("taken") and len(numbers(args["goal"])) < 2
        first: JSONObject = {"prefixItems": [call]} if looks_first else {}
        return {"type": "array", **first, "items": item, "maxItems": args["max_steps"]}
    item = _closed({"description": _TEXT, "suggested_tools": {**_some([t.name for t in offered]), "maxItems": 4}})
    return {"type": "array", "items": item, "maxItems": args["max_steps"]}


def _plan_object(thought: JSONObject, uses: JSONObject, steps: JSONObject) -> JSONObject:
    properties = {"thought": thought, "uses": uses, "steps": steps}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _some(names: Sequence[str]) -> JSONObject:
    return {"type": "array", "items": {"enum": [*names]} if names else {"type": "string"}}


def _each(names: Sequence[str], schema: JSONObject) -> JSONObject:
    properties = dict.fromkeys(names, schema)
    return {"type": "object", "properties": properties, "required": [*names], "additionalProperties": False}


def _step_schema(tools: Sequence[ToolInfo], kinds: Collection[str]) -> JSONObject:
    """A step in full. Keys that are left out say nothing; none has to be null."""
    calls, computes = "direct" in kinds or "bound" in kinds, "direct" in kinds
    text: JSONObject = {"type": "string"}
    call: JSONObject = {
        "type": ["object", "null"],
        "properties": {"tool": text, "arguments": {"type": ["object", "null"]}},
        "required": ["tool", "arguments"],
    }
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "s1, s2, ..."},
            "description": text,
            "expected_outcome": text,
            **({"suggested_tools": _some([info.name for info in tools])} if tools and "open" in kinds else {}),
            **({"call": call} if tools and calls else {}),
            "depends_on": {"type": "array", "items": text},
            **({"compute": {"type": "object"}} if computes else {}),
            "produces": {"type": "object", "description": "name of an output: its JSON schema"},
            "from": {"type": "object", "description": "name of an output: its path in the result"},
            "check": {"type": "object"},
        },
        "required": ["id", "description"],
    }


def _grounded_steps(tools: Sequence[ToolInfo], goal: str) -> tuple[JSONObject, JSONObject]:
    """A step that calls a tool with what the goal gives, and one that works something out from results."""
    kept = [(info, plan_arguments(info, goal, reserved=reserved(tools, goal))) for info in tools]
    calls = [_closed({"tool": {"const": info.name}, "arguments": arguments}) for info, arguments in kept]
    computation = _closed({"description": _TEXT, "compute": _closed({"value": {"type": "null"}})})
    return _closed({"description": _TEXT, "call": {"anyOf": calls}}), computation


def _closed(properties: JSONObject) -> JSONObject:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


_TEXT: JSONObject = {"type": "string", "maxLength": 100}
