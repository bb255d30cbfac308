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
    return "\n".join(lines)
