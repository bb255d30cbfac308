import hypothesis
import hypothesis.strategies as st
import msgspec

from replan.usage import Usage, estimate_tokens

counts = st.integers(0, 10**9)
usages = st.builds(Usage, counts, counts, counts, counts, counts, counts, st.booleans())


def test_usage_adds_up_field_by_field():
    total = Usage(10, 5, 2, 4, 1, 1) + Usage(1, 1, 1, 1, 1, 1, estimated=True)
    assert total == Usage(11, 6, 3, 5, 2, 2, estimated=True)
    assert total.total_tokens == 17


@hypothesis.given(usages, usages, usages)
def test_the_order_of_adding_does_not_matter(a: Usage, b: Usage, c: Usage):
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Usage() == a
    assert sum([a, b, c], Usage()) == a + b + c


@hypothesis.given(usages)
def test_usage_survives_being_stored(usage: Usage):
    assert msgspec.convert(msgspec.to_builtins(usage), Usage) == usage


def test_nothing_used_is_an_empty_object():
    assert msgspec.to_builtins(Usage()) == {}


def test_estimates_round_up():
    assert [estimate_tokens(n) for n in (0, 1, 4, 5, 400)] == [0, 1, 1, 2, 100]
