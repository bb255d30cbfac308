"""A conversation as the messages of the Anthropic Messages API: roles alternate, and the first is the user's."""

from collections.abc import Callable

from replan.encoding import JSONObject, encode
from replan.messages import Assistant, Message, ToolCall, ToolResult, User
from replan.models.body import tool_name
from replan.models.turns import Turns

from .blocks import THOUGHTS, Blocks, text_block

__all__ = ["History"]

_BEFORE = encode(text_block("(The conversation begins.)"))
_GO_ON = encode(text_block("(Go on.)"))


class History:
    """The messages of one conversation, encoded as far as it has got.

    A reply to a conversation that ended with a reply stays behind the words that asked for it: newer models refuse
    their thoughts where something before them is other than it was.
    """

    __slots__ = ("_began", "_blocks", "_last", "_turns", "called", "thoughts")

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._turns = Turns("content")
        self._began: bool | None = None
        self._last: type[Message] | None = None
        self.called: dict[str, None] = {}
        """Names of the tools that were called, in order."""
        self.thoughts = False
        """Whether there are thoughts in it."""

    @property
    def cold(self) -> bool:
        """Whether calls were answered of a turn that began without a thought."""
        return self._last is ToolResult and self._began is False

    def take(self, messages: list[Message]) -> None:
        """Encode what is new in the conversation."""
        for message in messages[self._turns.count :]:
            blocks = self._blocks.of(message)
            self._note(message, blocks)
            role = "assistant" if isinstance(message, Assistant) else "user"
            if role == "assistant" and self._turns.role != "user":
                self._turns.add("user", [_GO_ON if self._turns.role else _BEFORE])
            self._turns.add(role, [encode(block) for block in blocks])
            self._turns.count += 1

    def encoded(self, mark: JSONObject | None) -> bytes:
        """The JSON array of the messages, with the mark on the newest."""
        closing = ("user", [_GO_ON]) if self._turns.role == "assistant" else None
        return self._turns.encoded(_marker(mark) if mark else None, closing)

    def _note(self, message: Message, blocks: list[JSONObject]) -> None:
        if isinstance(message, User) or (isinstance(message, Assistant) and self._last is Assistant):
            self._began = None
        self._last = type(message)
        if isinstance(message, Assistant):
            self.thoughts = self.thoughts or any(block["type"] in THOUGHTS for block in blocks)
            self.called |= {tool_name(part.name): None for part in message.content if isinstance(part, ToolCall)}
            if self._began is None:
                self._began = blocks[0]["type"] in THOUGHTS


def _marker(mark: JSONObject) -> Callable[[list[bytes]], list[bytes]]:
    """Puts the mark on the last of some blocks, which is never a thought: those cannot have it."""
    ending = b',"cache_control":' + encode(mark) + b"}"
    return lambda blocks: [*blocks[:-1], blocks[-1][:-1] + ending]
