"""Questions of a run, put to the person at the terminal."""

import asyncio
import sys
from argparse import Namespace

from replan.encoding import JSON, JSONObject
from replan.journal import InboxItem, Journal

from .output import is_terminal, write_error
from .reading import read_line
from .screens import Screen
from .text import call_text

__all__ = ["Asker", "can_ask"]


def can_ask(args: Namespace) -> bool:
    """Whether there is a person at a terminal who can be asked."""
    return not args.json and is_terminal(sys.stdin) and is_terminal(sys.stderr)


class Asker:
    """An agent's `answerer`: asks one question at a time. Questions that it does not know get their default."""

    def __init__(self, journal: Journal, screen: Screen) -> None:
        self._journal, self._screen = journal, screen
        self._turn = asyncio.Lock()

    async def __call__(self, item: InboxItem) -> JSON:
        """The answer of the person."""
        if item.name != "in-doubt":
            return item.default
        async with self._turn:
            call = await self._call(item)
            with self._screen.held():
                return await _ask_outcome(call)

    async def _call(self, item: InboxItem) -> JSONObject:
        """The arguments of the call that is in doubt, from the journal."""
        key = item.key.removesuffix("/doubt")
        rows = await self._journal.completions(item.run_id)
        found = [outcome["args"] for at, _, outcome, _ in rows if at == key and outcome["kind"] == "in-doubt"]
        return found[0] if found else {}


async def _ask_outcome(call: JSONObject) -> JSON:
    shown = call_text(call.get("tool", "a tool"), call.get("arguments", {}), 2000)
    write_error(f"\nThis call was interrupted, and may or may not have taken effect:\n  {shown}\n")
    while True:
        write_error("What became of it? [d]one, [n]ot done, [u]nknown: ")
        answer = await read_line()
        match (answer or "u").strip().lower()[:1]:
            case "d":
                write_error("What did it give? (empty: not known) ")
                text = (await read_line() or "").strip()
                return {
                    "outcome": "done",
                    "result": text or "Done, as a person has confirmed; what it gave is not known.",
                }
            case "n":
                return {"outcome": "not-done"}
            case "u":
                return None
            case _:
                write_error("Please answer with d, n or u.\n")
