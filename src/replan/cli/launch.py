"""`replan run` and `replan resume`."""

from argparse import Namespace
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from replan import PlanningResult, Run, RunResult, events
from replan.encoding import JSONObject, encode
from replan.errors import ConfigError, JournalError, ReplanError
from replan.journal import InboxItem, Journal, MemoryJournal, open_journal

from .ask import Asker, can_ask
from .assemble import Assembly, assemble
from .environment import find_run, journal_path, load_env_file, next_command
from .inbox import how_to_answer
from .output import write_bytes, write_error, write_text
from .recipe import Recipe, from_options, from_stored, stored
from .screens import Screen, logging_to, make_screen
from .stop import Stopper, run_async
from .task import read_task
from .text import amount, call_text, clean, dollars, duration, one_line

__all__ = ["execute"]

_REFUSALS = ("refusal", "content-filter")
_STOPPED = {
    "refusal": "the model refused",
    "content-filter": "the provider's content filter stopped the reply",
    "limit": "a limit was reached; raise it to get further",
    "max-turns": "the limit of model calls was reached; raise --max-turns to get further",
    "length": "the reply was cut off at the model's output limit",
    "no-progress": "the model repeated calls that had failed; say more in the goal, or use another model",
    "cancelled": "a step was cancelled",
    "plan-rejected": "the plan was not accepted",
}


def execute(args: Namespace) -> int:
    """Run the command and give its exit code."""
    load_env_file(args.env_file)
    if args.command == "resume":
        return run_async(partial(_resume, args))
    return run_async(partial(_start, args))


async def _start(args: Namespace, stopper: Stopper) -> int:
    task = await read_task(args)
    recipe = from_options(args)
    journal: Journal = MemoryJournal() if args.no_journal else open_journal(journal_path(args.journal))
    screen = make_screen(args)
    if task.warning:
        screen.note("warning", task.warning)
    options: dict[str, Any] = {"dry_run": True} if args.dry_run else {}
    if task.plan is not None:
        options["plan"] = task.plan

    def start(agent: Any) -> Run[Any]:
        return agent.start(task.goal, attachments=task.attachments, run_id=args.run_id, meta=stored(recipe), **options)

    return await _follow(args, recipe, _Job(journal, screen, start), stopper)


async def _resume(args: Namespace, stopper: Stopper) -> int:
    path = journal_path(args.journal)
    if not path.exists():
        raise ConfigError(f"there is no journal {str(path)!r}; say which one with --journal")
    async with AsyncExitStack() as stack:
        journal = open_journal(path)
        stack.push_async_callback(journal.close)
        info = await find_run(journal, args.run_id)
        if info.status == "complete":
            raise JournalError(
                f"run {info.run_id!r} is complete; see it with: {next_command('show', info.run_id, args)}"
            )
        recipe = from_stored(info.meta, args, info.run_id)
        load_env_file(recipe.env_file)
        screen = make_screen(args)
        if recipe.mcp and recipe.folder != str(Path.cwd()):
            screen.note(
                "warning",
                f"the run was started in {recipe.folder!r}; relative paths of its servers are now looked up here",
            )
        past = [events.from_json(event) for _, event in await journal.events(info.run_id)]
        job = _Job(journal, screen, lambda agent: agent.resume(info.run_id), past)
        return await _follow(args, recipe, job, stopper)


@dataclass(slots=True)
class _Job:
    """What is to be done: how a run begins, where it is recorded and shown, and what it did before."""

    journal: Journal
    screen: Screen
    begin: Callable[[Any], Run[Any]]
    past: list[events.AnyEvent] | None = None


async def _follow(args: Namespace, recipe: Recipe, job: _Job, stopper: Stopper) -> int:
    """Run to the end and tell what came of it."""
    with logging_to(job.screen, args.log_level):
        async with AsyncExitStack() as stack:
            stack.push_async_callback(job.journal.close)
            asker = Asker(job.journal, job.screen) if can_ask(args) else None
            if asker is not None:
                stack.callback(asker.close)
            assembly: Assembly = assemble(recipe, job.journal, asker)
            stack.push_async_callback(assembly.close)
            async with job.begin(assembly.agent) as run:
                stopper.stops(run.cancel)
                try:
                    result = await _watch(run, job)
                except ReplanError as error:
                    return _tell_failure(args, run, job, error, stopper)
            items = await job.journal.inbox(result.run_id) if result.status == "paused" else []
            return _tell_result(args, result, job.screen.view.seconds, items)


async def _watch(run: Run[Any], job: _Job) -> RunResult[Any]:
    with job.screen as screen:
        if job.past:
            screen.recall(job.past)
        async for event in run:
            screen.show(event)
        return await run.result()


# ---- what is said at the end


def _tell_result(args: Namespace, result: RunResult[Any], seconds: float, items: list[InboxItem]) -> int:
    """Print the answer and the figures; give the exit code."""
    if result.text.strip() and not args.json:
        write_text(f"{clean(result.text).strip()}\n")
    effects: list[JSONObject] | None = list(result.effects) if isinstance(result, PlanningResult) else None
    if effects is not None and getattr(args, "dry_run", False):
        _tell_effects(args, result.run_id, effects)
    if not args.json:
        write_error(f"{_figures(result, seconds)}\n")
    match result.status:
        case "complete":
            return 0
        case "paused":
            how = next_command("resume", result.run_id, args)
            write_error(f"replan: the run waits for a person; answer in a terminal with: {how}\n")
            for command in how_to_answer(items, args):
                write_error(f"  or answer with: {command}\n")
            return 3
        case _:
            reason = result.stop_reason or "stopped"
            write_error(f"replan: stopped: {_STOPPED.get(reason, reason)}\n")
            return 1 if reason in _REFUSALS else 4


def _tell_effects(args: Namespace, run_id: str, effects: list[JSONObject]) -> None:
    """Say what a dry run did not do, on standard output."""
    if args.json:
        write_bytes(encode({"type": "dry-run", "run_id": run_id, "effects": effects}) + b"\n")
        return
    write_text("dry run: not called\n" if effects else "dry run: nothing would have been changed\n")
    for effect in effects:
        step = f"  (step {effect['step']})" if effect.get("step") else ""
        write_text(f"  {call_text(effect['tool'], effect['arguments'], 4000)}{step}\n")


def _tell_failure(args: Namespace, run: Run[Any], job: _Job, error: ReplanError, stopper: Stopper) -> int:
    """Say why there is no answer, and how to go on; give the exit code."""
    can_resume = not isinstance(job.journal, MemoryJournal) and bool(job.past or job.screen.view.goal)
    how = (
        f"; go on with: {next_command('resume', run.run_id, args)}"
        if can_resume and not isinstance(error, JournalError)
        else ""
    )
    if error.result is not None and error.result.usage.model_calls and not args.json:
        write_error(f"{_figures(error.result, job.screen.view.seconds)}\n")
    if stopper.signal is not None:
        write_error(f"replan: interrupted{how}\n")
        return stopper.code
    if args.log_level == "debug":
        import traceback

        write_error("".join(traceback.format_exception(error)))
    write_error(f"replan: {one_line(str(error), 2000)}{how}\n")
    return 2 if isinstance(error, ConfigError) else 1


def _figures(result: RunResult[Any], seconds: float) -> str:
    """Tokens, cost, time and id, on one line."""
    usage, cost = result.usage, result.cost
    about = "about " if usage.estimated else ""
    cached = f" ({amount(usage.cached_input_tokens)} cached)" if usage.cached_input_tokens else ""
    parts = [f"{about}{amount(usage.input_tokens)} tokens in{cached}, {amount(usage.output_tokens)} out"]
    if cost is not None:
        parts.append(dollars(cost))
    return " · ".join([*parts, duration(seconds), result.run_id])
