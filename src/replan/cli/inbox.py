"""`replan inbox` and `replan answer`: what runs wait for from people, from any process."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from replan.encoding import JSON, encode, is_object
from replan.errors import ConfigError, JournalError
from replan.journal import InboxItem

from .answers import WORDS, describe_words, make_answer, read_plan_file
from .edit import Draft
from .environment import find_run, journal_path, load_env_file, next_command, opened_journal
from .output import is_terminal, write_bytes, write_error, write_text
from .plan_table import call_pieces, plan_lines
from .stop import Stopper, run_async
from .text import clean, duration, one_line

__all__ = ["execute", "how_to_answer"]


def execute(args: Namespace) -> int:
    """Run the command and give its exit code."""
    load_env_file(args.env_file)
    path = journal_path(args.journal)
    if not path.exists():
        if args.command == "inbox" and not args.journal and args.run_id is None:
            write_error("nothing waits for a person\n")
            return 0
        raise ConfigError(f"there is no journal {str(path)!r}; say which one with --journal")
    return run_async(partial(_inbox if args.command == "inbox" else _answer, args))


def how_to_answer(items: list[InboxItem], args: Namespace) -> Iterator[str]:
    """The commands that answer the open items of a run, one a line."""
    for item in items:
        key = [item.key] if len(items) > 1 else []
        yield f"{next_command('answer', item.run_id, args, *key)} {_brackets(describe_words(item.name))}"


def _brackets(words: str) -> str:
    return f"({words})" if " | " in words else words


async def _inbox(args: Namespace, stopper: Stopper) -> int:
    async with opened_journal(args) as journal:
        if args.run_id is not None:
            await find_run(journal, args.run_id)
        items: list[InboxItem] = await journal.inbox(args.run_id)
    if args.json:
        write_bytes(b"".join(encode(msgspec.to_builtins(item)) + b"\n" for item in items))
        return 0
    by_run: dict[str, list[InboxItem]] = {}
    for item in items:
        by_run.setdefault(item.run_id, []).append(item)
    for run_id, those in by_run.items():
        for item, command in zip(those, how_to_answer(those, args), strict=True):
            write_text(f"{run_id}  {item.name}  {item.key}{_until(item)}\n")
            write_text("".join(f"    {line}\n" for line in _body_lines(item)))
            write_text(f"    answer with: {command}\n")
    if not items:
        write_error("nothing waits for a person\n")
    return 0


def _until(item: InboxItem) -> str:
    if item.deadline is None:
        return ""
    import time

    left = item.deadline - time.time()
    return f"  (for {duration(left)} more)" if left > 0 else "  (too late)"


def _body_lines(item: InboxItem) -> Iterator[str]:
    body: JSON = item.body
    if item.name == "plan-review" and is_object(body) and is_object(body.get("plan")):
        yield f"goal: {one_line(str(body.get('goal')), 500)}"
        yield from plan_lines(body)
    elif is_object(body) and "tool" in body:
        where = f" in step {body['step']}" if body.get("step") else ""
        yield "".join(text for text, _ in call_pieces(str(body["tool"]), body.get("arguments"))) + where
        if body.get("difference"):
            yield one_line(str(body["difference"]), 600)
    elif body is not None:
        yield one_line(encode(body).decode(), 2000)


async def _answer(args: Namespace, stopper: Stopper) -> int:
    *keys, word = args.words
    if len(keys) > 1:
        raise ConfigError(f"there is one answer too many: {word!r}; give RUN_ID, the item's KEY and one answer")
    async with opened_journal(args) as journal:
        info = await find_run(journal, args.run_id)
        item = _find_item(await journal.inbox(args.run_id), args, *keys)
        value = await _value(item, word, args)
        try:
            await journal.answer(item.run_id, item.key, value)
        except JournalError:
            raise _not_open(args, item.key) from None
    if info.owner is None:
        write_error(f"answered; go on with: {next_command('resume', args.run_id, args)}\n")
    else:
        write_error("answered; the run goes on by itself\n")
    return 0


def _find_item(items: list[InboxItem], args: Namespace, key: str | None = None) -> InboxItem:
    if key is None and len(items) == 1:
        return items[0]
    if key is None and items:
        keys = ", ".join(repr(item.key) for item in items)
        raise ConfigError(f"run {args.run_id!r} waits for {len(items)} answers; say which is meant: {keys}")
    for item in items:
        if item.key == key:
            return item
    raise _not_open(args, key)


def _not_open(args: Namespace, key: str | None) -> JournalError:
    asks = f"has no open question {key!r}" if key else "waits for nothing"
    return JournalError(
        f"run {args.run_id!r} {asks}: it was answered already, or is not asked any more; see what is open with: "
        f"{next_command('inbox', args.run_id, args)}"
    )


async def _value(item: InboxItem, word: str, args: Namespace) -> JSON:
    """The answer that is meant; a plan is taken from its file, or from the person's editor."""
    options: dict[str, Any] = {"reason": args.reason, "result": args.result}
    if word == "edit" and args.plan is None and "edit" in WORDS.get(item.name, {}) and is_terminal(sys.stdin):
        return make_answer(item, word, {**options, "plan": await _edited(item)})
    if args.plan is not None:
        options["plan"] = read_plan_file(args.plan)
    return make_answer(item, word, options)


async def _edited(item: InboxItem) -> JSON:
    draft = Draft(item.body["plan"])
    try:
        plan = await draft.edit()
    except BaseException:
        draft.keep()
        raise
    draft.remove()
    if plan is None:
        raise ConfigError("the plan was not changed, and nothing was answered; to run it as it is, answer with accept")
    for line in plan_lines({"plan": plan}):
        write_error(f"  {clean(line)}\n")
    return plan
