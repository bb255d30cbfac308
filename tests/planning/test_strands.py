import asyncio

import pytest

from replan.durable import Completed, Durable, durable_step
from replan.journal import MemoryJournal
from replan.planning.strands import Strands


@durable_step("test-strands-after")
async def wait_and_say(ctx, args):
    await asyncio.sleep(args["seconds"])
    if args.get("error"):
        raise RuntimeError(args["error"])
    return args["value"]


async def new_run(ident: str = "strands"):
    return await MemoryJournal().create(ident, program="test", input=None)


def strand(name: str, *waits: float):
    async def program(durable: Durable) -> tuple[str, list]:
        seen = []
        for number, seconds in enumerate(waits):
            durable.start("test-strands-after", {"seconds": seconds, "value": number}, key=f"{name}/{number}")
            completion = await durable.next()
            assert completion.key == f"{name}/{number}"
            seen.append(completion.outcome.value)
            await durable.emit({"type": "log", "name": name, "n": number})
            await asyncio.sleep(0)  # whatever else is awaited goes through
        return name, seen

    return program


async def test_strands_go_on_side_by_side_each_with_its_own_completions():
    run = await new_run()
    strands: Strands = Strands(run)
    await strands.start(strand("slow", 0.05, 0.05))
    await strands.start(strand("quick", 0.001, 0.001, 0.001))
    await strands.start(strand("at once"))
    assert len(strands) == 3
    assert [await strands.next() for _ in range(3)] == [("at once", []), ("quick", [0, 1, 2]), ("slow", [0, 1])]
    assert len(strands) == 0
    await run.finish("complete")


async def test_what_a_strand_raises_is_raised_where_its_turn_is():
    run = await new_run()

    async def failing(durable: Durable) -> None:
        durable.start("test-strands-after", {"seconds": 0, "value": 1}, key="f")
        assert isinstance((await durable.next()).outcome, Completed)
        raise ZeroDivisionError("in the strand")

    strands: Strands = Strands(run)
    await strands.start(failing)
    with pytest.raises(ZeroDivisionError, match="in the strand"):
        await strands.next()
    strands.close()
    await run.finish("failed")


async def test_an_error_of_what_a_strand_awaits_reaches_the_strand():
    run = await new_run()

    async def program(durable: Durable) -> str:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        except TimeoutError:
            return "timed out"
        return "never"

    strands: Strands = Strands(run)
    await strands.start(program)
    assert await strands.next() == "timed out"
    await run.finish("complete")


async def test_leaving_strands_ends_them_where_they_are():
    run, left = await new_run(), []

    async def program(durable: Durable) -> None:
        try:
            durable.start("test-strands-after", {"seconds": 60, "value": 1}, key="p")
            await durable.next()
        finally:
            left.append("cleaned up")

    strands: Strands = Strands(run)
    await strands.start(program)
    strands.close()
    assert left == ["cleaned up"]
    await run.finish("cancelled")
