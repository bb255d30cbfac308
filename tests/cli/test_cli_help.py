import resource
import subprocess
import sys

import pytest

from replan import __version__


def test_help_is_quick(capsys):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "replan.cli", "--help"], capture_output=True, timeout=20, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with capsys.disabled():
        print(f"\nreplan --help: {seconds:.3f} s of CPU")
    assert b"usage: replan" in done.stdout
    assert seconds < 1


@pytest.mark.parametrize(
    "command",
    [[], ["run"], ["resume"], ["runs"], ["show"], ["tools"], ["model"], ["inbox"], ["answer"], ["model", "pull"]],
)
def test_every_command_has_help(replan, command):
    done = replan(*command, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: {' '.join(['replan', *command])}")


def test_the_version_is_told(replan):
    assert replan("--version").out == f"replan {__version__}\n"


def test_help_loads_no_heavy_library():
    heavy = ("aiohttp", "mcp", "pydantic", "rich", "sqlite3", "platformdirs", "genai_prices", "xllamacpp")
    code = (
        "import sys\nfrom replan.cli import main\n"
        f"main(['--help']); print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=20, check=True)
    assert done.stderr == b"[]\n"
