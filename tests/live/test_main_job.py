"""The main job, as `make run` does it: a goal, the embedded model, a public MCP server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


def test_the_default_goal_is_reached_on_the_embedded_model(tmp_path: Path):
    goal = "It is 09:30 in Lisbon. What time is it in Tokyo?"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "replan", "run", goal, "--model", "local:", "--mcp", "examples/time.mcp.json"]
    done = subprocess.run(
        [*command, "--journal", str(tmp_path / "runs.db")],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "18:30" in done.stdout
