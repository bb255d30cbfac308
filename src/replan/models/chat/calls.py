"""Tool calls from the pieces of a Chat Completions stream, whose index and id many servers leave out, repeat or mix
up.
"""

from collections.abc import Callable, Collection

from replan.encoding import decode
from replan.messages import ToolCall
from replan.model import CallDelta
from replan.models.arguments import parse_arguments

__all__ = ["CallAssembler"]


class _Call:
    __slots__ = ("call_id", "name", "pieces")

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.name = ""
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def started(self) -> bool:
        return any(piece.strip() for piece in self.pieces)

    @property
    def whole(self) -> bool:
        """Whether the arguments are complete, as far as can be seen from them."""
        try:
            return isinstance(decode(self.text), dict)
        except ValueError:
            return False


class CallAssembler:
    """Puts the calls of one reply together. `tools` are the names that the request offered; they settle doubtful cases.

    A known id wins over the index; a new id opens a call, whatever its index; a piece without id goes by its index; a
    piece with neither, or with an index never seen and no name, belongs to the call that was written to last.
    """

    __slots__ = ("_by_id", "_by_index", "_calls", "_last", "_tools", "_touched")

    def __init__(self, tools: Collection[str] = ()) -> None:
        self._tools = tools
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None
        self._touched: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def begin_delta(self) -> None:
        """The pieces that follow are of one delta: two of them that have names are two calls."""
        self._touched.clear()

    def add(self, index: int | None, call_id: str, name: str, text: str) -> CallDelta | None:
        """Take one piece; None where it brought nothing new."""
        known = self._by_id.get(call_id)
        if known is not None and name == known.name and name and text == known.text:
            return None
        call = self._find(known, index, call_id, name)
        if call is None:
            call = _Call(call_id)
            self._calls.append(call)
        self._remember(call, index, call_id)
        if name:
            self._extend_name(call, name)
        if text:
            call.pieces.append(text)
        return CallDelta(call.name, text)

    def calls(self, taken: Callable[[str], bool], first_number: int) -> tuple[ToolCall, ...]:
        """The calls, in the order in which they were opened.

        `taken` says whether an id occurs in the conversation already.

        Missing and taken ids are replaced by `call_<n>`, n from `first_number` on.
        """
        made: list[ToolCall] = []
        used: set[str] = set()
        number = first_number
        for call in self._calls:
            if not (call.name or call.call_id or call.started):
                continue
            call_id = call.call_id
            while not call_id or call_id in used or taken(call_id):
                call_id, number = f"call_{number}", number + 1
            used.add(call_id)
            arguments, raw = parse_arguments(call.text)
            made.append(ToolCall(call_id, call.name.strip(), arguments, raw))
        return tuple(made)

    def _find(self, known: _Call | None, index: int | None, call_id: str, name: str) -> _Call | None:
        """The call that a piece belongs to; None where it opens a new one."""
        if known is not None:
            return None if name and self._is_another(known, name) else known
        here = None if index is None else self._by_index.get(index)
        if call_id:
            return here if here is not None and self._is_same(here, name) else None
        if here is None and index is not None and name:
            return None
        call = here or self._last
        return None if call is not None and name and not self._continues(call, name) else call

    def _is_another(self, known: _Call, name: str) -> bool:
        """A piece with the id of a call, and a name: whether it is the head of another call under the same id."""
        if id(known) in self._touched:
            return True
        return known.started and (known.whole or name != known.name)

    def _is_same(self, here: _Call, name: str) -> bool:
        """A piece with a new id at the index of a call: whether it belongs to that call all the same."""
        if here.call_id:
            return not name and not here.whole
        return not name or self._continues(here, name)

    def _continues(self, call: _Call, name: str) -> bool:
        """A piece with a name and no id: whether the name is a repetition or the next part of the call's own."""
        if id(call) in self._touched:
            return False
        if call.started:
            return name == call.name and not call.whole
        if name == call.name or any(tool.startswith(call.name + name) for tool in self._tools):
            return True
        return call.name not in self._tools and (name not in self._tools or not call.name)

    def _extend_name(self, call: _Call, name: str) -> None:
        if call.started and call.name:
            return
        if name.startswith(call.name) and (name == call.name or name in self._tools):
            call.name = name
        elif call.name not in self._tools or call.name + name in self._tools:
            call.name += name

    def _remember(self, call: _Call, index: int | None, call_id: str) -> None:
        self._last = call
        self._touched.add(id(call))
        if index is not None:
            self._by_index[index] = call
        if call_id:
            call.call_id = call.call_id or call_id
            self._by_id[call_id] = call
