"""The planner: from a goal and a list of tools to a plan, streamed while it is written."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from msgspec import structs

from replan.effects import Stage
from replan.encoding import JSON, JSONObject, is_list, is_object
from replan.messages import Message, Text, User, from_json
from replan.model import Model
from replan.output import OutputProblem, candidates
from replan.settings import ModelSettings
from replan.tool import ToolInfo

from .catalogue import catalogue, catalogue_line, for_planner, tool_names
from .grounding import calculates
from .lint import mend
from .plan import make_plan, to_json
from .prompts import instructions
from .schema import plan_schema
from .watch import watch_plan

__all__ = ["PlanReader", "history_section", "plan_reader", "planner_prompt", "planner_stage", "read_plan"]

_HISTORY_TURNS, _HISTORY_CHARS = 8, 1500


PlanReader: TypeAlias = Callable[[JSONObject, str], JSONObject]
"""From the arguments of a model effect and the text of its reply to a plan that may be run, see `read_plan`."""


def planner_stage(
    model: Model,
    tools: Sequence[ToolInfo],
    reader: PlanReader,
    system_prompt: str,
    settings: ModelSettings,
    remarks: Sequence[str] = (),
) -> Stage:
    """The stage that writes the plan.

    `remarks` tell of servers that are not there and of what servers say about themselves.
    """
    offered = for_planner(tools)
    if model.profile.constrained:
        offered = tuple(info for info in offered if not calculates(info))
    listed = f"Tools:\n{catalogue(offered)}" if tools else "There are no tools."
    sections = (listed, "\n".join(remarks), system_prompt)
    return Stage(
        phase="plan",
        model=model,
        instructions=instructions("planner", *sections),
        schema=partial(plan_schema, model.profile, offered),
        read=reader,
        settings=settings,
        watch=watch_plan,
    )


def planner_prompt(task: JSONObject) -> str:
    """The user message of the planner."""
    return f"{history_section(task['history'])}Goal: {task['goal']}"


def history_section(history: Iterable[JSONObject]) -> str:
    """What was said before, the last turns of it, each clipped; empty where there is nothing."""
    lines = [_turn(from_json(message)) for message in history]
    lines = [line for line in lines if line][-_HISTORY_TURNS:]
    return "Conversation so far:\n" + "\n".join(lines) + "\n\n" if lines else ""


def _turn(message: Message) -> str:
    text = " ".join(part.text for part in message.content if isinstance(part, Text)).strip()
    who = "User" if isinstance(message, User) else "Assistant"
    return f"{who}: {text[:_HISTORY_CHARS]}" if text and message.__class__.__name__ != "ToolResult" else ""


def plan_reader(tools: Sequence[ToolInfo], args: JSONObject, text: str) -> JSONObject:
    """The plan in a reply, see `read_plan`. Raises `OutputProblem` where the reply holds none."""
    problem = "it holds no JSON"
    for candidate in candidates(text):
        try:
            return read_plan(tools, args, candidate)
        except ValueError as error:
            problem = str(error)
    raise OutputProblem(f"Your reply is not a plan: {problem}. Reply again with only the corrected JSON.")


def read_plan(tools: Sequence[ToolInfo], args: JSONObject, data: JSON) -> JSONObject:
    plan, remarks = make_plan(
        data, max_steps=args["max_steps"], taken=args.get("taken", ()), revision=args.get("revision", 0)
    )
    steps, mended = mend(plan.steps, _uses(data, tools), tools, args.get("taken", ()), args["max_steps"])
    plan = structs.replace(plan, steps=tuple(steps))
    called = {step.call.tool for step in plan.steps if step.call} | {n for s in plan.steps for n in s.suggested_tools}
    shown = zip(tools, for_planner(tools), strict=True)
    return {
        "plan": to_json(plan),
        "findings": [{"step": None, "kind": "mended", "text": text, "mended": True} for text in [*remarks, *mended]],
        "problems": [],
        "tools": {info.name: _facts(told) for info, told in shown if info.name in called},
        "writes": any(not info.read_only for info in tools),
    }


def _uses(candidate: JSONObject, tools: Sequence[ToolInfo]) -> list[str]:
    """The tools that the reply says it uses: a list of names, or an object that says it of each."""
    known, uses = tool_names(tools), candidate.get("uses")
    names = [name for name, used in uses.items() if used is True] if is_object(uses) else uses
    return [known[name] for name in names if name in known] if is_list(names) else []


def _facts(info: ToolInfo) -> JSONObject:
    return {
        "once": not info.repeatable,
        "writes": not info.read_only,
        "original": info.original,
        "server": info.server,
        "line": catalogue_line(info),
        "required": list(info.parameters.get("required", ())),
    }
