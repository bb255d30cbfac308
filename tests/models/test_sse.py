import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.models.sse import EventParser, events

STREAM = (
    b"\xef\xbb\xbf: hello\r\n\r\ndata: first\r\n\r\nevent: error\r\ndata:second\r\ndata: more\r\n\r\n"
    b"id: 7\nretry: 10\ndata\n\ndata: caf\xc3\xa9\n\n\n\ndata: third\r\rdata:  spaced\n\ndata: last"
)
FOUND = [
    (b"", b"first"),
    (b"error", b"second\nmore"),
    (b"", b""),
    (b"", "café".encode()),
    (b"", b"third"),
    (b"", b" spaced"),
    (b"", b"last"),
]


def parsed(pieces: list[bytes]) -> list[tuple[bytes, bytes]]:
    parser = EventParser()
    found = [event for piece in pieces for event in parser.feed(piece)]
    return [*found, *parser.finish()]


def test_a_stream_in_one_piece():
    assert parsed([STREAM]) == FOUND


def test_a_stream_byte_by_byte():
    assert parsed([STREAM[i : i + 1] for i in range(len(STREAM))]) == FOUND


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_pieces_can_be_cut_anywhere(cuts: list[int]):
    places = [0, *sorted(cuts), len(STREAM)]
    assert parsed([STREAM[a:b] for a, b in itertools.pairwise(places)]) == FOUND


@pytest.mark.parametrize("pieces", [[], [b""], [b"\n\n\n"], [b": only a comment\n\n"], [b"event: x\n\n"]])
def test_streams_without_data_have_no_events(pieces: list[bytes]):
    assert parsed(pieces) == []


async def test_events_come_as_soon_as_they_are_complete():
    async def pieces():
        yield b"data: 1\n\nda"
        yield b"ta: 2\n\ndata: 3"

    batches = [[event.data for event in batch] async for batch in events(pieces())]
    assert batches == [[b"1"], [b"2"], [b"3"]]
