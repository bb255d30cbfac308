"""What a text offers as values: names and other spans, numbers, what stands in quotes; and the leaves of results.

The words that are left out are English ones; of other languages more is offered than is needed.
"""

import re
from collections.abc import Iterator

from replan.encoding import JSON, is_list, is_object

__all__ = ["is_stop", "leaves", "numbers", "quoted", "singulars", "spans"]

_STOP = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "in",
        "on",
        "at",
        "to",
        "for",
        "from",
        "by",
        "with",
        "and",
        "or",
        "is",
        "are",
        "was",
        "were",
        "be",
        "it",
        "its",
        "this",
        "that",
        "these",
        "those",
        "what",
        "which",
        "who",
        "how",
        "when",
        "where",
        "do",
        "does",
        "did",
        "i",
        "we",
        "you",
        "they",
        "my",
        "our",
        "your",
        "their",
        "me",
        "us",
        "please",
        "now",
        "right",
        "moment",
        "much",
        "many",
        "as",
        "than",
        "if",
        "into",
        "over",
        "there",
        "here",
        "have",
        "has",
        "had",
        "can",
        "could",
        "will",
        "would",
        "should",
        "not",
        "no",
        "yes",
    ]
)
_INSIDE = frozenset(["a", "an", "the", "of", "in", "on", "at", "to", "for", "and"])
_WORD = re.compile(r"[^\s,;!?()\[\]{}\"“”]+")
_NUMBER = re.compile(r"(?<![\w.,])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_QUOTED = re.compile(r"(?<!\w)'([^'\n]{1,80})'(?!\w)|\"([^\"\n]{1,80})\"|“([^”\n]{1,80})”|`([^`\n]{1,80})`")
_NAME = re.compile(r"[A-Z\d]")
_PLURAL = re.compile(r"\b[a-z-]{3,}[^s\W\d]s$")
_ENDINGS = (("ves", "f"), ("ies", "y"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("sses", "ss"))
_MAX_TEXT = 4_000
_MAX_SPANS, _MAX_WORDS, MAX_LEAVES, _MAX_LEAF_CHARS = 80, 5, 60, 120


def is_stop(word: str) -> bool:
    """Whether a word (as it is written) is no part of a name by itself."""
    return word in _STOP


def spans(text: str) -> list[str]:
    """Word sequences of a text that do not begin or end with a stop word and do not cut a name, longest first within
    each start, as many as can be offered.

    What stands in quotes comes first. A plural is offered in the singular too, as catalogues have it.
    """
    found: dict[str, None] = dict.fromkeys(quoted(text[:_MAX_TEXT]))
    for clause in re.split(r"(?<=[.!?,;:])\s+", text[:_MAX_TEXT]):
        words = [re.sub(r"['’]s$", "", match[0].strip(".:'’")) for match in _WORD.finditer(clause)]
        for start in range(len(words)):
            for end in range(min(len(words), start + _MAX_WORDS), start, -1):
                if _is_span(words, start, end):
                    span = " ".join(words[start:end])
                    found |= dict.fromkeys([span, *singulars(span)])
    return list(found)[:_MAX_SPANS]


def singulars(span: str) -> list[str]:
    """What a span may be several of: `loaves` of a `loaf`, `berries` of a `berry`, `mills` of a `mill`."""
    if not _PLURAL.search(span):
        return []
    for ending, one in _ENDINGS:
        if span.endswith(ending):
            return [span.removesuffix(ending) + one]
    return [span[:-1]]


def _is_span(words: list[str], start: int, end: int) -> bool:
    titled = start > 0 and end > start + 1 and words[start] in ("The", "A", "An") and words[start + 1][:1].isupper()
    if words[end - 1].casefold() in _STOP or (words[start].casefold() in _STOP and not titled):
        return False
    if not all(words[start:end]) or any("%" in word for word in words[start:end]):
        return False
    if any(word.casefold() in _STOP - _INSIDE for word in words[start + titled : end]):
        return False
    cut_after = end < len(words) and _NAME.match(words[end - 1]) and _NAME.match(words[end])
    cut_before = start > 1 and words[start][:1].isupper() and words[start - 1][:1].isupper()
    return not cut_after and not cut_before


def numbers(text: str) -> list[float]:
    """The numbers in a text, digits inside words excepted."""
    return [float(match[0]) if "." in match[0] else int(match[0]) for match in _NUMBER.finditer(text)]


def quoted(text: str) -> list[str]:
    """What stands in quotes in a text: the names that an error offers."""
    return [next(filter(None, match.groups())) for match in _QUOTED.finditer(text)]


def leaves(value: JSON) -> list[JSON]:
    """The texts and numbers inside a value, each once, in order, as many as can be offered."""
    found: dict[JSON, None] = {}
    for leaf in _walk(value):
        found.setdefault(leaf)
        if len(found) == MAX_LEAVES:
            break
    return list(found)


def _walk(value: JSON) -> Iterator[JSON]:
    if is_object(value):
        for item in value.values():
            yield from _walk(item)
    elif is_list(value):
        for item in value:
            yield from _walk(item)
    elif isinstance(value, str):
        if 0 < len(value) <= _MAX_LEAF_CHARS:
            yield value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value
