"""The items of a reply of the OpenAI Responses API, told apart while they arrive.

The API numbers and names every item. Servers that speak as it does leave numbers out, use one twice, or name an item
otherwise in each event. So an item is found by its number, else by its name, else it is the newest of its kind.
"""

from replan.encoding import JSON, JSONObject
from replan.models.fields import a_number, a_text

__all__ = ["Item", "Output"]

_THOUGHTS = frozenset(["summary", "content"])
_BETWEEN = "\n\n"
"""Between the parts of a summary."""


class Item:
    """One item. `kind` is its type; `own` is what goes back of reasoning besides the encrypted content (`signature`).

    Its texts have sources: `text` and `refusal` of a message, `arguments` of a call, `summary` and `content` of
    reasoning, of which the one that came first counts.
    """

    __slots__ = ("_heard", "_pieces", "call_id", "closed", "id", "kind", "name", "own", "phase", "signature")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.id = self.call_id = self.name = self.phase = self.signature = ""
        self.own: JSONObject = {}
        self.closed = False
        self._pieces: dict[str, list[str]] = {}
        self._heard: set[tuple[str, int]] = set()

    @property
    def nameless(self) -> bool:
        """Whether nothing has named it yet."""
        return not (self.id or self.call_id)

    def said(self, source: str) -> str:
        """The text so far."""
        return "".join(self._pieces.get(source, ()))

    def thought(self) -> str:
        """The text of reasoning so far."""
        return self.said(next(iter(self._pieces), ""))

    def is_named(self, fields: JSONObject) -> bool:
        """Whether an item's fields name this one."""
        call_id = a_text(fields.get("call_id"))
        if call_id and self.call_id:
            return call_id == self.call_id
        return bool(self.id) and fields.get("id") == self.id

    def take(self, fields: JSONObject) -> None:
        """Take what names the item; what came first counts, and the last phase."""
        self.id = self.id or a_text(fields.get("id"))
        self.call_id = self.call_id or a_text(fields.get("call_id"))
        self.name = self.name or a_text(fields.get("name"))
        self.phase = a_text(fields.get("phase")) or self.phase

    def hear(self, source: str, index: int, text: str, *, whole: bool = False) -> str:
        """Take a piece of a part of the item, or `whole` a part, which counts where no piece of it came. Gives what is
        new of it to be told.
        """
        part = (source, index)
        if part not in self._heard:
            self._heard.add(part)
            text = _BETWEEN + text if source in _THOUGHTS and source in self._pieces else text
        elif whole:
            return ""
        return self._add(source, text)

    def rest(self, source: str, parts: list[str]) -> str:
        """What is missing at the end, given all parts; gives it to be told."""
        said, full = self.said(source), (_BETWEEN if source in _THOUGHTS else "").join(parts)
        return self._add(source, full[len(said) :]) if full != said and full.startswith(said) else ""

    def _add(self, source: str, text: str) -> str:
        self._pieces.setdefault(source, []).append(text)
        return "" if source in _THOUGHTS and next(iter(self._pieces)) != source else text


class Output:
    """The items, in the order in which they were opened, or in that of the final response."""

    __slots__ = ("_places", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._places: dict[tuple[str, int], Item] = {}

    def of(self, kind: str, event: JSONObject) -> Item:
        """The item that a piece belongs to."""
        at = a_number(event.get("output_index"))
        item = self._unnumbered(kind, event.get("item_id")) if at is None else self._places.get((kind, at))
        return item or self.new(kind, at)

    def begun(self, at: int | None, fields: JSONObject) -> Item:
        """The item that is announced: a new one, unless pieces of it came before."""
        kind = a_text(fields.get("type"))
        item = self._newest(kind) if at is None else self._places.get((kind, at))
        if item is None or item.closed or not (item.nameless or item.is_named(fields)):
            item = self.new(kind, at)
        return item

    def ended(self, at: int | None, fields: JSONObject) -> Item:
        """The item that is complete. Two calls with one number are told apart by their ids."""
        kind, call_id = a_text(fields.get("type")), fields.get("call_id")
        item = self._newest(kind) if at is None else self._places.get((kind, at))
        if item is None or (item.call_id and item.call_id != call_id) or at is None:
            named = (other for other in self.items if other.kind == kind and other.is_named(fields))
            item = next(named, item)
        return self.new(kind, at) if item is None else item

    def final(self, output: list[JSONObject]) -> list[Item]:
        """The items of the final response. Its order counts where it has all that came."""
        left = list(self.items)
        named = [_taken(left, fields, by_name=True) for fields in output]
        found = [item or _taken(left, fields) for item, fields in zip(named, output, strict=True)]
        items = [item or self.new(a_text(fields.get("type")), None) for item, fields in zip(found, output, strict=True)]
        if not left:
            self.items = items
        return items

    def new(self, kind: str, at: int | None) -> Item:
        """A new item, with its number if it has one."""
        item = Item(kind)
        self.items.append(item)
        if at is not None:
            self._places[kind, at] = item
        return item

    def _newest(self, kind: str) -> Item | None:
        return next((item for item in reversed(self.items) if item.kind == kind and not item.closed), None)

    def _unnumbered(self, kind: str, name: JSON) -> Item | None:
        named = (item for item in self.items if item.kind == kind and name and name in (item.id, item.call_id))
        return next(named, None) or self._newest(kind)


def _taken(left: list[Item], fields: JSONObject, *, by_name: bool = False) -> Item | None:
    """The item of these fields, taken out of those that are left: the one they name, or the first of their kind."""
    kind = fields.get("type")
    for at, item in enumerate(left):
        if item.kind == kind and (not by_name or item.is_named(fields)):
            return left.pop(at)
    return None
