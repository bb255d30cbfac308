"""`replan model`: the embedded model's weights."""

import sys
import time
from argparse import Namespace

from replan.errors import ConfigError

from .environment import load_env_file
from .output import is_terminal, write_error, write_text
from .stop import Stopper
from .text import one_line

__all__ = ["execute"]

_BAR = 30


def execute(args: Namespace) -> int:
    """Run the command and give its exit code."""
    from replan.models import default_model
    from replan.models.weights import weights_path

    load_env_file(args.env_file)
    if args.action == "ensure" and not default_model().startswith("local:"):
        return 0
    path = weights_path()
    if args.action == "path":
        if path is None:
            raise ConfigError("the weights are not here yet; fetch them with: replan model pull")
        write_text(f"{path}\n")
    elif path is None:
        return _pull(say_where=args.action == "pull")
    elif args.action == "pull":
        write_error("the weights are here already\n")
        write_text(f"{path}\n")
    return 0


def _pull(*, say_where: bool) -> int:
    from replan.models.weights import pull

    with Stopper() as stopper:
        progress = _Progress()
        try:
            path = pull(progress)
        except KeyboardInterrupt:
            progress.end()
            write_error("replan: interrupted; what was fetched is kept: go on with replan model pull\n")
            return stopper.code
        finally:
            progress.end()
    if say_where:
        write_text(f"{path}\n")
    return 0


class _Progress:
    """A bar on a terminal; elsewhere a line for each tenth."""

    def __init__(self) -> None:
        self._live = is_terminal(sys.stderr)
        self._what = ""
        self._tenth = -1
        self._drawn = 0.0
        self._open = False

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what != self._what:
            self.end()
            self._what, self._tenth, self._drawn = what, -1, 0.0
        if not total:
            self._once(what)
        elif self._live:
            self._draw(what, done, total)
        elif (tenth := 10 * done // total) > self._tenth:
            self._tenth = tenth
            write_error(f"{one_line(what)}: {_size(done)} of {_size(total)}\n")

    def end(self) -> None:
        """Leave the bar as it is."""
        if self._open:
            write_error("\n")
            self._open = False

    def _once(self, what: str) -> None:
        if self._tenth < 0:
            self._tenth = 0
            write_error(f"{one_line(what, 300)}\n")

    def _draw(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._drawn < 0.1 and done < total:
            return
        self._drawn, self._open = now, True
        full = min(_BAR, _BAR * done // total)
        bar = "#" * full + "." * (_BAR - full)
        write_error(f"\r{one_line(what, 40)} [{bar}] {_size(done)} of {_size(total)} \x1b[K")


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
