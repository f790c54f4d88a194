"""Where every slot of a KV-cache memory is: one breakdown for every allocator, and the waste of real requests.

The terms are those of Kwon et al. 2023, section 3.1, with one of them split in two. A slot is exactly one of

* **tokens**: it holds the keys and values of a token;
* **reserved**: empty now, and its request *will* use it later. Nobody else can have it meanwhile;
* **overprovisioned**: part of a reservation that its request will *never* use, because its output turned out shorter
  than what was set aside;
* **sliver**: the end of a request's last block that will never be used, because memory comes in whole blocks;
* **external**: lost to the allocator. Free holes none of which is large enough for the request that waits, and what an
  allocator takes beyond the slots asked for, as a buddy allocator does;
* **free**: anyone can have it. A free block is always free in this sense, since a block fits everywhere.

The paper calls overprovisioned and sliver together internal fragmentation. Others call everything reserved and not
used "reserved but unused" and keep "internal" for the sliver. `Breakdown` gives both groupings of the same slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pagedkv.blocks import BlockPool
from pagedkv.contiguous import Allocator, Lengths, Span
from pagedkv.errors import BadValue, require_count
from pagedkv.tables import BlockTable


class PaperTerms(NamedTuple):
    """The grouping of Kwon et al. 2023, section 3.1 and Fig. 2, and what is free besides.

    Attributes:
        token_states: slots that hold a token.
        reserved: slots that the request holding them will use later.
        internal: slots of a request that it will never use (over-provisioned ones and the sliver).
        external: slots lost to the allocator. The figure's "external & others" also counts the free ones.
        free: slots anyone can have.
    """

    token_states: float
    reserved: float
    internal: float
    external: float
    free: float


class EverydayTerms(NamedTuple):
    """The shorter grouping that many explanations use, in which the hostage slots are not "internal".

    Attributes:
        used: slots that hold a token.
        reserved_unused: slots of a reservation without a token, whether their request will use them later or never.
        internal: the sliver left by rounding to whole blocks.
        external: slots lost to the allocator.
        free: slots anyone can have.
    """

    used: float
    reserved_unused: float
    internal: float
    external: float
    free: float


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Slots of a memory by what they are doing; the module's docstring defines the six kinds.

    Averages over time are breakdowns too, so the fields may be fractional.

    >>> Breakdown(tokens=180, overprovisioned=1868).percent().tokens
    8.7890625
    """

    tokens: float = 0.0
    reserved: float = 0.0
    overprovisioned: float = 0.0
    sliver: float = 0.0
    external: float = 0.0
    free: float = 0.0

    @property
    def parts(self) -> tuple[float, float, float, float, float, float]:
        """The six kinds, in the order of the fields."""
        return self.tokens, self.reserved, self.overprovisioned, self.sliver, self.external, self.free

    @property
    def total(self) -> float:
        """Slots of the whole memory."""
        return self.held + self.external + self.free

    @property
    def held(self) -> float:
        """Slots that requests hold, with a token or without; what the allocator takes on top is external."""
        return self.tokens + self.reserved + self.overprovisioned + self.sliver

    def percent(self) -> Breakdown:
        """The same in percent of the total. Raises BadValue for a memory without slots."""
        if not self.total:
            raise BadValue("a memory without slots has no shares; give the breakdown at least one slot")
        return Breakdown(*(100 * part / self.total for part in self.parts))

    def paper_terms(self) -> PaperTerms:
        """The slots in the terms of Kwon et al. 2023, section 3.1."""
        internal = self.overprovisioned + self.sliver
        return PaperTerms(self.tokens, self.reserved, internal, self.external, self.free)

    def everyday_terms(self) -> EverydayTerms:
        """The slots with all that is reserved and unused in one."""
        unused = self.reserved + self.overprovisioned
        return EverydayTerms(self.tokens, unused, self.sliver, self.external, self.free)


def of_spans(
    allocator: Allocator, residents: Iterable[tuple[Span, int, int]], waiting: int | None = None
) -> Breakdown:
    """Where the slots of a contiguous allocator are.

    Args:
        allocator: whose live spans `residents` lists.
        residents: for each live span: the span, the tokens it holds now, and those it will hold at its end.
        waiting: slots that the first waiting request asks for in one piece, or None when nobody waits.
    """
    tokens = reserved = over = rounding = 0
    for span, now, final in residents:
        tokens += now
        reserved += final - now
        over += span.slots - final
        rounding += span.held - span.slots
    free = allocator.free_slots
    stranded = free if waiting is not None and allocator.largest_hole < waiting else 0
    return Breakdown(tokens, reserved, over, 0, rounding + stranded, free - stranded)


def of_tables(pool: BlockPool, residents: Iterable[tuple[BlockTable, int]]) -> Breakdown:
    """Where the slots of a block pool are. A block that several tables share counts once.

    Args:
        pool: whose tables `residents` lists.
        residents: for each sequence: its table and the tokens that it will hold at its end.
    """
    size = pool.block_size
    filled: dict[int, int] = {}
    wanted: dict[int, int] = {}
    for table, final in residents:
        for logical, block in enumerate(table.blocks):
            start = logical * size
            now = min(size, table.length - start)
            filled[block] = max(filled.get(block, 0), now)
            wanted[block] = max(wanted.get(block, 0), now, min(size, final - start))
    tokens, later = sum(filled.values()), sum(wanted.values())
    held = pool.num_used * size
    return Breakdown(tokens, later - tokens, 0, held - later, 0, pool.num_free * size)


def block_usage(pool: BlockPool) -> float:
    """Share of the blocks that are taken, from 0 to 1: the gauge of serving engines. 1 is a full pool, not an error."""
    return pool.num_used / pool.num_blocks


def slot_usage(pool: BlockPool, tables: Iterable[BlockTable]) -> float:
    """Share of the slots that hold a token, from 0 to 1: never above `block_usage`, and below it by the last blocks.

    >>> pool = BlockPool(num_blocks=9, block_size=16)
    >>> tables = [BlockTable(pool) for _ in range(3)]
    >>> for table in tables:
    ...     _ = table.extend(17)
    >>> f"{block_usage(pool):.3f} {slot_usage(pool, tables):.3f}"
    '0.667 0.354'
    """
    return of_tables(pool, ((table, table.length) for table in tables)).tokens / pool.slots


class ReservationShare(NamedTuple):
    """What a contiguous reservation does with its slots.

    Attributes:
        used: share of the reserved slots that hold a token, over time and all requests that fit.
        fitting: share of the requests that fit into the reservation at all.
    """

    used: float
    fitting: float


def reservation_share(requests: Iterable[Lengths], reservation: int) -> ReservationShare:
    """Share of reserved slots that hold tokens when each request reserves `reservation` slots for its lifetime.

    A request lives one iteration per output token and holds its prompt and the tokens generated so far, the newest
    included; requests weigh by how long they live. Those longer than the reservation are left out.

    Raises:
        BadValue: if no request that fits generates a token, so that there is nothing to average over.
    """
    require_count("reservation", reservation, 1)
    every = list(requests)
    fitting = [r for r in every if r.prompt + r.output <= reservation]
    used = sum(_token_iterations(r) for r in fitting)
    return ReservationShare(used / (reservation * _iterations(fitting)), len(fitting) / len(every))


def paged_share(requests: Iterable[Lengths], block_size: int) -> float:
    """Share of the slots in taken blocks that hold tokens, over the same lifetimes as `reservation_share`.

    Raises:
        BadValue: if no request generates a token.
    """
    every = list(requests)
    _iterations(every)
    return sum(map(_token_iterations, every)) / _slot_iterations(every, block_size)


def last_block_waste(requests: Iterable[Lengths], block_size: int) -> float:
    """Mean number of empty slots in a sequence's last block, over iterations and requests.

    Were every fill of the last block equally likely, it would be (block_size - 1) / 2.

    Raises:
        BadValue: if no request generates a token.
    """
    every = list(requests)
    empty = _slot_iterations(every, block_size) - sum(map(_token_iterations, every))
    return empty / _iterations(every)


def _iterations(requests: list[Lengths]) -> int:
    """Iterations that all requests live, refused when there are none."""
    count = sum(r.output for r in requests)
    if not count:
        raise BadValue("no request generates a token here, so there is no time to average over")
    return count


def _token_iterations(request: Lengths) -> int:
    """Sum of the tokens held over a request's iterations: prompt + 1, ..., prompt + output."""
    return request.output * request.prompt + request.output * (request.output + 1) // 2


def _slot_iterations(requests: Iterable[Lengths], block_size: int) -> int:
    """Sum of the slots of the blocks held over all requests' iterations."""
    size = require_count("block_size", block_size, 1)

    def up_to(tokens: int) -> int:
        """Blocks of a sequence of 1, 2, ..., `tokens` tokens, added up."""
        full, rest = divmod(tokens, size)
        return size * full * (full + 1) // 2 + rest * (full + 1)

    return size * sum(up_to(r.prompt + r.output) - up_to(r.prompt) for r in requests)
