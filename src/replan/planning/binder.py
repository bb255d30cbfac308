"""The binder: how what a plan left open is filled in when the results are there, the arguments of a call or the operand
of a computation.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from replan import events
from replan.effects import Stage
from replan.encoding import JSON, JSONObject, decode, encode, is_list, is_object
from replan.live import text_watch
from replan.model import Model, OutputSchema
from replan.output import OutputProblem, candidates
from replan.settings import ModelSettings
from replan.tool import ToolInfo

from .catalogue import for_planner
from .compute import OPERATORS, problems
from .executor import results_section
from .formula import FORMS, NOTHING, formula_schema, formula_spec, is_form
from .grounding import bound_arguments
from .plan import Step
from .prompts import instructions
from .trace import StepResult
from .words import quoted

__all__ = ["binder_prompt", "binder_stage", "compute_prompt", "values_of"]

_FINDING_CHARS = 2_000
_MAX_VALUES, _MAX_TEXT = 80, 60
_SPEC: JSONObject = {
    "type": "object",
    "properties": {
        "value": {"type": "string"},
        **{name: {"type": "array"} for name in OPERATORS if name != "value"},
        "by": {"type": "string"},
        "where": {"type": "object"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "order": {"enum": ["ascending", "descending"]},
    },
}


def binder_stage(model: Model, tools: Sequence[ToolInfo], system_prompt: str, settings: ModelSettings) -> Stage:
    """The stage that fills in what a step left open.

    Its request has `bind`: for a call `tool`, `given`, `goal`, `sources`, `error`, `refused` and `made` (arguments of
    calls of the tool that were made before in the run); for a computation `compute`, `goal` and `values`.
    """
    by_name = {info.name: shown for info, shown in zip(tools, for_planner(tools), strict=True)}
    return Stage(
        phase="execute",
        model=model,
        instructions=instructions("binder", system_prompt),
        schema=partial(_bind_schema, model, by_name),
        read=partial(_read, by_name),
        settings=settings,
        watch=text_watch(None, events.StepReasoningDelta),
    )


def _bind_schema(model: Model, tools: dict[str, ToolInfo], args: JSONObject) -> OutputSchema:
    bind = args["bind"]
    if "compute" in bind:
        schema = formula_schema(bind["compute"], bind["values"], bind["goal"]) if model.profile.constrained else _SPEC
        return OutputSchema("compute", schema)
    info = tools[bind["tool"]]
    if not model.profile.constrained:
        return OutputSchema("arguments", info.parameters)
    tried = [value for call in bind["refused"] for value in call.values()]
    offered = [name for name in quoted(bind["error"] or "") if name not in tried]
    schema = bound_arguments(
        info,
        bind["given"],
        bind["sources"],
        bind["goal"],
        offered=offered if tried else [],
        refused=[*bind["refused"], *bind.get("made", ())],
    )
    return OutputSchema("arguments", schema)


def _read(tools: dict[str, ToolInfo], args: JSONObject, text: str) -> JSON:
    """The arguments in a reply, the given ones put back in (they are validated when the call is made), or the
    computation, complete.
    """
    bind = args["bind"]
    for candidate in candidates(text):
        if is_object(candidate):
            return _spec(candidate, bind) if "compute" in bind else _arguments(candidate, bind, tools)
    what = "the computation" if "compute" in bind else "the arguments"
    raise OutputProblem(f"Your reply holds no JSON object. Reply with only {what} as a JSON object.")


def _arguments(candidate: JSONObject, bind: JSONObject, tools: dict[str, ToolInfo]) -> JSONObject:
    known: JSONObject = tools[bind["tool"]].parameters.get("properties") or {}
    inner = candidate.get("arguments")
    found: JSONObject = inner if is_object(inner) and "arguments" not in known else candidate
    return {**found, **bind["given"]}


def _spec(candidate: JSONObject, bind: JSONObject) -> JSONObject:
    inner = candidate.get("compute")
    found: JSONObject = inner if is_object(inner) else candidate
    if found.get("how") == NOTHING:
        return bind["compute"]
    if is_form(found):
        found = formula_spec(found, bind["compute"], bind["values"]) or found
    given = {name: value for name, value in bind["compute"].items() if value is not None}
    given = given if any(name in found for name in bind["compute"]) else {}
    spec = {**given, **{name: value for name, value in found.items() if value is not None}}
    if wrong := problems(spec):
        raise OutputProblem(f"Your reply is no computation: {'; '.join(wrong)}. Reply again with only the JSON object.")
    return spec


def binder_prompt(goal: str, step: Step, tool: str, trace: Sequence[StepResult], error: str | None) -> str:
    """The user message for a bound step; `tool` is its line of the catalogue."""
    lines = [f"Goal: {goal}", ""]
    lines += [results_section(trace, _FINDING_CHARS), ""] if trace else []
    lines += [f"Step: {step.description}", f"Tool: {tool}"]
    if error:
        lines.append(f"Tried before: {error}")
    return "\n".join(lines)


def compute_prompt(goal: str, step: Step, spec: JSONObject, values: Sequence[JSONObject]) -> str:
    """The user message for a computation of which the operand is open; `values` as `values_of` gives them."""
    lines = [f"Goal: {goal}", "", "Values:"]
    groups: dict[tuple[str, str], list[str]] = {}
    for item in values:
        place = item["ref"].rpartition(".")[0] if item["ref"].endswith(f".{item['name']}}}") else item["ref"][:-1]
        groups.setdefault((item["owner"], place), []).append(f"{item['name']} {encode(item['value']).decode()}")
    lines += [f"- {owner} {place}}}: {', '.join(found)}" for (owner, place), found in groups.items()]
    wanted = f"how: {', '.join(FORMS)}" if "value" in spec else encode(spec).decode()
    return "\n".join([*lines, "", f"Step: {step.description}", f"Compute {wanted}"])


def values_of(outputs: Mapping[str, JSONObject], labels: Mapping[str, str]) -> list[JSONObject]:
    """The numbers and short texts in the outputs of steps: `ref` (a reference), `step`, `owner` (what the step is
    called), `name` (of the field), `value`, and `place`, the position in a list, or None.
    """
    found: list[JSONObject] = []
    for ident, named in outputs.items():
        computed = "text" in named and "result" in named
        parts = {"result": named["result"]} if computed else named
        for output, value in parts.items():
            for path, name, leaf, place in _leaves(_opened(value), "", output, None):
                item: JSONObject = {"ref": f"${{{ident}.{output}{path}}}", "step": ident, "name": name}
                found.append({**item, "owner": labels.get(ident, ident), "value": leaf, "place": place})
    return found[:_MAX_VALUES]


def _leaves(value: JSON, path: str, name: str, place: int | None) -> Iterator[tuple[str, str, JSON, int | None]]:
    if is_object(value):
        for key, item in value.items():
            step = f".{key}" if key.isidentifier() else f"[{encode(key).decode()}]"
            yield from _leaves(item, path + step, key, place)
    elif is_list(value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]", name, index)
    elif isinstance(value, str):
        if value and len(value) <= _MAX_TEXT:
            yield path, name, value, place
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, name, value, place


def _opened(value: JSON) -> JSON:
    """A text that is JSON as what it says."""
    if isinstance(value, str) and value[:1] in ("[", "{", *"-0123456789"):
        try:
            return decode(value)
        except ValueError:
            return value
    return value
