"""The checkers of the exercises, section by section; what is right is computed by the package."""

from __future__ import annotations

import random

from pagedkv import pressure, sizing, waste
from pagedkv.blocks import BlockPool
from pagedkv.book.exercises import checker, returns
from pagedkv.geometry import OPT_13B
from pagedkv.preemption import RecomputeCost, SwapCost, break_even_bandwidth, crossover
from pagedkv.sharing import parallel_sampling
from pagedkv.simulator import Setting
from pagedkv.tables import BlockTable
from pagedkv.watermarks import Gate, Watermarks
from pagedkv.workloads import Request, load, sharegpt_like


@checker("1.1")
def never_used(answer: object) -> str | None:
    """Slots of a reservation that its request never uses: never_used(reservation, prompt, output)."""
    return returns(answer, [((2048, 100, 80), 1868), ((560, 60, 500), 0), ((512, 1, 1), 510)])


@checker("1.2")
def used_share(answer: object) -> str | None:
    """Share of one reservation that holds tokens over a request's life: used_share(reservation, prompt, output)."""
    cases = [(2048, 100, 80), (2048, 1, 2047), (560, 60, 500)]
    truth = [waste.reservation_share([Request(0, 0.0, p, o)], r).used for r, p, o in cases]
    return returns(answer, list(zip(cases, truth, strict=True)), tolerance=1e-3)


@checker("1.3")
def reservation_for_most(answer: object) -> str | None:
    """The smallest multiple of 256 slots into which 99 % of the conversation trace's requests fit."""
    if not isinstance(answer, int):
        return "a whole number of slots is asked for"
    totals = sorted(request.total for request in load("azure-conversation").requests)

    def fits(slots: int) -> bool:
        return sum(total <= slots for total in totals) >= 0.99 * len(totals)

    if answer % 256:
        return "it should be a multiple of 256"
    if not fits(answer):
        return "fewer than 99 % of the requests fit into that"
    return "a smaller one would do" if fits(answer - 256) else None


@checker("2.1")
def slot_of(answer: object) -> str | None:
    """Slot of a token from its table: slot_of(blocks, block_size, position)."""
    pool = BlockPool(32, 16)
    other, table = BlockTable(pool), BlockTable(pool)
    for _ in range(3):
        other.extend(20)
        table.extend(13)
    cases = [((table.blocks, 16, position), table.slot(position)) for position in (0, 15, 16, 38)]
    return returns(answer, cases)


@checker("2.2")
def blocks_to_extend(answer: object) -> str | None:
    """Blocks that growth takes: blocks_to_extend(length, tokens, block_size)."""
    cases = []
    for length, tokens, size in [
        (0, 0, 16),
        (3, 1, 4),
        (4, 1, 4),
        (3, 5, 4),
        (40, 8, 16),
        (48, 1, 16),
        (5, 9, 3),
    ]:
        table = BlockTable(BlockPool(64, size))
        table.extend(length)
        cases.append(((length, tokens, size), table.blocks_to_extend(tokens)))
    return returns(answer, cases)


@checker("2.3")
def largest_block(answer: object) -> str | None:
    """The largest power of two at which blocks of the conversation trace are still 98 % tokens."""
    if not isinstance(answer, int):
        return "a whole number of tokens is asked for"
    requests = load("azure-conversation").requests
    right = max(size for size in (2**k for k in range(10)) if waste.paged_share(requests, size) >= 0.98)
    if answer == right:
        return None
    return "a larger block still keeps 98 %" if answer < right else "blocks of that size waste more than 2 %"


@checker("3.1")
def copies(answer: object) -> str | None:
    """Blocks copied when n samples of one prompt write a token: copies(prompt, n, block_size)."""
    cases = []
    for case in [(20, 4, 16), (32, 4, 16), (1, 2, 16), (33, 1, 16), (7, 6, 4), (5, 3, 1)]:
        samples = _forked(*case)
        cases.append((case, sum(sample.append() is not None for sample in samples)))
    return returns(answer, cases)


@checker("3.2")
def live_blocks(answer: object) -> str | None:
    """Distinct blocks after n samples wrote output tokens each: live_blocks(prompt, n, output, block_size)."""
    cases = []
    for prompt, n, output, size in [
        (20, 4, 0, 16),
        (20, 4, 1, 16),
        (32, 4, 1, 16),
        (32, 3, 40, 16),
        (6, 2, 9, 4),
        (3, 5, 2, 1),
    ]:
        samples = _forked(prompt, n, size)
        for _ in range(output):
            for sample in samples:
                sample.append()
        cases.append(((prompt, n, output, size), samples[0].pool.num_used))
    return returns(answer, cases)


@checker("3.3")
def best_block_size(answer: object) -> str | None:
    """The power of two at which 4 samples of ShareGPT-like requests hold the least memory."""
    requests = sharegpt_like(4000, 1)
    held = {size: parallel_sampling(requests, 4, size).live * size for size in (2**k for k in range(9))}
    return None if answer == min(held, key=held.__getitem__) else "compare live * block_size over the sizes"


def _forked(prompt: int, n: int, block_size: int) -> list[BlockTable]:
    """n tables that share a prompt."""
    first = BlockTable(BlockPool(256, block_size))
    first.extend(prompt)
    return [first, *(first.fork() for _ in range(n - 1))]


@checker("4.1")
def admits(answer: object) -> str | None:
    """Whether a newcomer may come in under a mark of `low` blocks: admits(free, need, low)."""
    cases = []
    for free, need, low in [(5, 2, 4), (6, 2, 4), (4, 0, 4), (100, 97, 4), (3, 3, 0), (2, 3, 0)]:
        gate = Gate(Watermarks(low / 100, low / 100), 100)
        cases.append(((free, need, low), free >= need and gate.admits(free - need)))
    return returns(answer, cases)


@checker("4.2")
def flips(answer: object) -> str | None:
    """Flips of a gate over free blocks in time: flips(free_blocks, low, high)."""
    chance = random.Random(4)
    cases = []
    for low, high in [(10, 20), (10, 10), (0, 0), (5, 40)]:
        free = [chance.randrange(50) for _ in range(60)]
        gate = Gate(Watermarks(low / 100, high / 100), 100)
        for blocks in free:
            gate.observe(blocks)
        cases.append(((free, low, high), gate.flips))
    return returns(answer, cases)


@checker("4.3")
def smallest_mark(answer: object) -> str | None:
    """The smallest of four marks with fewer than 10 preemptions on three times the chat trace."""
    marks = (0.005, 0.01, 0.02, 0.04)
    if answer not in marks:
        return f"one of {', '.join(map(str, marks))} is asked for"
    traffic = pressure.windows(load("azure-conversation").requests, 3000, speed=3.0)
    tried = {str(mark): Watermarks(mark, mark) for mark in marks}
    rows = pressure.policies(traffic, Setting(3000, pressure.SERVER), [0], tried)
    calm = [float(row.policy) for row in rows if row.num_preemptions_total < 10]
    if answer not in calm:
        return "that one still preempts 10 times or more"
    return None if answer == min(calm) else "a smaller mark does too"


@checker("5.1")
def swap_seconds(answer: object) -> str | None:
    """Seconds to swap out and in: swap_seconds(tokens, bytes_per_token, bandwidth, fixed)."""
    cases = [(1000, 131_072, 25e9, 0.02), (0, 131_072, 25e9, 0.02), (665, 57_344, 55e9, 0.0)]
    truth = [
        SwapCost(fixed, 2 * size / bandwidth).seconds(tokens) for tokens, size, bandwidth, fixed in cases
    ]
    return returns(answer, list(zip(cases, truth, strict=True)), tolerance=1e-9)


@checker("5.2")
def crossing(answer: object) -> str | None:
    """Where two straight costs cross: crossing(recompute, swap, fixed), None for nowhere."""
    if not callable(answer):
        return "a function is asked for"
    for case in [(4e-5, 1e-5, 0.02), (1e-5, 4e-5, 0.02), (2e-5, 2e-5, 0.02), (4e-5, 3e-5, 0.0)]:
        right = crossover(RecomputeCost(case[0]), SwapCost(case[2], case[1]))
        got = answer(*case)
        if (got is None) != (right is None):
            return f"for {case} it returned {got!r}, expected {right!r}"
        if got is not None and right is not None and abs(got - right) > 1e-6 * max(1.0, right):
            return f"for {case} it returned {got!r}, expected {right!r}"
    return None


@checker("5.3")
def lowest_bandwidth(answer: object) -> str | None:
    """GB/s below which recompute always wins for OPT-13B."""
    right = round(break_even_bandwidth(OPT_13B, RecomputeCost.linear(OPT_13B)) / 1e9, 1)
    return None if answer == right else "twice the bytes of a token, over the seconds to compute it"


@checker("6.1")
def severity(answer: object) -> str | None:
    """Preemptions per request and the repeated share of the prefill, from counters."""
    if not callable(answer):
        return "a function is asked for"
    got = answer(30, 10, 1000, 4000)
    if got is None:
        return "the function returns nothing yet"
    return None if tuple(got) == (3.0, 0.75) else f"for (30, 10, 1000, 4000) it returned {got!r}"


@checker("6.2")
def blocks_in_use(answer: object) -> str | None:
    """Little's law in blocks: blocks_in_use(rate, output, seconds, blocks)."""
    return returns(
        answer, [((5.0, 200.0, 0.01, 70.0), 700.0), ((2.0, 100.0, 0.02, 10.0), 40.0)], tolerance=1e-6
    )


@checker("6.3")
def pool_for_unseen_traffic(answer: object) -> str | None:
    """A pool for the balanced traffic of seed 7: large enough, and not much larger."""
    if not isinstance(answer, int) or answer < 1:
        return "a whole number of blocks is asked for"
    requests = pressure.BALANCED(7)
    needed = sizing.size_pool(requests, pressure.SERVER)
    if answer > 1.1 * needed.num_blocks:
        return "a smaller pool keeps the target too"
    (run,) = pressure.knee(lambda seed: requests, (answer,))
    target = sizing.Target()
    if run.preemptions_per_request > target.preemptions_per_request:
        return f"replayed, it preempts {run.preemptions_per_request:.3f} times per request"
    if run.completion_p99 > target.slowdown * needed.unlimited_p99:
        return f"replayed, its 99th percentile is {run.completion_p99:.1f} s, too long"
    return None
