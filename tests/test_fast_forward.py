from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagedkv.fast_forward import CountedResidency

residents = st.lists(st.integers(0, 60), max_size=12)


def counted(lengths: list[int], size: int, grown: int) -> CountedResidency:
    residency = CountedResidency(10_000, size)
    for name, tokens in enumerate(lengths):
        residency.take(name, tokens)
    residency.grow(grown)
    return residency


def blocks(lengths: list[int], size: int, grown: int) -> int:
    return sum(-(-(tokens + grown) // size) for tokens in lengths)


@given(residents, st.integers(1, 17), st.integers(0, 40), st.integers(1, 100))
def test_many_tokens_at_once_take_what_they_take_one_by_one(
    lengths: list[int], size: int, grown: int, more: int
) -> None:
    residency = counted(lengths, size, grown)
    assert residency.num_blocks - residency.num_free == blocks(lengths, size, grown)
    assert residency.num_tokens == sum(lengths) + grown * len(lengths)
    assert residency.wanted(more) == blocks(lengths, size, grown + more) - blocks(lengths, size, grown)


@given(residents, st.integers(1, 17), st.integers(0, 40), st.integers(1, 100), st.integers(-3, 80))
def test_longest_growth_within_a_number_of_blocks(
    lengths: list[int], size: int, grown: int, most: int, limit: int
) -> None:
    residency = counted(lengths, size, grown)
    longest = residency.longest(most, limit)
    assert 0 <= longest <= most
    if longest:
        assert residency.wanted(longest) <= limit
    if longest < most:
        assert residency.wanted(longest + 1) > limit
