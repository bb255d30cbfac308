"""`replan plan`: a plan, checked and priced, and not run."""

from argparse import Namespace
from contextlib import AsyncExitStack
from functools import partial

from replan import PlanningAgent, PlanPreview
from replan.encoding import JSONObject, encode
from replan.journal import Journal, MemoryJournal, open_journal
from replan.planning.files import dump_plan, plan_json

from .assemble import assemble
from .environment import journal_path, load_env_file
from .output import write_bytes, write_error
from .plan_table import plan_notes
from .recipe import from_options
from .screens import PlainScreen, logging_to, shown_levels
from .showing import write_file
from .stop import Stopper, run_async
from .task import Task, read_task

__all__ = ["execute"]


def execute(args: Namespace) -> int:
    """Run the command and give its exit code."""
    load_env_file(args.env_file)
    return run_async(partial(_plan, args))


async def _plan(args: Namespace, stopper: Stopper) -> int:
    task = await read_task(args)
    screen = PlainScreen(shown_levels(args.log_level))
    if task.warning:
        screen.note("warning", task.warning)
    with logging_to(screen, args.log_level):
        preview = await _made(args, task)
    if args.out is not None:
        form = "json" if args.out.endswith(".json") else "yaml"
        write_file(args.out, dump_plan(preview.plan, form=form, goal=preview.goal))
    if args.json:
        write_bytes(encode(_whole(preview)) + b"\n")
    elif args.out is None:
        write_bytes(dump_plan(preview.plan, goal=preview.goal).encode())
    if not args.json:
        write_error("".join(f"{line}\n" for line in plan_notes(_as_review(preview))))
    return 0


async def _made(args: Namespace, task: Task) -> PlanPreview:
    journal: Journal = MemoryJournal() if args.no_journal else open_journal(journal_path(args.journal))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(journal.close)
        assembly = assemble(from_options(args), journal, None)
        stack.push_async_callback(assembly.close)
        assert isinstance(assembly.agent, PlanningAgent)
        return await assembly.agent.plan(task.goal, plan=task.plan, attachments=task.attachments)


def _as_review(preview: PlanPreview) -> JSONObject:
    """The preview in the form in which plans are put before people."""
    return {
        "plan": plan_json(preview.plan),
        "findings": preview.findings,
        "price": preview.price,
        "origins": preview.origins,
    }


def _whole(preview: PlanPreview) -> JSONObject:
    return {"goal": preview.goal, **_as_review(preview), "usage": preview.usage}
