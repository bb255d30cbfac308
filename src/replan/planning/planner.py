"""The planner: from a goal and a list of tools to a plan, streamed while it is written."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec import structs

from replan import events
from replan.effects import Stage, Watch
from replan.encoding import JSON, JSONObject, is_list, is_object
from replan.messages import Message, Text, User, from_json
from replan.model import Delta, Model, ModelProfile, OutputSchema, Retry, TextDelta
from replan.output import OutputProblem, candidates
from replan.settings import ModelSettings
from replan.tool import ToolInfo

from .grounding import plan_arguments
from .lint import mend
from .plan import make_plan, to_json
from .prompts import instructions

__all__ = ["catalogue", "history_section", "plan_reader", "plan_schema", "planner_stage", "steps_schema", "watch_plan"]

_HISTORY_TURNS, _HISTORY_CHARS = 8, 1500


def planner_stage(
    model: Model, tools: Sequence[ToolInfo], system_prompt: str, settings: ModelSettings, remarks: Sequence[str] = ()
) -> Stage:
    """The stage that writes the plan.

    `remarks` tell of servers that are not there and of what servers say about themselves.
    """
    sections = ("Tools:\n" + catalogue(tools) if tools else "There are no tools.", "\n".join(remarks), system_prompt)
    return Stage(
        phase="plan",
        model=model,
        instructions=instructions("planner", *sections),
        schema=partial(plan_schema, model.profile, tools),
        read=partial(plan_reader, tools),
        settings=settings,
        watch=watch_plan,
    )


def planner_prompt(task: JSONObject) -> str:
    """The user message of the planner."""
    return f"{history_section(task['history'])}Goal: {task['goal']}"


def catalogue(tools: Sequence[ToolInfo]) -> str:
    """One line a tool: `name(argument: type, ...): description`; those that change something are marked."""
    return "\n".join(map(_line, tools))


def _line(info: ToolInfo) -> str:
    properties: JSONObject = info.parameters.get("properties") or {}
    required = info.parameters.get("required", ())
    arguments = [f"{name}{'' if name in required else '?'}: {_type_words(s)}" for name, s in properties.items()]
    described = " ".join(info.description.split())
    return f"- {info.name}({', '.join(arguments)}){'' if info.read_only else ' [writes]'}: {described[:400]}"


def _type_words(schema: JSONObject) -> str:
    if "enum" in schema:
        return "|".join(map(str, schema["enum"][:12]))
    kind = schema.get("type") or next(
        (s.get("type") for s in schema.get("anyOf", ()) if s.get("type") != "null"), "any"
    )
    note = " ".join(str(schema.get("description", "")).split())
    return f"{kind} ({note[:120]})" if note else str(kind)


def history_section(history: Iterable[JSONObject]) -> str:
    """What was said before, the last turns of it, each clipped; empty where there is nothing."""
    lines = [_turn(from_json(message)) for message in history]
    lines = [line for line in lines if line][-_HISTORY_TURNS:]
    return "Conversation so far:\n" + "\n".join(lines) + "\n\n" if lines else ""


def _turn(message: Message) -> str:
    text = " ".join(part.text for part in message.content if isinstance(part, Text)).strip()
    who = "User" if isinstance(message, User) else "Assistant"
    return f"{who}: {text[:_HISTORY_CHARS]}" if text and message.__class__.__name__ != "ToolResult" else ""


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


def plan_reader(tools: Sequence[ToolInfo], args: JSONObject, text: str) -> JSON:
    """The plan in a reply, as JSON: `plan`, `remarks` on what was mended, and `tools`, what the loop must know of those
    that are called.

    Raises `OutputProblem` where the reply holds no plan.
    """
    problem = "it holds no JSON"
    for candidate in candidates(text):
        try:
            plan, remarks = make_plan(
                candidate,
                tools,
                max_steps=args["max_steps"],
                taken=args.get("taken", ()),
                revision=args.get("revision", 0),
            )
        except ValueError as error:
            problem = str(error)
        else:
            steps, mended = mend(plan.steps, _uses(candidate), tools, args.get("taken", ()), args["max_steps"])
            plan, remarks = structs.replace(plan, steps=tuple(steps)), [*remarks, *mended]
            called = {step.call.tool for step in plan.steps if step.call}
            facts = {info.name: _facts(info) for info in tools if info.name in called}
            return {"plan": to_json(plan), "remarks": remarks, "tools": facts}
    raise OutputProblem(f"Your reply is not a plan: {problem}. Reply again with only the corrected JSON.")


def _uses(candidate: JSONObject) -> list[str]:
    uses = candidate.get("uses")
    return [str(name) for name in uses] if is_list(uses) else []


def _facts(info: ToolInfo) -> JSONObject:
    return {
        "once": not info.repeatable,
        "original": info.original,
        "server": info.server,
        "line": _line(info)[2:],
        "required": list(info.parameters.get("required", ())),
    }


def watch_plan(run_id: str, step_id: str | None) -> Watch:
    """Live events of a plan that is being written: pieces of the thought, and each step as soon as its description is
    there.
    """
    return _PlanWatch(run_id).see


class _PlanWatch:
    def __init__(self, run_id: str) -> None:
        from pydantic_core import from_json as parse

        self._parse: Callable[..., JSON] = parse
        self._run_id = run_id
        self._text, self._steps, self._silent = "", 0, False
        self._thought: str = ""

    def see(self, delta: Delta) -> Iterable[events.Event]:
        if type(delta) is Retry:
            self._text, self._thought, self._steps, self._silent = "", "", 0, False
        if type(delta) is not TextDelta:
            return
        self._text += delta.text
        start = self._text.find("{")
        if start < 0:
            return
        text = self._text[start:].encode("utf-8", "replace")
        if not self._steps:
            yield from self._see_thought(self._partial(text, "trailing-strings"))
        yield from self._see_steps(self._partial(text, True))

    def _partial(self, text: bytes, allow: str | bool) -> JSONObject:
        try:
            value = self._parse(text, allow_partial=allow)
        except ValueError:
            return {}
        return value if is_object(value) else {}

    def _see_thought(self, value: JSONObject) -> Iterable[events.Event]:
        thought = value.get("thought")
        if not isinstance(thought, str) or self._silent or thought == self._thought:
            return
        if not thought.startswith(self._thought):
            self._silent = True
            message = "the model rewrote its thought while streaming; the whole of it comes with the plan"
            yield events.Log(run_id=self._run_id, level="warning", message=message)
            return
        yield events.PlanThoughtDelta(run_id=self._run_id, delta=thought[len(self._thought) :])
        self._thought = thought

    def _see_steps(self, value: JSONObject) -> Iterable[events.Event]:
        steps = value.get("steps")
        if not is_list(steps):
            return
        for index, step in enumerate(steps[self._steps :], self._steps):
            if not is_object(step) or not isinstance(step.get("description"), str):
                return
            self._steps = index + 1
            ident = str(step.get("id") or f"s{index + 1}")
            yield events.PlanStepAdded(run_id=self._run_id, index=index, id=ident, description=step["description"])
