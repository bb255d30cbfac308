"""Run the goals of `tasks/public.json` and `heldout/goals.json` on a real model and judge the answers.

    python tests/live/run.py [ID ...] [--goals public|heldout|all] [--model provider:name] [--kinds direct,bound,open] [--verbose] [--out FILE]

Each goal gets its own MCP server process with only the tools that the goal names; `tasks/check.py` judges the answer and what was
written. Exit status 1 when fewer than `--least` goals are right. The held-out goals are of the same kinds, over other tools and data:
nothing is tuned to either set.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from replan import Planning, PlanningAgent, PlanningResult
from replan.events import AnyEvent

TASKS, HELD_OUT = Path(__file__).parent / "tasks", Path(__file__).parent / "heldout"
WRITES = ("create_note", "send_message", "add_reminder", "post_notice")
sys.path.insert(0, str(TASKS))

import check


def server(task: dict[str, Any], effects: Path) -> dict[str, Any]:
    """The configuration of the goal's MCP server. The tools that write are known; the others are declared as reading."""
    script = HELD_OUT / "server.py" if task["set"] == "heldout" else TASKS / "mcp_server.py"
    args = [str(script), "--tools", ",".join(task["tools"]), "--effects", str(effects)]
    reading = [name for name in task["tools"] if name not in WRITES]
    return {"tasks": {"command": sys.executable, "args": args, "read_only": reading}}


def goals(which: str) -> list[dict[str, Any]]:
    """The goals of a set, or of both."""
    files = {"public": TASKS / "public.json", "heldout": HELD_OUT / "goals.json"}
    sets = {
        name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if which in (name, "all")
    }
    return [{**task, "set": name} for name, tasks in sets.items() for task in tasks]


async def run_goal(task: dict[str, Any], model: str, planning: Planning, *, verbose: bool) -> dict[str, Any]:
    """One goal: what was answered, whether that is right, and what it took."""
    started = time.monotonic()
    show = _show if verbose else None
    with tempfile.TemporaryDirectory() as folder:
        effects = Path(folder) / "effects.json"
        async with PlanningAgent(model, mcp_servers=server(task, effects), planning=planning, on_event=show) as agent:
            row: dict[str, Any] = {"id": task["id"], "kind": task["kind"], "set": task["set"]}
            try:
                result = await asyncio.wait_for(agent.run(task["goal"]), task["max_seconds"])
                row |= _facts(result)
            except Exception as error:  # a failed goal is a row of the table
                row |= {"answer": "", "error": f"{type(error).__name__}: {error}"[:200]}
            written = json.loads(effects.read_text()) if effects.exists() else None
        row["right"], row["why"] = check.check(task, row["answer"], written)
    row["seconds"] = round(time.monotonic() - started, 1)
    return row


def _facts(result: PlanningResult[Any]) -> dict[str, Any]:
    return {
        "answer": result.text,
        "status": result.status,
        "steps": " ".join(f"{r.kind}{'' if r.ok else '!'}" for r in result.trace),
        "model_calls": result.usage.model_calls,
        "tokens": result.usage.total_tokens,
        "calls": [f"{c.tool}({json.dumps(c.arguments)}) -> {c.output[:80]}" for r in result.trace for c in r.calls],
    }


def _show(event: AnyEvent) -> None:
    text = str(event)
    if "Delta" not in text[:24]:
        print("   ", text[:600], flush=True)


def _line(row: dict[str, Any]) -> str:
    mark = "right" if row["right"] else "WRONG"
    calls, tokens = row.get("model_calls", "-"), row.get("tokens", "-")
    answer = " ".join((row["answer"] or row.get("error", "")).split())
    why = "" if row["right"] else f"  <- {row['why']}"
    return f"{row['id']} {row['kind']:10} {mark} {row['seconds']:6} s {calls:>3} calls {tokens:>6} tok  {row.get('steps', ''):24} {answer[:150]}{why}"


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]  # it is above
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--goals", choices=("public", "heldout", "all"), default="all")
    parser.add_argument("--model", default="local:")
    parser.add_argument("--kinds", default="direct,bound,open", help="the kinds of steps that plans may have")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--least", type=int, default=0)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    planning = Planning(step_kinds=args.kinds.split(","))
    for task in goals(args.goals):
        if not args.ids or task["id"] in args.ids:
            rows.append(await run_goal(task, args.model, planning, verbose=args.verbose))
            print(_line(rows[-1]), flush=True)
            if args.out:
                args.out.write_text(json.dumps(rows, indent=1, ensure_ascii=False))
    for name in ("public", "heldout"):
        if part := [row for row in rows if row["set"] == name]:
            print(
                f"{name}: {sum(row['right'] for row in part)} of {len(part)} right, {sum(row['seconds'] for row in part):.0f} s"
            )
    right = sum(row["right"] for row in rows)
    return int(right < args.least)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
