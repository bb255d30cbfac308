"""What is wrong with a plan, before it is run.

What can be mended without a model is mended, and said. What cannot is a problem for the planner; the plan is changed
all the same so that it can be run as it is: what is wrong becomes open, to be filled in by a model, or is left out.
"""

from collections.abc import Mapping, Sequence

from msgspec import structs

from replan.encoding import JSONObject, is_object
from replan.planning import checks, compute
from replan.planning.plan import Plan, Step
from replan.planning.references import parse_path, reference_paths, write_path
from replan.planning.schedule import dependencies
from replan.planning.shapes import is_learnt, path_problem
from replan.tool import ToolInfo

from .calls import allow_kinds, check_arguments
from .names import Names, name_tools, opened
from .order import break_circles, cut, leave_out, order, referenced, tidy_needs, wait_for_results
from .references import Outputs, check_references, without_references
from .repeats import add_forgotten, merge_repeats
from .report import Context, Finding, KnownTool, Report, may_write

__all__ = ["Context", "Finding", "lint"]

_MOST_ROUNDS = 12


def lint(plan: Plan, tools: Sequence[ToolInfo], *, context: Context) -> tuple[Plan, list[Finding], list[str]]:
    """The plan as it can be run, the findings, and the problems for the planner, one sentence each.

    A plan that was mended is not changed by another lint.
    """
    report = Report()
    known = {info.name: KnownTool(info) for info in tools}
    steps = name_tools(plan.steps, Names(tools), known, report)
    steps = [_one_way(step, report) for step in steps]
    steps = _mend(steps, known, context, report)
    before = len(steps)
    steps = add_forgotten(steps, known, context, report)
    if len(steps) > before:
        steps = _mend(steps, known, context, report)
    _note(steps, known, context, report)
    return structs.replace(plan, steps=tuple(steps)), report.findings, report.problems


def _mend(steps: list[Step], tools: Mapping[str, KnownTool], context: Context, report: Report) -> list[Step]:
    """The steps once nothing is left to mend: what is left out leaves references behind, and so on."""
    for _ in range(_MOST_ROUNDS):
        before = steps
        steps = _once(steps, tools, context, report)
        if steps == before:
            break
    return steps


def _once(steps: list[Step], tools: Mapping[str, KnownTool], context: Context, report: Report) -> list[Step]:
    steps = tidy_needs(steps, context, report)
    steps, failed = merge_repeats(steps, tools, context, report)
    steps = _without(steps, steps, failed, tools, context)
    kept = [step for raw in steps if (step := _outputs(_computed(raw, context, report), tools, context, report))]
    kept = check_arguments(kept, tools, context, report)
    kept = check_references(kept, tools, context, report)
    kept = [_checked(step, tools, context, report) for step in kept]
    kept = allow_kinds(kept, tools, context, report)
    steps = leave_out(steps, kept)
    steps, closing = break_circles(steps, report)
    opened_up = [without_references(step, closing.get(step.id, ()), tools, context) for step in steps]
    steps = leave_out(steps, [step for step in opened_up if step])
    if closing:
        return steps
    steps = order(steps, tools, report)
    kept, lost = cut(steps, tools, context, report)
    steps = _without(steps, kept, lost, tools, context)
    return wait_for_results(steps, tools, context, report)


def _without(
    steps: Sequence[Step], kept: Sequence[Step], lost: set[str], tools: Mapping[str, KnownTool], context: Context
) -> list[Step]:
    """The kept steps without references to those that are lost."""
    if not lost and len(kept) == len(steps):
        return list(kept)
    changed = [without_references(step, lost, tools, context) for step in leave_out(steps, kept)]
    return [step for step in changed if step]


def _one_way(step: Step, report: Report) -> Step:
    """A step that is a call and a computation is the call."""
    if step.call is None or step.compute is None:
        return step
    wrong = f"step {step.id!r} has a call and a compute; make two steps of it"
    report.problem(step.id, "compute", wrong, "the compute was dropped")
    return structs.replace(step, compute=None)


def _computed(step: Step, context: Context, report: Report) -> Step | None:
    if step.compute is None or not (found := compute.problems(step.compute)):
        return step
    wrong = f"step {step.id!r}: {'; '.join(found)}"
    report.problem(step.id, "compute", wrong, "the executor does it" if "open" in context.kinds else "it was left out")
    return opened(step) if "open" in context.kinds else None


def _outputs(step: Step | None, tools: Mapping[str, KnownTool], context: Context, report: Report) -> Step | None:
    """The step without outputs that have no schema or no place in the result."""
    if step is None or not (step.produces or step.from_):
        return step
    shape = Outputs([step], tools, context).result(step) if step.call else None
    if shape is not None and is_learnt(shape):
        shape = None
    produces, from_ = dict(step.produces), dict(step.from_)
    wrong = {name: reason for name, schema in produces.items() if (reason := _no_schema(schema))}
    for name, path in from_.items():
        try:
            parse_path(path)
            reason = path_problem(shape, path) if shape is not None else None
        except ValueError as error:
            reason = str(error)
        if reason:
            wrong[name] = f"'from' {path!r}: {reason}"
    if step.call and shape is not None:
        wrong |= {n: r for n in produces if n not in from_ and (r := path_problem(shape, write_path([n])))}
    for name, reason in wrong.items():
        text = f"step {step.id!r}, output {name!r}: {reason}"
        report.problem(step.id, "outputs", text, "it was dropped")
    if not wrong:
        return step
    return structs.replace(
        step,
        produces={name: schema for name, schema in produces.items() if name not in wrong},
        from_={name: path for name, path in from_.items() if name not in wrong},
    )


def _no_schema(schema: object) -> str | None:
    found = checks.problems({"schema": schema})
    return found[0].replace("'schema' of the check", "value") if found else None


def _checked(step: Step, tools: Mapping[str, KnownTool], context: Context, report: Report) -> Step:
    """The step without a check that can never be made."""
    if step.check is None:
        return step
    found = checks.problems(step.check) or _unusable(step, tools, context)
    if not found:
        return step
    report.problem(step.id, "check", f"step {step.id!r}: {'; '.join(found)}", "the check was dropped")
    return structs.replace(step, check=None)


def _unusable(step: Step, tools: Mapping[str, KnownTool], context: Context) -> list[str]:
    check = step.check
    if not is_object(check):
        return []
    if context.checks is not None and "function" in check and check["function"] not in context.checks:
        return [f"there is no check function {check['function']!r}; there are {sorted(context.checks)}"]
    if "call" not in check:
        return []
    tool = tools.get(check["call"]["tool"])
    if tool is None or not tool.info.read_only:
        return [f"the tool {check['call']['tool']!r} of the check is none that only reads"]
    given: JSONObject = check["call"].get("arguments") or {}
    missing = [name for name in tool.required if given.get(name) is None]
    literal = {name: value for name, value in given.items() if not any(reference_paths(value))}
    return [f"the call of the check lacks {', '.join(missing)}"] if missing else tool.problems(literal)[:1]


def _note(steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context, report: Report) -> None:
    """Say what is worth knowing and stays as it is."""
    outputs = Outputs(steps, tools, context)
    for step in steps:
        arguments = step.call.arguments if step.call else None
        for ident, path in dict.fromkeys(reference_paths([arguments, step.compute, step.check])):
            target = outputs.look(ident, path)
            where = f"step {step.id!r} uses ${{{ident}{path}}}"
            if target.doubt:
                report.note(step.id, "unseen", f"{where}: in earlier results {target.doubt}")
            elif target.unchecked:
                report.note(
                    step.id, "unchecked", f"{where}: whether that is there is not known before {ident!r} is run"
                )
    _note_unused(steps, tools, context, report)


def _note_unused(steps: Sequence[Step], tools: Mapping[str, KnownTool], context: Context, report: Report) -> None:
    """Say which steps of a plan that writes look something up that no later step needs; what looks at the outcome of a
    write is no such step.
    """
    writing = {step.id for step in steps if may_write(step, tools)}
    needs = dependencies(steps, context.earlier)
    used = {ident for others in needs.values() for ident in others}
    for step in steps:
        after_write = not writing.isdisjoint(needs[step.id]) or any(i in writing for i in referenced(step))
        if writing and step.id not in used | writing and not after_write:
            report.note(step.id, "unused", f"nothing uses the result of step {step.id!r}")
