"""The checkers of the exercises, section by section; what is right is computed by the package."""

from __future__ import annotations

from pagedkv import waste
from pagedkv.blocks import BlockPool
from pagedkv.book.exercises import checker, returns
from pagedkv.sharing import parallel_sampling
from pagedkv.tables import BlockTable
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
