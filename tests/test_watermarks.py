from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.errors import BadValue
from pagedkv.watermarks import OFF, POLICIES, Gate, Watermarks


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0.2, 0.1), (-0.1, 0.1), (0.0, 1.0), (1.0, 1.0), (0.1, 1.5), (math.nan, 0.1), (0.1, math.nan), (True, 0.5),
        ("0", 0.1),
    ],
)  # fmt: skip
def test_marks_that_no_pool_can_be_run_by_are_refused(low: float, high: float) -> None:
    with pytest.raises(BadValue, match=r"share of the pool|above high"):
        Watermarks(low, high)


@pytest.mark.parametrize(
    ("blocks", "low", "high"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (10, 1, 1),
        (12, 1, 1),
        (13, 1, 2),
        (25, 1, 2),
        (26, 2, 3),
        (100, 4, 8),
        (1000, 40, 80),
    ],
)
def test_4_and_8_percent_of_small_pools_round_up(blocks: int, low: int, high: int) -> None:
    assert Watermarks(0.04, 0.08).in_blocks(blocks) == (low, high)


@pytest.mark.parametrize(("mark", "blocks", "rounded"), [(0.07, 100, 7), (0.14, 50, 7), (0.55, 100, 55)])
def test_a_mark_means_the_decimal_that_was_written(mark: float, blocks: int, rounded: int) -> None:
    assert mark * blocks > rounded  # as binary fractions
    assert Watermarks(mark, mark).in_blocks(blocks) == (rounded, rounded)


@given(st.integers(1, 5000), st.floats(0, 0.999), st.floats(0, 0.999))
def test_rounding_loses_no_mark_and_keeps_their_order(blocks: int, one: float, other: float) -> None:
    marks = Watermarks(min(one, other), max(one, other))
    low, high = marks.in_blocks(blocks)
    assert 0 <= low <= high <= blocks
    for mark, rounded in ((marks.low, low), (marks.high, high)):
        assert (rounded > 0) == (mark > 0)
        assert rounded - 1 < mark * blocks + 1e-9 and mark * blocks <= rounded + 1e-9


@pytest.mark.parametrize("blocks", [0, -1, 1.5])
def test_a_pool_has_whole_blocks(blocks: int) -> None:
    with pytest.raises(BadValue):
        OFF.in_blocks(blocks)


def test_the_gate_closes_below_low_and_opens_at_high() -> None:
    gate = Gate(Watermarks(0.1, 0.2), 100)
    seen = []
    for free in (100, 10, 9, 0, 10, 19, 20, 10, 9):
        changed = gate.observe(free)
        seen.append((free, gate.open, changed))
    assert [free for free, _, changed in seen if changed] == [9, 20, 9]
    assert [is_open for _, is_open, _ in seen] == [True, True, False, False, False, False, True, True, False]
    assert gate.flips == 3


def test_without_marks_the_gate_never_closes() -> None:
    gate = Gate(OFF, 10)
    assert not any(gate.observe(free) for free in (10, 0, 3, 0))
    assert gate.admits(0) and not gate.admits(-1)


# The watermark of vllm PR #11 and PR #44594: one mark, tested on what would be left.
def test_a_single_mark_is_about_what_would_be_left() -> None:
    gate = Gate(Watermarks(0.04, 0.04), 100)
    assert gate.admits(4) and not gate.admits(3)
    gate.observe(3)
    assert not gate.admits(50)
    gate.observe(4)
    assert gate.admits(50)


@given(st.lists(st.integers(0, 100)), st.integers(0, 50), st.integers(0, 49))
def test_hysteresis_never_flips_more_often_than_one_mark(frees: list[int], low: int, band: int) -> None:
    one, two = (Gate(Watermarks(low / 100, high / 100), 100) for high in (low, low + band))
    for free in frees:
        one.observe(free)
        two.observe(free)
        assert one.open or not two.open
    assert two.flips <= one.flips


def test_the_policies_compared_in_the_course() -> None:
    assert {name: (p.low, p.high, p.shed) for name, p in POLICIES.items()} == {
        "none": (0, 0, False),
        "one mark": (0.04, 0.04, False),
        "two marks": (0.04, 0.08, False),
        "one mark, shedding": (0.04, 0.04, True),
        "two marks, shedding": (0.04, 0.08, True),
    }
