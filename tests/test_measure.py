from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pagedkv.blocks import BlockPool
from pagedkv.errors import BadValue
from pagedkv.geometry import LLAMA_3_1_8B
from pagedkv.measure import (
    CopyFit,
    CopyMeasurement,
    CopySample,
    Direction,
    Provenance,
    copies,
    fit,
    measure_copies,
)
from pagedkv.preemption import RecomputeCost, crossover
from pagedkv.swap import HostPool
from small_models import geometry

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
CASES = [(blocks, size) for size in (1, 4, 16) for blocks in (4, 16, 64)]
BYTES = 1000  # of a token


def samples_of(seconds: Callable[[int, int], float]) -> list[CopySample]:
    return [
        CopySample(
            Direction.OUT, blocks * size * BYTES, blocks, size, (seconds(blocks, blocks * size * BYTES),)
        )
        for blocks, size in CASES
    ]


@pytest.mark.parametrize("fixed", [0.0, 1e-4])
@pytest.mark.parametrize("per_block", [0.0, 2e-5])
@pytest.mark.parametrize("bandwidth", [5e7, math.inf])
def test_a_fit_finds_the_line_that_the_times_lie_on(fixed: float, per_block: float, bandwidth: float) -> None:
    line = CopyFit(fixed, per_block, bandwidth, 0.0)
    if line.seconds(1, 1) == 0:
        return
    found = fit(samples_of(line.seconds))
    assert found.error < 1e-9
    for blocks, size in ((1, 10), (100, 10**7)):
        assert found.seconds(blocks, size) == pytest.approx(line.seconds(blocks, size))
    assert (found.fixed, found.per_block) == pytest.approx((fixed, per_block), abs=1e-12)
    assert 1 / found.bandwidth == pytest.approx(1 / bandwidth, abs=1e-20)


@pytest.mark.parametrize("seed", range(20))
def test_no_term_of_a_noisy_fit_is_below_0_and_none_nearby_is_better(seed: int) -> None:
    chance = random.Random(seed)
    line = CopyFit(chance.choice([0.0, 1e-5]), chance.choice([0.0, 1e-6]), 1e9, 0.0)
    samples = samples_of(lambda blocks, size: line.seconds(blocks, size) * chance.uniform(0.6, 1.5))
    found = fit(samples)
    assert found.fixed >= 0 and found.per_block >= 0 and found.bandwidth > 0

    def squares(candidate: CopyFit) -> float:
        return sum((candidate.seconds(s.blocks, s.bytes) / s.median - 1) ** 2 for s in samples)

    assert found.error == pytest.approx(
        max(abs(found.seconds(s.blocks, s.bytes) / s.median - 1) for s in samples)
    )
    for term, unit in (("fixed", 1e-5), ("per_block", 1e-6)):
        for move in (-0.01, 0.01):
            moved = replace(found, **{term: max(0.0, getattr(found, term) + move * unit)})
            assert squares(moved) >= squares(found) - 1e-12
    for factor in (0.99, 1.01):
        assert squares(replace(found, bandwidth=found.bandwidth * factor)) >= squares(found) - 1e-12


def test_some_samples_are_too_few() -> None:
    with pytest.raises(BadValue, match="three samples"):
        fit(samples_of(lambda blocks, size: 1.0)[:2])


@pytest.mark.parametrize("device", DEVICES)
def test_a_measurement_has_every_case_in_both_directions(device: str) -> None:
    shape = geometry(kv_heads=2, layers=2)
    measured = measure_copies(
        shape, device=device, dtype=torch.float32, block_sizes=(1, 4), tokens=(6, 12, 24), rounds=3
    )
    assert measured.bytes_per_token == 2 * 2 * 2 * 8 * 4
    for direction in Direction:
        pieces = measured.pick(direction)
        assert [s.bytes for s in pieces] == [tokens * measured.bytes_per_token for tokens in (6, 12, 24)]
        assert all(s.blocks == 0 for s in pieces)
        assert [s.blocks for s in measured.pick(direction, 1)] == [6, 12, 24]
        assert [s.blocks for s in measured.pick(direction, 4)] == [2, 3, 6]
        assert [s.bytes for s in measured.pick(direction, 4)] == [
            blocks * 4 * measured.bytes_per_token for blocks in (2, 3, 6)
        ]
    assert len(measured.samples) == 18
    for sample in measured.samples:
        assert len(sample.seconds) == 3 and min(sample.seconds) > 0
        low, high = sample.quartiles
        assert low <= sample.median <= high and sample.bandwidth == sample.bytes / sample.median
    assert measured.provenance == Provenance.here(torch.device(device))
    assert ("pinned host memory" in measured.path) == (device == "cuda")
    assert measured.provenance.device in measured.path
    assert CopyMeasurement.from_record(json.loads(json.dumps(measured.record()))) == measured


def test_cases_are_timed_in_turn_after_a_round_to_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[int, int]] = []
    swap_out = HostPool.swap_out

    def watched(self: HostPool, sequence: Any) -> Any:
        order.append((self.pool.block_size, self.cache.length(sequence)))
        return swap_out(self, sequence)

    monkeypatch.setattr(HostPool, "swap_out", watched)
    measured = measure_copies(geometry(), block_sizes=(2, 8), tokens=(8, 16), rounds=4)
    assert order == [(2, 8), (2, 16), (8, 8), (8, 16)] * 5
    assert all(len(sample.seconds) == 4 for sample in measured.samples)


def test_each_direction_gets_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only swaps move, by what two known lines say."""
    now = 0.0
    out, back = CopyFit(1e-3, 2e-4, 1e9, 0.0), CopyFit(5e-3, 1e-4, 2e9, 0.0)
    swap_out, swap_in = HostPool.swap_out, HostPool.swap_in

    def slow_out(self: HostPool, sequence: Any) -> Any:
        nonlocal now
        blocks = len(self.cache.table(sequence).blocks)
        now += out.seconds(blocks, blocks * self.cache.bytes_per_block)
        return swap_out(self, sequence)

    def slow_in(self: HostPool, swapped: Any) -> Any:
        nonlocal now
        blocks = len(self.table(swapped).blocks)
        now += back.seconds(blocks, blocks * self.cache.bytes_per_block)
        return swap_in(self, swapped)

    monkeypatch.setattr(HostPool, "swap_out", slow_out)
    monkeypatch.setattr(HostPool, "swap_in", slow_in)
    monkeypatch.setattr(copies, "time", SimpleNamespace(perf_counter=lambda: now))
    measured = measure_copies(geometry(), block_sizes=(1, 4, 16), tokens=(16, 32, 64), rounds=2)
    for found, line in ((measured.out, out), (measured.back, back)):
        assert (found.fixed, found.per_block, found.bandwidth) == pytest.approx(
            (line.fixed, line.per_block, line.bandwidth), rel=1e-4
        )
    assert {sample.median for direction in Direction for sample in measured.pick(direction)} == {0.0}


def test_blocks_lie_scattered_in_both_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[tuple[int, ...]] = []
    shuffle = copies._shuffle

    def watched(pool: BlockPool, chance: random.Random) -> None:
        shuffle(pool, chance)
        orders.append(pool.free_list())

    monkeypatch.setattr(copies, "_shuffle", watched)
    for _ in range(2):
        measure_copies(geometry(), block_sizes=(1, 2), tokens=(20, 40), rounds=1, seed=4)
    assert len(orders) == 8 and orders[:4] == orders[4:] and len(set(orders)) == 4
    for order in orders:
        assert sorted(order) == list(range(len(order)))
        assert sum(b == a + 1 for a, b in pairwise(order)) < 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_sizes": (4,)}, {"block_sizes": (4, 4)}, {"block_sizes": (0, 4)}, {"tokens": ()},
        {"tokens": (1.5, 2)}, {"tokens": (8, 8, 16)}, {"rounds": 0}, {"rounds": True}, {"device": "nowhere"},
        {"dtype": torch.int8},
    ],
)  # fmt: skip
def test_cases_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        measure_copies(**{"model": geometry(), "tokens": (4, 8), "block_sizes": (2, 4), **wrong})


def test_a_single_round_has_a_spread_of_none() -> None:
    assert CopySample(Direction.IN, 10, 1, 1, (0.5,)).quartiles == (0.5, 0.5)


def test_a_measurement_becomes_a_cost_of_preemption() -> None:
    out, back = CopyFit(1e-4, 2e-6, 20e9, 0.0), CopyFit(3e-4, 1e-6, 25e9, 0.0)
    provenance = Provenance("a device", True, "2", "3", "12", 1, "Linux", "2026-01-01")
    measured = CopyMeasurement(provenance, "a model", LLAMA_3_1_8B.kv_bytes_per_token, (), out, back)
    cost = measured.swap_cost(block_size=32)
    blocks, size = 10, 320 * LLAMA_3_1_8B.kv_bytes_per_token
    assert cost.seconds(320) == pytest.approx(out.seconds(blocks, size) + back.seconds(blocks, size))
    assert (cost.block_size, cost.fixed, cost.per_block) == (32, pytest.approx(4e-4), pytest.approx(3e-6))
    recompute = RecomputeCost.linear(LLAMA_3_1_8B)
    gain = recompute.per_token - cost.slope
    assert crossover(recompute, cost) == pytest.approx(4e-4 / gain)


def test_an_infinite_bandwidth_costs_nothing_per_token() -> None:
    line = CopyFit(0.0, 1e-6, math.inf, 0.0)
    provenance = Provenance("a device", False, "2", "3", None, 1, "Linux", "2026-01-01")
    assert CopyMeasurement(provenance, "a model", 8, (), line, line).swap_cost().per_token == 0
