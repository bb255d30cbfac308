"""Goals in plain loops and as plans, and what scheduling costs: measures and writes RESULTS-plans.md.

    python plans.py [--rounds 3] [--no-lattice] [--keep FILE]

The server is scripted_goals.py, the goals are goals.py, the lattice is lattice.py.
"""

import argparse
import datetime
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from goals import GOALS, LATENCY, TOOLS
from peers import HERE, PEERS, home, install
from report import table
from run import INSTALLED, Server
from scripted_goals import RATE, SECONDS

RUNNERS = {  # runner: (label, environment)
    "replan": ("replan `Agent`", "replan"),
    "pydantic_ai": ("pydantic-ai", "pydantic_ai"),
    "openai_agents": ("openai-agents (chat)", "openai_agents"),
    "plan": ("replan `PlanningAgent`", "replan"),
}
PLAIN = [name for name in RUNNERS if name != "plan"]
TITLES = {
    "eight": "Eight independent look-ups",
    "chain": "A chain of five",
    "two-chains": "Two chains of three and a combination",
}
SIZES = (200, 500, 1000, 2000)
PATIENCE = 30  # seconds that one size of the lattice may take
TOO_LONG = f"stopped after {PATIENCE} s"
SLACK = 1.05  # what timers of a busy machine may add to a wall time
PAGE = HERE / "RESULTS-plans.md"


def run(name: str, *command, timeout: float = 300) -> dict:
    """Run a script in a peer's environment, and give what it found."""
    env = os.environ | {"OPENAI_API_KEY": "none", "PYTHONPATH": ""}
    command = [home(name) / "bin/python", *command]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=timeout)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[7:])
    raise RuntimeError(f"{command}: {(done.stderr or done.stdout).strip()[-2000:]}")


def measure_goals(rounds: int) -> dict:
    """Samples of every goal and runner, rounds outermost."""
    samples = {goal: {name: [] for name in RUNNERS} for goal in GOALS}
    with Server("scripted_goals.py") as server:
        for _ in range(rounds):
            for goal in GOALS:
                for name, (_, venv) in RUNNERS.items():
                    sample = run(venv, HERE / "goal.py", HERE / "runners" / f"goal_{name}.py", goal, server.url)
                    samples[goal][name].append(sample)
                    print(goal, name, f"{sample['wall']:.2f} s", len(sample["calls"]), "model calls", flush=True)
    return samples


def measure_lattices() -> list[dict]:
    """A row for each size; where one takes too long, what is larger is not tried."""
    rows = []
    for needs in ("two", "all"):
        for size in SIZES:
            try:
                rows.append(run("replan", HERE / "lattice.py", str(size), needs, timeout=PATIENCE))
            except subprocess.TimeoutExpired:
                rows.append({"size": size, "needs": needs, "stopped": True})
            print("lattice", rows[-1], flush=True)
            if "stopped" in rows[-1]:
                break
    return rows


def total(sample: dict, key: str) -> float:
    return sum(call[key] for call in sample["calls"])


def median(samples: list[dict], figure) -> float:
    return statistics.median(map(figure, samples))


def figures(samples: list[dict]) -> dict:
    """The medians of one runner on one goal."""
    return {
        "calls": median(samples, lambda s: len(s["calls"])),
        "sent": median(samples, lambda s: total(s, "sent")),
        "received": median(samples, lambda s: total(s, "received")),
        "model": median(samples, lambda s: total(s, "seconds")),
        "wall": median(samples, lambda s: s["wall"]),
    }


def goal_tables(samples: dict) -> str:
    columns = [
        "",
        "model calls",
        "tokens sent",
        "tokens received",
        "sent, of the best loop's",
        "wall s",
        "of which model s",
    ]
    parts = []
    for goal, by_name in samples.items():
        found = {name: figures(by_name[name]) for name in RUNNERS}
        best = min(found[name]["sent"] for name in PLAIN)
        rows = [
            [
                RUNNERS[name][0],
                f"{f['calls']:.0f}",
                f"{f['sent']:,.0f}",
                f"{f['received']:,.0f}",
                f"{f['sent'] / best:.0%}",
                f"{f['wall']:.2f}",
                f"{f['model']:.2f}",
            ]
            for name, f in found.items()
        ]
        parts.append(table(TITLES[goal], columns, rows))
        calls = by_name["plan"][0]["calls"]
        kinds = "; ".join(f"{c['kind']}: {c['sent']:,.0f} sent, {c['received']:,.0f} received" for c in calls)
        parts.append(f"The plan's model calls: {kinds}. Steps: {by_name['plan'][0]['steps']}.\n")
    return "\n".join(parts)


def targets(samples: dict, lattice: list[dict]) -> list[tuple[str, str, str, bool]]:
    """(what, measured, target, met)."""
    found = []
    phase = median(samples["eight"]["plan"], lambda s: s["tool_phase"])
    found.append(
        ("tool phase of eight look-ups", f"{phase:.3f} s", f"<= {1.5 * LATENCY:.2f} s", phase <= 1.5 * LATENCY)
    )
    for goal, by_name in samples.items():
        best = min(figures(by_name[name])["sent"] for name in PLAIN)
        plan = figures(by_name["plan"])
        share = plan["sent"] / best
        chained = GOALS[goal].depth > 1
        wanted = "<= 50 %" if chained else "< 100 %"
        met = share <= 0.5 if chained else share < 1
        found.append((f"tokens sent, {goal}, of the best loop's", f"{share:.0%}", wanted, met))
        least = plan["model"] + GOALS[goal].depth * LATENCY
        limit = f"<= {SLACK * least:.2f} s (planning + longest chain + answer, and {SLACK - 1:.0%})"
        found.append((f"wall, {goal}", f"{plan['wall']:.2f} s", limit, plan["wall"] <= SLACK * least))
    return found + lattice_targets(lattice)


def lattice_targets(rows: list[dict]) -> list[tuple[str, str, str, bool]]:
    found = []
    for row in rows:
        cost = row.get("per_step_ms")
        measured = f"{cost:.3f} ms" if cost else TOO_LONG
        name = f"scheduling a step, {row['size']} steps, each needs {row['needs']}"
        found.append((name, measured, "< 1 ms", bool(cost and cost < 1)))
    for needs in dict.fromkeys(row["needs"] for row in rows):
        costs = {row["size"]: row.get("per_step_ms") for row in rows if row["needs"] == needs}
        growth = costs[SIZES[-1]] / costs[SIZES[0]] if costs.get(SIZES[-1]) else None
        name = f"growth of a step's cost, {SIZES[-1]} over {SIZES[0]} steps, each needs {needs}"
        found.append((name, f"{growth:.2f}x" if growth else TOO_LONG, "<= 2x", bool(growth and growth <= 2)))
    return found


def lattice_table(rows: list[dict]) -> str:
    columns = [
        "steps, each needs",
        "run",
        "same calls in a plain loop",
        "reading the plan",
        "scheduling a step",
        "of which not reading",
        "`schedule.py` alone",
    ]
    cells = [
        [
            f"{row['size']:,}, {row['needs']}",
            *([TOO_LONG, *["-"] * 5] if "stopped" in row else lattice_cells(row)),
        ]
        for row in rows
    ]
    return table("A lattice of steps, in layers of ten: CPU ms", columns, cells)


def lattice_cells(row: dict) -> list[str]:
    following = (row["run_ms"] - row["plain_ms"] - row["read_ms"]) / row["size"]
    whole = [f"{row[key]:,.0f}" for key in ("run_ms", "plain_ms", "read_ms")]
    return [*whole, f"{row['per_step_ms']:.3f}", f"{following:.3f}", f"{row['schedule_ms']:.3f}"]


def page(samples: dict, lattice: list[dict]) -> str:
    versions = ", ".join(f"{PEERS[venv]['dist']} {installed(venv)}" for _, venv in list(RUNNERS.values())[:3])
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    rows = [
        [what, measured, wanted, "yes" if met else "**no**"]
        for what, measured, wanted, met in targets(samples, lattice)
    ]
    head = [
        "# Results: plans",
        "",
        "`make bench-plans` writes this page.",
        "",
        f"{datetime.date.today()}, {os.cpu_count()} cores ({platform.machine()}), load {load} at the end; Python "
        f"{installed_python()}; {versions}. {len(samples['chain']['plan'])} rounds, medians.",
        "",
        f"The model is a script (`scripted_goals.py`): {SECONDS} s and {RATE} tokens a second for each reply; each tool takes "
        f"{LATENCY} s. All frameworks have the same {len(TOOLS)} native tools, no system prompt, the same results and the same "
        "answer; the loops get all calls that can be made at once in one reply. Tokens are bytes / 4: sent, of the request "
        "bodies that the server received, schemas and tool lists included; received, of the text or the calls' names and arguments.",
        "",
    ]
    return "\n".join(
        [
            *head,
            table("Targets", ["", "measured", "target", "met"], rows),
            goal_tables(samples),
            *([lattice_table(lattice), LATTICE_NOTE] if lattice else []),
        ]
    )


LATTICE_NOTE = """\
The run is `run(plan=...)` with a trivial tool, in memory, the answer from a scripted model in the same process; scheduling is its CPU less
that of a plain `Agent` making the same calls, all in one turn. Reading the plan (lint, price) is part of the run. The last column builds a
`Schedule`, starts and finishes every step; all but that column and the two before it are CPU ms of the whole. Each figure is the least of three.
"""


def installed(venv: str) -> str:
    command = [home(venv) / "bin/python", "-c", INSTALLED, PEERS[venv]["dist"]]
    return json.loads(subprocess.check_output(command))["version"]


def installed_python() -> str:
    return subprocess.check_output([home("replan") / "bin/python", "-V"], text=True).split()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-lattice", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the samples there as JSON")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is ended too
    for _, venv in RUNNERS.values():
        install(venv)
    samples = measure_goals(args.rounds)
    lattice = [] if args.no_lattice else measure_lattices()
    if args.keep:
        args.keep.write_text(json.dumps({"goals": samples, "lattice": lattice}, indent=1) + "\n")
    PAGE.write_text(page(samples, lattice), encoding="utf-8")
    missed = [row for row in targets(samples, lattice) if not row[3]]
    for what, measured, wanted, _ in missed:
        print(f"missed: {what}: {measured}, wanted {wanted}")


if __name__ == "__main__":
    main()
