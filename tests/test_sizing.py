"""Sizing a pool: the bisection keeps what it promises, and the closed form agrees with the simulator."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedkv.blocks import blocks_needed
from pagedkv.clock import ITERATIONS, AffineClock
from pagedkv.errors import BadValue
from pagedkv.preemption import RecomputeCost
from pagedkv.pressure import BALANCED, OUTPUT_HEAVY, PROMPT_HEAVY, SERVER
from pagedkv.simulator import Setting, fast_forward, step_by_step
from pagedkv.sizing import MARGIN, Estimate, Target, estimate_pool, size_pool
from pagedkv.watermarks import OFF, POLICIES, Watermarks
from pagedkv.workloads import Request

LOOSE = Target(0.0, 1.0)


def within(requests: list[Request], blocks: int, size: int, target: Target, marks: Watermarks) -> bool:
    unlimited = fast_forward(requests, Setting(10**6, ITERATIONS, size)).completion(99)
    report = fast_forward(requests, Setting(blocks, ITERATIONS, size, watermarks=marks))
    rate = report.preemptions_per_request
    return rate <= target.preemptions_per_request and report.completion(99) <= target.slowdown * unlimited


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=25),
    st.integers(1, 5),
    st.sampled_from([Target(), LOOSE, Target(0.3, 1.5), Target(5.0, 100.0)]),
    st.sampled_from([OFF, POLICIES["two marks"], Watermarks(0.2, 0.4, shed=True)]),
)
def test_what_is_found_keeps_the_target_and_one_block_less_does_not(
    rows: list[tuple[int, int, int]], size: int, target: Target, marks: Watermarks
) -> None:
    now, requests = 0.0, []
    for number, (gap, prompt, output) in enumerate(rows):
        now += gap
        requests.append(Request(number, now, prompt, output))
    found = size_pool(requests, ITERATIONS, target, block_size=size, watermarks=marks)
    assert within(requests, found.num_blocks, size, target, marks)
    longest = max(blocks_needed(r.prompt + r.output - 1, size) for r in requests)
    assert found.num_blocks >= max(longest, 1)
    if found.num_blocks > max(longest, 1):
        assert not within(requests, found.num_blocks - 1, size, target, marks)
    report = fast_forward(requests, Setting(found.num_blocks, ITERATIONS, size, watermarks=marks))
    assert not report.rejected
    assert found.preemptions_per_request == report.preemptions_per_request
    assert found.completion_p99 == report.completion(99)
    assert found.slowdown == report.completion(99) / found.unlimited_p99


def test_without_marks_the_peak_of_an_unlimited_pool_is_always_enough() -> None:
    requests = replace(OUTPUT_HEAVY, count=100)(0)
    found = size_pool(requests, SERVER, LOOSE)
    assert found.num_blocks <= found.unlimited_blocks
    assert (found.preemptions_per_request, found.slowdown) == (0, 1)


def test_on_prompt_heavy_traffic_the_rate_alone_would_take_any_pool() -> None:
    requests = replace(PROMPT_HEAVY, count=400)(0)
    by_rate = size_pool(requests, SERVER, Target(0.1, math.inf))
    both = size_pool(requests, SERVER, Target(0.1, 1.1))
    assert by_rate.num_blocks < 0.5 * both.num_blocks
    assert by_rate.slowdown > 2 and both.slowdown <= 1.1


# --- the closed form ------------------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 17))
def test_what_a_request_holds_is_what_the_simulator_sees(prompt: int, output: int, size: int) -> None:
    held = []
    step_by_step(
        [Request(0, 0.0, prompt, output)],
        Setting(1000, ITERATIONS, size),
        observe=lambda scheduler, plan, now: held.append(
            (scheduler.residency.num_tokens, 1000 - scheduler.residency.num_free)
        ),
    )
    pair = [Request(0, 0.0, prompt, output), Request(1, 1.0, prompt, output)]
    clock = AffineClock(1.0, 1e-9)  # reading a token costs so little that an iteration lasts 1 s
    estimate = estimate_pool(pair, clock, block_size=size)
    assert estimate.rate == 1
    assert estimate.residents == pytest.approx(len(held), rel=1e-3)
    assert estimate.blocks == pytest.approx(sum(blocks for _, blocks in held), rel=1e-3)
    assert estimate.deviation == pytest.approx(math.sqrt(sum(blocks**2 for _, blocks in held)), rel=1e-3)
    assert estimate.load == pytest.approx(1e-9 * sum(tokens for tokens, _ in held))


@pytest.mark.parametrize("traffic", [OUTPUT_HEAVY, BALANCED, PROMPT_HEAVY, replace(OUTPUT_HEAVY, rate=3.0)])
def test_the_mean_is_that_of_an_unlimited_pool(traffic: object) -> None:
    requests = traffic(1)  # type: ignore[operator]
    estimate = estimate_pool(requests, SERVER)
    report = fast_forward(requests, Setting(10**6, SERVER))
    used = sum(10**6 - s.free_blocks for s in report.samples) / len(report.samples)
    running = sum(s.running for s in report.samples) / len(report.samples)
    # A sample counts iterations, which are longer when the pool is full, and a run has a start and an end.
    assert estimate.blocks == pytest.approx(used, rel=0.12)
    assert estimate.residents == pytest.approx(running, rel=0.12)


@pytest.mark.parametrize(
    "traffic", [OUTPUT_HEAVY, BALANCED, PROMPT_HEAVY], ids=["output", "balanced", "prompt"]
)
def test_mean_and_margin_suffice_on_generated_traffic(traffic: object) -> None:
    for seed in range(3):
        requests = traffic(seed)  # type: ignore[operator]
        pool = estimate_pool(requests, SERVER).pool()
        report = fast_forward(requests, Setting(pool, SERVER))
        assert report.preemptions_per_request <= 0.01, seed
        assert pool < 1.35 * size_pool(requests, SERVER).num_blocks


def test_a_clock_with_every_term_by_hand() -> None:
    clock = AffineClock(0.5, 0.01, 0.02, RecomputeCost(0.001))
    requests = [Request(0, 0.0, 8, 1), Request(1, 4.0, 7, 3)]
    estimate = estimate_pool(requests, clock, block_size=4)
    # Tokens read: 8, and 7 + 8 + 9. Blocks: 2, and 2 + 2 + 3. Iterations: 1 and 3. Prefill: 8 ms and 7 ms.
    load = 0.25 * (0.01 * 16 + 0.02 * 2 + 0.0075)
    seconds = 0.5 / (1 - load)
    assert estimate == Estimate(
        0.25,
        pytest.approx(load),
        pytest.approx(seconds),
        pytest.approx(0.25 * seconds * 2),
        pytest.approx(0.25 * seconds * 4.5),
        pytest.approx(math.sqrt(0.25 * seconds * (4 + 17) / 2)),
    )
    assert estimate.pool(0) == math.ceil(estimate.blocks)
    assert estimate.pool() == math.ceil(estimate.blocks + MARGIN * estimate.deviation)


def test_a_server_that_cannot_keep_up_is_said_to_be_one() -> None:
    estimate = estimate_pool(replace(OUTPUT_HEAVY, rate=40.0)(0), SERVER)
    assert estimate.load > 1 and math.isinf(estimate.blocks)
    with pytest.raises(BadValue, match=r"load 1\.\d\d.*turn \d+% of them away"):
        estimate.pool()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: size_pool([], ITERATIONS),
        lambda: size_pool([Request(0, 0.0, 5, 0)], ITERATIONS),
        lambda: Target(-0.1),
        lambda: Target(0.1, 0.9),
        lambda: Target(math.nan),
        lambda: estimate_pool([], ITERATIONS),
        lambda: estimate_pool([Request(0, 0.0, 1, 1)], ITERATIONS),
        lambda: estimate_pool([Request(i, 3.0, 1, 1) for i in range(3)], ITERATIONS),
        lambda: estimate_pool([Request(i, float(i), 1, 1) for i in range(3)], ITERATIONS, block_size=0),
        lambda: Estimate(1, 0.1, 1, 1, 1, 1).pool(-1),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: object) -> None:
    with pytest.raises(BadValue):
        wrong()  # type: ignore[operator]
