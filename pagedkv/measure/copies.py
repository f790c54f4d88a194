"""What swapping costs on this machine: seconds by bytes and by blocks, between the cache's device and host memory.

Timed is the real thing, `HostPool.swap_out` and `swap_in`, on pools in which blocks that follow each other in a table
lie side by side only by chance, as in a server that has run for a while. Beside it, the same bytes are copied in one
piece. All cases are timed in turn, round by round, so that what else the machine does hits all of them alike.

Without a GPU both pools lie in the same memory: that is the price of moving blocks about, and of no link at all.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import combinations
from math import inf
from statistics import median, quantiles
from typing import Any

import torch

from pagedkv.blocks import BlockPool, blocks_needed
from pagedkv.cache import PagedKVCache
from pagedkv.errors import BadValue, require_count
from pagedkv.geometry import LLAMA_3_1_8B, ModelGeometry
from pagedkv.measure.provenance import Provenance
from pagedkv.preemption import SwapCost
from pagedkv.swap import HostPool


class Direction(StrEnum):
    """Which way a copy goes."""

    OUT = "out"
    IN = "in"


@dataclass(frozen=True, slots=True)
class CopySample:
    """The times of one case.

    Attributes:
        direction: out to the host, or in to the device.
        bytes: copied.
        blocks: copied as blocks; 0 for a copy in one piece.
        block_size: tokens per block; 0 likewise.
        seconds: of every round, in order.
    """

    direction: Direction
    bytes: int
    blocks: int
    block_size: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds, the middle of all rounds."""
        return median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Seconds; half of the rounds lie between these."""
        low, _, high = quantiles(self.seconds, n=4) if len(self.seconds) > 1 else self.seconds * 3
        return low, high

    @property
    def bandwidth(self) -> float:
        """Bytes per second at the median."""
        return self.bytes / self.median


@dataclass(frozen=True, slots=True)
class CopyFit:
    """Seconds of a swap in one direction: `fixed` + `per_block` blocks + bytes / `bandwidth`.

    Attributes:
        fixed: seconds per swap.
        per_block: seconds per block, on top of its bytes.
        bandwidth: bytes per second; infinite if more bytes of equal blocks took no longer.
        error: the largest relative distance of a fitted sample's median from this line.
    """

    fixed: float
    per_block: float
    bandwidth: float
    error: float

    def seconds(self, blocks: int, size: int) -> float:
        """For so many blocks of `size` bytes in all."""
        return self.fixed + self.per_block * blocks + size / self.bandwidth


@dataclass(frozen=True, slots=True)
class CopyMeasurement:
    """All samples of one measurement, a line through those of blocks in each direction, and where they are from.

    Attributes:
        provenance: device, software, day.
        model: name of the geometry whose blocks were moved.
        bytes_per_token: of its K and V in all layers, as stored.
        samples: one per case.
        out, back: the lines, to the host and to the device.
    """

    provenance: Provenance
    model: str
    bytes_per_token: int
    samples: tuple[CopySample, ...]
    out: CopyFit
    back: CopyFit

    @property
    def path(self) -> str:
        """Between which memories."""
        if self.provenance.gpu:
            return f"between {self.provenance.device} and pinned host memory"
        return f"within the memory of {self.provenance.device}, without any link"

    def pick(self, direction: Direction, block_size: int = 0) -> tuple[CopySample, ...]:
        """The samples of one direction and block size, by bytes; 0 for copies in one piece."""
        found = (s for s in self.samples if s.direction == direction and s.block_size == block_size)
        return tuple(sorted(found, key=lambda sample: sample.bytes))

    def swap_cost(self, block_size: int = 16) -> SwapCost:
        """Both lines together as a cost of preemption, for the model that was measured."""
        per_byte = 1 / self.out.bandwidth + 1 / self.back.bandwidth
        return SwapCost(
            fixed=self.out.fixed + self.back.fixed,
            per_token=self.bytes_per_token * per_byte,
            per_block=self.out.per_block + self.back.per_block,
            block_size=block_size,
        )

    def record(self) -> dict[str, Any]:
        """All of it, to be written as JSON."""
        return asdict(self)

    @staticmethod
    def from_record(record: dict[str, Any]) -> CopyMeasurement:
        """What `record` gave, back from JSON."""
        samples = tuple(
            CopySample(
                **{
                    **sample,
                    "direction": Direction(sample["direction"]),
                    "seconds": tuple(sample["seconds"]),
                }
            )
            for sample in record["samples"]
        )
        return CopyMeasurement(
            provenance=Provenance(**record["provenance"]),
            model=record["model"],
            bytes_per_token=record["bytes_per_token"],
            samples=samples,
            out=CopyFit(**record["out"]),
            back=CopyFit(**record["back"]),
        )


def measure_copies(
    model: ModelGeometry = LLAMA_3_1_8B,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.bfloat16,
    block_sizes: Sequence[int] = (1, 4, 16, 64),
    tokens: Sequence[int] = (64, 128, 256),
    rounds: int = 9,
    seed: int = 0,
) -> CopyMeasurement:
    """Swap sequences out and in, of every length in `tokens` at every block size, `rounds` times in turn.

    Takes twice the KV of the longest sequence for each block size, and a second or two on a CPU.

    Args:
        model: whose layers, KV heads and head_dim a block has. The overhead per block grows with its pieces, which are
            2 per layer; so measure the model that is meant.
        device, dtype: of the cache.
        block_sizes, tokens: the cases; whole numbers, each once. At least two of either tell blocks from bytes.
        rounds: how often each case is timed, after one round to warm up.
        seed: of the order in which the blocks lie.

    Raises:
        BadValue: for cases that are none, or that no line can be drawn through.
    """
    require_count("rounds", rounds, 1)
    for name, cases in (("block_sizes", block_sizes), ("tokens", tokens)):
        if len({require_count(name, case, 1) for case in cases}) < 2 or len(set(cases)) != len(cases):
            raise BadValue(f"{name} must be at least two different numbers, each once, not {list(cases)}")
    chance = random.Random(seed)
    runs: list[tuple[int, int, int, Callable[[], tuple[float, float]]]] = []
    for block_size in block_sizes:
        blocks = blocks_needed(max(tokens), block_size)
        cache = PagedKVCache(model, blocks, block_size, dtype, device)
        host = HostPool(cache, blocks)
        for pool in (cache.pool, host.pool):
            _shuffle(pool, chance)
        for count in tokens:
            used = blocks_needed(count, block_size)
            runs.append((used * cache.bytes_per_block, used, block_size, _swap(cache, host, count)))
    for count in tokens:
        size = count * cache.layout.bytes_per_token
        runs.append((size, 0, 0, _one_piece(size, cache.device)))
    times: list[list[tuple[float, float]]] = [[] for _ in runs]
    for number in range(rounds + 1):
        for case, (*_, work) in zip(times, runs, strict=True):
            both = work()
            if number:
                case.append(both)
    samples = tuple(
        CopySample(direction, size, blocks, block_size, tuple(pair[side] for pair in case))
        for side, direction in enumerate(Direction)
        for (size, blocks, block_size, _), case in zip(runs, times, strict=True)
    )
    out, back = (fit([s for s in samples if s.direction == way and s.blocks]) for way in Direction)
    here = Provenance.here(cache.device)
    return CopyMeasurement(here, model.name, cache.layout.bytes_per_token, samples, out, back)


def fit(samples: Sequence[CopySample]) -> CopyFit:
    """The line through the medians whose relative errors have the least squares, no term below 0.

    Raises:
        BadValue: for fewer than three samples.
    """
    if len(samples) < 3:
        raise BadValue(f"a line of three terms needs at least three samples, not {len(samples)}")
    seconds = torch.tensor([sample.median for sample in samples], dtype=torch.float64)
    terms = torch.tensor([[1.0, s.blocks, s.bytes] for s in samples], dtype=torch.float64)
    # In units of the largest, so that the three columns are of one size; each row in units of its own time.
    units = terms.amax(0)
    rows = terms / units / seconds[:, None]
    best, least = torch.zeros(3, dtype=torch.float64), inf
    # With three terms, the constrained optimum is found by trying which of them are 0.
    for count in (1, 2, 3):
        for kept in map(list, combinations(range(3), count)):
            solved = torch.linalg.lstsq(rows[:, kept], torch.ones(len(rows), 1, dtype=torch.float64)).solution
            if (solved < 0).any():
                continue
            candidate = torch.zeros(3, dtype=torch.float64)
            candidate[kept] = solved[:, 0]
            error = float((rows @ candidate - 1).square().sum())
            if error < least:
                best, least = candidate, error
    fixed, per_block, per_byte = (best / units).tolist()
    worst = float((rows @ best - 1).abs().max())
    return CopyFit(fixed, per_block, 1 / per_byte if per_byte else inf, worst)


def _swap(cache: PagedKVCache, host: HostPool, tokens: int) -> Callable[[], tuple[float, float]]:
    """Seconds of swapping a sequence of so many tokens out, and in again."""

    def work() -> tuple[float, float]:
        sequence = cache.new_sequence()
        cache.extend({sequence: tokens})
        start = time.perf_counter()
        swapped = host.swap_out(sequence)
        between = time.perf_counter()
        sequence = host.swap_in(swapped)
        end = time.perf_counter()
        cache.free(sequence)
        return between - start, end - between

    return work


def _one_piece(size: int, device: torch.device) -> Callable[[], tuple[float, float]]:
    """Seconds of copying so many bytes in one piece, out and in."""
    gpu = device.type == "cuda"
    inside = torch.zeros(size, dtype=torch.uint8, device=device)
    outside = torch.zeros(size, dtype=torch.uint8, pin_memory=gpu)

    def timed(destination: torch.Tensor, source: torch.Tensor) -> float:
        start = time.perf_counter()
        destination.copy_(source, non_blocking=True)
        if gpu:
            torch.cuda.current_stream(device).synchronize()
        return time.perf_counter() - start

    return lambda: (timed(outside, inside), timed(inside, outside))


def _shuffle(pool: BlockPool, chance: random.Random) -> None:
    """Leave the free list of a fresh pool in random order."""
    blocks = pool.allocate(pool.num_blocks)
    chance.shuffle(blocks)
    pool.free(blocks)
