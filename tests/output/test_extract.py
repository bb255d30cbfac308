import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.output import candidates

PLAN = {"thought": "do it", "steps": [{"id": "s1", "description": "Write:\n```python\nprint(1)\n```\nthen stop"}]}
RAW = json.dumps(PLAN).replace("\\n", "\n")
"""The plan with raw line breaks inside its text, as models write it."""


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(PLAN),
        f"  \n{RAW}\n ",
        f"\ufeff{RAW}",
        f"Here is the plan:\n```json\n{RAW}\n```\nTell me if it suits you.",
        f"```\n{RAW}\n```",
        f"```json\r\n{RAW}\r\n```",
        f"```JSON {RAW} ```",
        f"The plan is {RAW} and that is all.",
        f"Use ```code``` here.\n```json\n{RAW}\n```",
        f"```json\n{RAW}",
        f"It uses {{braces}} and [brackets, then {RAW}",
        f"First `[1` is not it. {RAW} }}",
    ],
)
def test_an_object_is_found_whatever_is_around_it_and_its_inner_backticks_stay(text: str):
    assert PLAN in list(candidates(text))


def test_the_whole_text_comes_first_and_alone():
    assert list(candidates('{"a": [1, {"b": 2}]}')) == [{"a": [1, {"b": 2}]}]


def test_several_objects_come_in_order():
    found = list(candidates('first {"a": 1} then [2, 3] and {"b": {"c": 4}}.'))
    assert found == [{"a": 1}, [2, 3], {"b": {"c": 4}}]


def test_the_inside_of_a_fence_comes_before_what_stands_around_it():
    assert next(iter(candidates('not {"a": 1} but\n```json\n{"b": 2}\n```'))) == {"b": 2}


@pytest.mark.parametrize(
    "text", ["", "   ", "no json", "{", "}{", "```", "```json\n```", '{"a": ', "[" * 5000, "{" * 5000]
)
def test_text_without_json_gives_nothing(text: str):
    assert list(candidates(text)) == []


def test_a_text_full_of_braces_does_not_take_for_ever():
    assert list(candidates("{[" * 100_000 + '{"a": 1}')) == []


def test_numbers_and_surrogates_are_normalised():
    assert list(candidates('{"n": NaN, "i": Infinity, "s": "\\ud800"}')) == [{"n": None, "i": None, "s": "\ufffd"}]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)


@given(value=objects, ascii_only=st.booleans(), before=st.sampled_from(["", "Here:\n```json\n", "So: "]))
def test_any_object_is_found_inside_a_fence_or_a_sentence(value: dict[str, object], ascii_only: bool, before: str):
    after = "\n```\nDone." if "```" in before else ""
    text = f"{before}{json.dumps(value, ensure_ascii=ascii_only)}{after}"
    assert value in list(candidates(text))


@given(st.text(alphabet='{}[]"`,:a1\\ \n', max_size=60))
def test_no_text_raises(text: str):
    list(candidates(text))
