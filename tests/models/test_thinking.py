from itertools import product
from typing import Any, get_args

import pytest
from anthropic.types import OutputConfigParam, ThinkingConfigParam
from google.genai.types import ThinkingConfig
from hypothesis import given
from hypothesis import strategies as st
from openai.types.shared import ReasoningEffort
from openai.types.shared_params import Reasoning
from pydantic import TypeAdapter

from replan.errors import ConfigError
from replan.model import ModelProfile, ThinkingStyle
from replan.models import resolve_thinking
from replan.settings import Thinking, ThinkingLevel, ThinkingSetting

STYLES: tuple[ThinkingStyle, ...] = get_args(ThinkingStyle)
LEVELS: tuple[ThinkingLevel, ...] = get_args(ThinkingLevel)
HIDDEN = Thinking(include_thoughts=False)

settings = st.one_of(
    st.sampled_from([True, False, None, *LEVELS]),
    st.builds(
        Thinking,
        level=st.sampled_from(LEVELS),
        budget_tokens=st.none() | st.integers(0, 200_000),
        include_thoughts=st.booleans(),
    ),
)


def asked(setting: ThinkingSetting, style: ThinkingStyle, *levels: ThinkingLevel) -> Any:
    return resolve_thinking(setting, ModelProfile(thinking=style, thinking_levels=levels))


@pytest.mark.parametrize(
    ("style", "fields"),
    [
        ("none", {}),
        ("effort", {"reasoning_effort": "high"}),
        ("reasoning", {"reasoning": {"effort": "high", "summary": "auto"}}),
        ("switch", {"thinking": {"type": "enabled"}}),
        ("budget", {"thinking": {"type": "enabled", "budget_tokens": 16384}}),
        (
            "adaptive",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}},
        ),
        ("gemini-budget", {"thinkingConfig": {"thinkingBudget": 16384, "includeThoughts": True}}),
        ("gemini-level", {"thinkingConfig": {"thinkingLevel": "high", "includeThoughts": True}}),
    ],
)
def test_each_api_is_asked_in_its_words(style: ThinkingStyle, fields: dict[str, Any]):
    assert asked("high", style) == fields


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("setting", [None, False])
def test_nothing_is_asked_where_nothing_is_set(style: ThinkingStyle, setting: ThinkingSetting):
    assert asked(setting, style) == {}


@pytest.mark.parametrize("style", STYLES)
def test_true_is_medium(style: ThinkingStyle):
    assert asked(True, style) == asked("medium", style) == asked(Thinking(), style)


@pytest.mark.parametrize("style", STYLES)
def test_the_providers_default_asks_for_nothing(style: ThinkingStyle):
    assert asked("provider-default", style) == {}
    assert asked(Thinking(level="provider-default", include_thoughts=False), style) == {}


@pytest.mark.parametrize(
    ("style", "fields"),
    [
        ("effort", {"reasoning_effort": "none"}),
        ("reasoning", {"reasoning": {"effort": "none"}}),
        ("switch", {"thinking": {"type": "disabled"}}),
        ("budget", {"thinking": {"type": "disabled"}}),
        ("adaptive", {"thinking": {"type": "disabled"}}),
        ("gemini-budget", {"thinkingConfig": {"thinkingBudget": 0, "includeThoughts": False}}),
    ],
)
def test_none_switches_thinking_off(style: ThinkingStyle, fields: dict[str, Any]):
    assert asked("none", style) == asked(Thinking(budget_tokens=0), style) == fields


@pytest.mark.parametrize(
    ("style", "levels", "fields"),
    [
        ("effort", ("low", "high"), {"reasoning_effort": "low"}),
        ("effort", ("high",), {"reasoning_effort": "high"}),
        ("reasoning", ("medium", "high"), {"reasoning": {"effort": "medium"}}),
        ("switch", ("high",), {"thinking": {"type": "enabled"}}),
        ("budget", ("low",), {"thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}}),
        (
            "adaptive",
            ("low", "high"),
            {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "low"}},
        ),
        ("gemini-budget", ("low",), {"thinkingConfig": {"thinkingBudget": 128, "includeThoughts": False}}),
        ("gemini-level", (), {"thinkingConfig": {"thinkingLevel": "minimal", "includeThoughts": False}}),
        ("gemini-level", ("low", "high"), {"thinkingConfig": {"thinkingLevel": "low", "includeThoughts": False}}),
    ],
)
def test_none_is_the_least_of_a_model_that_always_thinks(
    style: ThinkingStyle, levels: tuple[ThinkingLevel, ...], fields: dict[str, Any]
):
    assert asked("none", style, *levels) == fields


@pytest.mark.parametrize(
    ("wanted", "levels", "sent"),
    [
        ("minimal", ("low", "medium", "high"), "low"),
        ("xhigh", ("low", "medium", "high"), "high"),
        ("medium", ("low", "high"), "high"),
        ("low", ("minimal", "medium"), "medium"),
        ("low", ("high",), "high"),
        ("minimal", ("none", "high"), "high"),
        ("medium", ("none", "low", "medium"), "medium"),
    ],
)
def test_a_level_that_the_model_does_not_take_is_the_nearest(
    wanted: ThinkingLevel, levels: tuple[ThinkingLevel, ...], sent: ThinkingLevel
):
    assert asked(wanted, "effort", *levels) == {"reasoning_effort": sent}
    assert asked(wanted, "adaptive", *levels)["output_config"] == {"effort": sent}


def test_levels_of_a_style_are_kept_without_a_list():
    assert asked("minimal", "adaptive")["output_config"] == {"effort": "low"}
    assert asked("xhigh", "gemini-level")["thinkingConfig"]["thinkingLevel"] == "high"
    assert asked("minimal", "effort") == {"reasoning_effort": "minimal"}


def test_a_model_that_only_switches_off_is_not_asked_for_more():
    assert asked("high", "effort", "none") == {}


def test_levels_that_the_api_has_no_word_for_do_not_count():
    assert asked("none", "gemini-level", "none", "high")["thinkingConfig"]["thinkingLevel"] == "high"
    assert asked("minimal", "adaptive", "minimal", "high")["output_config"] == {"effort": "high"}


def test_a_switch_with_levels_says_how_much():
    levels: tuple[ThinkingLevel, ...] = ("none", "low", "high")
    assert asked("medium", "switch", *levels) == {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}
    assert asked("none", "switch", *levels) == {"thinking": {"type": "disabled"}}


@pytest.mark.parametrize("tokens", [1024, 5000, 31_999])
def test_a_budget_is_sent_as_it_is(tokens: int):
    budget = Thinking(level="low", budget_tokens=tokens)
    assert asked(budget, "budget")["thinking"]["budget_tokens"] == tokens
    assert asked(budget, "gemini-budget")["thinkingConfig"]["thinkingBudget"] == tokens


def test_a_budget_is_at_least_what_the_api_takes():
    assert asked(Thinking(budget_tokens=10), "budget")["thinking"]["budget_tokens"] == 1024


@pytest.mark.parametrize(
    ("tokens", "level"),
    [
        (1, "minimal"),
        (1536, "minimal"),
        (1537, "low"),
        (5120, "low"),
        (5121, "medium"),
        (12_288, "medium"),
        (12_289, "high"),
        (24_576, "high"),
        (24_577, "xhigh"),
        (10**6, "xhigh"),
    ],
)
def test_a_budget_is_the_nearest_level_elsewhere(tokens: int, level: ThinkingLevel):
    assert asked(Thinking(level="none", budget_tokens=tokens), "effort") == {"reasoning_effort": level}


@pytest.mark.parametrize("level", ["minimal", "low", "medium", "high", "xhigh"])
def test_a_level_as_a_budget_is_that_level_again(level: ThinkingLevel):
    budget = asked(level, "budget")["thinking"]["budget_tokens"]
    assert asked(Thinking(budget_tokens=budget), "effort") == {"reasoning_effort": level}


def test_thoughts_are_left_out_on_request():
    assert asked(HIDDEN, "reasoning") == {"reasoning": {"effort": "medium"}}
    assert asked(HIDDEN, "budget")["thinking"]["display"] == "omitted"
    assert asked(HIDDEN, "adaptive")["thinking"]["display"] == "omitted"
    assert asked(HIDDEN, "gemini-budget")["thinkingConfig"]["includeThoughts"] is False
    assert asked(HIDDEN, "gemini-level")["thinkingConfig"]["includeThoughts"] is False


@pytest.mark.parametrize("style", STYLES)
def test_what_is_no_setting_is_refused(style: ThinkingStyle):
    with pytest.raises(ConfigError, match="thinking"):
        asked("much", style)  # pyright: ignore[reportArgumentType]  # the point of the test


@pytest.mark.parametrize("style", STYLES)
@given(setting=settings, levels=st.lists(st.sampled_from(LEVELS), unique=True).map(tuple))
def test_whatever_is_asked_is_something_that_the_vendor_knows(
    style: ThinkingStyle, setting: ThinkingSetting, levels: tuple[ThinkingLevel, ...]
):
    fields = resolve_thinking(setting, ModelProfile(thinking=style, thinking_levels=levels))
    assert fields == resolve_thinking(setting, ModelProfile(thinking=style, thinking_levels=levels))
    for name, value in fields.items():
        _VENDOR[style if style in ("switch",) else name].validate_python(value, strict=name != "thinkingConfig")


def _closed(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class _Anything:
    def validate_python(self, value: object, *, strict: bool) -> None:
        assert value in ("none", *LEVELS[2:], {"type": "enabled"}, {"type": "disabled"})


_VENDOR: dict[str, Any] = {
    "reasoning_effort": _closed(ReasoningEffort),
    "reasoning": _closed(Reasoning),
    "thinking": _closed(ThinkingConfigParam),
    "output_config": _closed(OutputConfigParam),
    "thinkingConfig": _closed(ThinkingConfig),
    "switch": _Anything(),
}


def test_the_nearest_level_is_never_off():
    for wanted, only in product(LEVELS[2:], LEVELS[2:]):
        assert asked(wanted, "effort", "none", only) == {"reasoning_effort": only}
