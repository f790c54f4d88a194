"""Benchmarks: what the checks of this package cost, as ratios against a bare equivalent in the same run.

Machines are noisy, so subject and baseline run in turn, round by round; the median of the per-round ratios is what
counts, and nothing in the test suite asserts a time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from pagedkv.blocks import BlockPool
from pagedkv.clock import AffineClock
from pagedkv.geometry import LLAMA_3_1_8B
from pagedkv.hardware import H100_SXM
from pagedkv.simulator import Setting, fast_forward, step_by_step
from pagedkv.tables import BlockTable
from pagedkv.workloads import load

SEQUENCES, PROMPT_BLOCKS, APPENDS, BLOCK_SIZE = 256, 160, 1000, 16
GROWTH_BLOCKS = APPENDS // BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Two ways to do the same work; the ratio subject / baseline is to stay at or below `limit`.

    Attributes:
        name: what is compared.
        limit: largest acceptable ratio.
        unit: what `operations` counts.
        operations: operations in one run, to print a time for each.
        subject, baseline: callables that do the whole work once.
        rounds: how often each runs, in turn.
    """

    name: str
    limit: float
    unit: str
    operations: int
    subject: Callable[[], object]
    baseline: Callable[[], object]
    rounds: int = 15


@dataclass(frozen=True, slots=True)
class Outcome:
    """Median ratio over the rounds, whether it holds, and the raw ratios."""

    name: str
    ratio: float
    limit: float
    holds: bool
    samples: list[float]
    subject_ns: float
    baseline_ns: float
    unit: str


def run(benchmark: Benchmark) -> Outcome:
    """Run one benchmark: a warm-up of both sides, then `rounds` alternating rounds."""
    benchmark.subject()
    benchmark.baseline()
    subject: list[float] = []
    baseline: list[float] = []
    for _ in range(benchmark.rounds):
        for times, work in ((subject, benchmark.subject), (baseline, benchmark.baseline)):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    samples = [s / b for s, b in zip(subject, baseline, strict=True)]
    ratio = statistics.median(samples)
    return Outcome(
        name=benchmark.name,
        ratio=ratio,
        limit=benchmark.limit,
        holds=ratio <= benchmark.limit,
        samples=samples,
        subject_ns=statistics.median(subject) / benchmark.operations * 1e9,
        baseline_ns=statistics.median(baseline) / benchmark.operations * 1e9,
        unit=benchmark.unit,
    )


class _BareList:
    """A free list and nothing else: slice pop and extend, no check, no reference count."""

    __slots__ = ("_free",)

    def __init__(self, blocks: int) -> None:
        self._free = list(range(blocks - 1, -1, -1))

    def allocate(self, count: int) -> list[int]:
        blocks = self._free[-count:]
        del self._free[-count:]
        return blocks

    def allocate_one(self) -> int:
        return self.allocate(1)[0]

    def free(self, blocks: list[int]) -> None:
        self._free.extend(blocks)


def _churn(pool: BlockPool | _BareList) -> None:
    """Prompts in one piece, then growth block by block, then every sequence freed: a serving engine's pattern."""
    tables = [pool.allocate(PROMPT_BLOCKS) for _ in range(SEQUENCES)]
    one = pool.allocate_one
    for _ in range(GROWTH_BLOCKS):
        for table in tables:
            table.append(one())
    for table in tables:
        pool.free(table)


class _BareTables:
    """A list of lists of block ids and a list of lengths, with no check at all."""

    __slots__ = ("_blocks", "_free", "_lengths")

    def __init__(self, sequences: int, blocks: int) -> None:
        self._free = list(range(blocks - 1, -1, -1))
        self._blocks: list[list[int]] = [[] for _ in range(sequences)]
        self._lengths = [0] * sequences

    def append(self, sequence: int) -> None:
        if not self._lengths[sequence] % BLOCK_SIZE:
            self._blocks[sequence].append(self._free.pop())
        self._lengths[sequence] += 1


def _append_bare() -> None:
    tables = _BareTables(SEQUENCES, SEQUENCES * (GROWTH_BLOCKS + 1))
    append = tables.append
    for _ in range(APPENDS):
        for sequence in range(SEQUENCES):
            append(sequence)


def _append_checked() -> None:
    pool = BlockPool(SEQUENCES * (GROWTH_BLOCKS + 1), BLOCK_SIZE)
    tables = [BlockTable(pool) for _ in range(SEQUENCES)]
    for _ in range(APPENDS):
        for table in tables:
            table.append()


def benchmarks() -> Iterator[Benchmark]:
    """Every benchmark of the course, in the order of its sections."""
    blocks = SEQUENCES * (PROMPT_BLOCKS + GROWTH_BLOCKS)
    yield Benchmark(
        name="allocate and free blocks / a bare list's slice pop and extend",
        limit=1.5,
        unit="block",
        operations=blocks,
        subject=lambda: _churn(BlockPool(blocks, BLOCK_SIZE)),
        baseline=lambda: _churn(_BareList(blocks)),
    )
    yield Benchmark(
        name="one checked one-token append / a bare list-of-lists append",
        limit=1.6,
        unit="append",
        operations=SEQUENCES * APPENDS,
        subject=_append_checked,
        baseline=_append_bare,
    )
    yield from _forks()
    yield from _simulations()


def _forks() -> Iterator[Benchmark]:
    """A fork against a deep copy of the cache, and against a fork of sixteen times the tokens in as many blocks."""
    import torch

    from pagedkv.cache import PagedKVCache
    from pagedkv.contiguous_cache import ContiguousKVCache

    # Llama 3.1 8B with an eighth of its layers: 16 KiB a token, so that the copy fits any machine.
    tokens, times, shape = 4096, 10, replace(LLAMA_3_1_8B, layers=LLAMA_3_1_8B.layers // 8)
    full = ContiguousKVCache(shape, max_sequences=2, max_length=tokens, dtype=torch.bfloat16)
    paged = PagedKVCache(shape, tokens // BLOCK_SIZE + 8, BLOCK_SIZE, torch.bfloat16)
    copied, boundary = full.new_sequence(), paged.new_sequence()
    full.extend({copied: tokens})
    paged.extend({boundary: tokens})
    partly = PagedKVCache(shape, tokens // BLOCK_SIZE + 8, BLOCK_SIZE, torch.bfloat16)
    partial_block = partly.new_sequence()
    partly.extend({partial_block: tokens - 1})
    few, many = BlockTable(BlockPool(512, BLOCK_SIZE)), BlockTable(BlockPool(512, 16 * BLOCK_SIZE))
    few.extend(tokens)
    many.extend(16 * tokens)

    def deep_copy() -> None:
        for _ in range(times):
            full.free(full.fork(copied))

    def fork() -> None:
        for _ in range(times):
            paged.free(paged.fork(boundary))

    def diverge() -> None:
        for _ in range(times):
            child = partly.fork(partial_block)
            partly.extend({child: 1})
            partly.free(child)

    def fork_table(table: BlockTable) -> None:
        for _ in range(100 * times):
            table.fork().free()

    yield Benchmark("fork of 4,096 tokens / a deep copy of their cache", 0.05, "fork", times, fork, deep_copy)
    yield Benchmark("a fork and its copy-on-write / a deep copy", 0.1, "fork", times, diverge, deep_copy)
    yield Benchmark(
        name="fork of 65,536 tokens / of 4,096 tokens, both in 256 blocks",
        limit=1.25,
        unit="fork",
        operations=100 * times,
        subject=partial(fork_table, many),
        baseline=partial(fork_table, few),
    )


def _simulations() -> Iterator[Benchmark]:
    """Event to event against iteration by iteration, on an hour of real traffic, and on twice that in a small pool.

    Then the same on the command line: interpreter, imports, the trace's file, the run and its report.
    """
    workload = load("azure-conversation")
    name = "Azure conversation" if workload.real else "a stand-in for Azure conversation"
    twice = tuple(replace(request, arrival=request.arrival / 2) for request in workload.requests)
    # A prefill at 30 % of peak cannot keep up with twice the traffic: a queue builds, and the small pool preempts.
    clock = AffineClock.from_roofline(LLAMA_3_1_8B, H100_SXM, efficiency=0.3)
    for label, requests, num_blocks, limit in (
        (f"fast-forward / step by step, {name}", workload.requests, 27_000, 0.10),
        ("the same, twice as fast into 6,000 blocks", twice, 6_000, 0.12),
    ):
        setting = Setting(num_blocks, clock, BLOCK_SIZE)
        yield Benchmark(
            name=label,
            limit=limit,
            unit="request",
            operations=len(requests),
            subject=partial(fast_forward, requests, setting),
            baseline=partial(step_by_step, requests, setting),
            rounds=3,
        )
    # The trace is the same in the process: a stand-in here means that it cannot be had, so it is not tried again.
    environment = os.environ if workload.real else os.environ | {"PAGEDKV_OFFLINE": "1"}
    command = [
        sys.executable,
        "-m",
        "pagedkv.cli",
        "simulate",
        workload.name,
        "--pool",
        "27000",
        "--low",
        "0",
    ]
    yield Benchmark(
        name=f"whole `pagedkv simulate` process / step by step, {name}",
        limit=0.30,
        unit="request",
        operations=len(workload.requests),
        subject=partial(subprocess.run, command, env=environment, stdout=subprocess.DEVNULL, check=True),
        baseline=partial(step_by_step, workload.requests, Setting(27_000, clock, BLOCK_SIZE)),
        rounds=3,
    )


def main(out: Path) -> bool:
    """Run all, print a table, write `out` as JSON; returns whether every ratio holds."""
    outcomes = []
    print(f"{'benchmark':64} {'ratio':>6} {'limit':>6}  {'here':>9} {'bare':>9}")
    for benchmark in benchmarks():
        outcome = run(benchmark)
        outcomes.append(outcome)
        print(
            f"{outcome.name:64} {outcome.ratio:6.2f} {outcome.limit:6.2f}  {outcome.subject_ns:6.0f} ns"
            f" {outcome.baseline_ns:6.0f} ns per {outcome.unit}{'' if outcome.holds else '   OVER THE LIMIT'}"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    return all(outcome.holds for outcome in outcomes)
