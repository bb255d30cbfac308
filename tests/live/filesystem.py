"""A few goals over a public MCP server that is not written in Python: `@modelcontextprotocol/server-filesystem`.

    python tests/live/filesystem.py [--model provider:name] [--server PATH/dist/index.js]

Without `--server` the package is installed with npm into a temporary folder; without npm nothing is run.
"""

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from replan import PlanningAgent

PACKAGE = "@modelcontextprotocol/server-filesystem"
FILES = {"rota.txt": "Monday: Ilse\nTuesday: Tobin\nWednesday: Renna\n", "gate.txt": "The code of the gate is 7391.\n"}
GOALS = [
    ("What is the code of the gate? It is in gate.txt in {folder}.", "7391"),
    ("Who works on Tuesday, according to {folder}/rota.txt?", "Tobin"),
    ("Which files are there in {folder}?", "rota.txt"),
]
READING = ["read_*", "list_*", "search_files", "get_file_info", "directory_tree"]


def installed(folder: Path) -> Path | None:
    """The server's program, fetched with npm; None where there is no npm."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    subprocess.run([npm, "install", "--silent", "--prefix", str(folder), PACKAGE], check=True)
    return folder / "node_modules" / PACKAGE / "dist" / "index.js"


async def run_goal(goal: str, expected: str, folder: Path, server: Path, model: str) -> bool:
    """One goal: whether the answer holds what it must."""
    servers = {"files": {"command": "node", "args": [str(server), str(folder)], "read_only": READING}}
    started = time.monotonic()
    async with PlanningAgent(model, mcp_servers=servers) as agent:
        result = await agent.run(goal.format(folder=folder))
    right = expected in result.text
    steps = " ".join(r.kind for r in result.trace)
    took = time.monotonic() - started
    print(
        f"{'right' if right else 'WRONG'} {took:6.1f} s  {steps:20} {' '.join(result.text.split())[:160]}", flush=True
    )
    return right


async def main() -> int:
    parser = argparse.ArgumentParser(description="Goals over the filesystem server.")
    parser.add_argument("--model", default="local:")
    parser.add_argument("--server", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = args.server or installed(Path(place))
        if server is None:
            print("npm is not there: the filesystem server is left out")
            return 0
        folder = Path(place).resolve() / "files"
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
        right = [await run_goal(goal, expected, folder, server, args.model) for goal, expected in GOALS]
    print(f"{sum(right)} of {len(right)} right over {PACKAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
