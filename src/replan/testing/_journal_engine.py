"""The journals of this package, driven by the checks in `engines`."""

import asyncio

from replan.durable import Program
from replan.encoding import JSON, JSONObject
from replan.journal import Journal, LocalRun, Paused, Wiring

__all__ = ["JournalEngine"]


class JournalEngine:
    """A journal of this package as an `Engine` of the checks; results larger than `max_result_bytes` fail."""

    def __init__(self, journal: Journal, *, can_wait: bool, max_result_bytes: int = 100_000) -> None:
        self.journal, self.can_wait, self.max_result_bytes = journal, can_wait, max_result_bytes
        self._runs: dict[str, tuple[LocalRun, asyncio.Task[JSON], Program]] = {}

    async def begin(self, run_id: str, program: Program, input: JSON, *, wait: bool = False) -> None:
        """Start a run and return."""
        wiring = self._wiring(wait)
        session = await self.journal.create(
            run_id, program="conformance", input=input, meta={"wait": wait}, wiring=wiring
        )
        self._drive(session, program)

    async def resume(self, run_id: str, program: Program) -> None:
        """Go on with an interrupted run."""
        info = await self.journal.info(run_id)
        self._drive(await self.journal.open(run_id, self._wiring(info.meta["wait"])), program)

    async def interrupt(self, run_id: str) -> None:
        """Release the run: nothing of what it was doing is recorded."""
        session, task, _ = self._runs.pop(run_id)
        task.cancel()
        await asyncio.wait([task])
        await session.release()

    async def result(self, run_id: str) -> JSON:
        """Wait for the program's result, and store it."""
        session, task, _ = self._runs[run_id]
        try:
            result = await task
        except BaseException as error:
            await session.finish("failed", error={"type": type(error).__name__, "message": str(error)})
            raise
        await session.finish("complete", result)
        return result

    async def cancel_prefix(self, run_id: str, prefix: str) -> None:
        """Stop what is under the prefix."""
        self._runs[run_id][0].cancel_prefix(prefix)

    async def open_items(self, run_id: str) -> JSONObject:
        """The bodies of the inbox items that are open, by key."""
        return {item.key: item.body for item in await self.journal.inbox(run_id)}

    async def answer(self, run_id: str, key: str, value: JSON) -> None:
        """Answer an inbox item; a paused run goes on."""
        session, task, program = self._runs[run_id]
        await self.journal.answer(run_id, key, value)
        if task.done() and isinstance(task.exception(), Paused):
            await session.finish("paused")
            await self.resume(run_id, program)

    async def events(self, run_id: str) -> list[JSON]:
        """What the run emitted so far."""
        return [event for _, event in await self.journal.events(run_id)]

    def _wiring(self, wait: bool) -> Wiring:
        return Wiring(unattended="wait" if wait else "deny", max_result_bytes=self.max_result_bytes)

    def _drive(self, session: LocalRun, program: Program) -> None:
        task = asyncio.ensure_future(program(session, session.info.input))
        self._runs[session.run_id] = session, task, program
