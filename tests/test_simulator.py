from __future__ import annotations

import math
import pickle
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from pagedkv.clock import ITERATIONS, AffineClock
from pagedkv.errors import BadValue
from pagedkv.geometry import LLAMA_3_1_8B, QWEN_2_5_7B
from pagedkv.hardware import H100_SXM
from pagedkv.metrics import Report
from pagedkv.preemption import RecomputeCost, SwapCost, always_swap
from pagedkv.scheduler import Scheduler
from pagedkv.sequences import Plan
from pagedkv.simulator import Setting, fast_forward, step_by_step
from pagedkv.watermarks import OFF, POLICIES, Watermarks
from pagedkv.workloads import Request, make_requests, poisson, uniform
from pressure import exactly, random_case

ROOFLINE = AffineClock.from_roofline(LLAMA_3_1_8B, H100_SXM)


def output_heavy(seed: int, count: int, rate: float) -> tuple[Request, ...]:
    chance = random.Random(seed)
    lengths = uniform(count, chance, prompt=(100, 300), output=(500, 1500))
    return make_requests(lengths, poisson(count, chance, rate=rate))


@pytest.mark.parametrize("part", range(4))
def test_fast_forward_reports_what_step_by_step_does_to_the_last_bit(part: int) -> None:
    """600 random workloads: pools from 1 block, marks, shedding, both modes, limits, open and closed loops."""
    preemptions = 0
    for seed in range(part * 150, (part + 1) * 150):
        requests, setting = random_case(seed)
        step, fast = (exactly(run(requests, setting)) for run in (step_by_step, fast_forward))
        for name, value in step.items():
            assert fast[name] == value, (seed, name)
        preemptions += step["num_preemptions_total"]  # type: ignore[operator]
    assert preemptions > 100


@pytest.mark.parametrize("marks", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("choose", [always_swap, lambda tokens: "recompute"], ids=["swap", "recompute"])
def test_both_modes_agree_on_a_long_run_under_pressure(marks: Watermarks, choose: object) -> None:
    requests = output_heavy(0, 60, 8.0)
    clock = replace(ROOFLINE, swap=SwapCost.over_link(LLAMA_3_1_8B, 25e9))
    setting = Setting(700, clock, watermarks=marks, choose=choose, host_blocks=150)  # type: ignore[arg-type]
    step, fast = (run(requests, setting) for run in (step_by_step, fast_forward))
    assert exactly(step) == exactly(fast)
    assert step.num_preemptions_total > 5 and step.iterations > 1000
    assert bool(step.swapped_blocks) == (choose is always_swap)


def test_the_same_seed_gives_the_same_log_byte_for_byte() -> None:
    logs = {repr(step_by_step(output_heavy(3, 30, 8.0), Setting(300, ROOFLINE)).events) for _ in range(2)}
    assert len(logs) == 1
    assert repr(step_by_step(output_heavy(4, 30, 8.0), Setting(300, ROOFLINE)).events) not in logs


def test_no_pool_beats_an_unbounded_one_when_all_arrive_together() -> None:
    compared = 0
    for seed in range(150):
        requests, setting = random_case(seed)
        together = [replace(request, arrival=0.0) for request in requests]
        setting = replace(
            setting, clock=ITERATIONS, max_running=None, max_prefill_tokens=None, concurrency=None
        )
        report = fast_forward(together, setting)
        fitting = [r for position, r in enumerate(together) if position not in report.rejected]
        unbounded = fast_forward(fitting, replace(setting, num_blocks=10**6, watermarks=OFF))
        assert unbounded.num_preemptions_total == 0
        assert report.useful_tokens == unbounded.useful_tokens
        assert report.iterations >= unbounded.iterations
        compared += report.iterations > unbounded.iterations
    assert compared > 30


def test_every_finished_request_has_exactly_its_tokens() -> None:
    """Counted from outside, iteration by iteration: who runs emits one token, the last of them when it finishes."""
    for seed in range(80):
        requests, setting = random_case(seed)
        emitted: dict[int, int] = dict.fromkeys((request.id for request in requests), 0)

        def count(scheduler: Scheduler, plan: Plan, now: float, emitted: dict[int, int] = emitted) -> None:
            assert plan.decodes + len(plan.swapped_in) + len(plan.prefills) == len(scheduler.running)
            assert scheduler.residency.num_free >= 0
            for name in scheduler.running:
                emitted[name] += 1

        report = step_by_step(requests, setting, observe=count)
        for position, request in enumerate(requests):
            expected = 0 if position in report.rejected else max(request.output, 1)
            assert emitted[request.id] == expected
        assert report.inter_token_latency.total == sum(
            max(request.output - 1, 0)
            for position, request in enumerate(requests)
            if position not in report.rejected
        )


def test_times_by_hand() -> None:
    clock = AffineClock(1.0, 0.01, 0.1, RecomputeCost(0.001, 0.0001))
    requests = [Request(0, 0.5, 10, 3), Request(1, 2.0, 4, 1), Request(2, 100.0, 1, 1)]
    report = fast_forward(requests, Setting(10, clock))
    # Request 0 alone: 1 + 0.10 + 0.1 + 0.01 + 0.0055; then 1 + 0.11 + 0.1, at 2.9255 request 1 is there.
    first = 0.5 + 1.2155
    assert report.first_tokens[0] == pytest.approx(first)
    second = first + 1.21
    third = second + 1.0 + (12 + 4) * 0.01 + 2 * 0.1 + 0.004 + 0.001
    assert list(report.finishes) == pytest.approx([third, third, 100 + 1.0 + 0.01 + 0.1 + 0.001 + 0.0001])
    assert report.seconds == report.finishes[2]


def test_arrivals_count_from_the_end_of_an_iteration_on() -> None:
    report = step_by_step(
        [Request(0, 0.0, 1, 9), Request(1, 2.0, 1, 1), Request(2, 2.5, 1, 1)], Setting(9, ITERATIONS)
    )
    admitted = [(iteration, name) for iteration, kind, name in report.events if kind == "admit"]
    assert admitted == [(1, 0), (3, 1), (4, 2)]


def test_a_closed_loop_keeps_so_many_in_the_system() -> None:
    requests = [Request(number, 0.0, 4, 10) for number in range(9)]
    requests[4] = Request(4, 0.0, 1000, 1)  # never fits: comes and goes at once
    present = []
    report = step_by_step(
        requests,
        Setting(12, ITERATIONS, 4, concurrency=3),
        observe=lambda scheduler, plan, now: present.append(len(scheduler.live)),
    )
    assert set(present[:-10]) == {3}
    assert list(report.arrivals) == [0, 0, 0, 10, 10, 10, 10, 20, 20]
    assert report.time_to_first_token(100) == 1 and list(report.rejected) == [4]


def test_closed_loops_do_not_look_at_arrival_times() -> None:
    requests = [Request(0, 50.0, 1, 2), Request(1, 0.0, 1, 2)]
    assert list(fast_forward(requests, Setting(9, ITERATIONS, concurrency=1)).arrivals) == [0, 2]
    with pytest.raises(BadValue, match="order of arrival"):
        fast_forward(requests, Setting(9, ITERATIONS))


def test_nothing_to_do_is_a_report_too() -> None:
    for requests in ([], [Request(0, 3.0, 100, 1)]):
        for run in (step_by_step, fast_forward):
            report = run(requests, Setting(2, ITERATIONS))
            summary = report.summary()
            assert (report.iterations, report.useful_tokens, summary["requests"]) == (0, 0, len(requests))
            assert math.isnan(report.preemptions_per_request) and math.isnan(report.completion(50))
            assert math.isnan(report.recompute_multiple)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_blocks": 0},
        {"block_size": 0},
        {"host_blocks": -1},
        {"concurrency": 0},
        {"samples": 1},
        {"samples": 2.5},
    ],
)
def test_settings_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadValue):
        Setting(**{"num_blocks": 4, "clock": ITERATIONS, **wrong})  # type: ignore[arg-type]


def test_a_shared_id_is_refused() -> None:
    with pytest.raises(BadValue, match="request 5"):
        fast_forward([Request(5, 0.0, 1, 9), Request(5, 0.0, 1, 9)], Setting(9, ITERATIONS))


@pytest.mark.parametrize("most", [2, 3, 100, 512])
def test_samples_are_few_and_evenly_spaced(most: int) -> None:
    requests = output_heavy(1, 20, 8.0)
    everything = step_by_step(requests, Setting(400, ROOFLINE, samples=10**6)).samples
    some = fast_forward(requests, Setting(400, ROOFLINE, samples=most)).samples
    assert [sample.iteration for sample in everything] == list(range(1, len(everything) + 1))
    stride = some[0].iteration
    assert most / 2 - 1 <= len(some) <= most
    assert some == [sample for sample in everything if not sample.iteration % stride]
    assert all(a.seconds < b.seconds for a, b in pairwise(everything))
    assert all(sample.kv_slot_usage_perc <= sample.kv_cache_usage_perc <= 1 for sample in everything)


def test_progress_adds_up_to_the_requests_that_fit() -> None:
    for run in (step_by_step, fast_forward):
        left: list[int] = []
        requests = [*output_heavy(1, 20, 8.0), Request(99, 1e6, 10**6, 1)]
        run(requests, Setting(400, ROOFLINE), progress=left.append)
        assert sum(left) == 20 and min(left) > 0


def test_settings_and_reports_travel_to_other_processes() -> None:
    setting = Setting(400, ROOFLINE, watermarks=POLICIES["two marks"], choose=always_swap, host_blocks=10)
    assert pickle.loads(pickle.dumps(setting)) == setting
    report = fast_forward(output_heavy(1, 20, 8.0), setting)
    assert exactly(pickle.loads(pickle.dumps(report))) == exactly(report)


def published_curve(watermarks: Watermarks) -> Report:
    """The setting of vllm PR #44594, as far as it was published: 128 at a time, about 1,000 tokens in, 5,000 out."""
    requests = make_requests(uniform(300, random.Random(0), prompt=(500, 1500), output=(2500, 7500)))
    prefill = RecomputeCost(QWEN_2_5_7B.linear_flops(1) / 1e15)
    clock = AffineClock(0.004, QWEN_2_5_7B.kv_bytes_per_token / 6e12, 0.0, prefill)
    setting = Setting(18_724, clock, watermarks=watermarks, max_prefill_tokens=8192, concurrency=128)
    return fast_forward(requests, setting)


def test_the_shape_of_a_published_watermark_curve() -> None:
    off, small, medium, large = (published_curve(Watermarks(mark, mark)) for mark in (0.0, 0.02, 0.05, 0.10))
    counts = [report.num_preemptions_total for report in (off, small, medium, large)]
    assert counts[1] < 0.5 * counts[0] and counts[2] < 0.25 * counts[0] and counts[3] <= counts[2]
    assert small.tokens_per_second > off.tokens_per_second * 1.03
    assert medium.tokens_per_second > off.tokens_per_second * 1.03
    assert off.inter_token_latency.percentile(99) > 2 * small.inter_token_latency.percentile(99)
    assert large.time_to_first_token(50) > off.time_to_first_token(50)


def test_gating_alone_beats_shedding_on_that_workload() -> None:
    reports = {name: published_curve(marks) for name, marks in POLICIES.items()}
    by_preemptions = sorted(reports, key=lambda name: reports[name].num_preemptions_total)
    assert by_preemptions[:3] == ["two marks", "one mark", "two marks, shedding"]
    assert reports["two marks"].gate_flips < 0.5 * reports["one mark"].gate_flips


def test_output_heavy_traffic_has_a_knee_and_prompt_heavy_traffic_has_none() -> None:
    heavy = output_heavy(0, 400, 3.0)
    slow = AffineClock(0.0065, 131072 / 2.6e12, 2e-5, RecomputeCost(1 / 20_000))
    knee = [fast_forward(heavy, Setting(blocks, slow)) for blocks in (2200, 1400, 1000)]
    rates = [report.preemptions_per_request for report in knee]
    assert rates[0] < 0.05 and rates[1] > 20 * rates[0] and rates[1] > 0.5
    assert knee[2].completion(99) > 3 * knee[0].completion(99)
    chance = random.Random(0)
    lengths = uniform(400, chance, prompt=(1500, 2500), output=(50, 150))
    prompts = make_requests(lengths, poisson(400, chance, rate=6.0))
    flat = [fast_forward(prompts, Setting(blocks, slow)) for blocks in (4000, 2000, 1000)]
    assert max(report.preemptions_per_request for report in flat) < 0.1
    assert flat[2].completion(99) > 1.5 * flat[0].completion(99)
