"""The same contract on each provider whose key is there; the others are skipped by name. `make live-providers`.

    python tests/live/providers.py [provider:model ...]

Without models, the example of each provider is asked (`docs/providers.md`). Exit code 1 where a check fails.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import pydantic

from replan import Agent, Image, ModelSettings, PlanningAgent, tool
from replan.errors import AuthError, ConfigError, ReplanError
from replan.models import PROVIDERS, profile_for, resolve

CODE = "K-4711"
RED = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000080000000808020000004b6d29dc000000114944415478da63f8"
    "cfc08015310c2d090028ff3fc1ce77c84f0000000049454e44ae426082"
)
"""A red square of eight by eight pixels."""


class Answer(pydantic.BaseModel):
    city: str
    population_millions: float


@tool(read_only=True)
def secret_code(room: str) -> str:
    """The code of a room.

    Args:
        room: its name.
    """
    return CODE if "attic" in room.lower() else "unknown"


async def answers(model: str) -> bool:
    """A plain answer, streamed, with usage."""
    result = await Agent(model).run("Reply with the one word: ready")
    return "ready" in result.text.lower() and result.usage.input_tokens > 0 and not result.usage.estimated


async def calls_tools(model: str) -> bool:
    """A tool is called and its result used."""
    result = await Agent(model, tools=[secret_code]).run("What is the code of the attic? Use the tool.")
    return CODE in result.text and result.tool_calls >= 1


async def thinks_between_calls(model: str) -> bool:
    """Thoughts go back with the calls, and the second turn is accepted."""
    settings = ModelSettings(thinking="low", max_output_tokens=4000)
    result = await Agent(model, tools=[secret_code], settings=settings).run(
        "What is the code of the attic? Use the tool."
    )
    return CODE in result.text


async def gives_typed_output(model: str) -> bool:
    """A typed answer."""
    result = await Agent(model, output_type=Answer).run("The capital of France, and its population in millions.")
    return result.output is not None and result.output.city == "Paris"


async def sees_images(model: str) -> bool | None:
    """An image is seen; None where the model sees none."""
    if not resolve(model).profile.images:
        return None
    result = await Agent(model).run("Which colour is this? One word.", attachments=[Image("image/png", data=RED)])
    return "red" in result.text.lower()


async def plans(model: str) -> bool:
    """A plan, its steps, an answer."""
    async with PlanningAgent(model, tools=[secret_code]) as agent:
        result = await agent.run("Find the code of the attic and tell it.")
    return CODE in result.text


async def refuses_a_wrong_key(model: str) -> bool | None:
    """A wrong key is an `AuthError` that does not show it; None where there is no key."""
    if not PROVIDERS[model.partition(":")[0]].key_variables:
        return None
    try:
        await Agent(resolve(model, api_key="wrong-key-wrong-key")).run("x")
    except AuthError as error:
        return "wrong-key" not in str(error)
    return False


CHECKS: tuple[Callable[[str], Awaitable[bool | None]], ...] = (
    answers,
    calls_tools,
    thinks_between_calls,
    gives_typed_output,
    sees_images,
    plans,
    refuses_a_wrong_key,
)


async def main(models: list[str]) -> int:
    """Check the models; gives the exit code."""
    failed = 0
    for model in models or [f"{name}:{row.example}" for name, row in PROVIDERS.items()]:
        try:
            resolve(model)
        except ConfigError as error:
            print(f"{model}: skipped: {error}")
            continue
        print(f"{model} ({profile_for(*model.split(':', 1)).thinking} thinking)")
        for check in CHECKS:
            failed += not await _passes(check, model)
    return 1 if failed else 0


async def _passes(check: Callable[[str], Awaitable[bool | None]], model: str) -> bool:
    started = time.monotonic()
    try:
        passed, why = await check(model), ""
    except ReplanError as error:
        passed, why = False, f": {type(error).__name__}: {error}"
    word = {True: "ok", None: "not for this model", False: "FAILED"}[passed]
    print(f"  {check.__name__}: {word}, {time.monotonic() - started:.1f} s{why}")
    return passed is not False


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
