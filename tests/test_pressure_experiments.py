"""The experiments of sections 4 and 6: rows that are the simulator's own, and findings that hold over seeds."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv import pressure
from pagedkv.clock import ITERATIONS
from pagedkv.errors import BadValue
from pagedkv.pressure import (
    BALANCED,
    MOST_FIRST_TOKEN,
    MOST_PER_TOKEN,
    OUTPUT_HEAVY,
    PROMPT_HEAVY,
    PUBLISHED_CURVE,
    PUBLISHED_MARKS,
    PUBLISHED_SETTING,
    SERVER,
    Outcome,
    Spread,
    Traffic,
    gateway,
    knee,
    policies,
    published_traffic,
    shed,
    spread,
    watermark_curve,
    windows,
)
from pagedkv.simulator import Setting, fast_forward
from pagedkv.watermarks import OFF, POLICIES, Watermarks
from pagedkv.workloads import Request

SMALL = replace(OUTPUT_HEAVY, count=60)


# --- workloads ------------------------------------------------------------------------------------------------------


def test_a_rate_scales_the_arrivals_of_the_same_requests() -> None:
    slow, fast = (replace(SMALL, rate=rate)(3) for rate in (4.0, 8.0))
    assert [(r.prompt, r.output) for r in slow] == [(r.prompt, r.output) for r in fast]
    assert [r.arrival / 2 for r in slow] == pytest.approx([r.arrival for r in fast])
    assert SMALL(3) == SMALL(3) != SMALL(4)
    assert all(100 <= r.prompt <= 300 and 500 <= r.output <= 1500 for r in slow)


@given(st.integers(1, 30), st.integers(0, 10**6), st.floats(0.1, 10))
def test_a_window_is_a_part_of_the_trace_in_its_order(count: int, seed: int, speed: float) -> None:
    trace = [Request(100 + i, 7.0 + i * i, 10 + i, 1) for i in range(30)]
    window = windows(trace, count, speed)(seed)
    first = window[0].prompt - 10
    assert [r.id for r in window] == list(range(count)) and window[0].arrival == 0
    assert [r.prompt for r in window] == [r.prompt for r in trace[first : first + count]]
    gaps = [(r.arrival - trace[first].arrival) / speed for r in trace[first : first + count]]
    assert [r.arrival for r in window] == gaps


def test_seeds_reach_every_window() -> None:
    trace = [Request(i, float(i), i, 1) for i in range(5)]
    assert {windows(trace, 4)(seed)[0].prompt for seed in range(20)} == {0, 1}


def test_a_gateway_keeps_a_share_by_chance_and_the_same_again() -> None:
    requests = replace(OUTPUT_HEAVY, count=2000)(0)
    kept = shed(requests, 0.7, 5)
    assert kept == shed(requests, 0.7, 5) != shed(requests, 0.7, 6)
    assert set(kept) < set(requests) and [r.id for r in kept] == sorted(r.id for r in kept)
    assert 0.65 < len(kept) / len(requests) < 0.75
    assert shed(requests, 1.0) == requests


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: shed([], 0.0),
        lambda: shed([], 1.1),
        lambda: shed([], math.nan),
        lambda: windows([Request(0, 0.0, 1, 1)], 2),
        lambda: windows([Request(0, 0.0, 1, 1)], 0),
        lambda: windows([Request(0, 0.0, 1, 1)], 1, 0.0),
        lambda: windows([Request(0, 0.0, 1, 1)], 1, math.nan),
        lambda: windows([Request(0, 0.0, 1, 1)], 1)(-1),
        lambda: SMALL(-1),
        lambda: Traffic((5, 4), (1, 1), 1.0)(0),
        lambda: spread([], "policy"),
        lambda: spread([], "latency"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: object) -> None:
    with pytest.raises(BadValue):
        wrong()  # type: ignore[operator]


# --- rows -----------------------------------------------------------------------------------------------------------


def test_a_row_is_what_the_simulator_reports() -> None:
    (row,) = knee(SMALL, [500], seeds=[2], marks={"mine": Watermarks(0.1, 0.2)})
    report = fast_forward(SMALL(2), Setting(500, SERVER, watermarks=Watermarks(0.1, 0.2)))
    summary = report.summary()
    assert (row.policy, row.num_blocks, row.seed, row.requests) == ("mine", 500, 2, 60)
    assert row.num_preemptions_total == summary["num_preemptions_total"] > 0
    assert row.preemptions_per_request == row.num_preemptions_total / 60
    assert row.preemptions_max == summary["preemptions_max"] > 1
    assert row.recompute_multiple == report.recompute_multiple > 1
    assert row.tokens_per_second == summary["tokens_per_second"]
    assert row.goodput == report.goodput(MOST_FIRST_TOKEN, MOST_PER_TOKEN)
    assert row.first_token_p50 == summary["time_to_first_token_seconds_p50"]
    assert row.first_token_p99 == summary["time_to_first_token_seconds_p99"]
    assert row.gap_p99 == summary["inter_token_latency_seconds_p99"]
    assert row.completion_p50 == summary["e2e_request_latency_seconds_p50"]
    assert row.completion_p99 == summary["e2e_request_latency_seconds_p99"]
    assert row.gate_flips == summary["gate_flips"] > 0
    assert row.seconds == summary["seconds"]


def test_rows_come_by_policy_then_pool_then_seed() -> None:
    marks = {"a": OFF, "b": POLICIES["one mark"]}
    rows = knee(SMALL, [900, 700], ITERATIONS, iter([1, 0]), marks)
    expected = [(name, pool, seed) for name in marks for pool in (900, 700) for seed in (1, 0)]
    assert [(row.policy, row.num_blocks, row.seed) for row in rows] == expected
    assert rows == knee(SMALL, [900, 700], ITERATIONS, [1, 0], marks)


def test_policies_keep_all_else_of_the_setting() -> None:
    setting = Setting(400, SERVER, 8, max_running=3)
    rows = policies(SMALL, setting, [0])
    assert [row.policy for row in rows] == list(POLICIES)
    for row in rows:
        report = fast_forward(SMALL(0), replace(setting, watermarks=POLICIES[row.policy]))
        assert row == Outcome.of(report, row.policy, 400, 0)


def test_a_spread_is_mean_lowest_and_highest_by_policy_and_pool() -> None:
    (row,) = knee(SMALL, [900])
    rows = [replace(row, num_blocks=n, gate_flips=f) for n, f in ((1, 5), (2, 1), (1, 9), (1, 1))]
    assert spread(rows, "gate_flips") == {("none", 1): Spread(5, 1, 9), ("none", 2): Spread(1, 1, 1)}
    for field in fields(Outcome):
        if field.name != "policy":
            assert spread(rows, field.name)["none", 1].lowest <= spread(rows, field.name)["none", 1].highest


# --- findings -------------------------------------------------------------------------------------------------------


def test_unpressed_tokens_are_far_within_what_counts_as_good() -> None:
    (row,) = knee(OUTPUT_HEAVY, [10_000])
    assert row.num_preemptions_total == 0
    assert row.completion_p50 / 1000 < 0.007 < MOST_PER_TOKEN and row.first_token_p99 < 0.1
    assert row.goodput == pytest.approx(row.requests / row.seconds, rel=0.01)


def test_output_heavy_traffic_has_a_cliff_on_every_seed() -> None:
    pools = list(range(1000, 2501, 125))
    rows = knee(OUTPUT_HEAVY, pools, seeds=range(3))
    for seed in range(3):
        rate = [row.preemptions_per_request for row in rows if row.seed == seed]
        steepest = max(range(len(rate) - 1), key=lambda at: rate[at] - rate[at + 1])
        assert rate[steepest] > 2.5 * rate[steepest + 1] or rate[steepest] - rate[steepest + 1] > 1.4
        assert pools[steepest + 1] / pools[steepest] < 1.1
        assert rate[0] > 2.8 and rate[-1] < 0.01


def test_the_rate_saturates_while_latency_goes_on_and_with_a_longer_run_too() -> None:
    short, long = (replace(OUTPUT_HEAVY, count=count) for count in (1000, 2000))
    rows = knee(short, [1000, 1125, 1250])
    rates = [row.preemptions_per_request for row in rows]
    assert max(rates) < 1.1 * min(rates)
    assert rows[0].completion_p99 > 1.7 * rows[2].completion_p99
    (longer,) = knee(long, [1000])
    assert longer.preemptions_per_request == pytest.approx(rates[0], rel=0.1)
    assert longer.completion_p99 > 1.6 * rows[0].completion_p99


def test_the_ceiling_depends_on_how_long_outputs_are_against_prompts() -> None:
    ceilings = [
        knee(traffic, [pool])[0].preemptions_per_request
        for traffic, pool in ((OUTPUT_HEAVY, 1000), (BALANCED, 1300), (PROMPT_HEAVY, 600))
    ]
    assert 2.8 < ceilings[0] < 3.4 and 0.7 < ceilings[1] < 1.1 and ceilings[2] < 0.2


def test_marks_that_gate_admission_help_and_shedding_does_not() -> None:
    for workload, setting in (
        (published_traffic, PUBLISHED_SETTING),
        (OUTPUT_HEAVY, Setting(1500, SERVER)),
    ):
        seeds = range(3)
        counts = {
            name: spread(policies(workload, setting, seeds, {name: marks}), "num_preemptions_total")[
                name, setting.num_blocks
            ]
            for name, marks in POLICIES.items()
        }
        assert counts["two marks"].mean < counts["one mark"].mean
        assert counts["one mark"].highest < 0.5 * counts["none"].lowest
        assert min(counts[f"{n} mark{'s' * (n == 'two')}, shedding"].lowest for n in ("one", "two")) > 2 * (
            counts["two marks"].highest
        )


def test_shedding_at_the_gateway_serves_more_requests_well_than_thrashing() -> None:
    workload = replace(OUTPUT_HEAVY, rate=6.0)
    everything, most = gateway(workload, Setting(1500, SERVER), [1.0, 0.7], [0])
    assert (everything.policy, most.policy) == ("100%", "70%")
    assert everything == replace(knee(workload, [1500])[0], policy="100%")
    assert most.requests < 0.75 * everything.requests
    assert most.goodput > 10 * everything.goodput and most.completion_p99 < 0.5 * everything.completion_p99


def test_the_published_curve_comes_out_in_shape() -> None:
    rows = watermark_curve(range(2))
    assert list(PUBLISHED_CURVE) == list(PUBLISHED_MARKS) and len(rows) == 8
    blocks = PUBLISHED_SETTING.num_blocks
    assert blocks * 16 == 299_584 and PUBLISHED_SETTING.concurrency == 128

    def means(column: str) -> list[float]:
        return [spread(rows, column)[name, blocks].mean for name in PUBLISHED_CURVE]

    published = [row.preemptions for row in PUBLISHED_CURVE.values()]
    ours = means("num_preemptions_total")
    for mine, theirs in zip(ours[1:], published[1:], strict=True):
        assert abs(mine / ours[0] - theirs / published[0]) < 0.12
    speed, gap, first = means("tokens_per_second"), means("gap_p99"), means("first_token_p50")
    assert max(speed) in speed[1:3] and min(speed) == speed[0]
    assert gap[0] > 2 * max(gap[1:]) and first[2] > first[0] and first[3] > first[0]


def test_published_traffic_is_about_1000_in_and_5000_out() -> None:
    requests = published_traffic(0)
    assert len(requests) == 600
    assert sum(r.prompt for r in requests) / 600 == pytest.approx(1000, rel=0.05)
    assert sum(r.output for r in requests) / 600 == pytest.approx(5000, rel=0.05)
    assert {r.arrival for r in requests} == {0.0}


def test_the_clock_is_the_roofline_of_the_course() -> None:
    assert pressure.SERVER.base == pytest.approx(0.0048, rel=0.01)
    assert pressure.SERVER.per_resident_token == 131072 / 3.35e12
