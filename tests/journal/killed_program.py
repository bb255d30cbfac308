"""A program whose process is killed: run as `python killed_program.py <journal> <effects> <kill point> [<lease>]`.

Three rounds of a read-only step and a write; each leaves a line in the effects file. The kill point is
`<where>:<n>` with `where` one of `read`, `before`, `after` (within the n-th step, around its effect) and `event` (when
the n-th event is told), or `never`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from replan.durable import Completed, Durable, InDoubt, StepContext, durable_step
from replan.encoding import JSON
from replan.journal import Wiring
from replan.journal.sqlite import SqliteJournal


class Desk:
    """The services: where effects go, and where the process dies."""

    def __init__(self, effects: Path, kill_point: str) -> None:
        self.effects = effects
        self.where, _, number = kill_point.partition(":")
        self.number = int(number or 0)
        self.events = 0

    def maybe_die(self, where: str, number: int) -> None:
        if (where, number) == (self.where, self.number):
            os.kill(os.getpid(), signal.SIGKILL)

    def on_event(self, event: JSON) -> None:
        self.events += 1
        self.maybe_die("event", self.events)

    def note(self, line: str) -> None:
        with self.effects.open("a") as file:
            file.write(line + "\n")


@durable_step("killed.read")
async def read(context: StepContext, args: JSON) -> JSON:
    context.services.maybe_die("read", args)
    context.services.note(f"read {args}")
    await asyncio.sleep(0)
    return {"read": args}


@durable_step("killed.write")
async def write(context: StepContext, args: JSON) -> JSON:
    context.services.maybe_die("before", args)
    context.services.note(f"write {args}")
    await asyncio.sleep(0)
    context.services.maybe_die("after", args)
    return {"written": args}


async def program(durable: Durable, input: JSON) -> list[Any]:
    seen: list[Any] = []
    for number in range(1, input["rounds"] + 1):
        durable.start("killed.read", number, key=f"{number}/read")
        durable.start("killed.write", number, key=f"{number}/write", once=True)
        for _ in range(2):
            completion = await durable.next()
            outcome = completion.outcome
            assert isinstance(outcome, Completed | InDoubt)
            seen.append([completion.key, "doubt" if isinstance(outcome, InDoubt) else outcome.value])
            await durable.emit({"type": "seen", "key": completion.key})
    return seen


async def main(journal_path: str, effects: str, kill_point: str, lease: str = "60") -> None:
    desk = Desk(Path(effects), kill_point)
    journal = SqliteJournal(journal_path, lease=float(lease))
    wiring = Wiring(services=desk, on_event=desk.on_event)
    run = await journal.create("killed", program="killed", input={"rounds": 3}, wiring=wiring)
    await run.finish("complete", await program(run, run.info.input))
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
