"""The programs of the README run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from replan.testing import ScriptedServer

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PROGRAM, TEST = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_program_of_the_readme_runs(tmp_path: Path):
    steps = [{"description": p, "call": {"tool": "stock", "arguments": {"product": p}}} for p in ("lamp", "kettle")]
    with ScriptedServer(json.dumps({"thought": "look both up", "steps": steps}), "201 together.") as server:
        more = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": server.base_url}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=tmp_path,
            env=os.environ | more,
            capture_output=True,
            text=True,
            check=True,
        )
        bodies = [json.loads(request.body) for request in server.requests]
    assert done.stdout.startswith("201 together. ")
    assert "143" in json.dumps(bodies[1])
    assert (tmp_path / "runs.db").exists()


async def test_the_test_of_the_readme_passes():
    names: dict[str, Any] = {}
    exec(PROGRAM.split("async def main")[0] + TEST, names)
    await names["test_it_looks_up_the_stock"]()
