"""What every durable engine must do, as plain async functions: `for check in CHECKS: await check(make_engine)`.

`make_engine` gives an async context manager of an `Engine`; each check makes its own. A check raises `AssertionError`
where the engine is wrong. The programs of the checks are functions, listed by name in `PROGRAMS` for engines that run
them elsewhere in this process. `JournalEngine` puts the journals of this package to the test.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from replan.durable import Program
from replan.encoding import JSON, JSONObject
from replan.errors import JournalError

from ._engine_programs import (
    PROGRAMS,
    Probe,
    another_program,
    ask,
    ask_for_a_while,
    bounded,
    clock,
    done,
    failures,
    misuse,
    nap,
    other_arguments,
    pay_and_note,
    read_back,
    say_who,
    seen,
    sizes,
    stop_a_running_one,
    stop_one_of_two,
    tell,
    three_and_one,
    three_at_once,
    two_branches,
    until,
)
from ._journal_engine import JournalEngine

__all__ = ["CHECKS", "PROGRAMS", "Check", "Engine", "JournalEngine", "MakeEngine"]


class Engine(Protocol):
    """What the checks need of an engine. `can_wait`: inbox items can stay open until another process answers."""

    can_wait: bool
    max_result_bytes: int

    async def begin(self, run_id: str, program: Program, input: JSON, *, wait: bool = False) -> None:
        """Start a run and return; `wait`: inbox items stay open, else they get their default at once."""
        ...

    async def interrupt(self, run_id: str) -> None:
        """End the process of the run, as it were: nothing more is recorded; steps that run are lost."""
        ...

    async def resume(self, run_id: str, program: Program) -> None:
        """Go on with an interrupted run."""
        ...

    async def result(self, run_id: str) -> JSON:
        """Wait for the program's result. Raises what the program raised."""
        ...

    async def cancel_prefix(self, run_id: str, prefix: str) -> None:
        """Stop what runs under the prefix, and what will be started under it."""
        ...

    async def open_items(self, run_id: str) -> JSONObject:
        """The bodies of the inbox items that are open, by key."""
        ...

    async def answer(self, run_id: str, key: str, value: JSON) -> None:
        """Answer an inbox item, and let the run go on if it is paused."""
        ...

    async def events(self, run_id: str) -> list[JSON]:
        """What the run emitted so far."""
        ...


MakeEngine: TypeAlias = Callable[[], AbstractAsyncContextManager[Engine]]
Check: TypeAlias = Callable[[MakeEngine], Awaitable[None]]


async def _begin(engine: Engine, run_id: str, program: Program, *, wait: bool = False, **input: JSON) -> Probe:
    probe = Probe()
    await engine.begin(run_id, program, {"probe": probe.name, **input}, wait=wait)
    return probe


async def _result(engine: Engine, run_id: str) -> Any:
    return await bounded(engine.result(run_id), f"the end of run {run_id!r}")


async def _told(engine: Engine, run_id: str, event: JSON) -> None:
    async def poll() -> bool:
        return event in await engine.events(run_id)

    await until(poll, f"the event {event!r}")


async def _item_opened(engine: Engine, run_id: str) -> None:
    async def poll() -> bool:
        return bool(await engine.open_items(run_id))

    await until(poll, "an inbox item")


async def check_completions_come_in_the_order_of_ending(make_engine: MakeEngine) -> None:
    """Steps run at the same time; the one that ends first is given out first."""
    async with make_engine() as engine:
        probe = await _begin(engine, "order", three_at_once)
        for key in ("a", "b", "c"):
            await probe.started(key)
        for key in ("c", "a", "b"):
            probe.open(key)
            await _told(engine, "order", seen(key))
        assert await _result(engine, "order") == [done("c"), done("a"), done("b")]


async def check_a_replay_runs_nothing_twice_and_keeps_the_order(make_engine: MakeEngine) -> None:
    """After an interruption finished steps keep their results and order; the one that ran runs again."""
    async with make_engine() as engine:
        probe = await _begin(engine, "replay", three_and_one)
        for key in ("b", "c", "a"):
            probe.open(key)
            await _told(engine, "replay", seen(key))
        await probe.started("d")
        await engine.interrupt("replay")
        await engine.resume("replay", three_and_one)
        await probe.started("d", times=2)
        probe.open("d")
        assert await _result(engine, "replay") == [done("b"), done("c"), done("a"), done("d")]
        assert probe.ran == {"a": 1, "b": 1, "c": 1, "d": 2}


async def check_another_program_is_refused(make_engine: MakeEngine) -> None:
    """A journal is not replayed into a program that starts other steps, or the same with other arguments."""
    async with make_engine() as engine:
        for run_id, program in (("other-steps", another_program), ("other-arguments", other_arguments)):
            probe = await _begin(engine, run_id, three_and_one)
            probe.open("a", "b", "c")
            await probe.started("d")
            await engine.interrupt(run_id)
            await engine.resume(run_id, program)
            try:
                await _result(engine, run_id)
            except JournalError as error:
                message = str(error)
            else:
                raise AssertionError(f"the journal of {run_id!r} was replayed into another program")
            assert "does not fit" in message, message


async def check_an_interrupted_once_step_is_in_doubt(make_engine: MakeEngine) -> None:
    """A step that must not run twice is not run again, in any later resume; the program is told."""
    async with make_engine() as engine:
        probe = await _begin(engine, "doubt", pay_and_note)
        await probe.started("pay")
        await engine.interrupt("doubt")
        probe.open("pay")
        await engine.resume("doubt", pay_and_note)
        await probe.started("note")
        await engine.interrupt("doubt")
        probe.open("note")
        await engine.resume("doubt", pay_and_note)
        args = {"probe": probe.name, "value": {"of": "pay"}}
        assert await _result(engine, "doubt") == [["pay", "in doubt", args], done("note")]
        assert probe.ran == {"pay": 1, "note": 2}


async def check_a_finished_once_step_keeps_its_result(make_engine: MakeEngine) -> None:
    """A step that must not run twice and has ended is not in doubt."""
    async with make_engine() as engine:
        probe = await _begin(engine, "paid", pay_and_note)
        probe.open("pay")
        await probe.started("note")
        await engine.interrupt("paid")
        probe.open("note")
        await engine.resume("paid", pay_and_note)
        assert await _result(engine, "paid") == [done("pay"), done("note")]
        assert probe.ran == {"pay": 1, "note": 2}


async def check_cancelled_steps_say_so(make_engine: MakeEngine) -> None:
    """A step that is cancelled before or while it runs completes as cancelled; unknown keys are ignored."""
    async with make_engine() as engine:
        probe = await _begin(engine, "early", stop_one_of_two)
        probe.open("a", "c")
        assert await _result(engine, "early") == [done("a"), ["b", "cancelled", None], done("c")]
        probe = await _begin(engine, "running", stop_a_running_one)
        await probe.started("b")
        probe.open("a")
        assert await _result(engine, "running") == [done("a"), ["b", "cancelled", None]]


async def check_a_cancelled_prefix_holds(make_engine: MakeEngine) -> None:
    """What is under the prefix stops; what is started under it later completes as cancelled at once."""
    async with make_engine() as engine:
        probe = await _begin(engine, "prefix", two_branches)
        await probe.started("s1/a")
        await engine.cancel_prefix("prefix", "s1/")
        await _told(engine, "prefix", seen("s1/b"))
        await engine.interrupt("prefix")
        await engine.resume("prefix", two_branches)
        probe.open("s2/a")
        stopped = [["s1/a", "cancelled", None], ["s1/b", "cancelled", None]]
        assert await _result(engine, "prefix") == [*stopped, done("s2/a")]
        assert probe.ran["s1/b"] == 0


async def check_an_item_gets_its_default_where_nobody_can_answer(make_engine: MakeEngine) -> None:
    """Without anybody to ask an inbox item completes with its default at once."""
    async with make_engine() as engine:
        await _begin(engine, "default", ask)
        assert await _result(engine, "default") == ["ok", "completed", {"allow": False}]


async def check_an_item_gets_its_default_at_its_deadline(make_engine: MakeEngine) -> None:
    """An item that nobody answers in time completes with its default, while the rest of the run goes on."""
    async with make_engine() as engine:
        if engine.can_wait:
            probe = await _begin(engine, "deadline", ask_for_a_while, wait=True, deadline=0.05)
            await _told(engine, "deadline", seen("ok"))
            probe.open("a")
            assert await _result(engine, "deadline") == [["ok", "completed", {"allow": False}], done("a")]
            assert await engine.open_items("deadline") == {}


async def check_an_answer_completes_its_item(make_engine: MakeEngine) -> None:
    """An answer from outside completes the item, while the run goes on as well as when it has nothing else to do."""
    async with make_engine() as engine:
        if engine.can_wait:
            for run_id, program in (("busy", ask_for_a_while), ("idle", ask)):
                probe = await _begin(engine, run_id, program, wait=True, deadline=60.0)
                await _item_opened(engine, run_id)
                await engine.answer(run_id, "ok", {"allow": True})
                if run_id == "busy":
                    await _told(engine, run_id, seen("ok"))
                    probe.open("a")
                result = await _result(engine, run_id)
                assert (result[0] if run_id == "busy" else result) == ["ok", "completed", {"allow": True}]


async def check_an_item_says_what_is_asked(make_engine: MakeEngine) -> None:
    """The body of an open item can be read from outside, after an interruption too, and is as it was given."""
    body = {"question": "may it be sent?", "call": {"tool": "send", "arguments": {"to": ["Zoë", 1, None]}}}
    async with make_engine() as engine:
        if engine.can_wait:
            await _begin(engine, "body", ask, wait=True, body=body)
            await _item_opened(engine, "body")
            assert await engine.open_items("body") == {"ok": body}
            await engine.interrupt("body")
            await engine.resume("body", ask)
            await _item_opened(engine, "body")
            assert await engine.open_items("body") == {"ok": body}
            await engine.answer("body", "ok", {"allow": True})
            assert await _result(engine, "body") == ["ok", "completed", {"allow": True}]


async def check_sleep_takes_its_time(make_engine: MakeEngine) -> None:
    """A timer completes with None, not before its time."""
    async with make_engine() as engine:
        await _begin(engine, "nap", nap, seconds=0.05)
        completion, passed = await _result(engine, "nap")
        assert completion == ["nap", "completed", None]
        assert passed >= 0.045, passed


async def check_events_are_told_once_and_in_order(make_engine: MakeEngine) -> None:
    """A replay emits nothing a second time."""
    async with make_engine() as engine:
        probe = await _begin(engine, "events", tell)
        probe.open("a")
        await probe.started("b")
        await engine.interrupt("events")
        await engine.resume("events", tell)
        probe.open("b")
        await _result(engine, "events")
        told = [event["type"] for event in await engine.events("events")]
        assert told == ["first", "plan.created", "seen", "second", "seen", "third"], told


async def check_the_clock_is_journalled(make_engine: MakeEngine) -> None:
    """`now` is the time of the last completion; a replay sees the same times."""
    async with make_engine() as engine:
        probe = await _begin(engine, "clock", clock)
        probe.open("a", "b")
        await probe.started("c")
        await engine.interrupt("clock")
        told = [event["at"] for event in await engine.events("clock") if event["type"] == "time"]
        await engine.resume("clock", clock)
        probe.open("c")
        times = await _result(engine, "clock")
        assert times == sorted(times), times
        assert times[1:3] == told, (times, told)


async def check_failures_keep_their_type(make_engine: MakeEngine) -> None:
    """An error of ours keeps its fields, another one its type and message; a step that cancels itself has failed."""
    async with make_engine() as engine:
        await _begin(engine, "failures", failures)
        ours, theirs, own = await _result(engine, "failures")
        error = {"type": "RateLimited", "message": "slow down", "model": "test:model", "retry_after": 3.5}
        assert ours == ["ours", "failed", error], ours
        assert theirs == ["theirs", "failed", {"type": "ValueError", "message": "no such colour: 'bleen'"}], theirs
        assert own[:2] == ["own cancel", "failed"], own


async def check_a_result_that_is_too_large_fails_its_step(make_engine: MakeEngine) -> None:
    """The error names the step and the limit; the run goes on. A result of exactly the limit passes."""
    async with make_engine() as engine:
        probe = await _begin(engine, "sizes", sizes, size=engine.max_result_bytes)
        probe.open("after")
        fits, (key, kind, error), after = await _result(engine, "sizes")
        assert fits, "a result of exactly the limit was refused"
        assert (key, kind, after) == ("large", "failed", done("after"))
        assert "conformance.large" in error["message"], error
        assert f"{engine.max_result_bytes:,}" in error["message"], error


async def check_misuse_raises(make_engine: MakeEngine) -> None:
    """Awaiting nothing, using a key twice and starting an unknown step raise in the program, and do no harm."""
    async with make_engine() as engine:
        probe = await _begin(engine, "misuse", misuse)
        probe.open("a")
        assert await _result(engine, "misuse") == [["RuntimeError", "ValueError", "LookupError"], done("a")]


async def check_steps_read_earlier_steps(make_engine: MakeEngine) -> None:
    """`context.read` gives arguments and result, after a resume too."""
    async with make_engine() as engine:
        probe = await _begin(engine, "read", read_back)
        probe.open("a")
        await probe.started("b")
        await engine.interrupt("read")
        probe.open("b")
        await engine.resume("read", read_back)
        expected = [{"probe": probe.name, "value": {"of": "a"}}, {"of": "a"}]
        assert await _result(engine, "read") == [["r", "completed", expected], ["s", "completed", expected]]


async def check_steps_know_who_they_are(make_engine: MakeEngine) -> None:
    """The context names run, key and idempotency key."""
    async with make_engine() as engine:
        await _begin(engine, "identity", say_who)
        assert await _result(engine, "identity") == ["who", "completed", ["identity", "who", "identity/who"]]


CHECKS: tuple[Check, ...] = (
    check_completions_come_in_the_order_of_ending,
    check_a_replay_runs_nothing_twice_and_keeps_the_order,
    check_another_program_is_refused,
    check_an_interrupted_once_step_is_in_doubt,
    check_a_finished_once_step_keeps_its_result,
    check_cancelled_steps_say_so,
    check_a_cancelled_prefix_holds,
    check_an_item_gets_its_default_where_nobody_can_answer,
    check_an_item_gets_its_default_at_its_deadline,
    check_an_answer_completes_its_item,
    check_an_item_says_what_is_asked,
    check_sleep_takes_its_time,
    check_events_are_told_once_and_in_order,
    check_the_clock_is_journalled,
    check_failures_keep_their_type,
    check_a_result_that_is_too_large_fails_its_step,
    check_misuse_raises,
    check_steps_read_earlier_steps,
    check_steps_know_who_they_are,
)
"""All checks."""
