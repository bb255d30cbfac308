"""What of a model call is told while it goes on."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from . import events
from .model import Delta, Retry, TextDelta
from .model import ThinkingDelta as ModelThinkingDelta
from .output import PartialJson

__all__ = ["Watch", "text_watch"]

Watch: TypeAlias = Callable[[Delta], Iterable[events.Event]]
"""Turns the deltas of one model call into live events."""


def text_watch(
    text: Callable[..., events.Event] | None,
    thinking: Callable[..., events.Event] | None,
    partial: Callable[[], PartialJson] | None = None,
) -> Callable[[str, str | None], Watch]:
    """A `Stage.watch` that gives one event for each piece of text and of thought, and with `partial` the output as
    far as it has come.
    """

    def start(run_id: str, step_id: str | None) -> Watch:
        more = {} if text is events.FinalTextDelta else {"step_id": step_id}
        reader = partial() if partial else None

        def watch(delta: Delta) -> Iterable[events.Event]:
            if type(delta) is TextDelta and text:
                piece = text(run_id=run_id, delta=delta.text, **more)
                output = reader.feed(delta.text) if reader else None
                return (piece,) if output is None else (piece, events.FinalOutputDelta(run_id=run_id, output=output))
            if type(delta) is Retry and reader:
                reader.restart()
            if type(delta) is ModelThinkingDelta and thinking:
                return (thinking(run_id=run_id, delta=delta.text, **more),)
            return ()

        return watch

    return start
