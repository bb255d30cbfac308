"""Each wire of `replan.models` beside the SDK of its vendor, in a loop by hand: measures and writes RESULTS-wires.md.

    python wires.py [WIRE ...] [--rounds 3] [--keep FILE]

The server is scripted_wires.py; each sample is measure.py in a fresh process of this environment.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from peers import HERE
from report import table
from run import Server

WIRES = {  # wire: (label, the SDK's runner, its distribution)
    "chat": ("OpenAI Chat Completions", "wire_openai_chat", "openai"),
    "responses": ("OpenAI Responses", "wire_openai_responses", "openai"),
    "anthropic": ("Anthropic Messages", "wire_anthropic", "anthropic"),
    "gemini": ("Gemini", "wire_google_genai", "google-genai"),
    "bedrock": ("Bedrock, signed", "wire_boto3", "boto3"),
    "bedrock-key": ("Bedrock, not signed", "wire_boto3", "boto3"),
}
LOOPS = {10: 1 / 5, 100: 1 / 10}  # calls in the loop: what ours may cost of the SDK
RUNS = ["--runs", "3", "--warm", "1"]
CLEARED = ("http_proxy", "https_proxy", "all_proxy", "aws_profile", "aws_bearer_token_bedrock")
PAGE = HERE / "RESULTS-wires.md"


def measure(runner: str, wire: str, url: str, *arguments: str) -> dict:
    scenario, *more = arguments
    command = [sys.executable, HERE / "measure.py", HERE / "runners" / f"{runner}.py", scenario, url, *more]
    env = {name: value for name, value in os.environ.items() if name.lower() not in CLEARED}
    env |= {"WIRE": wire, "PYTHONPATH": "", "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[7:])
    raise RuntimeError(f"{wire}, {runner}: {(done.stderr or done.stdout).strip()[-2000:]}")


def measure_all(wires: list[str], rounds: int) -> dict:
    """Samples by wire, side and scenario ("import" or the calls of the loop), rounds outermost."""
    samples = {wire: {side: {"import": [], **{n: [] for n in LOOPS}} for side in ("ours", "sdk")} for wire in wires}
    with Server("scripted_wires.py") as server:
        for number in range(rounds):
            for wire in wires:
                for side, runner in (("ours", "wire_replan"), ("sdk", WIRES[wire][1])):
                    found = samples[wire][side]
                    found["import"].append(measure(runner, wire, server.url, "import", "--tools", "1"))
                    for n in LOOPS:
                        found[n].append(measure(runner, wire, server.url, "stream", "--tools", str(n), *RUNS))
                    brief = ", ".join(f"{n} calls {found[n][-1]['cpu_ms_per_turn']:.2f} ms" for n in LOOPS)
                    print(number, wire, side, brief, flush=True)
    return samples


def figures(samples: list[dict], key: str) -> list[float]:
    return sorted(sample[key] for sample in samples)


def spread(samples: list[dict], key: str) -> str:
    found = figures(samples, key)
    return f"{statistics.median(found):.2f} ({found[0]:.2f}-{found[-1]:.2f})"


def median(samples: list[dict], key: str) -> float:
    return statistics.median(figures(samples, key))


def shares(samples: dict, n: int) -> dict[str, float]:
    """What ours costs of the SDK, by wire."""
    key = "cpu_ms_per_turn"
    return {wire: median(by["ours"][n], key) / median(by["sdk"][n], key) for wire, by in samples.items()}


def loop_table(samples: dict, n: int) -> str:
    key, limit = "cpu_ms_per_turn", LOOPS[n]
    rows = []
    for wire, share in shares(samples, n).items():
        label, _, dist = WIRES[wire]
        ours, sdk = samples[wire]["ours"][n], samples[wire]["sdk"][n]
        met = "yes" if share <= limit else "**no**"
        rows.append([label, spread(ours, key), f"{dist} {spread(sdk, key)}", f"{1 / share:.1f}", f"{share:.0%}", met])
    columns = ["wire", "ours", "SDK", "SDK / ours", "ours / SDK", f"at most {limit:.0%}"]
    return table(f"A loop of {n} calls: CPU ms a turn, median (least-most) of the rounds", columns, rows)


def import_table(samples: dict, when: str, title: str) -> str:
    rows = []
    for wire, by in samples.items():
        label, _, dist = WIRES[wire]
        for name, found in ((f"{label}, ours", by["ours"]["import"]), (f"{label}, {dist}", by["sdk"]["import"])):
            cpu, mb, modules = (median(found, f"{when}_{what}") for what in ("cpu_ms", "rss_mb", "modules"))
            rows.append([name, f"{cpu:,.0f}", f"{mb:,.0f}", f"{modules:,.0f}"])
    return table(title, ["", "CPU ms", "MB", "modules"], rows)


def head(samples: dict, before: str) -> list[str]:
    dists = dict.fromkeys(["replan", *(WIRES[wire][2] for wire in samples)])
    versions = ", ".join(f"{dist} {importlib.metadata.version(dist)}" for dist in dists)
    rounds = len(next(iter(samples.values()))["ours"]["import"])
    slow = [
        sample["calibration_ms"] for by in samples.values() for side in by.values() for n in LOOPS for sample in side[n]
    ]
    bare = next(iter(samples.values()))["ours"]["import"][0]
    return [
        "# Results: wires",
        "",
        "`make bench-wires` writes this page.",
        "",
        f"{datetime.date.today()}, {os.cpu_count()} cores ({platform.machine()}), load {before} at the start and {load()} at the "
        f"end; Python {platform.python_version()}; {versions}. {rounds} rounds of fresh processes; in each, the median of three "
        f"runs after one. A fixed piece of work, timed in each process, took {min(slow):.1f} to {max(slow):.1f} ms (median "
        f"{statistics.median(slow):.1f}): so far may other work on the machine move a figure.",
        "",
        "A loop by hand asks a scripted model on the loopback (`scripted_wires.py`), streaming, parses the arguments of the call "
        "and appends a result of 1,000 characters, until the model answers: N calls are N + 1 turns, and the conversation grows. "
        "Ours is `model.stream(ModelRequest(...))` of `resolve(...)`; the SDK's is what its documentation shows "
        "(`runners/wire_*.py`), asynchronous where there is such a client; boto3 has none. Replies go back as "
        "the SDK gives them. CPU is the client's process, all threads, without the server; every sample is checked: the final text in N + 1 "
        "requests.",
        "",
        "Signed: with AWS credentials, on both sides by botocore. Not signed: boto3 with `UNSIGNED`, as it sends a bearer key only "
        "over TLS, and ours with a bearer key.",
        "",
        f"Memory and modules are of the whole process: Python alone has {bare['bare_rss_mb']:.0f} MB and {bare['bare_modules']} modules.",
        "",
    ]


def load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def page(samples: dict, before: str) -> str:
    parts = head(samples, before) + [loop_table(samples, n) for n in LOOPS]
    parts.append(import_table(samples, "import", "Imported (ours with the model resolved)"))
    parts.append(
        import_table(samples, "ready", "Imported, and a first loop of one call done, with all that is loaded for it")
    )
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wires", nargs="*", default=list(WIRES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the samples there as JSON")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is ended too
    before = load()
    samples = measure_all(args.wires, args.rounds)
    if args.keep:
        args.keep.write_text(json.dumps(samples, indent=1) + "\n")
    text = page(samples, before)
    if set(args.wires) == set(WIRES):
        PAGE.write_text(text.rstrip() + "\n", encoding="utf-8")
    else:
        print(text)
    for n, limit in LOOPS.items():
        for wire, share in shares(samples, n).items():
            if share > limit:
                print(f"missed: {WIRES[wire][0]}, {n} calls: {share:.0%} of the SDK, wanted {limit:.0%}")


if __name__ == "__main__":
    main()
