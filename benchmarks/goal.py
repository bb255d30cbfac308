"""Measure one runner on one goal in this interpreter and print one JSON line: `python goal.py RUNNER GOAL BASE_URL`.

A first run, against a model that takes no time, warms up; then the measured one. Its answer must be the goal's.
"""

import asyncio
import json
import runpy
import sys
import time
import urllib.request

from goals import GOALS


def http(method, url):
    with urllib.request.urlopen(urllib.request.Request(url, method=method)) as response:
        return json.loads(response.read())


async def measure(runner, name, base_url):
    build, goal = runpy.run_path(runner)["build"], GOALS[name]
    server = base_url.removesuffix("/v1")
    for model in (f"goal-{name}-fast", f"goal-{name}"):
        run = build(base_url, model, goal.text, time.perf_counter)
        http("POST", f"{server}/reset")
        started, cpu = time.perf_counter(), time.process_time()
        text, more = await run()
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
        if text != goal.answer:
            sys.exit(f"invalid: the answer is {text!r}, not {goal.answer!r}; {more}; {http('GET', f'{server}/calls')}")
    return {"wall": wall, "cpu": cpu, "calls": http("GET", f"{server}/calls"), **more}


if __name__ == "__main__":
    print("\nRESULT " + json.dumps(asyncio.run(measure(*sys.argv[1:4]))))
