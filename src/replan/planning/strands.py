"""Several programs on one `Durable`, each written as if it were alone.

A strand is a coroutine that gets a `Durable` of its own; awaiting `next` there hands the turn back, until a completion
comes that it has started. There are no tasks in this: the order in which strands go on is the journalled order of
completions, so a replay is the same.
"""

import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from replan.durable import Completion, Durable
from replan.encoding import JSON

__all__ = ["Strands"]

ResultT = TypeVar("ResultT")
_WAIT = object()


class Strands(Generic[ResultT]):
    """The strands that are going on. Close them when the run is left."""

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._owners: dict[str, _Strand[ResultT]] = {}
        self._ended: deque[ResultT] = deque()
        self._strands: dict[_Strand[ResultT], None] = {}

    def __len__(self) -> int:
        """How many have been started and not been given by `next`."""
        return len(self._strands) + len(self._ended)

    async def start(self, program: Callable[[Durable], Coroutine[Any, Any, ResultT]]) -> None:
        """Begin a strand: it runs until it waits."""
        strand = _Strand(self._durable, self._owners)
        strand.program = program(strand)
        self._strands[strand] = None
        await self._go_on(strand, None)

    async def next(self) -> ResultT:
        """The result of the strand that ends next. Raises what a strand raises."""
        while not self._ended:
            completion = await self._durable.next()
            await self._go_on(self._owners.pop(completion.key), completion)
        return self._ended.popleft()

    def close(self) -> None:
        """Leave all strands where they are."""
        for strand in self._strands:
            strand.program.close()
        self._strands.clear()
        self._owners.clear()

    async def _go_on(self, strand: "_Strand[ResultT]", completion: Completion | None) -> None:
        result = await _until_wait(strand.program, completion)
        if result is not None:
            del self._strands[strand]
            self._ended.append(result.value)


class _Ended(Generic[ResultT]):
    def __init__(self, value: ResultT) -> None:
        self.value = value


@types.coroutine
def _until_wait(
    program: Coroutine[Any, Any, ResultT], completion: Completion | None
) -> Generator[Any, Any, _Ended[ResultT] | None]:
    """Run a program until it waits for a completion; whatever else it awaits goes through to the event loop."""
    go_on: Callable[[Any], Any] = program.send
    given: Any = completion
    while True:
        try:
            awaited = go_on(given)
        except StopIteration as end:
            return _Ended(end.value)
        if awaited is _WAIT:
            return None
        try:
            go_on, given = program.send, (yield awaited)
        except BaseException as error:  # noqa: BLE001  # a cancellation too is the program's to see
            go_on, given = program.throw, error


class _Wait:
    def __await__(self) -> Generator[Any, Completion, Completion]:
        return (yield _WAIT)


class _Strand(Generic[ResultT]):
    """The `Durable` of one strand."""

    program: Coroutine[Any, Any, ResultT]

    def __init__(self, durable: Durable, owners: "dict[str, _Strand[ResultT]]") -> None:
        self._durable, self._owners = durable, owners
        self.run_id, self.now, self.emit = durable.run_id, durable.now, durable.emit
        self.cancel, self.cancel_prefix = durable.cancel, durable.cancel_prefix

    def start(self, step: str, args: JSON, *, key: str, once: bool = False) -> None:
        self._owners[key] = self
        self._durable.start(step, args, key=key, once=once)

    async def next(self) -> Completion:
        return await _Wait()

    def expect(
        self, name: str, *, key: str, body: JSON = None, deadline: float | None = None, default: JSON = None
    ) -> None:
        self._owners[key] = self
        self._durable.expect(name, key=key, body=body, deadline=deadline, default=default)

    def sleep(self, seconds: float, *, key: str) -> None:
        self._owners[key] = self
        self._durable.sleep(seconds, key=key)
