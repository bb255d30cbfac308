"""A process that holds a run: `python held_run.py <open|create|stall> <journal> <lease>`.

Says what became of it on one line: `held`, or the name and text of the error. Each line on its
input lets it go on: first to open the run, then to end its step and say what its completion is.
With `stall` it stops itself between the note that a write is about to begin and the write.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from replan.durable import StepContext, durable_step
from replan.encoding import JSON
from replan.errors import JournalError
from replan.journal.sqlite import SqliteJournal


@durable_step("held.gate")
async def gate(context: StepContext, args: JSON) -> JSON:
    await asyncio.to_thread(sys.stdin.readline)
    return args


@durable_step("held.stall")
async def stall(context: StepContext, args: JSON) -> JSON:
    time.sleep(0.4)  # the event loop is busy, and the journal's thread writes
    os.kill(os.getpid(), signal.SIGSTOP)
    return None


@durable_step("held.write")
async def write(context: StepContext, args: JSON) -> JSON:
    Path(args).touch()
    return None


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main(how: str, path: str, lease: str) -> None:
    journal = SqliteJournal(path, lease=float(lease))
    await journal.runs()
    if how == "open":
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
    try:
        run = await (journal.open("r1") if how == "open" else journal.create("r1", program="held", input=None))
        say("held")
        if how == "stall":
            run.start("held.write", path + ".written", key="w", once=True)
            run.start("held.stall", None, key="s")
        else:
            run.start("held.gate", "theirs", key="a")
        say(f"next {(await run.next()).outcome}")
    except JournalError as error:
        say(f"{type(error).__name__} {error}")
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
