"""Questions of a run, put to the person at the terminal."""

import asyncio
import sys
from argparse import Namespace
from collections.abc import Mapping

from replan.encoding import JSON, JSONObject
from replan.errors import ConfigError
from replan.journal import InboxItem, Journal

from .answers import make_answer
from .edit import Draft
from .output import is_terminal, write_error
from .plan_table import call_pieces
from .reading import drop_typed, read_line
from .screens import Screen
from .text import one_line

__all__ = ["Asker", "can_ask"]


def can_ask(args: Namespace) -> bool:
    """Whether there is a person at a terminal who can be asked."""
    return not args.json and is_terminal(sys.stdin) and is_terminal(sys.stderr)


class Asker:
    """An agent's `answerer`: asks one question at a time. Questions that it does not know get their default."""

    def __init__(self, journal: Journal, screen: Screen) -> None:
        self._journal, self._screen = journal, screen
        self._turn = asyncio.Lock()
        self._drafts: dict[str, tuple[JSONObject, Draft]] = {}

    async def __call__(self, item: InboxItem) -> JSON:
        """The answer of the person."""
        async with self._turn:
            call = await self._call(item) if item.name == "in-doubt" else {}
            with self._screen.held():
                drop_typed()
                match item.name:
                    case "plan-review":
                        return await self._review(item)
                    case "approval":
                        return await _ask_approval(item)
                    case "in-doubt":
                        return await _ask_outcome(item, call)
                    case _:
                        return item.default

    async def _call(self, item: InboxItem) -> JSONObject:
        """The arguments of the call that is in doubt; where the item does not say, from the journal."""
        if item.body:
            return item.body
        key = item.key.removesuffix("/doubt")
        rows = await self._journal.completions(item.run_id)
        found = [outcome["args"] for at, _, outcome, _ in rows if at == key and outcome["kind"] == "in-doubt"]
        return found[0] if found else {}

    async def _review(self, item: InboxItem) -> JSON:
        """Ask about a plan. Where the same one is asked about again, the person goes on with what was typed before."""
        plan: JSONObject = item.body["plan"]
        known, draft = self._drafts.pop(item.run_id, (None, None))
        if draft is None or known != plan:
            if draft:
                draft.remove()
            draft = Draft(plan)
        try:
            answer = await _ask_review(item, draft, self._screen)
        except BaseException:
            draft.keep()
            raise
        if answer is not None and answer.get("decision") == "edit":
            self._drafts[item.run_id] = plan, draft
        else:
            draft.remove()
        return answer

    def close(self) -> None:
        """Take away what was kept for another question."""
        for _, draft in self._drafts.values():
            draft.remove()
        self._drafts.clear()


async def _ask_review(item: InboxItem, draft: Draft, screen: Screen) -> JSONObject | None:
    edited: JSONObject | None = None
    while True:
        write_error(f"\nThe plan for: {one_line(str(item.body.get('goal')), 500)}\n")
        screen.plan(item.body if edited is None else {"plan": edited})
        choices = {"a": "accept", "e": "edit", "r": "reject"}
        if edited is not None:
            choices |= {"d": "drop the edit"}
        match await _choose("Is it to be run?", choices):
            case "a" if edited is not None:
                return {"decision": "edit", "plan": edited}
            case "a":
                return {"decision": "accept"}
            case "e":
                edited = await _edit(draft, edited)
            case "d":
                edited = None
            case "r":
                return {"decision": "reject", "reason": await _say("Why, and what should be different?")}
            case _:
                return None


async def _edit(draft: Draft, before: JSONObject | None) -> JSONObject | None:
    """The plan as the person edits it; `before` where the edit is given up."""
    while True:
        try:
            return await draft.edit()
        except ConfigError as error:
            write_error(f"{error}\n")
        if await _choose("What now?", {"e": "edit again", "d": "drop this edit"}) != "e":
            return before


async def _ask_approval(item: InboxItem) -> JSON:
    body: Mapping[str, JSON] = item.body or {}
    where = f" in step {body['step']}" if body.get("step") else ""
    write_error(
        f"\nThis call{where} is not part of what was accepted:\n  {_whole_call(body)}\n"
        f"  {one_line(str(body.get('difference') or ''), 600)}\n"
    )
    match await _choose("May it be made?", {"a": "allow", "d": "deny"}):
        case "a":
            return make_answer(item, "allow", {})
        case "d":
            return make_answer(item, "deny", {"reason": await _say("Why?") or None})
        case _:
            return item.default


async def _ask_outcome(item: InboxItem, call: JSONObject) -> JSON:
    write_error(f"\nThis call was interrupted, and may or may not have taken effect:\n  {_whole_call(call)}\n")
    match await _choose("What became of it?", {"d": "done", "n": "not done", "u": "unknown"}):
        case "d":
            return make_answer(item, "done", {"result": await _say("What did it give?", "not known")})
        case "n":
            return make_answer(item, "not-done", {})
        case _:
            return None


def _whole_call(call: Mapping[str, JSON]) -> str:
    return "".join(text for text, _ in call_pieces(str(call.get("tool") or "a tool"), call.get("arguments")))


async def _choose(question: str, choices: Mapping[str, str]) -> str | None:
    """The letter of a choice, None at the end of input."""
    shown = ", ".join(f"[{letter}]{text.removeprefix(letter)}" for letter, text in choices.items())
    while True:
        write_error(f"{question} {shown}: ")
        answer = await read_line()
        if answer is None:
            return None
        if (letter := answer.strip().lower()[:1]) in choices:
            return letter
        *others, last = choices
        write_error(f"Please answer with {', '.join(others)} or {last}.\n")


async def _say(question: str, nothing: str = "no reason") -> str:
    """A line of text, which may be empty."""
    write_error(f"{question} (empty: {nothing}) ")
    return (await read_line() or "").strip()
