import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from replan.durable import StepContext, find_step
from replan.planning import checks
from replan.planning.checks import as_expected, check_outputs, problems

OUTPUTS = {"result": {"total": 4, "items": [{"id": "a", "price": 1.5}, {"id": "b", "price": "free"}]}}


async def outcome(check: Any, outputs: Any = OUTPUTS, **functions: Callable[..., Any]) -> str | None:
    services = SimpleNamespace(functions={f"check:{name}": function for name, function in functions.items()})
    unused: Any = None
    context = StepContext("run", "key", services, unused, unused, unused)
    return await check_outputs(context, {"check": check, "outputs": outputs, "result": {}})


def test_step_is_registered() -> None:
    assert find_step("check") is check_outputs


@pytest.mark.parametrize(
    "check",
    [
        None,
        {"schema": {"type": "object", "required": ["result"]}},
        {"schema": {"properties": {"result": {"properties": {"total": {"minimum": 4}}}}}},
        {"expression": "result.total > `3` && length(result.items) == `2`"},
        "result.items[0].id == 'a'",
    ],
)
async def test_check_that_holds_gives_null(check: Any) -> None:
    assert problems(check) == []
    assert await outcome(check) is None


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ({"schema": {"required": ["total"]}}, "'total' is a required property"),
        (
            {"schema": {"properties": {"result": {"properties": {"items": {"items": {"required": ["name"]}}}}}}},
            "result.items[0]: 'name' is a required property",
        ),
        ({"schema": {"$ref": "#/$defs/nothing"}}, "the schema cannot be applied"),
        ({"schema": {"$ref": "http://localhost:1/schema"}}, "the schema cannot be applied"),
        ({"schema": {"$ref": "#"}}, "the schema cannot be applied: RecursionError"),
        ("result.total", "'result.total' is 4, not true"),
        ("result.total > `9`", "is false, not true"),
        ("result.colour == 'red'", "is false, not true"),
        ("result.colour", "is null, not true"),
        ("length(result.total) == `1`", "cannot be applied: JMESPathTypeError"),
        ("unknown(result)", "cannot be applied: UnknownFunctionError"),
        ("result.total > 3", "no JMESPath"),
        ({"function": "nobody"}, "there is no check function 'nobody'; there are 'some'"),
    ],
)
async def test_check_that_fails_says_why(check: Any, words: str) -> None:
    reason = await outcome(check, some=bool)
    assert reason is not None
    assert reason.startswith("the check failed: ")
    assert words in reason


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ({}, "one of schema, expression, function, call"),
        (5, "not 5"),
        (["a"], "one of schema"),
        ({"schema": {}, "expression": "a"}, "one of schema"),
        ({"schema": {}, "expect": 1}, "takes no 'expect'"),
        ({"schema": {"type": "objekt"}}, "no JSON schema"),
        ({"schema": {"pattern": "("}}, "no JSON schema"),
        ({"schema": "object"}, "no JSON schema"),
        ({"expression": 5}, "JMESPath text"),
        ("total > 3", "literals in backticks"),
        ("", "no JMESPath"),
        ({"function": ""}, "name of a function"),
        ({"function": 5}, "name of a function"),
        ({"call": "read"}, "the 'call' of the check"),
        ({"call": {"arguments": {}}}, "the 'call' of the check"),
        ({"call": {"tool": "read", "arguments": []}}, "the 'call' of the check"),
    ],
)
async def test_malformed_check_is_a_problem_before_it_is_made(check: Any, words: str) -> None:
    (problem,) = problems(check)
    assert words in problem
    assert await outcome(check) == f"the check failed: {problem}"


def test_well_formed_calls_and_functions_have_no_problem() -> None:
    assert problems({"call": {"tool": "read", "arguments": {"id": 1}}, "expect": {"ok": True}}) == []
    assert problems({"call": {"tool": "read"}}) == []
    assert problems({"function": "paid"}) == []


async def test_function_gets_the_outputs_and_answers() -> None:
    seen: list[Any] = []

    async def later(outputs: Any) -> str:
        await asyncio.sleep(0)
        return f"only {outputs['result']['total']}"

    class Later:  # calling it gives something to await, which its type does not say
        def __call__(self, outputs: Any) -> Any:
            return later(outputs)

    assert await outcome({"function": "f"}, f=seen.append) is None
    assert seen == [OUTPUTS]
    assert await outcome({"function": "f"}, f=lambda _: True) is None
    assert await outcome({"function": "f"}, f=lambda _: False) == "the check failed: 'f' does not hold"
    assert await outcome({"function": "f"}, f=lambda _: "too few") == "the check failed: 'f': too few"
    assert await outcome({"function": "f"}, f=later) == "the check failed: 'f': only 4"
    assert await outcome({"function": "f"}, f=Later()) == "the check failed: 'f': only 4"
    assert "'f' gave 7; a check gives" in str(await outcome({"function": "f"}, f=lambda _: 7))


async def test_function_has_its_own_copy_of_the_outputs() -> None:
    outputs = {"result": [1]}
    assert await outcome({"function": "f"}, outputs, f=lambda mine: mine["result"].clear()) is None
    assert outputs == {"result": [1]}


@pytest.mark.parametrize("error", [ValueError("no\nway"), SystemExit(3), TimeoutError("slow net")])
async def test_function_that_raises_is_a_failed_check(error: BaseException) -> None:
    def fail(_: Any) -> None:
        raise error

    async def fail_later(_: Any) -> None:
        fail(_)

    reason = await outcome({"function": "f"}, f=fail)
    assert str(reason).startswith(f"the check failed: 'f' raised {type(error).__name__}")
    assert "way" not in str(reason)
    assert "the check failed: 'f' raised" in str(await outcome({"function": "f"}, f=fail_later))


async def test_function_that_hangs_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SECONDS", 0.05)
    release = threading.Event()
    try:
        reason = await outcome({"function": "f"}, f=lambda _: release.wait(20))
        assert reason == "the check failed: 'f' took longer than 0.05 s"
    finally:
        release.set()

    async def wait(_: Any) -> None:
        await asyncio.Event().wait()

    assert await outcome({"function": "f"}, f=wait) == "the check failed: 'f' took longer than 0.05 s"


async def test_sync_function_does_not_hold_up_the_loop() -> None:
    release = threading.Event()
    check = asyncio.ensure_future(outcome({"function": "f"}, f=lambda _: release.wait(20)))
    await asyncio.sleep(0.01)
    assert not check.done()
    release.set()
    assert await check is None


async def test_cancellation_goes_through() -> None:
    started = asyncio.Event()

    async def wait(_: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    check = asyncio.ensure_future(outcome({"function": "f"}, f=wait))
    await started.wait()
    check.cancel()
    with pytest.raises(asyncio.CancelledError):
        await check


async def test_call_is_not_made_here() -> None:
    with pytest.raises(ValueError, match="made by the loop"):
        await outcome({"call": {"tool": "read"}})


@pytest.mark.parametrize(
    ("value", "expect"),
    [
        ("anything", None),
        (1, 1.0),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": {"b": [{"c": 1.0, "d": 2}]}}, {"a": {"b": [{"c": 1}]}}),
        ('{"a": 1, "b": 2}', {"a": 1}),
        ("[1]", [1]),
        ({"a": None}, {"a": None}),
        ([], []),
    ],
)
def test_what_is_expected_is_accepted(value: Any, expect: Any) -> None:
    assert as_expected(value, expect) is None


@pytest.mark.parametrize(
    ("value", "expect", "reason"),
    [
        ({"a": {"b": "open"}}, {"a": {"b": "paid"}}, "'b' of 'a' of the result is \"open\", not \"paid\""),
        ({"b": 1}, {"a": None}, "the result has no 'a', only [\"b\"]"),
        (True, 1, "the result is true, not 1"),
        (0, False, "the result is 0, not false"),
        ({"a": 1}, {"a": None}, "'a' of the result is 1, not null"),
        ([1, 2], [1], "the result is [1,2], not [1]"),
        ([{"a": 1}], [{"a": 2}], "'a' of [0] of the result is 1, not 2"),
        ("plain", {"a": 1}, 'the result is "plain", not {"a":1}'),
        ("1", 1, 'the result is "1", not 1'),
    ],
)
def test_what_is_not_expected_is_said(value: Any, expect: Any, reason: str) -> None:
    assert as_expected(value, expect) == reason
