"""Tool calls put together from pieces: each case is compared with the calls of the same answer sent whole."""

from typing import Any

import pytest

from replan.models.arguments import parse_arguments
from replan.models.chat.calls import CallAssembler

A, B = ("a", "look", '{"key":"x"}'), ("b", "send", '{"to":"y"}')
Piece = tuple[int | None, str, str, str]


def assembled(deltas: list[list[Piece]], tools: tuple[str, ...] = ("look", "send")) -> list[tuple[str, str, Any]]:
    assembler = CallAssembler(tools)
    for delta in deltas:
        assembler.begin_delta()
        for index, call_id, name, text in delta:
            assembler.add(index, call_id, name, text)
    return [(c.call_id, c.name, c.raw or c.arguments) for c in assembler.calls(lambda _: False, 1)]


def one_each(*pieces: Piece) -> list[list[Piece]]:
    return [[piece] for piece in pieces]


BOTH = [("a", "look", {"key": "x"}), ("b", "send", {"to": "y"})]


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(one_each((0, *A), (1, *B)), id="whole calls in one piece"),
        pytest.param([[(None, *A), (None, *B)]], id="both in one delta without index"),
        pytest.param(one_each((None, *A), (None, *B)), id="no index, one piece each"),
        pytest.param(one_each((0, *A), (0, *B)), id="index 0 for both"),
        pytest.param(
            one_each((0, *A), (0, "b", "send", ""), (1, "", "", '{"to":'), (1, "", "", '"y"}')),
            id="head of the second under 0, tail under 1",
        ),
        pytest.param(
            one_each((0, *A), (0, "b", "send", '{"to"'), (1, "b", "", ':"y"}')), id="tail under 1 with its id"
        ),
        pytest.param(
            one_each((0, "a", "look", ""), (0, "", "", '{"key":'), (0, "", "", '"x"}'), (1, *B)),
            id="id and name only in the first piece",
        ),
        pytest.param(
            one_each((0, "a", "look", '{"key"'), (1, "b", "send", '{"to"'), (0, "", "", ':"x"}'), (1, "", "", ':"y"}')),
            id="interleaved by index",
        ),
        pytest.param(
            one_each(
                (0, "a", "look", '{"key"'), (0, "b", "send", '{"to"'), (0, "a", "", ':"x"}'), (0, "b", "", ':"y"}')
            ),
            id="interleaved by id under one index",
        ),
        pytest.param(
            one_each(
                (None, "a", "look", '{"key"'),
                (None, "b", "send", '{"to"'),
                (None, "a", "", ':"x"}'),
                (None, "b", "", ':"y"}'),
            ),
            id="interleaved by id without index",
        ),
        pytest.param(
            one_each((0, "a", "lo", ""), (0, "", "ok", ""), (0, "", "", '{"key":"x"}'), (1, *B)),
            id="name split, by index",
        ),
        pytest.param(
            one_each((None, "a", "lo", ""), (None, "a", "ok", '{"key":"x"}'), (None, *B)), id="name split, by id"
        ),
        pytest.param(
            one_each((0, "a", "look", '{"key"'), (0, "a", "look", ':"x"}'), (1, *B)), id="id and name in every piece"
        ),
        pytest.param(one_each((0, *A), (1, *B), (0, *A), (1, *B)), id="whole calls repeated at the end"),
        pytest.param(
            one_each((0, "a", "lo", ""), (0, "a", "look", '{"key":"x"}'), (1, *B)), id="name so far in each piece"
        ),
        pytest.param(
            one_each((0, "a", "look", '{"key"'), (0, "zz1", "", ':"x"'), (0, "zz2", "", "}"), (1, *B)),
            id="another id in each piece",
        ),
        pytest.param(one_each((0, *A), (0, "b", "", ""), (0, "", "send", '{"to":"y"}')), id="id first, name later"),
        pytest.param(one_each((0, "", "look", '{"key"'), (0, "a", "", ':"x"}'), (1, *B)), id="id in a later piece"),
        pytest.param(one_each((0, "a", "look", "{}"), (0, "", "", '{"key":"x"}'), (1, *B)), id="empty object first"),
        pytest.param(one_each((0, *A), (0, "", "", A[2]), (1, *B)), id="arguments sent twice"),
        pytest.param(one_each((7, *A), (3, *B)), id="indexes in no order"),
    ],
)
def test_pieces_become_the_calls_that_were_meant(deltas: list[list[Piece]]):
    assert assembled(deltas) == BOTH


@pytest.mark.parametrize("indexes", [(0, 1), (0, 0), (None, None)])
def test_missing_ids_are_made_up_and_differ(indexes: tuple[int | None, int | None]):
    deltas = one_each((indexes[0], "", *A[1:]), (indexes[1], "", *B[1:]))
    assert assembled(deltas) == [("call_1", "look", {"key": "x"}), ("call_2", "send", {"to": "y"})]


def test_two_calls_under_one_id_stay_two():
    deltas = one_each((0, "same", *A[1:]), (1, "same", *B[1:]))
    assert assembled(deltas) == [("same", "look", {"key": "x"}), ("call_1", "send", {"to": "y"})]


def test_the_same_call_twice_is_two_calls():
    deltas = one_each((0, "", *A[1:]), (0, "", *A[1:]))
    assert [name for _, name, _ in assembled(deltas)] == ["look", "look"]


def test_calls_without_arguments_are_told_apart_by_the_known_names():
    assert [name for _, name, _ in assembled(one_each((0, "", "look", ""), (0, "", "send", "")))] == ["look", "send"]
    assert [name for _, name, _ in assembled(one_each((0, "", "lo", ""), (0, "", "ok", "")))] == ["look"]


def test_a_name_that_begins_like_another_tool_can_be_split():
    deltas = one_each((0, "a", "look", ""), (0, "", "_up", "{}"))
    assert assembled(deltas, ("look", "look_up")) == [("a", "look_up", {})]


def test_split_names_are_joined_where_no_tools_are_known():
    assert assembled(one_each((0, "a", "fo", ""), (0, "", "o", ""), (0, "", "", "{}")), ()) == [("a", "foo", {})]


def test_pieces_with_nothing_in_them_are_no_call():
    assert assembled([[(0, "", "", "")]]) == []


def test_a_call_with_an_id_and_no_name_is_kept_for_the_model_to_hear_of():
    assert assembled(one_each((0, "a", "", "{}"))) == [("a", "", {})]


def test_taken_ids_are_replaced():
    assembler = CallAssembler(("look",))
    assembler.add(0, "call_0", "look", "{}")
    calls = assembler.calls({"call_0", "call_4"}.__contains__, 4)
    assert [c.call_id for c in calls] == ["call_5"]


@pytest.mark.parametrize("text", ["", "null", '"null"'[1:-1], "{}", "   ", '""', "\n", " null "])
def test_no_arguments_are_an_empty_object(text: str):
    assert parse_arguments(text) == ({}, None)


@pytest.mark.parametrize("text", ['{"a":', "[1]", "7", '"text"', "not json", '{"a":1}{"a":2}', "[" * 100_000])
def test_what_is_no_object_is_kept_as_it_was_written(text: str):
    assert parse_arguments(text) == ({}, text)


def test_odd_numbers_and_surrogates_still_give_an_object():
    arguments, raw = parse_arguments('{"n":NaN,"s":"\\ud800","big":123456789012345678901234567890}')
    assert raw is None
    assert arguments["n"] is None
    assert arguments["s"] == "\ufffd"
