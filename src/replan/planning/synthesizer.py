"""The synthesizer: the answer, written from what the steps gave."""

from collections.abc import Sequence

from replan import events
from replan.effects import Stage, text_watch
from replan.encoding import JSONObject
from replan.model import Model
from replan.output import TypedOutput
from replan.settings import ModelSettings

from .executor import results_section
from .planner import history_section
from .prompts import instructions
from .trace import StepResult

__all__ = ["synthesizer_prompt", "synthesizer_stage"]

_FINDING_CHARS = 4_000


def synthesizer_stage(model: Model, output: TypedOutput | None, system_prompt: str, settings: ModelSettings) -> Stage:
    """The stage that writes the answer; with `output`, as JSON of that type."""
    return Stage(
        phase="synthesize",
        model=model,
        instructions=instructions("synthesizer", system_prompt),
        schema=output.schema if output else None,
        read=(lambda args, text: output.read(text)) if output else None,
        settings=settings,
        watch=text_watch(events.FinalTextDelta, events.FinalReasoningDelta),
    )


def synthesizer_prompt(task: JSONObject, trace: Sequence[StepResult], not_done: Sequence[str]) -> str:
    """The user message of the synthesizer. `not_done` says what was planned and not reached, and why."""
    lines = [f"{history_section(task['history'])}Goal: {task['goal']}"]
    if trace:
        lines += ["", results_section(trace, _FINDING_CHARS)]
    if not_done:
        lines += ["", "Not done:", *(f"- {item}" for item in not_done)]
    if facts := [fact for result in trace for fact in _facts(result)]:
        lines += ["", "The answer must say:", *(f"- {fact}" for fact in facts)]
    return "\n".join(lines)


def _facts(result: StepResult) -> list[str]:
    """What an answer must not leave out: what was used in place of something else, and what could not be had."""
    calls = result.calls
    if not calls or calls[0].ok:
        return []
    if not result.ok:
        return [f"{result.step.description}: failed. {calls[0].output.removesuffix('.')[:300]}."]
    first, last = calls[0], calls[-1]
    changed = [name for name, value in last.arguments.items() if first.arguments.get(name, value) != value]
    if not changed or first.tool != last.tool:
        return []
    return [f"{last.arguments[name]} was used instead of {first.arguments[name]}." for name in changed]
