"""`replan runs` and `replan show`: what the journal knows."""

import time
from argparse import Namespace
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec

from replan import events
from replan.encoding import JSON, JSONObject, encode
from replan.errors import ConfigError
from replan.journal import RunInfo
from replan.prices import price
from replan.usage import Usage

from .environment import find_run, journal_path, load_env_file, opened_journal
from .output import write_bytes, write_error, write_text
from .picture import draw
from .screens import step_states
from .showing import show_picture, wants_picture
from .stop import Stopper, run_async
from .text import amount, call_text, clean, dollars, duration, one_line
from .view import CallView, View

__all__ = ["execute"]


def execute(args: Namespace) -> int:
    """Run the command and give its exit code."""
    load_env_file(args.env_file)
    path = journal_path(args.journal)
    if not path.exists():
        if args.command == "runs" and not args.journal:
            write_error("no runs yet\n")
            return 0
        raise ConfigError(f"there is no journal {str(path)!r}; say which one with --journal")
    return run_async(partial(_runs if args.command == "runs" else _show, args))


async def _runs(args: Namespace, stopper: Stopper) -> int:
    async with opened_journal(args) as journal:
        found = await journal.runs(args.limit)
    if args.json:
        write_bytes(b"".join(encode(_summary(info)) + b"\n" for info in found))
        return 0
    rows = [(info.run_id, _status(info), _age(info), _agent(info), one_line(_goal(info), 60)) for info in found]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True))
        write_text(f"{'  '.join(cells)}  {row[4]}\n")
    if not rows:
        write_error("no runs yet\n")
    return 0


async def _show(args: Namespace, stopper: Stopper) -> int:
    async with opened_journal(args) as journal:
        info = await find_run(journal, args.run_id)
        told = [events.from_json(event) for _, event in await journal.events(args.run_id)]
    view = View()
    for event in told:
        view.take(event)
    if wants_picture(args):
        if not view.plans:
            raise ConfigError(f"run {info.run_id!r} has no plan; see what it did with: replan show {info.run_id}")
        show_picture(args, draw(told, _status(info)), f"Plan of run {info.run_id}")
    elif args.json:
        write_bytes(encode(_whole(info, view)) + b"\n")
    else:
        write_text("".join(f"{line}\n" for line in _lines(info, view)))
    return 0


def _summary(info: RunInfo) -> JSONObject:
    return {
        "run_id": info.run_id,
        "status": _status(info),
        "agent": _agent(info),
        "goal": _goal(info),
        "created": info.created,
        "updated": info.updated,
    }


def _whole(info: RunInfo, view: View) -> JSONObject:
    usage, cost = _usage(info, view)
    return {
        **_summary(info),
        "plan": view.plans[-1] if view.plans else None,
        "steps": [_step(step) for step in view.steps],
        "calls": [_call(call) for call in view.calls],
        "answer": _answer(info, view),
        "stop_reason": _fields(info.result).get("stop_reason"),
        "usage": msgspec.to_builtins(usage),
        "cost": None if cost is None else float(cost),
        "seconds": max(0.0, info.updated - info.created),
        "error": info.error,
    }


def _step(step: Any) -> JSONObject:
    return {
        "id": step.id,
        "description": step.description,
        "state": step.state,
        "kind": step.kind,
        "summary": step.summary,
        "seconds": step.seconds,
        "calls": [_call(call) for call in step.calls],
    }


def _call(call: CallView) -> JSONObject:
    names = ("call_id", "tool", "server", "arguments", "ok", "output", "seconds")
    return {name: getattr(call, name) for name in names}


def _lines(info: RunInfo, view: View) -> Iterator[str]:
    yield f"run      {info.run_id}  ({_agent(info)}, {_age(info)} ago)"
    yield f"goal     {one_line(_goal(info), 1000)}"
    yield f"status   {_status(info)}{_reason(info)}"
    if info.error:
        yield f"error    {one_line(str(info.error.get('message') or info.error.get('type')), 1000)}"
    for mark, step in zip(step_states(view.steps), view.steps, strict=True):
        yield mark
        yield from map(_call_line, step.calls)
    yield from map(_call_line, view.calls)
    yield _figures(info, view)
    if answer := clean(_answer(info, view)).strip():
        yield ""
        yield answer


def _call_line(call: CallView) -> str:
    outcome = "no result" if call.ok is None else f"{'ok' if call.ok else 'failed'}, {duration(call.seconds)}"
    return f"      {call_text(call.tool, call.arguments)}: {outcome}: {one_line(call.output, 120)}".rstrip(": ")


def _figures(info: RunInfo, view: View) -> str:
    usage, cost = _usage(info, view)
    paid = "" if cost is None else f", {dollars(cost)}"
    took = duration(info.updated - info.created)
    return f"used     {amount(usage.input_tokens)} tokens in, {amount(usage.output_tokens)} out{paid}, {took}"


def _usage(info: RunInfo, view: View) -> tuple[Usage, Decimal | None]:
    """Tokens and cost: of the result where the run has ended, else as far as it was told."""
    result = _fields(info.result)
    by_model = msgspec.convert(result["usage_by_model"], dict[str, Usage]) if "usage_by_model" in result else view.usage
    prices = [price(model, usage) for model, usage in by_model.items()]
    known = [amount for amount in prices if amount is not None]
    return sum(by_model.values(), Usage()), sum(known, Decimal(0)) if len(known) == len(prices) else None


def _answer(info: RunInfo, view: View) -> str:
    return _fields(info.result).get("text") or view.final or ""


def _reason(info: RunInfo) -> str:
    reason = _fields(info.result).get("stop_reason")
    return f" ({reason})" if reason else ""


def _fields(value: JSON) -> JSONObject:
    return value or {}


def _status(info: RunInfo) -> str:
    """The status; a run that nobody drives any more, though it has not ended, is interrupted."""
    return "interrupted" if info.status == "running" and info.owner is None else info.status


def _age(info: RunInfo) -> str:
    seconds = max(0.0, time.time() - info.created)
    return duration(seconds).split(" min ")[0] + " min" if 60 <= seconds < 3600 else duration(seconds)


def _agent(info: RunInfo) -> str:
    return str(_fields(info.input).get("agent") or info.program)


def _goal(info: RunInfo) -> str:
    return str(_fields(info.input).get("goal") or "")
