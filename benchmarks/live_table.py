"""The tables of live runs, from what `tests/live/run.py --out` wrote: `python live_table.py FILE...` prints Markdown.

A row is a kind of goal and the kinds of steps that reached it; several files are several runs of the same goals.
"""

import json
import re
import statistics
import sys
from pathlib import Path

from report import table

KINDS = ("direct", "compute", "bound", "open")
COLUMNS = ["goals", "right", "model calls", "seconds, median", "seconds, longest", "tokens"]


def kinds_of(row: dict) -> str:
    """The kinds of steps of a run, without their order: `direct, bound`; what failed is not told apart."""
    used = {re.match(r"[a-z]*", word)[0] for word in row.get("steps", "").split()}
    return " + ".join(kind for kind in KINDS if kind in used) or "no steps"


def cells(rows: list[dict]) -> list[str]:
    def mean(key: str) -> str:
        found = [row[key] for row in rows if row.get(key) is not None]
        return f"{statistics.mean(found):,.1f}" if found else "-"

    seconds = [row["seconds"] for row in rows]
    right = sum(row["right"] for row in rows)
    share = f"{right} ({right / len(rows):.0%})"
    return [
        len(rows),
        share,
        mean("model_calls"),
        f"{statistics.median(seconds):.1f}",
        f"{max(seconds):.1f}",
        mean("tokens"),
    ]


def grouped(rows: list[dict], group) -> list[list[str]]:
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(group(row), []).append(row)
    return [[name, *cells(found)] for name, found in sorted(groups.items())] + [["all", *cells(rows)]]


def tables(rows: list[dict]) -> str:
    parts = [
        table("By kinds of steps", ["kinds of steps", *COLUMNS], grouped(rows, kinds_of)),
        table("By kind of goal", ["kind of goal", *COLUMNS], grouped(rows, lambda row: row["kind"])),
        table("By set of goals", ["set", *COLUMNS], grouped(rows, lambda row: row.get("set", "-"))),
    ]
    wrong = [row for row in rows if not row["right"]]
    lines = [[row["id"], row["kind"], kinds_of(row), row.get("why") or row.get("error", "")] for row in wrong]
    listed = [[text.replace("|", "\\|").replace("\n", " ") for text in line] for line in lines]
    return "\n".join([*parts, *([table("Wrong", ["goal", "kind", "steps", "why"], listed)] if wrong else [])])


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("usage: live_table.py FILE...")
    print(tables([row for name in sys.argv[1:] for row in json.loads(Path(name).read_text(encoding="utf-8"))]))
