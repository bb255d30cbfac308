"""The command line's grammar. Nothing heavy is imported here: `--help` has to be quick."""

import argparse
import math
from typing import Any, NoReturn, get_args

from replan._version import __version__
from replan.settings import ThinkingLevel

__all__ = ["build_parser"]

_EXIT_CODES = """exit codes:
  0  answered                   4    stopped at a limit, or by a plan that was not accepted
  1  failed, or refused         130  interrupted (143: by SIGTERM)
  2  used wrongly               141  standard output was closed
  3  waits for a person

Keys are read from the environment (OPENAI_API_KEY and so on) or from --env-file, never from options."""


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"replan: {message}; see `{self.prog} --help`\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line. `command` names the command, None where there is none."""
    parser = _Parser(prog="replan", description="Agents that plan, act and re-plan, on any model.", epilog=_EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"replan {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _add_run(commands)
    _add_plan(commands)
    _add_resume(commands)
    _add_inbox(commands)
    _add_answer(commands)
    _add_runs(commands)
    _add_show(commands)
    _add_tools(commands)
    _add_model(commands)
    return parser


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="work on a goal until it is reached",
        description=(
            "Plan, act and re-plan until the goal is reached.\n"
            "The answer goes to standard output, all else to standard error."
        ),
        epilog=_EXIT_CODES,
    )
    parser.add_argument(
        "goal", nargs="?", metavar="GOAL", help="what to do; `-`, or nothing and a pipe: read it from standard input"
    )
    parser.add_argument("--plain", action="store_true", help="no plan: the model in a loop with its tools")
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="run this plan, of `replan plan` (`-`: standard input); its goal, if none is given",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="call no tool that may write; print the calls that were left out"
    )
    _add_attach(parser)
    parser.add_argument("--run-id", metavar="ID", help="the run's id (default: made from the time)")
    _add_agent_options(parser)
    _add_limits(parser)
    where = _add_journal(parser)
    where.add_argument("--no-journal", action="store_true", help="keep no record; the run cannot be resumed")
    _add_common(parser)


def _add_plan(commands: Any) -> None:
    parser = commands.add_parser(
        "plan",
        help="plan, and do not run",
        description=(
            "Print the plan for a goal, checked and priced, without running it.\n"
            "The plan goes to standard output as YAML, to be run with `replan run --plan FILE`; what was found in it\n"
            "and what it will cost go to standard error."
        ),
        epilog=_EXIT_CODES,
    )
    parser.add_argument(
        "goal", nargs="?", metavar="GOAL", help="what to do; `-`, or nothing and a pipe: read it from standard input"
    )
    parser.add_argument("--plan", metavar="FILE", help="check and price this plan (`-`: standard input)")
    _add_attach(parser)
    parser.add_argument("--out", metavar="FILE", help="write the plan there; JSON where the name ends with .json")
    parser.set_defaults(plain=False, dry_run=False)
    _add_agent_options(parser)
    _add_limits(parser)
    where = _add_journal(parser)
    where.add_argument("--no-journal", action="store_true", help="keep no record")
    _add_common(parser, "one JSON object: plan, findings, price, origins of values")


def _add_resume(commands: Any) -> None:
    parser = commands.add_parser(
        "resume",
        help="go on with a run that did not complete",
        description=(
            "Go on with a run from where it was left; finished calls are not made again.\n"
            "Model, servers and instructions are those of the start unless given; goal and limits always are."
        ),
        epilog=_EXIT_CODES,
    )
    parser.add_argument("run_id", metavar="RUN_ID")
    _add_agent_options(parser)
    _add_journal(parser)
    _add_common(parser)


def _add_inbox(commands: Any) -> None:
    parser = commands.add_parser("inbox", help="list what runs wait for from people")
    parser.add_argument("run_id", nargs="?", metavar="RUN_ID", help="of this run only")
    _add_journal(parser)
    _add_common(parser, "one JSON object an item, a line each, nothing clipped")


_ANSWERS = """answers:
  a plan:             accept, edit [--plan FILE], reject [--reason TEXT]
  a call outside it:  allow, deny [--reason TEXT]
  a call in doubt:    done [--result TEXT], not-done
  anything:           JSON"""


def _add_answer(commands: Any) -> None:
    parser = commands.add_parser(
        "answer",
        help="answer what a run waits for",
        description="Answer what a run waits for, once. `replan resume RUN_ID` goes on with it.",
        epilog=_ANSWERS,
    )
    parser.add_argument("run_id", metavar="RUN_ID")
    parser.add_argument(
        "words", nargs="+", metavar="[KEY] ANSWER", help="KEY may be left out where the run waits for one thing only"
    )
    parser.add_argument("--reason", metavar="TEXT", help="with reject and deny: why; the model reads it")
    parser.add_argument(
        "--plan", metavar="FILE", help="with edit: the plan to run, as YAML or JSON (default: opens $VISUAL or $EDITOR)"
    )
    parser.add_argument("--result", metavar="TEXT", help="with done: what the call gave")
    _add_journal(parser)
    _add_common(parser, None)


def _add_runs(commands: Any) -> None:
    parser = commands.add_parser("runs", help="list the runs, newest first")
    _add_journal(parser)
    parser.add_argument("--limit", type=_positive, default=20, metavar="N", help="at most so many (default: 20)")
    _add_common(parser, "one JSON object a run, a line each")


def _add_show(commands: Any) -> None:
    parser = commands.add_parser("show", help="show a run: goal, plan, tool calls, answer, cost")
    parser.add_argument("run_id", metavar="RUN_ID")
    group = parser.add_argument_group("the plan")
    group.add_argument("--plan", action="store_true", help="draw the plan: steps, states, times, what waits for what")
    form = group.add_mutually_exclusive_group()
    form.add_argument("--mermaid", action="store_true", help="draw it as Mermaid text")
    form.add_argument("--svg", metavar="FILE", help="draw it as an SVG file (`-`: to standard output)")
    _add_journal(parser)
    _add_common(parser, "one JSON object, nothing clipped")


def _add_tools(commands: Any) -> None:
    parser = commands.add_parser(
        "tools", help="list the tools of MCP servers", description="Connect to MCP servers and list their tools."
    )
    _add_mcp(parser)
    _add_common(parser, "one JSON object a tool, a line each")


def _add_model(commands: Any) -> None:
    parser = commands.add_parser("model", help="the embedded model's weights")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for name, text in (
        ("pull", "fetch the weights, once"),
        ("ensure", "fetch the weights if the default model is the embedded one and they are missing"),
        ("path", "print where the weights are"),
    ):
        _add_common(actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}."), None)


def _add_agent_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model and tools")
    group.add_argument(
        "--model",
        metavar="PROVIDER:NAME",
        help="default: REPLAN_MODEL, else OpenAI's if there is a key, else the embedded one",
    )
    group.add_argument("--planner-model", metavar="PROVIDER:NAME", help="another model for planning")
    group.add_argument("--synthesizer-model", metavar="PROVIDER:NAME", help="another model for the answer")
    group.add_argument("--base-url", metavar="URL", help="where the provider of --model is reached")
    group.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="how long a model may give no sign of life (default: 120)"
    )
    group.add_argument(
        "--max-retries", type=_whole, metavar="N", help="how often a failed model call is repeated (default: 3)"
    )
    group.add_argument(
        "--thinking",
        type=_thinking,
        metavar="LEVEL",
        help=f"how much the model thinks: {', '.join(get_args(ThinkingLevel))}, or a budget in tokens",
    )
    group.add_argument("--system-prompt", metavar="TEXT|@FILE", help="standing instructions")
    _add_mcp(group)
    group.add_argument(
        "--unattended",
        choices=("deny", "wait"),
        help="questions that nobody can answer: deny (default), or wait, and exit with 3",
    )


def _add_attach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--attach",
        action="append",
        default=[],
        metavar="FILE",
        help="an image, a sound or a document that belongs to the goal (may be given several times)",
    )


def _add_mcp(group: Any) -> None:
    group.add_argument(
        "--mcp",
        action="append",
        metavar="FILE|JSON",
        help="MCP servers: an mcp.json file, or its content; may be repeated",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("planning and limits")
    group.add_argument(
        "--tool-selection", choices=("all", "plan-narrowed"), help="the tools that a step is offered (default: all)"
    )
    group.add_argument(
        "--replan-after",
        choices=("failure", "always"),
        help="the steps after which the plan is looked at (default: failure)",
    )
    group.add_argument(
        "--review",
        choices=("never", "writes", "always"),
        help="plans that a person has to accept: those that may write, or all (default: never)",
    )
    for option, least, text in (
        ("--max-turns", 1, "model calls in one step, or in a plain run (default: 50)"),
        ("--max-iterations", 1, "executed steps (default: 25)"),
        ("--max-plan-steps", 1, "steps of a plan (default: 8)"),
        ("--max-revisions", 0, "revisions of the plan (default: 2)"),
        ("--max-tool-calls", 0, "tool calls (default: no limit)"),
        ("--max-tokens", 1, "tokens in and out together (default: no limit)"),
    ):
        group.add_argument(option, type=_positive if least else _whole, metavar="N", help=text)


def _add_journal(parser: argparse.ArgumentParser) -> Any:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--journal",
        metavar="FILE",
        help="where runs are recorded (default: REPLAN_JOURNAL, else the user's state folder)",
    )
    return where


def _add_common(
    parser: argparse.ArgumentParser, json: str | None = "events as JSON, one a line, on standard output"
) -> None:
    group = parser.add_argument_group("input and output")
    if json:
        group.add_argument("--json", action="store_true", help=json)
    group.add_argument(
        "--env-file", metavar="FILE", help="lines NAME=VALUE for the environment; what is set already stays"
    )
    group.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="what is logged (default: warning); debug shows tracebacks",
    )


def _thinking(text: str) -> str | int:
    if text.isdecimal():
        return int(text)
    if text not in get_args(ThinkingLevel):
        known = ", ".join(get_args(ThinkingLevel))
        raise argparse.ArgumentTypeError(f"{text!r} is none of {known}, and no number of tokens")
    return text


def _whole(text: str) -> int:
    return _number(text, 0)


def _positive(text: str) -> int:
    return _number(text, 1)


def _number(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value
