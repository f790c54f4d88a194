from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.clock import ITERATIONS, AffineClock, Timeline, growing
from pagedkv.errors import BadValue
from pagedkv.geometry import LLAMA_3_1_8B
from pagedkv.hardware import H100_SXM
from pagedkv.preemption import RecomputeCost, SwapCost
from pagedkv.sequences import Plan, Sequence, Transfer
from pagedkv.workloads import Request

SOMEBODY = Sequence(Request(0, 0.0, 1, 1))


def test_the_roofline_reads_weights_and_resident_kv_once() -> None:
    clock = AffineClock.from_roofline(LLAMA_3_1_8B, H100_SXM)
    seconds = clock.decode_seconds(tokens=100_000, sequences=64)
    assert seconds == pytest.approx((LLAMA_3_1_8B.weight_bytes + 100_000 * 131_072) / 3.35e12)
    prefill = clock.entry_seconds(Plan(1, [], [], 0, [], [(SOMEBODY, 1000), (SOMEBODY, 24)]))
    flops = sum(LLAMA_3_1_8B.linear_flops(n) + LLAMA_3_1_8B.attention_flops(n) for n in (1000, 24))
    assert prefill == pytest.approx(flops / (0.4 * 989e12))


def test_each_direction_of_a_swap_costs_half_of_it() -> None:
    swap = SwapCost(fixed=0.02, per_token=1e-5, per_block=1e-4, block_size=16)
    clock = AffineClock(1.0, swap=swap)
    out, back = [Transfer(SOMEBODY, 3, 40)], [Transfer(SOMEBODY, 3, 40)]
    one_way = clock.entry_seconds(Plan(1, [], out, 0, [], []))
    assert one_way + clock.entry_seconds(Plan(2, [], [], 0, back, [])) == pytest.approx(swap.seconds(40))
    assert clock.entry_seconds(Plan(3, [], [], 5, [], [])) == 0


@pytest.mark.parametrize(
    "wrong", [(0.0,), (-1.0,), (math.nan,), (math.inf,), (1.0, -1.0), (1.0, 0.0, math.inf)]
)
def test_a_clock_that_stands_still_or_runs_backwards_is_refused(wrong: tuple[float, ...]) -> None:
    with pytest.raises(BadValue):
        AffineClock(*wrong)


def test_growing_sums_up_the_tokens_read() -> None:
    tokens, total = 50, 0
    for _ in range(9):
        tokens += 4
        total += tokens
    assert growing(50, 4, 9) == total and growing(50, 4, 0) == 0


work = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 50), st.integers(1, 40)), min_size=1, max_size=10
)
clocks = st.builds(AffineClock, st.floats(1e-4, 10), st.floats(0, 1e-4), st.floats(0, 0.1))


@given(clocks, work, st.floats(0, 1000))
def test_the_time_is_the_same_to_the_last_bit_however_it_passes(
    clock: AffineClock, pieces: list[tuple[int, int, int]], start: float
) -> None:
    one, many = Timeline(clock), Timeline(clock)
    for timeline in (one, many):
        timeline.restart(start)
    for tokens, sequences, iterations in pieces:
        one.advance(iterations, growing(tokens, sequences, iterations), sequences * iterations, 0.25)
        for number in range(1, iterations + 1):
            before = many.now
            entries = 0.25 if number == 1 else 0.0
            assert many.advance(1, tokens + number * sequences, sequences, entries) >= before
    assert one.now == many.now
    by_hand = sum(
        clock.decode_seconds(tokens + number * sequences, sequences)
        for tokens, sequences, iterations in pieces
        for number in range(1, iterations + 1)
    )
    assert one.now == pytest.approx(start + by_hand + 0.25 * len(pieces), rel=1e-9)


@given(clocks, st.integers(0, 10_000), st.integers(0, 50), st.integers(1, 2000), st.floats(0, 500))
def test_the_first_iteration_at_or_after_a_moment(
    clock: AffineClock, tokens: int, sequences: int, most: int, wait: float
) -> None:
    timeline = Timeline(clock)
    timeline.advance(3, 100, 7, 0.125)
    moment = timeline.now + wait

    def after(count: int) -> float:
        return timeline.after(count, growing(tokens, sequences, count), sequences * count)

    count = timeline.iterations_until(moment, most, tokens, sequences)
    assert 1 <= count <= most
    assert count == 1 or after(count - 1) < moment
    assert count == most or after(count) >= moment


def test_iterations_as_a_clock_hit_whole_numbers() -> None:
    timeline = Timeline(ITERATIONS)
    assert [timeline.iterations_until(float(moment), 100, 5, 5) for moment in (1, 2, 17)] == [1, 2, 17]
    assert ITERATIONS.prefill == RecomputeCost(0.0)
