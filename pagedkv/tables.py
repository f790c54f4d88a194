"""The block table: which physical block holds each logical block of one sequence.

Token `position` of a sequence lies in its logical block `position // block_size`, at offset
`position % block_size`; the table maps that logical block to a physical one, and the slot is
`physical * block_size + offset`. Growth takes blocks from the pool and moves nothing.

A fork points a second table at the same blocks and raises their reference counts. Full blocks are never written
again, so only a partial last block can be at risk: whoever writes into it while others still point at it first gets a
private copy (copy-on-write), and the last one left writes in place. See Kwon et al. 2023, sections 4.2 to 4.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pagedkv.blocks import BlockPool, blocks_needed
from pagedkv.errors import BadValue, FreedTable, OutOfBlocks, require_count


class Copy(NamedTuple):
    """A block whose contents must be copied, in every layer and for K and V alike, before the next write."""

    source: int
    destination: int


class BlockTable:
    """The blocks of one sequence, in logical order, over a shared `BlockPool`.

    >>> pool = BlockPool(num_blocks=8, block_size=4)
    >>> table = BlockTable(pool)
    >>> table.extend(6)
    >>> table.blocks, table.length, table.slack
    ([0, 1], 6, 2)
    >>> table.slot(5)
    5
    >>> child = table.fork()
    >>> child.append()
    Copy(source=1, destination=2)
    >>> table.append()  # the last holder of the partial block writes in place

    Attributes:
        pool: where the blocks come from and go back to.
        blocks: physical block ids, one per logical block. Read it; only the table's own methods write it.
        length: tokens held.
    """

    __slots__ = ("_freed", "_room", "blocks", "length", "pool")

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.blocks: list[int] = []
        self.length = 0
        # Slots of the last block known to be this table's alone. A fork sets it to 0 on both sides, so that the
        # fast path of `append` needs no look at the reference count.
        self._room = 0
        self._freed = False

    @property
    def slack(self) -> int:
        """Slots of the last block that hold no token; 0 for an empty table and for a full last block."""
        return len(self.blocks) * self.pool.block_size - self.length

    def blocks_to_extend(self, tokens: int) -> int:
        """Blocks that the pool must give for `tokens` more tokens, the copy of a shared last block included."""
        require_count("tokens", tokens)
        if not tokens:
            return 0
        new = blocks_needed(self.length + tokens, self.pool.block_size) - len(self.blocks)
        return new + (1 if self._must_copy() else 0)

    def can_extend(self, tokens: int) -> bool:
        """Whether `extend(tokens)` would succeed now."""
        return not self._freed and self.blocks_to_extend(tokens) <= self.pool.num_free

    def append(self) -> Copy | None:
        """Add one token. As `extend(1)`, and fast.

        Raises:
            OutOfBlocks: if a block is needed and none is free; nothing is changed then.
            FreedTable: after `free`.
        """
        if self._room:
            self._room -= 1
            self.length += 1
            return None
        if self._freed or self.slack:
            return self.extend(1)
        self.blocks.append(self.pool.allocate_one())
        self.length += 1
        self._room = self.pool.block_size - 1
        return None

    def extend(self, tokens: int) -> Copy | None:
        """Add `tokens` tokens: fill the last block first, then take new ones. All or nothing.

        Returns:
            The copy to make before the new tokens are written, if the partial last block was shared; else None.

        Raises:
            OutOfBlocks: if the pool has too few; table and pool are unchanged then.
            FreedTable: after `free`.
            BadValue: for a negative or fractional number of tokens.
        """
        if self._freed:
            raise FreedTable
        needed = self.blocks_to_extend(tokens)
        if not tokens:
            return None
        pool = self.pool
        if needed > pool.num_free:
            raise OutOfBlocks(needed, pool.num_free)
        copy = None
        if self._must_copy():
            shared = self.blocks[-1]
            copy = Copy(shared, pool.allocate_one())
            pool.free((shared,))
            self.blocks[-1] = copy.destination
            needed -= 1
        self.blocks += pool.allocate(needed)
        self.length += tokens
        self._room = self.slack
        return copy

    def slot(self, position: int) -> int:
        """Slot of the token at `position` in the pool, in tokens.

        Raises:
            BadValue: if the sequence has no such token.
        """
        if not 0 <= require_count("position", position) < self.length:
            raise BadValue(f"position {position} is outside a sequence of {self.length} tokens")
        logical, offset = divmod(position, self.pool.block_size)
        return self.blocks[logical] * self.pool.block_size + offset

    def slots(self, start: int = 0, stop: int | None = None) -> list[int]:
        """Slots of the tokens from `start` up to `stop` (the end by default), in order: a slot mapping.

        Raises:
            BadValue: if the range is not within the sequence.
        """
        stop = self.length if stop is None else stop
        if not 0 <= require_count("start", start) <= require_count("stop", stop) <= self.length:
            raise BadValue(f"tokens {start} to {stop} are outside a sequence of {self.length} tokens")
        size = self.pool.block_size
        return [self.blocks[i // size] * size + i % size for i in range(start, stop)]

    def fork(self) -> BlockTable:
        """A second table over the same blocks. Costs one step per block, whatever the blocks hold.

        Raises:
            FreedTable: after `free`.
        """
        if self._freed:
            raise FreedTable
        self.pool.share(self.blocks)
        child = BlockTable(self.pool)
        child.blocks = self.blocks.copy()
        child.length = self.length
        self._room = 0
        return child

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens and give back the blocks behind them, as rejected draft tokens need.

        Raises:
            FreedTable: after `free`.
            BadValue: if the sequence is not that long; nothing is changed then.
        """
        if self._freed:
            raise FreedTable
        if require_count("length", length) > self.length:
            raise BadValue(f"a sequence of {self.length} tokens cannot be cut to {length}")
        kept = blocks_needed(length, self.pool.block_size)
        self.pool.free(self.blocks[kept:])
        del self.blocks[kept:]
        self.length = length
        self._room = 0  # the last block may be shared; the next write asks

    def free(self) -> None:
        """Give every block back. Blocks that other tables share stay live, with one reference less.

        Raises:
            FreedTable: if the table has been freed already; the pool is unchanged then.
        """
        if self._freed:
            raise FreedTable
        self.pool.free(self.blocks)
        self.blocks = []
        self.length = self._room = 0
        self._freed = True

    def _must_copy(self) -> bool:
        """Whether the next write would touch a slot in a block that another table also points at."""
        return self.slack > 0 and self.pool.reference_count(self.blocks[-1]) > 1

    def __repr__(self) -> str:
        return f"BlockTable({self.length} tokens in blocks {self.blocks})"


TABLE_ENTRY_BYTES = 4
"""Bytes of one entry: int32, as in vLLM's and nano-vllm's device tables."""


class TableBytes(NamedTuple):
    """What the tables of a batch cost.

    Attributes:
        entries: bytes of the entries that name a block.
        dense: bytes of the rectangle [sequences, longest table] that a kernel is handed, padding included.
    """

    entries: int
    dense: int


def table_bytes(lengths: Sequence[int], block_size: int) -> TableBytes:
    """Bytes of the block tables of sequences of these lengths (tokens), at `TABLE_ENTRY_BYTES` an entry.

    >>> table_bytes([16, 17, 64], block_size=16)
    TableBytes(entries=28, dense=48)
    """
    blocks = [blocks_needed(length, require_count("block_size", block_size, 1)) for length in lengths]
    widest = max(blocks, default=0)
    return TableBytes(TABLE_ENTRY_BYTES * sum(blocks), TABLE_ENTRY_BYTES * len(blocks) * widest)


def run_lengths(blocks: Sequence[int]) -> list[int]:
    """Lengths, in blocks, of the stretches of a table in which each physical block follows its predecessor.

    A table of one run is contiguous memory; one run per block is memory in no order at all.

    >>> run_lengths([4, 5, 6, 2, 9, 10])
    [3, 1, 2]
    """
    runs: list[int] = []
    for position, block in enumerate(blocks):
        if position and block == blocks[position - 1] + 1:
            runs[-1] += 1
        else:
            runs.append(1)
    return runs
