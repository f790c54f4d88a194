"""How large must the pool be for this traffic: found by trying, and estimated in closed form.

`size_pool` replays the requests and bisects. `estimate_pool` needs no replay: a mean by Little's law, and a margin for
chance. The estimate holds while requests come independently of each other at a steady rate. A storm breaks it, and no
sensible pool absorbs a storm: that is what a gateway is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pagedkv.blocks import blocks_needed
from pagedkv.clock import AffineClock
from pagedkv.errors import BadValue, require_count
from pagedkv.metrics import Report
from pagedkv.simulator import Setting, fast_forward
from pagedkv.watermarks import OFF, Watermarks
from pagedkv.workloads import Request

MARGIN = 4.0
"""Standard deviations of blocks that a pool needs above the mean, for about one preemption in a hundred requests: the
largest number that was found on generated traffic, rounded up, and then tried on traces."""


@dataclass(frozen=True, slots=True)
class Target:
    """When a pool is large enough.

    The rate alone will not do: on prompt-heavy traffic it stays low in any pool while requests queue. So there is a
    limit on latency too, against an unlimited pool and thus whatever the accelerator.

    Attributes:
        preemptions_per_request: at most.
        slowdown: the 99th percentile of the time to completion, over that with an unlimited pool, at most.

    Raises:
        BadValue: for a negative rate, or a slowdown below 1.
    """

    preemptions_per_request: float = 0.01
    slowdown: float = 1.1

    def __post_init__(self) -> None:
        """Refuse what no pool can reach."""
        if not self.preemptions_per_request >= 0 or not self.slowdown >= 1:
            raise BadValue(f"no pool has fewer than 0 preemptions or a slowdown below 1: {self}")


@dataclass(frozen=True, slots=True)
class Sizing:
    """A pool that keeps a target, and what it does.

    Attributes:
        num_blocks: its size. One block less misses the target, or cannot hold the longest request.
        preemptions_per_request: in it.
        completion_p99: in it, seconds.
        unlimited_p99: the same without a limit on the pool, seconds.
        unlimited_blocks: most blocks in use at once without a limit.
    """

    num_blocks: int
    preemptions_per_request: float
    completion_p99: float
    unlimited_p99: float
    unlimited_blocks: int

    @property
    def slowdown(self) -> float:
        """What the limit on the pool does to the 99th percentile."""
        return self.completion_p99 / self.unlimited_p99


def size_pool(
    requests: Sequence[Request],
    clock: AffineClock,
    target: Target | None = None,
    *,
    block_size: int = 16,
    watermarks: Watermarks = OFF,
) -> Sizing:
    """A pool that keeps the target on these requests, by bisection; every trial is a replay of all of them.

    Preemptions do not fall with every single block, so a smaller pool may keep the target by luck. What is found keeps
    it, and the next smaller one does not.

    Args:
        requests: in order of arrival.
        clock: of the server.
        target: at most 0.01 preemptions per request and a 99th percentile up by a tenth, by default.
        block_size: tokens per block.
        watermarks: of the server.

    Raises:
        BadValue: without a request that generates anything.
    """
    wanted = target or Target()
    if not any(request.output for request in requests):
        raise BadValue("no pool can be sized for no traffic; pass requests that generate tokens")
    unlimited = fast_forward(requests, Setting(_room_for_all(requests, block_size), clock, block_size))
    unlimited_p99 = unlimited.completion(99)

    def trial(blocks: int) -> Report:
        return fast_forward(requests, Setting(blocks, clock, block_size, watermarks=watermarks))

    def keeps(report: Report) -> bool:
        rate = report.preemptions_per_request
        return (
            rate <= wanted.preemptions_per_request
            and report.completion(99) <= wanted.slowdown * unlimited_p99
        )

    # The last token of a request is never fed back, so it takes no slot.
    longest = max(request.prompt + max(request.output - 1, 0) for request in requests)
    too_small = max(blocks_needed(longest, block_size), 1) - 1
    enough = max(unlimited.peak_blocks, too_small + 1)
    while not keeps(best := trial(enough)):
        too_small, enough = enough, 2 * enough  # watermarks set some blocks aside
    while enough - too_small > 1:
        middle = (too_small + enough) // 2
        report = trial(middle)
        if keeps(report):
            enough, best = middle, report
        else:
            too_small = middle
    return Sizing(
        enough, best.preemptions_per_request, best.completion(99), unlimited_p99, unlimited.peak_blocks
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the pool holds on average when nothing is short, and how far it strays from that.

    Attributes:
        rate: requests per second.
        load: share of the accelerator that reading KV and prefilling take; the weights take the rest. From 1 on
            requests come faster than it can serve them, whatever the pool, and what follows is infinite.
        iteration_seconds: mean length of an iteration.
        residents: mean number of running requests.
        blocks: mean number of blocks in use.
        deviation: standard deviation of the blocks in use.
    """

    rate: float
    load: float
    iteration_seconds: float
    residents: float
    blocks: float
    deviation: float

    def pool(self, margin: float = MARGIN) -> int:
        """Blocks to provide: the mean, and so many standard deviations.

        Raises:
            BadValue: when the accelerator cannot keep up, or for a negative margin.
        """
        if not margin >= 0:
            raise BadValue(f"a margin is at least 0 standard deviations, not {margin!r}")
        if self.load >= 1:
            raise BadValue(
                f"load {self.load:.2f}: requests come faster than they can be served, and no pool changes that; "
                f"turn {1 - 1 / self.load:.0%} of them away, or more"
            )
        return math.ceil(self.blocks + margin * self.deviation)


def estimate_pool(requests: Sequence[Request], clock: AffineClock, *, block_size: int = 16) -> Estimate:
    """Mean residents times mean blocks held, in closed form.

    A request runs for as many iterations as it has output tokens and reads its KV in each. With s seconds per
    iteration, r requests per second have r E[output] s of them running (Little's law), which makes an iteration last

        s = base + s r E[KV reads + sequences + prefill of a request]

    and that is solved for s. Blocks in use are then r s E[blocks held, summed over iterations]; for independent
    arrivals their variance has the squares of the blocks held in that place (Campbell's theorem).

    Args:
        requests: at least two, in order of arrival; their mean rate counts.
        clock: of the server.
        block_size: tokens per block.

    Raises:
        BadValue: for fewer than two requests, or arrivals all at once.
    """
    require_count("block_size", block_size, 1)
    span = requests[-1].arrival - requests[0].arrival if len(requests) > 1 else 0.0
    if not span > 0:
        raise BadValue("an estimate needs requests that come over a while; these give no rate")
    rate = (len(requests) - 1) / span
    held = [_held(request, block_size) for request in requests]
    outputs, tokens, blocks, squares = (fmean(column) for column in zip(*held, strict=True))
    prefill = fmean(clock.prefill.seconds(request.prompt) for request in requests)
    load = rate * (clock.per_resident_token * tokens + clock.per_sequence * outputs + prefill)
    seconds = clock.base / (1 - load) if load < 1 else math.inf
    flow = rate * seconds
    return Estimate(rate, load, seconds, flow * outputs, flow * blocks, math.sqrt(flow * squares))


def _held(request: Request, block_size: int) -> tuple[int, int, int, int]:
    """Iterations of a request, and over them the sums of tokens, of blocks and of squared blocks that it holds."""
    if request.output == 0:
        blocks = blocks_needed(request.prompt, block_size)
        return 1, request.prompt, blocks, blocks**2
    first, last = request.prompt, request.prompt + request.output - 1
    total = squares = 0
    for blocks in range(blocks_needed(first, block_size), blocks_needed(last, block_size) + 1):
        iterations = min(last, blocks * block_size) - max(first, (blocks - 1) * block_size + 1) + 1
        total += blocks * iterations
        squares += blocks**2 * iterations
    return request.output, (first + last) * request.output // 2, total, squares


def _room_for_all(requests: Sequence[Request], block_size: int) -> int:
    return sum(blocks_needed(request.total, block_size) for request in requests)
