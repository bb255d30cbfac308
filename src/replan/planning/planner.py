"""The planner: from a goal and a list of tools to a plan, streamed while it is written."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from .lint import Context, Finding, lint
from .origins import origins, ungrounded
from .plan import Plan, Step, make_plan, to_json
from .prompts import instructions, load
from .schema import plan_schema
from .shapes import Seen, Shape, Shapes
from .watch import watch_plan
from .wiring import wired

__all__ = ["PlanReader", "history_section", "plan_reader", "planner_prompt", "planner_stage", "read_plan"]

_HISTORY_TURNS, _HISTORY_CHARS = 8, 1500
_MOST_READ, _MOST_PROBLEMS = 64, 12


PlanReader: TypeAlias = Callable[[JSONObject, str], JSONObject]
"""From the arguments of a model effect and the text of its reply to a plan that may be run, see `read_plan`."""

Pricer: TypeAlias = Callable[[Plan, JSONObject, JSONObject], JSONObject]
"""The price of a plan, from the plan, the facts of its tools, and the effect's arguments."""


def planner_stage(
    model: Model,
    tools: Sequence[ToolInfo],
    reader: PlanReader,
    system_prompt: str,
    settings: ModelSettings,
    remarks: Sequence[str] = (),
    results: Mapping[str, Sequence[str]] = {},
) -> Stage:
    """The stage that writes the plan.

    `remarks` tell of servers that are not there and of what servers say about themselves; `results` are the fields of
    tools' results, as far as they are known.
    """
    listed, read, offered = planning_view(model, tools, reader, results)
    return Stage(
        phase="plan",
        model=model,
        instructions=instructions("planner", *listed, "\n".join(remarks), system_prompt),
        schema=partial(plan_schema, model.profile, offered),
        read=read,
        settings=settings,
        watch=watch_plan,
    )


def planning_view(
    model: Model, tools: Sequence[ToolInfo], reader: PlanReader, results: Mapping[str, Sequence[str]]
) -> tuple[tuple[str, ...], PlanReader, tuple[ToolInfo, ...]]:
    """How plans are put to a model: the format of steps and the tools, as sections of its instructions; the reader of
    its replies; and the tools that it may plan with.

    A model that is held to a grammar writes short plans over what the grammar offers, which are wired in full.
    """
    offered = for_planner(tools)
    if model.profile.constrained:
        offered = tuple(info for info in offered if not calculates(info))
        return (_listed(catalogue(offered)),), _assisted(wired(reader, offered)), offered
    fields = {shown.name: results.get(info.name, ()) for info, shown in zip(tools, offered, strict=True)}
    return (load("steps"), _listed(catalogue(offered, fields))), reader, offered


def _assisted(read: PlanReader) -> PlanReader:
    """The reader, for plans of models that need to be helped: with chains, and with saying what was computed."""
    return lambda args, text: {**read(args, text), "assisted": True}


def _listed(lines: str) -> str:
    return f"Tools:\n{lines}" if lines else "There are no tools."


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


def plan_reader(
    tools: Sequence[ToolInfo],
    args: JSONObject,
    text: str,
    *,
    history: Mapping[str, Seen] = {},
    pricer: Pricer | None = None,
) -> JSONObject:
    """The plan in a reply, as `read_plan` gives it. Raises `OutputProblem` where the reply holds no plan."""
    problem = "it holds no JSON"
    for candidate in candidates(text):
        try:
            return read_plan(tools, args, candidate, history=history, pricer=pricer)
        except ValueError as error:
            problem = str(error)
    raise OutputProblem(f"Your reply is not a plan: {problem}. Reply again with only the corrected JSON.")


def read_plan(
    tools: Sequence[ToolInfo],
    args: JSONObject,
    data: JSON,
    *,
    history: Mapping[str, Seen] = {},
    pricer: Pricer | None = None,
) -> JSONObject:
    """A plan of a planner or of a person, looked at and mended so that it can be run as it is, as JSON.

    `args` are the effect's: `goal`, `max_steps`, and what else is known of the run (`taken`, `revision`, `kinds`,
    `known`, `checks`). `history` holds what is remembered of the tools' results.

    Gives `plan`; `findings`, each with `step`, `kind`, `text` and whether it was `mended`; `problems`, sentences for
    the planner; `tools`, what the loop must know of those that are called or suggested; `writes`, whether any tool may
    write; `origins` of the values of calls; and the `price` of the plan. Raises `ValueError` where the data is no plan.
    """
    taken = args.get("taken", ())
    most = max(_MOST_READ, args["max_steps"])
    plan, remarks = make_plan(data, max_steps=most, taken=taken, revision=args.get("revision", 0))
    context = Context(
        goal=args["goal"],
        max_steps=args["max_steps"],
        kinds=frozenset(args.get("kinds") or ("direct", "bound", "open")),
        taken=taken,
        known=args.get("known"),
        uses=_uses(data, tools),
        shapes=Shapes(tools, history),
        checks=args.get("checks"),
    )
    plan, findings, problems = lint(plan, tools, context=context)
    found = origins(plan, tools, args["goal"])
    findings = [*_remarked(remarks, plan), *findings, *ungrounded(plan, tools, found)]
    facts = _facts_of(plan, tools, context.shapes)
    return {
        "plan": to_json(plan),
        "findings": [structs.asdict(finding) for finding in findings],
        "problems": problems[:_MOST_PROBLEMS],
        "tools": facts,
        "writes": any(not info.read_only for info in tools),
        "origins": found,
        "price": pricer(plan, facts, args) if pricer else {},
    }


def _remarked(remarks: Iterable[str], plan: Plan) -> Iterator[Finding]:
    for remark in remarks:
        step = next((step.id for step in plan.steps if remark.startswith(f"step {step.id!r}")), None)
        yield Finding(step, "reading", remark, mended=True)


def _uses(data: JSON, tools: Sequence[ToolInfo]) -> list[str]:
    """The tools that the reply says it uses: a list of names, or an object that says it of each."""
    known, uses = tool_names(tools), data.get("uses") if is_object(data) else None
    names = [name for name, used in uses.items() if used is True] if is_object(uses) else uses
    return [known[name] for name in names if isinstance(name, str) and name in known] if is_list(names) else []


def _facts_of(plan: Plan, tools: Sequence[ToolInfo], shapes: Mapping[str, Shape]) -> JSONObject:
    """What the loop must know of the tools that steps call, suggest, or check with."""
    named = {name for step in plan.steps for name in _named(step)}
    shown = zip(tools, for_planner(tools), strict=True)
    return {
        info.name: {**_facts(described), "output": shapes.get(info.name)}
        for info, described in shown
        if info.name in named
    }


def _named(step: Step) -> Iterator[str]:
    yield from step.suggested_tools
    if step.call:
        yield step.call.tool
    call: JSON = step.check.get("call") if is_object(step.check) else None
    if is_object(call):
        yield str(call.get("tool"))


def _facts(info: ToolInfo) -> JSONObject:
    return {
        "once": not info.repeatable,
        "writes": not info.read_only,
        "original": info.original,
        "server": info.server,
        "line": catalogue_line(info),
        "required": list(info.parameters.get("required", ())),
    }
