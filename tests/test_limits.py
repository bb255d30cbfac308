import pytest

from replan import Limits, Usage
from replan.errors import ConfigError
from replan.limits import Excess, Meter


@pytest.mark.parametrize("name", Limits.__slots__)
@pytest.mark.parametrize("value", [-1, 1.5, "5"])
def test_a_limit_is_a_whole_number(name: str, value: object):
    with pytest.raises(ConfigError, match=f"limit '{name}' is {value!r}; give a whole number"):
        Limits(**{name: value})


def test_only_revisions_and_tool_calls_may_be_none_at_all():
    assert Limits(max_revisions=0, max_tool_calls=0).max_tool_calls == 0
    for name in set(Limits.__slots__) - {"max_revisions", "max_tool_calls"}:
        with pytest.raises(ConfigError, match="at least 1"):
            Limits(**{name: 0})


def test_usage_is_summed_over_the_run_and_by_model():
    meter = Meter(Limits())
    used = meter.add("a:x", {"input_tokens": 5, "output_tokens": 2, "model_calls": 9})
    meter.add("b:y", {"input_tokens": 1, "estimated": True})
    meter.add("a:x", {"reasoning_tokens": 3, "cached_input_tokens": 4})
    assert used == Usage(input_tokens=5, output_tokens=2, model_calls=1)
    assert meter.by_model["a:x"] == Usage(5, 2, 3, 4, model_calls=2)
    assert meter.by_model["b:y"] == Usage(1, model_calls=1, estimated=True)
    assert meter.usage == Usage(6, 2, 3, 4, model_calls=3, estimated=True)


def test_tool_calls_are_reserved_one_by_one():
    meter = Meter(Limits(max_tool_calls=2))
    assert [meter.take_tool_call() for _ in range(4)] == [True, True, False, False]
    assert meter.tool_calls == 2
    assert meter.reached == [Excess("tool-calls", 2, 2)]
    assert all(Meter(Limits()).take_tool_call() for _ in range(1000))


@pytest.mark.parametrize(
    ("limits", "reached"),
    [
        (Limits(), []),
        (Limits(max_input_tokens=11), []),
        (Limits(max_input_tokens=10), ["input"]),
        (Limits(max_output_tokens=5), ["output"]),
        (Limits(max_reasoning_tokens=3), ["reasoning"]),
        (Limits(max_total_tokens=15), ["total"]),
        (Limits(max_total_tokens=16), []),
        (Limits(max_input_tokens=1, max_total_tokens=1), ["input", "total"]),
    ],
)
def test_tokens_run_out_at_the_limit(limits: Limits, reached: list[str]):
    meter = Meter(limits)
    meter.add("a:x", {"input_tokens": 10, "output_tokens": 5, "reasoning_tokens": 3})
    assert meter.out_of_tokens() is bool(reached)
    assert [excess.kind for excess in meter.reached] == reached


def test_each_limit_is_news_once():
    meter = Meter(Limits(max_tool_calls=0, max_total_tokens=5))
    assert meter.news() == []
    meter.take_tool_call()
    assert meter.news() == [Excess("tool-calls", 0, 0)]
    meter.take_tool_call()
    meter.add("a:x", {"input_tokens": 7})
    assert meter.out_of_tokens()
    meter.add("a:x", {"input_tokens": 7})
    assert meter.out_of_tokens()
    assert meter.news() == [Excess("total", 7, 5)]
    assert meter.news() == []


@pytest.mark.parametrize(
    ("excess", "words"),
    [
        (Excess("total", 7, 5), "the limit of 5 total tokens was reached"),
        (Excess("tool-calls", 2, 2), "the limit of 2 tool calls was reached"),
        (Excess("iterations", 2, 2), "the limit of 2 steps was reached"),
    ],
)
def test_an_excess_says_what_was_reached(excess: Excess, words: str):
    assert str(excess) == words
