from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.clock import ITERATIONS
from pagedkv.errors import BadValue
from pagedkv.metrics import LatencyHistogram, percentile
from pagedkv.simulator import Setting, step_by_step
from pagedkv.workloads import Request


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60), st.integers(1, 99))
def test_percentiles_are_those_of_the_statistics_module(values: list[float], percent: int) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
    assert percentile(values, percent) == pytest.approx(expected, abs=1e-6)
    assert percentile(values, 0) == min(values) and percentile(values, 100) == max(values)


def test_percentiles_of_little() -> None:
    assert percentile([3.0], 99) == 3.0 and percentile([math.nan, 3.0], 1) == 3.0
    assert math.isnan(percentile([], 50)) and math.isnan(LatencyHistogram().percentile(50))
    for bad in (-1, 101, math.nan):
        with pytest.raises(BadValue):
            percentile([1.0], bad)
        with pytest.raises(BadValue):
            LatencyHistogram().percentile(bad)


def test_a_histogram_is_off_by_half_a_percent_at_most() -> None:
    chance = random.Random(1)
    values = [chance.lognormvariate(-4, 1.5) for _ in range(5000)]
    histogram = LatencyHistogram()
    for value in values:
        histogram.add(value)
    values.sort()
    assert histogram.total == 5000 and len(histogram.counts) < 1100
    for percent in (1, 50, 90, 99, 99.9):
        nearest_rank = values[math.ceil(percent / 100 * 5000) - 1]
        assert histogram.percentile(percent) == pytest.approx(nearest_rank, rel=0.005)
    histogram.add(0.0, 7)
    histogram.add(-1e-15)
    assert histogram.total == 5008 and histogram.percentile(0) < 1.01e-9


# What usage means: vllm PR #57336, where 17-token prompts made the two numbers differ by half.
def test_block_usage_and_slot_usage_are_two_numbers() -> None:
    requests = [Request(number, 0.0, 17, 1) for number in range(3)]
    report = step_by_step(requests, Setting(9, ITERATIONS))
    (sample,) = report.samples
    assert sample.kv_cache_usage_perc == pytest.approx(6 / 9)
    assert sample.kv_slot_usage_perc == pytest.approx(51 / 144)
    assert (sample.free_blocks, sample.running, sample.waiting, report.peak_blocks) == (3, 3, 0, 6)
    full = step_by_step(requests, Setting(6, ITERATIONS)).summary()
    assert full["kv_cache_usage_perc_max"] == 1.0 and full["num_preemptions_total"] == 0


def test_a_report_by_hand() -> None:
    # Two blocks of 4: request 0 needs both in the end, so 1 is evicted once; 2 never fits; 3 wants nothing.
    requests = [Request(0, 0.0, 4, 5), Request(1, 0.0, 3, 3), Request(2, 0.0, 9, 1), Request(3, 0.0, 1, 0)]
    report = step_by_step(requests, Setting(2, ITERATIONS, 4))
    assert [event for event in report.events if event[1] != "arrive"] == [
        (1, "reject", 2), (1, "admit", 0), (1, "admit", 1), (2, "preempt", 1), (5, "finish", 0), (6, "resume", 1),
        (6, "admit", 3), (6, "finish", 3), (7, "finish", 1),
    ]  # fmt: skip
    first, second, third, fourth = report.records
    assert (first.first_token, first.finish, first.time_per_output_token) == (1, 5, 1)
    assert (second.first_token, second.finish, second.preemptions, second.recomputed_tokens) == (1, 7, 1, 4)
    assert second.time_per_output_token == 3  # gaps of 5 and 1 iterations
    assert third.rejected is not None and math.isnan(third.finish)
    assert (
        math.isnan(fourth.first_token) and math.isnan(fourth.time_per_output_token) and fourth.completion == 6
    )
    gaps = [1.0] * 4 + [5.0, 1.0]
    assert report.inter_token_latency.total == len(gaps)
    assert report.inter_token_latency.percentile(100) == pytest.approx(5, rel=0.01)
    summary = report.summary()
    assert {name: summary[name] for name in list(summary)[:12]} == {
        "requests": 4,
        "request_success_total": 3,
        "requests_rejected": 1,
        "iterations": 7,
        "seconds": 7,
        "num_preemptions_total": 1,
        "preemptions_per_request": pytest.approx(1 / 3),
        "preemptions_max": 1,
        "useful_tokens": 8,
        "prompt_tokens": 8,
        "recomputed_tokens": 4,
        "swapped_blocks": 0,
    }
    assert report.recompute_multiple == 12 / 8
    assert report.completion(100) == 7 and report.time_to_first_token(50) == 1
    assert report.goodput(1, 3) == pytest.approx(3 / 7)
    assert report.goodput(1, 2.9) == pytest.approx(2 / 7)
    assert report.goodput(0.5, 3) == pytest.approx(
        1 / 7
    )  # the one without a token has no first token to wait for
    assert set(summary) >= {
        "kv_cache_usage_perc_mean",
        "kv_slot_usage_perc_mean",
        "time_to_first_token_seconds_p99",
    }
