"""The command `replan`: runs agents from a terminal, a pipe or a script.

`parser.py` is the grammar, `launch.py` runs and resumes, `past.py` looks at runs, `view.py` is what a person is shown
of a run's events.
"""

import atexit
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from .output import OutputClosed, close_output, prepare_output, write_error
from .parser import build_parser
from .text import one_line

__all__ = ["main"]

_COMMANDS = {
    "run": "launch",
    "plan": "planned",
    "resume": "launch",
    "inbox": "inbox",
    "answer": "inbox",
    "runs": "past",
    "show": "past",
    "tools": "servers",
    "model": "model",
}
_PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code. It does not raise.

    `argv` are its words without the program's name; None: those of this process, which is to end with the code.
    """
    prepare_output()
    try:
        code = _dispatch(argv)
    except SystemExit as end:
        code = int(end.code or 0)
    except KeyboardInterrupt:
        write_error("replan: interrupted\n")
        code = 130
    except OutputClosed:
        code = _PIPE_CLOSED
    code = code if close_output() else _PIPE_CLOSED
    if argv is None:
        _leave_with(code)
    return code


def _leave_with(code: int) -> None:
    """The command is done and its process about to end: Ctrl-C changes nothing about its exit code any more."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(code))
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # from then on handlers are not called


def _dispatch(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        return importlib.import_module(f".{_COMMANDS[args.command]}", __name__).execute(args)
    except OutputClosed:
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, a person reads one line of it
        if args.log_level == "debug":
            import traceback

            write_error(traceback.format_exc())
        text, code = _explain(error)
        write_error(f"replan: {text}\n")
        return code


def _explain(error: Exception) -> tuple[str, int]:
    """What a person is told of an error, and the exit code."""
    from replan.errors import ConfigError, ReplanError

    text = one_line(str(error), 2000)
    if isinstance(error, ConfigError):
        return text, 2
    if isinstance(error, (ReplanError, OSError)):
        return text or type(error).__name__, 1
    return f"unexpected {type(error).__name__}: {text}; `--log-level debug` shows where", 1
