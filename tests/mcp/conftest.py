import logging
import os
import sys
import time
import uuid
from pathlib import Path

import pytest

from replan.mcp import StdioServer
from replan.tool import ToolContext

SCRIPT = str(Path(__file__).with_name("wire_server.py"))


def marked_processes(mark):
    """The ids of the processes whose environment holds the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark.encode() in (folder / "environ").read_bytes()
                and "Z" not in (folder / "stat").read_text().split()[2]
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def wire():
    """Makes configurations of the misbehaving server; afterwards no process of theirs may be left."""
    mark = f"replan-test-{uuid.uuid4().hex}"

    def make(*flags, **options):
        env = {"REPLAN_TEST_MARK": mark, **options.pop("env", {})}
        return StdioServer(sys.executable, ("-S", "-E", SCRIPT, *flags), env, **options)

    make.mark = mark
    make.processes = lambda: marked_processes(mark)
    yield make
    deadline = time.monotonic() + 2
    while (left := marked_processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, 9)
    assert not left


@pytest.fixture
def context(tmp_path):
    """A tool context that keeps artifacts in a folder and notes progress."""

    def keep(data, mime):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.bin"
        path.write_bytes(data)
        return path

    steps = []
    made = ToolContext(
        run_id="run",
        call_id="call",
        tool_name="tool",
        idempotency_key="key-1",
        deps=None,
        logger=logging.getLogger("test"),
        sandbox_path=lambda: tmp_path,
        keep=keep,
        progress=lambda done, total, message: steps.append((done, total, message)),
    )
    made.cancelled.steps = steps
    return made
