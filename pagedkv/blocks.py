"""The block pool: a free list and a reference count per block.

The KV cache of a server is cut into `num_blocks` physical blocks of `block_size` slots, one slot per token. The
pool knows which blocks are free and how many block-table entries point at each of the others; it does not know
sequences, tokens or tensors.

Invariants, after every operation, failed ones included:

* free blocks + distinct live blocks = `num_blocks`;
* a block's reference count = the number of table entries that point at it, and 0 when it is free;
* no block is on the free list twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagedkv.errors import BadValue, NotAllocated, OutOfBlocks, require_count


def blocks_needed(tokens: int, block_size: int) -> int:
    """Blocks that hold `tokens` tokens: the ceiling of tokens / block_size, 0 for 0."""
    return -(-tokens // block_size)


class BlockPool:
    """A pool of equal blocks with O(1) allocation and freeing.

    The free list is a stack: the block freed last is handed out first, while its memory may still be warm. A fresh
    pool hands out 0, 1, 2, ... in order.

    >>> pool = BlockPool(num_blocks=4, block_size=16)
    >>> pool.allocate(3)
    [0, 1, 2]
    >>> pool.free([0, 1, 2])
    >>> pool.allocate(1)
    [2]

    Args:
        num_blocks: physical blocks, at least 1.
        block_size: slots (tokens) per block, at least 1; it need not be a power of two.

    Raises:
        BadValue: for anything but positive whole numbers.
    """

    __slots__ = ("_free", "_references", "block_size", "num_blocks")

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = require_count("num_blocks", num_blocks, 1)
        self.block_size = require_count("block_size", block_size, 1)
        self._free = list(range(self.num_blocks - 1, -1, -1))
        self._references = [0] * self.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks on the free list."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Distinct blocks that at least one table entry points at."""
        return self.num_blocks - len(self._free)

    @property
    def slots(self) -> int:
        """Slots of the whole pool, in tokens."""
        return self.num_blocks * self.block_size

    def free_list(self) -> tuple[int, ...]:
        """The free blocks, next to be handed out first."""
        return tuple(reversed(self._free))

    def reference_count(self, block: int) -> int:
        """Table entries that point at `block`; 0 when it is free."""
        if require_count("block", block) >= self.num_blocks:
            raise BadValue(f"block {block} is outside a pool of {self.num_blocks} blocks")
        return self._references[block]

    def allocate_one(self) -> int:
        """Pop one block, with reference count 1: what a growing sequence does every `block_size` tokens.

        Raises:
            OutOfBlocks: if none is free.
        """
        try:
            block = self._free.pop()
        except IndexError:
            raise OutOfBlocks(1, 0) from None
        self._references[block] = 1
        return block

    def allocate(self, count: int) -> list[int]:
        """Pop `count` blocks, each with reference count 1, in the order of `count` single pops.

        Raises:
            OutOfBlocks: if fewer are free; nothing is taken then.
            BadValue: for a negative or fractional count.
        """
        free = self._free
        require_count("count", count)
        if count > len(free):
            raise OutOfBlocks(count, len(free))
        if not count:
            return []
        blocks = free[: -count - 1 : -1]
        del free[-count:]
        references = self._references
        for block in blocks:
            references[block] = 1
        return blocks

    def share(self, blocks: Sequence[int]) -> None:
        """Add one reference to each of `blocks`, as a forked table does.

        Raises:
            NotAllocated: if one of them is free or unknown; no count is changed then.
        """
        self._require_live(blocks)
        references = self._references
        for block in blocks:
            references[block] += 1

    def free(self, blocks: Sequence[int]) -> None:
        """Take one reference from each of `blocks`; those that reach 0 are pushed on the free list in this order.

        Passing a table's blocks first to last therefore leaves its tail on top, to be reused first: the tail is the
        part that no later request can share as a prefix. vLLM's block pool orders its frees alike.

        Raises:
            NotAllocated: if a block is free, unknown or listed twice; nothing is changed then.
        """
        references = self._references
        count = len(blocks)
        rest = iter(blocks)
        try:
            # Nearly always no block is shared, and this loop is all there is.
            for block in rest:
                if references[block] != 1 or block < 0:
                    break
                references[block] = 0
            else:
                self._free.extend(blocks)
                return
        except (IndexError, TypeError):
            pass
        # Something is shared or wrong: undo the marks made so far, check everything, then act.
        for block in blocks[: count - len(list(rest)) - 1]:
            references[block] = 1
        self._require_live(blocks)
        for block in blocks:
            references[block] -= 1
            if not references[block]:
                self._free.append(block)

    def _require_live(self, blocks: Sequence[int]) -> None:
        """Refuse `blocks` unless all are live and none is listed twice."""
        references = self._references
        try:
            counts = [references[block] for block in blocks]
            if not counts or (min(counts) > 0 and min(blocks) >= 0 and len(set(blocks)) == len(blocks)):
                return
        except (IndexError, TypeError):
            pass
        for block in blocks:
            if type(block) is not int or not 0 <= block < self.num_blocks:
                raise NotAllocated(f"{block!r} is not a block of a pool of {self.num_blocks} blocks")
            if not references[block]:
                raise NotAllocated(f"block {block} is already free; it was freed twice or never allocated")
        raise NotAllocated("a block is listed twice in one call; a table lists each of its blocks once")

    def __repr__(self) -> str:
        return f"BlockPool({self.num_blocks} blocks of {self.block_size}, {self.num_free} free)"
