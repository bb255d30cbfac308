"""What `run` and `plan` are to do: a goal, and perhaps a plan that was written before."""

import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from replan.encoding import JSONObject, clean_text
from replan.errors import ConfigError
from replan.messages import Content, attachment
from replan.planning.files import load_plan, unknown_fields

from .output import is_terminal
from .reading import read_all

__all__ = ["Task", "read_task"]


@dataclass(frozen=True, slots=True)
class Task:
    """A goal, the plan for it where one was given, and fields in its file that plans do not have."""

    goal: str
    plan: JSONObject | None = None
    unknown: tuple[str, ...] = ()
    attachments: tuple[Content, ...] = ()

    @property
    def warning(self) -> str:
        """What is to be said of the unknown fields; nothing where there are none."""
        return f"plans have no such fields, they are left out: {', '.join(self.unknown)}" if self.unknown else ""


async def read_task(args: Namespace) -> Task:
    """What the options ask for. The goal is the one given, else that of the plan's file, else standard input.

    Raises `ConfigError` where there is none, where the file cannot be read, and for options that exclude each other.
    """
    if args.plain and (args.plan or args.dry_run):
        option = "--plan" if args.plan else "--dry-run"
        raise ConfigError(f"{option} is for plans, and with --plain there is none; leave one of them out")
    attached = tuple(map(_attached, args.attach))
    if args.plan is None:
        return Task(await _goal(args.goal), attachments=attached)
    data = await _plan(args.plan, args.goal)
    unknown = tuple(unknown_fields(data))
    written = data.pop("goal", None)
    if args.goal is None and isinstance(written, str) and written.strip():
        return Task(written.strip(), data, unknown, attached)
    if args.goal is None and args.plan == "-":
        raise ConfigError("the plan has no `goal:`; write one into it, or give it as an argument")
    return Task(await _goal(args.goal), data, unknown, attached)


async def _plan(name: str, goal: str | None) -> JSONObject:
    if name == "-" and goal == "-":
        raise ConfigError("standard input cannot be both goal and plan; give one of them otherwise")
    try:
        text = await read_all() if name == "-" else _read(name)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the plan {name!r} cannot be read: {error}") from error
    try:
        return load_plan(text)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def _attached(name: str) -> Content:
    try:
        return attachment(Path(name).expanduser())
    except OSError as error:
        raise ConfigError(f"the attachment {name!r} cannot be read: {error}") from error


def _read(name: str) -> str:
    return Path(name).expanduser().read_text("utf-8-sig")


async def _goal(given: str | None) -> str:
    """The goal, from the option or from standard input."""
    if given is not None and given != "-":
        goal = given
    elif given is None and is_terminal(sys.stdin):
        raise ConfigError("there is no goal; say it in quotes: replan run 'What is ...?'")
    else:
        try:
            goal = await read_all()
        except OSError as error:
            raise ConfigError(f"standard input cannot be read: {error}") from error
    if not goal.strip():
        raise ConfigError("the goal is empty; say what is to be done: replan run 'What is ...?'")
    return clean_text(goal.strip())
