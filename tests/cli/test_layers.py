import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from replan.cli.layers import Bend, arrange, place


@st.composite
def graphs(draw, most=14):
    size = draw(st.integers(0, most))
    return {
        f"s{n}": tuple(f"s{m}" for m in sorted(draw(st.sets(st.integers(0, n - 1), max_size=4))) if n) if n else ()
        for n in range(size)
    }


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(1, 5))
def test_edges_lead_down_one_layer_at_a_time_and_layers_are_no_wider_than_asked(needs, widest):
    layers = arrange(needs, widest)
    row_of = {slot: number for number, row in enumerate(layers.rows) for slot in row}
    assert sorted(slot for slot in row_of if isinstance(slot, str)) == sorted(needs)
    assert all(sum(isinstance(slot, str) for slot in row) <= widest for row in layers.rows)
    assert set(layers.routes) == {(other, ident) for ident, others in needs.items() for other in others}
    for (first, second), route in layers.routes.items():
        assert (route[0], route[-1]) == (first, second)
        assert all(isinstance(slot, Bend) for slot in route[1:-1])
        assert all(row_of[b] == row_of[a] + 1 for a, b in itertools.pairwise(route))


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(1, 5))
def test_slots_keep_their_order_and_their_distance(needs, widest):
    layers = arrange(needs, widest)
    width = {slot: 1 if isinstance(slot, Bend) else 20 for row in layers.rows for slot in row}
    centres = place(layers, lambda slot: width[slot], 2)
    for row in layers.rows:
        for a, b in itertools.pairwise(row):
            assert centres[b] - centres[a] >= (width[a] + width[b]) / 2 + 2 - 1e-6
    assert not centres or abs(min(centres[slot] - width[slot] / 2 for slot in centres)) < 1e-6


def test_crossings_that_need_not_be_are_avoided():
    layers = arrange({"a": (), "b": (), "c": ("b",), "d": ("a",)}, 4)
    assert layers.rows in ([["a", "b"], ["d", "c"]], [["b", "a"], ["c", "d"]])


def test_a_node_stands_between_those_that_it_joins():
    layers = arrange({"a": (), "b": (), "c": ("a", "b")}, 4)
    assert place(layers, lambda slot: 10, 2) == {"a": 5, "b": 17, "c": 11}


def test_a_graph_whose_edges_need_too_many_bends_has_none():
    needs = {f"s{n}": tuple(f"s{m}" for m in range(n)) for n in range(60)}
    layers = arrange(needs, 4)
    assert [len(row) for row in layers.rows] == [1] * 60
    assert layers.routes["s0", "s59"] == ["s0", "s59"]
