"""A conversation as Gemini's contents: roles alternate, and the user has the first and the last word."""

from replan.encoding import encode
from replan.messages import Assistant, Message
from replan.models.turns import Turns

from .parts import Parts

__all__ = ["History"]

_BEFORE = encode({"text": "(The conversation begins.)"})
_GO_ON = encode({"text": "(Go on.)"})


class History:
    """The contents of one conversation, encoded as far as it has got. `before` is a text that comes first."""

    __slots__ = ("_turns", "signed")

    def __init__(self, before: str = "") -> None:
        self._turns = Turns("parts")
        self.signed = False
        """Whether there is a call in it, or a signature: what a server may have something against."""
        if before:
            self._turns.add("user", [encode({"text": before})])

    def take(self, messages: list[Message], parts: Parts, *, bare: bool = False) -> None:
        """Encode what is new in the conversation; `bare` says that the parts are those without signatures."""
        for message in messages[self._turns.count :]:
            made = parts.of(message)
            role = "model" if isinstance(message, Assistant) else "user"
            if role == "model" and self._turns.role != "user":
                self._turns.add("user", [_GO_ON if self._turns.role else _BEFORE])
            self._turns.add(role, [encode(part) for part in made])
            self._turns.count += 1
            if not (self.signed or bare):
                self.signed = any("functionCall" in part or "thoughtSignature" in part for part in made)

    def encoded(self) -> bytes:
        """The JSON array of the contents."""
        role = self._turns.role
        closing = None if role == "user" else ("user", [_GO_ON if role else _BEFORE])
        return self._turns.encoded(closing=closing)
