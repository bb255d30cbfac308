"""Whether an answer says what was computed; where it does not, what was computed takes the place of what it says."""

import re
from collections.abc import Iterable, Iterator, Sequence

from replan.encoding import JSONObject, is_list, is_object

from .trace import StepResult

__all__ = ["agreeing", "said"]

_NUMBER = re.compile(r"(?<![\w.,])[-\u2212\u2013]?\d+(?:[.,]\d+)*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_ENDING = re.compile(r"[.!?]\s+|\n|[,;]\s+(?:so|therefore|thus|hence|which makes)\s")
_CLOSE, _MOST_PLACES = 0.01, 2


def said(outputs: JSONObject) -> str | None:
    """What a computation gave, as a line for people; None where it gave nothing."""
    text, result = outputs.get("text"), outputs.get("result")
    if not isinstance(text, str):
        return None
    if isinstance(result, float) and not isinstance(outputs.get("label"), str):
        rounded = f"{round(result, _MOST_PLACES):g}" if abs(result) < 10_000 else f"{result:.{_MOST_PLACES}f}"
        return text if rounded in text or not round(result, _MOST_PLACES) else f"{text}, that is {rounded}"
    return text


def agreeing(text: str, trace: Sequence[StepResult]) -> str:
    """The answer, if it agrees with the last computation; else that, and what of the answer does not contradict it."""
    computed = [result for result in trace if result.kind == "compute" and said(result.outputs)]
    if not computed:
        return text
    outputs = computed[-1].outputs
    labels = [result.label for result in trace if result.calls and result.label != result.step.id]
    if _agrees(text, outputs, labels):
        return text
    known = {*_numbers_in(line for result in trace for use in result.calls for line in (use.output,))}
    kept = [part for part in _SENTENCE.split(text) if _harmless(part, outputs, labels, known)]
    return "\n".join([f"{said(outputs)}.", " ".join(kept)]).strip()


def _agrees(text: str, outputs: JSONObject, labels: list[str]) -> bool:
    ranked = _ranking(outputs)
    if ranked:
        others = [label for label in labels if label not in ranked]
        return _in_order(text, ranked) if len(ranked) > 1 else _names(text, ranked[0], others)
    result = outputs.get("result")
    if isinstance(result, bool) or not isinstance(result, (int, float)):
        return True
    return any(_near(number, places, result) for number, places in _readings(text))


def _ranking(outputs: JSONObject) -> list[str]:
    """The labels of what was compared, the first first; empty where nothing was."""
    if isinstance(label := outputs.get("label"), str):
        return [] if outputs.get("ties") else [label]
    result = outputs.get("result")
    if outputs.get("ties") or not is_list(result):
        return []
    return [str(item["label"]) for item in result if is_object(item) and "label" in item]


def _places(text: str, names: Iterable[str], *, last: bool) -> list[str]:
    """The names that a text has, in the order of their first or last places."""
    low = text.casefold()
    found = {name: low.rfind(name.casefold()) if last else low.find(name.casefold()) for name in names}
    return sorted((name for name, at in found.items() if at >= 0), key=lambda name: found[name])


def _in_order(text: str, ranked: list[str]) -> bool:
    for last in (False, True):
        named = _places(text, ranked, last=last)
        if named and named[0] == ranked[0] and named == [name for name in ranked if name in named]:
            return True
    return False


def _names(text: str, winner: str, others: list[str]) -> bool:
    """Whether a text names the winner, and no other one before it unless the winner is named alone at the end."""
    first = _places(text, [winner, *others], last=False)
    if winner not in first:
        return False
    ending = _ENDING.split(text.rstrip(" .!?"))[-1]
    return first[0] == winner or _places(ending, [winner, *others], last=False) == [winner]


def _readings(text: str) -> Iterator[tuple[float, int]]:
    """The numbers of a text with their decimal places, with point or comma."""
    for match in _NUMBER.finditer(text):
        raw = re.sub("[\u2212\u2013]", "-", match[0])
        for plain in {raw.replace(",", ""), raw.replace(".", "").replace(",", ".")}:
            if plain.count(".") <= 1:
                yield float(plain), len(plain.partition(".")[2])


def _near(number: float, places: int, result: float) -> bool:
    off = abs(abs(number) - abs(result))
    return off <= 0.5000001 * 10**-places and off <= max(_CLOSE * abs(result), 1e-9)


def _numbers_in(lines: Iterable[str]) -> Iterator[float]:
    for line in lines:
        yield from (abs(number) for number, _ in _readings(line))


def _harmless(part: str, outputs: JSONObject, labels: list[str], known: set[float]) -> bool:
    """Whether a sentence neither names what was compared nor has a number that nothing gave."""
    if _ranking(outputs):
        return not any(label.casefold() in part.casefold() for label in [*labels, *_ranking(outputs)])
    return bool(part) and all(number in known for number in _numbers_in([part]))
