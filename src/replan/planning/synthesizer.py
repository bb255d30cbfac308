"""The synthesizer: the answer, written from what the steps gave."""

from collections.abc import Sequence

from replan import events
from replan.effects import Stage
from replan.encoding import JSONObject
from replan.live import text_watch
from replan.model import Model
from replan.output import TypedOutput
from replan.settings import ModelSettings

from .agreement import agreeing, said
from .executor import results_section
from .planner import history_section
from .prompts import instructions
from .trace import StepResult

__all__ = ["synthesizer_prompt", "synthesizer_stage", "with_substitutes"]

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
        watch=text_watch(events.FinalTextDelta, events.FinalReasoningDelta, output.partial if output else None),
    )


def synthesizer_prompt(task: JSONObject, trace: Sequence[StepResult], not_done: Sequence[str]) -> str:
    """The user message of the synthesizer. `not_done` says what was planned and not reached, and why."""
    lines = [f"{history_section(task['history'])}Goal: {task['goal']}"]
    if trace:
        lines += ["", results_section(trace, _FINDING_CHARS)]
    if not_done:
        lines += ["", "Not done:", *(f"- {item}" for item in not_done)]
    computed = [line for result in trace if (line := _computed(result))]
    beside = [fact for result in trace for fact in _failures(result)]
    lines += ["", "The answer must say:", *(f"- {fact}" for fact in computed)] if computed else []
    lines += ["", "Besides what was asked, the answer must say:", *(f"- {fact}" for fact in beside)] if beside else []
    return "\n".join(lines)


def _computed(result: StepResult) -> str | None:
    return said(result.outputs) if result.kind == "compute" and result.outputs else None


def with_substitutes(text: str, trace: Sequence[StepResult], *, correct: bool = False) -> str:
    """The answer, with what was used in place of something else added where it does not say so: nobody should have to
    guess. With `correct`, corrected before where it says something else than what was computed.
    """
    if not text:
        return text
    text = agreeing(text, trace) if correct else text
    found = [pair for result in trace for pair in _substitutes(result)]
    found += [pair for result in trace for pair in _unfound(result, trace)]
    missing = [fact for used, fact in found if used.casefold() not in text.casefold()]
    return "\n".join([text, *missing])


def _unfound(result: StepResult, trace: Sequence[StepResult]) -> list[tuple[str, str]]:
    """What was looked up in vain where others were found, or something waited for it: no answer may be silent on it."""
    if (
        not result.calls
        or result.calls[0].ok
        or result.calls[0].writes
        or result.calls[0].tool not in result.failed_tools
    ):
        return []
    first = result.calls[0]
    if first.output.startswith("Not run:"):
        return []
    beside = any(use.ok and use.tool == first.tool for other in trace for use in other.calls)
    if not beside and not any(other.needs == result.step.id for other in trace):
        return []
    return [(_subject(result), f"{result.step.description}: failed. {first.output.removesuffix('.')[:300]}.")]


def _subject(result: StepResult) -> str:
    """What a failed call was about, as far as that is one text."""
    texts = [value for value in result.calls[0].arguments.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else ""


def _failures(result: StepResult) -> list[str]:
    if not result.fruitless or not result.calls:
        return []
    return [f"{result.step.description}: failed. {result.calls[0].output.removesuffix('.')[:300]}."]


def _substitutes(result: StepResult) -> list[tuple[str, str]]:
    """Values of a call that succeeded where the first one failed, each with a sentence that says so."""
    calls = result.calls
    if len(calls) < 2 or calls[0].ok or not calls[-1].ok or calls[0].tool != calls[-1].tool:
        return []
    before, after = calls[0].arguments, calls[-1].arguments
    changed = [name for name, value in after.items() if before.get(name, value) != value]
    return [(str(after[name]), f"{after[name]} was used instead of {before[name]}.") for name in changed]
