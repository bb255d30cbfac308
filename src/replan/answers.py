"""What the answers of people mean. What cannot be understood is a no that says so."""

from replan.encoding import JSON, clean_text, encode, is_object

__all__ = ["not_understood", "read_approval", "reason_of", "shown", "word_of"]

_ALLOW = frozenset({"allow", "allowed", "yes", "y", "ok"})
_NO = frozenset({"reject", "rejected", "deny", "denied", "no", "n", ""})
_LONGEST_ANSWER = 200


def read_approval(answer: JSON) -> tuple[bool, str]:
    """Whether the answer to an `approval` allows the call, and else the reason, which may be empty.

    `{"decision": "allow"}`, `{"decision": "deny", "reason": "..."}`, True, False, None and texts are understood as
    those of a review are.
    """
    if answer is True or word_of(answer) in _ALLOW:
        return True, ""
    if answer is None or answer is False or isinstance(answer, str):
        return False, reason_of(answer)
    decision = word_of(answer.get("decision")) if is_object(answer) else None
    if decision in ("allow", "deny"):
        return decision == "allow", "" if decision == "allow" else reason_of(answer.get("reason"))
    return False, not_understood(answer, "allow", "deny")


def word_of(value: JSON) -> str | None:
    """The word that an answer is, for comparing; None where it is no text."""
    return value.strip().casefold() if isinstance(value, str) else None


def reason_of(value: JSON) -> str:
    """The reason in an answer; a bare word for no is none."""
    text = clean_text(value).strip() if isinstance(value, str) else "" if value in (None, False) else shown(value)
    return "" if text.casefold() in _NO else text


def not_understood(answer: JSON, *decisions: str) -> str:
    """A reason that says which answers would be."""
    expected = f"{', '.join(decisions[:-1])} or {decisions[-1]}"
    return f"the answer was not understood: {shown(answer)}; its decision is one of {expected}"


def shown(value: JSON) -> str:
    """A value in a sentence, clipped."""
    text = encode(value).decode()
    return text if len(text) <= _LONGEST_ANSWER else f"{text[: _LONGEST_ANSWER - 1]}…"
