"""A plan while it is being written."""

from collections.abc import Callable, Iterable

from replan import events
from replan.encoding import JSON, JSONObject, is_list, is_object
from replan.live import Watch
from replan.model import Delta, Retry, TextDelta

__all__ = ["watch_plan"]


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
        self._next = 0
        self._text, self._steps, self._silent = "", 0, False
        self._thought: str = ""

    def see(self, delta: Delta) -> Iterable[events.Event]:
        if type(delta) is Retry:
            self._text, self._thought, self._steps, self._silent, self._next = "", "", 0, False, 0
        if type(delta) is not TextDelta:
            return
        self._text += delta.text
        if len(self._text) < self._next:
            return
        self._next = len(self._text) + len(self._text) // 64  # each look reads the whole text
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
