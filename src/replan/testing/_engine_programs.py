"""The programs and steps of the checks in `engines`, and the probe through which a check sees what its steps did."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from replan.durable import Cancelled, Completed, Completion, Durable, Failed, Program, StepContext, durable_step
from replan.encoding import JSON, JSONObject
from replan.errors import RateLimited

__all__ = [
    "PROGRAMS",
    "Probe",
    "another_program",
    "ask",
    "ask_for_a_while",
    "bounded",
    "clock",
    "done",
    "failures",
    "misuse",
    "nap",
    "other_arguments",
    "pay_and_note",
    "read_back",
    "say_who",
    "seen",
    "sizes",
    "stop_a_running_one",
    "stop_one_of_two",
    "tell",
    "three_and_one",
    "three_at_once",
    "two_branches",
    "until",
]

_PATIENCE = 10.0


class Probe:
    """What the steps of one check did, and the gates that they wait at."""

    known: dict[str, "Probe"] = {}  # noqa: RUF012  # the registry through which steps find their probe
    _names = itertools.count()

    def __init__(self) -> None:
        self.name = f"probe-{next(self._names)}"
        self.ran: Counter[str] = Counter()
        self._open: set[str] = set()
        self._changed = asyncio.Event()
        self.known[self.name] = self

    def open(self, *keys: str) -> None:
        """Let the steps of these keys end."""
        self._open.update(keys)
        self._changed.set()

    async def passes(self, key: str) -> None:
        """Wait at the gate of a step."""
        while key not in self._open:
            self._changed.clear()
            await self._changed.wait()

    async def started(self, key: str, times: int = 1) -> None:
        """Wait until a step has begun that often."""

        async def begun() -> bool:
            return self.ran[key] >= times

        await until(begun, f"step {key!r} to begin")


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask again and again until the condition holds. Raises `AssertionError` where it takes too long."""

    async def poll() -> None:
        while not await condition():  # noqa: ASYNC110  # the condition may be that of another process
            await asyncio.sleep(0.002)

    await bounded(poll(), what)


async def bounded(awaitable: Awaitable[Any], what: str) -> Any:
    """Wait, but not for ever. Raises `AssertionError` where it takes too long."""
    try:
        return await asyncio.wait_for(awaitable, _PATIENCE)
    except TimeoutError:
        raise AssertionError(f"waited {_PATIENCE:g} s in vain for {what}") from None


@durable_step("conformance.gate")
async def _gate(context: StepContext, args: JSON) -> JSON:
    """Count the call, wait for the gate, give the value."""
    probe = Probe.known[args["probe"]]
    probe.ran[context.key] += 1
    await probe.passes(context.key)
    return args.get("value")


@durable_step("conformance.fail")
async def _fail(context: StepContext, args: JSON) -> JSON:
    """Fail in the way that is asked for."""
    match args["how"]:
        case "ours":
            raise RateLimited("slow down", model="test:model", retry_after=3.5)
        case "own cancel":
            raise asyncio.CancelledError
        case _:
            raise ValueError("no such colour: 'bleen'")


@durable_step("conformance.large")
async def _large(context: StepContext, args: JSON) -> JSON:
    """Give a text of the size that is asked for."""
    return "x" * args["size"]


@durable_step("conformance.read")
async def _read(context: StepContext, args: JSON) -> JSON:
    """Give the arguments and the result of another step."""
    return list(await context.read(args["key"]))


@durable_step("conformance.identity")
async def _identity(context: StepContext, args: JSON) -> JSON:
    """Give what the context says about the step."""
    return [context.run_id, context.key, context.idempotency_key]


def _shown(completion: Completion) -> list[JSON]:
    match completion.outcome:
        case Completed(value):
            return [completion.key, "completed", value]
        case Failed(error):
            return [completion.key, "failed", error]
        case Cancelled():
            return [completion.key, "cancelled", None]
        case doubt:
            return [completion.key, "in doubt", doubt.args]


async def _next(durable: Durable) -> list[JSON]:
    """The next completion as JSON, told to the outside."""
    shown = _shown(await durable.next())
    await durable.emit({"type": "seen", "key": shown[0]})
    return shown


def _start(durable: Durable, input: JSON, *keys: str, once: bool = False) -> None:
    for key in keys:
        durable.start("conformance.gate", {"probe": input["probe"], "value": {"of": key}}, key=key, once=once)


def done(key: str) -> list[JSON]:
    """The completion of a gate step, as programs show it."""
    return [key, "completed", {"of": key}]


def seen(key: str) -> JSONObject:
    """What programs emit after a completion."""
    return {"type": "seen", "key": key}


async def three_at_once(durable: Durable, input: JSON) -> JSON:
    _start(durable, input, "a", "b", "c")
    return [await _next(durable) for _ in range(3)]


async def three_and_one(durable: Durable, input: JSON) -> JSON:
    first = await three_at_once(durable, input)
    _start(durable, input, "d")
    return [*first, await _next(durable)]


async def another_program(durable: Durable, input: JSON) -> JSON:
    _start(durable, input, "x")
    return [await _next(durable)]


async def other_arguments(durable: Durable, input: JSON) -> JSON:
    return await three_at_once(durable, {**input, "probe": "somebody else's"})


async def pay_and_note(durable: Durable, input: JSON) -> JSON:
    _start(durable, input, "pay", once=True)
    paid = await _next(durable)
    _start(durable, input, "note")
    return [paid, await _next(durable)]


async def stop_one_of_two(durable: Durable, input: JSON) -> JSON:
    _start(durable, input, "a", "b", "c")
    durable.cancel("nobody")
    durable.cancel("b")
    results = [await _next(durable), await _next(durable), await _next(durable)]
    durable.cancel("a")
    return sorted(results)


async def stop_a_running_one(durable: Durable, input: JSON) -> JSON:
    _start(durable, input, "a", "b")
    first = await _next(durable)
    durable.cancel("b")
    return [first, await _next(durable)]


async def two_branches(durable: Durable, input: JSON) -> JSON:
    _start(durable, input, "s1/a", "s2/a")
    first = await _next(durable)
    _start(durable, input, "s1/b")
    return [first, await _next(durable), await _next(durable)]


async def ask(durable: Durable, input: JSON) -> JSON:
    durable.expect("approval", key="ok", body=input.get("body"), default={"allow": False})
    return await _next(durable)


async def ask_for_a_while(durable: Durable, input: JSON) -> JSON:
    _start(durable, input, "a")
    durable.expect("approval", key="ok", deadline=input["deadline"], default={"allow": False})
    return [await _next(durable), await _next(durable)]


async def nap(durable: Durable, input: JSON) -> JSON:
    before = durable.now()
    durable.sleep(input["seconds"], key="nap")
    return [await _next(durable), durable.now() - before]


async def tell(durable: Durable, input: JSON) -> JSON:
    await durable.emit({"type": "first"})
    await durable.emit({"type": "plan.created", "plan": {"steps": []}})
    _start(durable, input, "a")
    await _next(durable)
    await durable.emit({"type": "second"})
    _start(durable, input, "b")
    await _next(durable)
    await durable.emit({"type": "third"})
    return None


async def clock(durable: Durable, input: JSON) -> JSON:
    times = [durable.now()]
    for key in ("a", "b", "c"):
        _start(durable, input, key)
        await durable.next()
        times.append(durable.now())
        await durable.emit({"type": "time", "key": key, "at": durable.now()})
    return times


async def failures(durable: Durable, input: JSON) -> JSON:
    results: list[JSON] = []
    for how in ("ours", "theirs", "own cancel"):
        durable.start("conformance.fail", {"how": how}, key=how)
        results.append(await _next(durable))
    return results


async def sizes(durable: Durable, input: JSON) -> JSON:
    durable.start("conformance.large", {"size": input["size"] - 2}, key="fits")
    fits = await durable.next()
    durable.start("conformance.large", {"size": input["size"]}, key="large")
    large = await _next(durable)
    _start(durable, input, "after")
    return [isinstance(fits.outcome, Completed), large, await _next(durable)]


async def misuse(durable: Durable, input: JSON) -> JSON:
    found: list[str] = []
    for attempt in (_await_nothing, _use_a_key_twice, _start_nothing_known):
        try:
            await attempt(durable, input)
        except (RuntimeError, ValueError, LookupError) as error:
            found.append(type(error).__name__)
    return [found, await _next(durable)]


async def _await_nothing(durable: Durable, input: JSON) -> None:
    await durable.next()


async def _use_a_key_twice(durable: Durable, input: JSON) -> None:
    _start(durable, input, "a")
    _start(durable, input, "a")


async def _start_nothing_known(durable: Durable, input: JSON) -> None:
    durable.start("conformance.nothing", None, key="b")


async def read_back(durable: Durable, input: JSON) -> JSON:
    _start(durable, input, "a")
    await _next(durable)
    durable.start("conformance.read", {"key": "a"}, key="r")
    first = await _next(durable)
    _start(durable, input, "b")
    await _next(durable)
    durable.start("conformance.read", {"key": "a"}, key="s")
    return [first, await _next(durable)]


async def say_who(durable: Durable, input: JSON) -> JSON:
    durable.start("conformance.identity", None, key="who")
    return await _next(durable)


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        another_program,
        ask,
        ask_for_a_while,
        clock,
        failures,
        misuse,
        other_arguments,
        pay_and_note,
        read_back,
        say_who,
        sizes,
        nap,
        stop_a_running_one,
        stop_one_of_two,
        tell,
        three_and_one,
        three_at_once,
        two_branches,
    )
}
"""The programs of the checks, by name."""
