import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.cli.text import call_text, clean, duration, one_line

SEQUENCES = [
    "\x1b[31m",
    "\x1b[2J",
    "\x1b[?25l",
    "\x1b]0;t\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x1bP1$r\x1b\\",
    "\x9b1m",
    "\x1b(B",
    "\x1bc",
    "\x1b]",
]


@given(
    st.lists(
        st.sampled_from([*SEQUENCES, "a", "é", "\n", "\t", "[", ";", "\r", "\b", "\x07", "\x00", "\x7f", "\udc80"])
    )
)
def test_nothing_that_a_terminal_obeys_is_left(pieces):
    shown = clean("".join(pieces))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    shown.encode()


@pytest.mark.parametrize("sequence", SEQUENCES[:-1])
def test_sequences_are_removed_whole(sequence):
    assert clean(f"a{sequence}b") == "ab"


def test_carriage_returns_hide_nothing():
    assert clean("seen\rhidden\r\nnext") == "seen\nhidden\nnext"


def test_a_sequence_without_an_end_takes_nothing_with_it():
    assert clean("a\x1b]0;b\nc") == "a0;b\nc"


@given(st.text(), st.integers(1, 50))
def test_a_line_is_one_line_of_at_most_its_width(text, width):
    line = one_line(text, width)
    assert len(line) <= width
    assert "\n" not in line


def test_calls_are_shown_as_one_would_write_them():
    assert call_text("look", {"key": "a\nb", "n": 3, "deep": {"x": [1]}}) == 'look(key="a\\nb", n=3, deep={"x":[1]})'
    assert call_text("look", {"key": "a" * 500}) == f'look(key="{"a" * 38}…)'


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h 0 min"),
        (90000, "1 d"),
        (-1, "0.0 s"),
    ],
)
def test_durations_are_readable(seconds, shown):
    assert duration(seconds) == shown
