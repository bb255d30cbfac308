"""Shared by all tests: no request leaves this machine."""

import signal
from collections.abc import Callable, Iterator, Sequence

import pytest

from replan import Message
from replan.messages import Assistant, ToolResult
from replan.testing import block_real_requests

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts what it puts into the background so, and the programs under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def no_real_requests() -> Iterator[None]:
    with block_real_requests():
        yield


@pytest.fixture(scope="session")
def check_history() -> Callable[[Sequence[Message]], None]:
    """Asserts that each call has exactly one result, in order, right behind it, and each result its call."""

    def check(messages: Sequence[Message]) -> None:
        position = 0
        while position < len(messages):
            message = messages[position]
            assert not isinstance(message, ToolResult), f"a result without its call at {position}: {messages}"
            position += 1
            for call in message.calls if isinstance(message, Assistant) else ():
                result = messages[position] if position < len(messages) else None
                assert isinstance(result, ToolResult), f"call {call.call_id!r} has no result: {messages}"
                assert (result.call_id, result.name) == (call.call_id, call.name)
                assert any(getattr(part, "text", "x") for part in result.content), "an empty result"
                position += 1

    return check
