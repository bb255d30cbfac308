"""CPU per durable step and size of the SQLite journal: `python benchmarks/journal.py`."""

import asyncio
import tempfile
import time
from pathlib import Path

from replan import Agent, Limits, tool
from replan.testing import ScriptedModel, call

RESULT = "some plain record text " * 43


@tool(read_only=True)
async def read(key: str) -> str:
    return f"{key}: {RESULT}"


@tool
async def write(key: str) -> str:
    return f"{key}: {RESULT}"


async def measure(name: str, turns: int, journal: Path | None) -> None:
    script = [call(name, key=f"k{i}") for i in range(turns)]
    async with Agent(
        ScriptedModel(*script, "done"), tools=[read, write], journal=journal, limits=Limits(max_turns=turns + 1)
    ) as agent:
        started = time.process_time()
        result = await agent.run("Look up every key.")
        cpu = (time.process_time() - started) * 1e3
        content = sum(len(str(message)) for message in result.raw_messages)
    steps = 2 * turns + 1
    size = sum(f.stat().st_size for f in journal.parent.glob(f"{journal.name}*") if f.is_file()) if journal else 0
    where = f"SQLite, {size / 1e3:8.0f} kB, {size / content:.2f} x its content" if journal else "memory"
    print(f"{name:5} {turns:5} turns: {cpu / steps:6.3f} ms CPU per durable step ({where})", flush=True)


async def main() -> None:
    await measure("read", 50, None)
    for name in ("read", "write"):
        for turns in (50, 100, 200, 400, 1000):
            with tempfile.TemporaryDirectory() as folder:
                await measure(name, turns, None)
                await measure(name, turns, Path(folder) / "runs.db")


if __name__ == "__main__":
    asyncio.run(main())
