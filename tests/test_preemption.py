from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.errors import BadValue
from pagedkv.geometry import LLAMA_3_1_8B as LLAMA
from pagedkv.hardware import H100_SXM
from pagedkv.preemption import (
    Cheaper,
    Mode,
    RecomputeCost,
    SwapCost,
    always_recompute,
    always_swap,
    break_even_bandwidth,
    crossover,
)

LINEAR = RecomputeCost.linear(LLAMA, H100_SXM, 0.4)
WITH_ATTENTION = RecomputeCost.with_attention(LLAMA, H100_SXM, 0.4)


def test_the_setting_of_the_course() -> None:
    assert LINEAR.per_token == pytest.approx(40.6e-6, rel=1e-3)
    assert SwapCost.over_link(LLAMA, 25e9).per_token == pytest.approx(2 * 128 * 1024 / 25e9)
    assert SwapCost.over_link(LLAMA, 25e9).fixed == 0.020


@pytest.mark.parametrize(("gigabytes", "where", "first"), [(25, 664.2, 665), (55, 558.2, 559)])
def test_the_crossover_of_the_course(gigabytes: float, where: float, first: int) -> None:
    swap = SwapCost.over_link(LLAMA, gigabytes * 1e9)
    assert crossover(LINEAR, swap) == pytest.approx(where, abs=0.05)
    choice = Cheaper(LINEAR, swap)
    assert [choice(first - 1), choice(first)] == [Mode.RECOMPUTE, Mode.SWAP]


# "There is always a crossover" is what one often reads.
def test_on_a_slow_link_recompute_always_wins() -> None:
    assert break_even_bandwidth(LLAMA, LINEAR) == pytest.approx(6.46e9, rel=1e-3)
    slow = SwapCost.over_link(LLAMA, 6.45e9)
    assert crossover(LINEAR, slow) is None
    assert Cheaper(LINEAR, slow)(10**9) is Mode.RECOMPUTE
    assert crossover(LINEAR, SwapCost.over_link(LLAMA, 6.47e9)) is not None
    assert crossover(RecomputeCost(1.0), SwapCost(0.1, 1.0)) is None  # parallel lines
    assert break_even_bandwidth(LLAMA, RecomputeCost(0.0)) == math.inf


def test_without_a_set_up_swap_wins_from_the_first_token_or_never() -> None:
    assert crossover(LINEAR, SwapCost.over_link(LLAMA, 25e9, fixed=0.0)) == 0.0
    assert crossover(LINEAR, SwapCost.over_link(LLAMA, 5e9, fixed=0.0)) is None


@pytest.mark.parametrize(("tokens", "percent"), [(4096, 6.7), (8192, 13.4), (32768, 53.5), (131072, 214)])
def test_attention_adds_to_the_linear_term(tokens: int, percent: float) -> None:
    added = WITH_ATTENTION.seconds(tokens) / LINEAR.seconds(tokens) - 1
    assert added * 100 == pytest.approx(percent, rel=0.01)


def test_attention_brings_a_crossover_to_every_link() -> None:
    slow = SwapCost.over_link(LLAMA, 5e9)
    where = crossover(WITH_ATTENTION, slow)
    assert where is not None and where > 10_000
    near = SwapCost.over_link(LLAMA, 25e9)
    assert 0 < crossover(WITH_ATTENTION, near) < crossover(LINEAR, near)  # type: ignore[operator]


# Many small transfers lost the race in vllm PR #12: with an overhead per block, the block size counts.
def test_block_size_matters_once_a_block_has_an_overhead() -> None:
    def at(size: int) -> float | None:
        return crossover(LINEAR, SwapCost.over_link(LLAMA, 25e9, per_block=50e-6, block_size=size))

    assert at(1) is None
    assert at(16) > at(64) > 664  # type: ignore[operator]
    assert SwapCost(0.0, 0.0, 1.0, 16).seconds(17) == 2.0


@given(
    st.floats(1e-6, 1e-3),
    st.one_of(st.just(0.0), st.floats(1e-12, 1e-7)),
    st.floats(0, 0.1),
    st.floats(1e-7, 1e-3),
    st.floats(0, 1e-3),
    st.sampled_from([1, 16, 256]),
)
def test_the_closed_form_is_where_the_costs_cross(
    token: float, pair: float, fixed: float, swap_token: float, block: float, size: int
) -> None:
    recompute, swap = RecomputeCost(token, pair), SwapCost(fixed, swap_token, block, size)

    def gain(tokens: float) -> float:
        return token * tokens + pair * tokens * (tokens + 1) / 2 - fixed - swap.slope * tokens

    where = crossover(recompute, swap)
    if where is None:
        assert not pair and all(gain(10**power) <= 0 for power in range(12))
        return
    scale = fixed + swap.slope * where + token * where
    assert abs(gain(where)) <= 1e-9 * scale + 1e-15
    assert gain(2 * where + 1) > 0
    if where > 1:
        assert gain(where / 2) <= 0


@given(st.integers(0, 5000))
def test_a_decision_shows_both_costs_and_takes_the_smaller(tokens: int) -> None:
    decision = Cheaper(LINEAR, SwapCost.over_link(LLAMA, 25e9)).decide(tokens)
    assert decision.tokens == tokens
    assert decision.recompute_seconds == LINEAR.seconds(tokens)
    smaller = decision.swap_seconds < decision.recompute_seconds
    assert decision.mode is (Mode.SWAP if smaller else Mode.RECOMPUTE)


def test_recompute_when_both_cost_the_same() -> None:
    choice = Cheaper(RecomputeCost(2.0), SwapCost(8.0, 1.0))
    assert [choice(tokens) for tokens in (7, 8, 9)] == [Mode.RECOMPUTE, Mode.RECOMPUTE, Mode.SWAP]


def test_choices_travel_to_other_processes() -> None:
    choice = Cheaper(LINEAR, SwapCost.over_link(LLAMA, 25e9))
    assert pickle.loads(pickle.dumps(choice)) == choice
    assert (always_recompute(5), always_swap(5)) == ("recompute", "swap")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RecomputeCost(-1.0),
        lambda: RecomputeCost(math.nan),
        lambda: RecomputeCost(1.0, math.inf),
        lambda: RecomputeCost.linear(LLAMA, H100_SXM, 0.0),
        lambda: RecomputeCost.with_attention(LLAMA, H100_SXM, 1.1),
        lambda: SwapCost(-0.1, 1.0),
        lambda: SwapCost(0.1, 1.0, block_size=0),
        lambda: SwapCost.over_link(LLAMA, 0.0),
        lambda: SwapCost.over_link(LLAMA, math.nan),
        lambda: LINEAR.seconds(-1),
        lambda: LINEAR.seconds(1.5),
        lambda: SwapCost(0.0, 1.0).seconds(-1),
    ],
)
def test_costs_that_are_none_are_refused(wrong: object) -> None:
    with pytest.raises(BadValue):
        wrong()  # type: ignore[operator]
