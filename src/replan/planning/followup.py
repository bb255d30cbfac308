"""The next link of a chain that a goal names and a plan forgot: "the phone of Ann's manager" is not Ann's phone.

A small model plans the look-up of the name in the goal and stops there. Once the result is there, what is missing can
be told from it: the goal speaks of one of its fields as somebody's or something's ("Ann's manager", "the manager of
Ann"), that field is a name which nobody has looked up, and the goal asks for another field of the same kind of result.
"""

import re
from collections.abc import Mapping, Sequence

from replan.encoding import JSON, JSONObject, is_object

from .plan import PlannedCall, Step, free_id
from .references import read_text
from .trace import StepResult, ToolUse

__all__ = ["follow_up"]

_MAX_NAME_CHARS = 80


def follow_up(
    goal: str, trace: Sequence[StepResult], tools: Mapping[str, JSONObject], taken: Sequence[str]
) -> Step | None:
    """A look-up, by the tool that gave a result, of what a field of that result names; None where none is missing."""
    asked = {text.casefold() for result in trace for use in result.calls for text in _texts(use.arguments)}
    for result in trace:
        use, value = _look_up(result, tools), read_text(result.outputs.get("result"))
        if use is None or not is_object(value):
            continue
        for field, name in value.items():
            if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARS or name.casefold() in asked:
                continue
            if _links(goal, field, trace) and any(_asked_for(goal, other) for other in value if other != field):
                (parameter,) = use.arguments
                ident = free_id(len(taken) + 1, set(taken))
                return Step(
                    id=ident,
                    description=f"Look up {name}, the {_words(field)} of {_texts(use.arguments)[0]}",
                    call=PlannedCall(use.tool, {parameter: name}),
                    depends_on=(result.step.id,),
                )
    return None


def _look_up(result: StepResult, tools: Mapping[str, JSONObject]) -> ToolUse | None:
    """The call of a step that read something by one text."""
    use = result.calls[-1] if result.calls else None
    if use is None or not use.ok or use.writes or use.tool not in tools or result.fruitless:
        return None
    return use if len(use.arguments) == 1 and _texts(use.arguments) else None


def _links(goal: str, field: str, trace: Sequence[StepResult]) -> bool:
    """Whether the goal speaks of the field as somebody's, more often than what it names has been looked up."""
    word = re.escape(_words(field))
    spoken = re.findall(rf"['’]s?\s+{word}\b|\b{word}\s+of\b", goal, re.I)
    given = [value.get(field) for result in trace if is_object(value := read_text(result.outputs.get("result")))]
    names = {name.casefold() for name in given if isinstance(name, str)}
    looked_up = [
        use for result in trace for use in result.calls if names & {t.casefold() for t in _texts(use.arguments)}
    ]
    return len(spoken) > len(looked_up)


def _asked_for(goal: str, field: str) -> bool:
    return any(re.search(rf"\b{re.escape(word)}", goal, re.I) for word in field.split("_") if len(word) > 3)


def _words(field: str) -> str:
    return field.replace("_", " ")


def _texts(arguments: Mapping[str, JSON]) -> list[str]:
    return [value for value in arguments.values() if isinstance(value, str)]
