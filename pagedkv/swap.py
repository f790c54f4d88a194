"""The host pool: where the KV of swapped-out sequences lies, and how it gets there and back.

A host block holds what a block of the cache holds, K and V of `block_size` tokens in every layer, but in one piece:
storage is [blocks, layers, 2 (K, V), block_size, kv_heads, head_dim]. So one transfer moves a whole block, and blocks
that follow each other on the host move together. On the side of the cache the pieces of many blocks are gathered or
scattered by one indexed copy, through a staging buffer on the cache's device.

Host memory is pinned where the cache is on a GPU, once and for all: pinning takes far longer than a transfer.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from pagedkv.blocks import BlockPool
from pagedkv.cache import PagedKVCache
from pagedkv.cache_interface import CachedSequence
from pagedkv.errors import BadValue, FreedTable, require_count
from pagedkv.tables import BlockTable, run_lengths

STAGING_BYTES = 16 * 2**20
"""Size of the staging buffer, at least one block: large beside what a transfer costs to start, small beside a pool."""


class SwappedSequence:
    """Names one sequence in one host pool. It is equal to itself only, and of no use once back or freed."""

    __slots__ = ("host",)

    def __init__(self, host: HostPool) -> None:
        self.host = host


class HostPool:
    """A finite pool of host blocks for one cache.

    Sequences keep their values to the last bit. They do not keep what they shared: a swapped sequence holds its blocks
    alone, on the host and when it is back, while those it shared them with stay as they are.

    >>> from pagedkv.geometry import LLAMA_3_1_8B
    >>> cache = PagedKVCache(LLAMA_3_1_8B, num_blocks=4, block_size=16, dtype=torch.bfloat16)
    >>> host = HostPool(cache, num_blocks=3)
    >>> sequence = cache.new_sequence()
    >>> _ = cache.extend({sequence: 40})
    >>> swapped = host.swap_out(sequence)
    >>> cache.pool.num_free, host.pool.num_free, host.length(swapped)
    (4, 0, 40)
    >>> back = host.swap_in(swapped)
    >>> cache.length(back), host.pool.num_free
    (40, 3)

    Args:
        cache: whose sequences come and go.
        num_blocks: host blocks.

    Attributes:
        cache: as given.
        pool: the host's block pool, with the block size of the cache.
        storage: the tensor described above, on the CPU.
        bytes_moved: bytes of all blocks moved so far, out and in.

    Raises:
        BadValue: for anything but a positive whole number of blocks.
    """

    def __init__(self, cache: PagedKVCache, num_blocks: int) -> None:
        self.cache = cache
        self.pool = BlockPool(num_blocks, cache.pool.block_size)
        layout = cache.layout
        block = (layout.layers, 2, self.pool.block_size, layout.kv_heads, layout.head_dim)
        pinned = layout.device.type == "cuda"
        self.storage = torch.zeros((self.pool.num_blocks, *block), dtype=layout.dtype, pin_memory=pinned)
        staged = min(num_blocks, max(1, STAGING_BYTES // cache.bytes_per_block))
        self._staging = torch.empty((staged, *block), dtype=layout.dtype, device=layout.device)
        self._tables: dict[SwappedSequence, BlockTable] = {}
        self.bytes_moved = 0

    def sequences(self) -> tuple[SwappedSequence, ...]:
        """All that are swapped out, in the order in which they came."""
        return tuple(self._tables)

    def table(self, swapped: SwappedSequence) -> BlockTable:
        """The host blocks of a sequence, to look at.

        Raises:
            FreedTable: if the sequence is back on the device, or freed.
            BadValue: if it is another pool's.
        """
        table = self._tables.get(swapped)
        if table is None:
            if getattr(swapped, "host", None) is not self:
                raise BadValue(f"{swapped!r} is not a sequence of this host pool")
            raise FreedTable
        return table

    def length(self, swapped: SwappedSequence) -> int:
        """Tokens of a sequence; raises as `table`."""
        return self.table(swapped).length

    def swap_out(self, sequence: CachedSequence) -> SwappedSequence:
        """Copy a sequence to the host, then free it on the device. The copy is done when this returns.

        Raises:
            OutOfBlocks: if the host has too few free blocks; nothing is changed then.
            FreedTable, BadValue: as `PagedKVCache.table`.
        """
        source = self.cache.table(sequence)
        table = BlockTable(self.pool)
        table.extend(source.length)
        try:
            self._copy_out(source.blocks, table.blocks)
        except BaseException:
            table.free()
            raise
        self.cache.free(sequence)
        swapped = SwappedSequence(self)
        self._tables[swapped] = table
        return swapped

    def swap_in(self, swapped: SwappedSequence, more: int = 0) -> CachedSequence:
        """Copy a sequence back, with room for `more` tokens, then free it on the host.

        The new tokens are the last ones of what is returned; their K and V are yet to be written.

        Raises:
            OutOfBlocks: if the device has too few free blocks for all of it; nothing is changed then.
            FreedTable, BadValue: as `table`, and for a negative or fractional `more`.
        """
        table = self.table(swapped)
        tokens = table.length + require_count("more", more)
        sequence = self.cache.new_sequence()
        try:
            self.cache.extend({sequence: tokens})
            self._copy_in(table.blocks, self.cache.table(sequence).blocks[: len(table.blocks)])
        except BaseException:
            self.cache.free(sequence)
            raise
        self.free(swapped)
        return sequence

    def free(self, swapped: SwappedSequence) -> None:
        """Give up a sequence and give its host blocks back; raises as `table`."""
        self.table(swapped).free()
        del self._tables[swapped]

    def _copy_out(self, sources: list[int], destinations: list[int]) -> None:
        blocks = self.cache.storage.movedim(2, 0)
        for part in self._parts(len(sources)):
            staged = self._staging[: part.stop - part.start]
            torch.index_select(blocks, 0, self._on_device(sources[part]), out=staged)
            for here, there in _runs(destinations[part]):
                self.storage[there].copy_(staged[here], non_blocking=True)
        self._finish(len(sources))

    def _copy_in(self, sources: list[int], destinations: list[int]) -> None:
        blocks = self.cache.storage.movedim(2, 0)
        for part in self._parts(len(sources)):
            staged = self._staging[: part.stop - part.start]
            for here, there in _runs(sources[part]):
                staged[here].copy_(self.storage[there], non_blocking=True)
            blocks.index_copy_(0, self._on_device(destinations[part]), staged)
        self._finish(len(sources))

    def _parts(self, count: int) -> Iterator[slice]:
        """So many blocks, as many at a time as the staging buffer holds."""
        step = len(self._staging)
        return (slice(start, min(start + step, count)) for start in range(0, count, step))

    def _on_device(self, blocks: list[int]) -> torch.Tensor:
        return torch.tensor(blocks, dtype=torch.int64, device=self.cache.device)

    def _finish(self, blocks: int) -> None:
        """Wait until the host sees what was copied; a GPU would still be at it."""
        if self.cache.device.type == "cuda":
            torch.cuda.current_stream(self.cache.device).synchronize()
        self.bytes_moved += blocks * self.cache.bytes_per_block


def _runs(blocks: list[int]) -> Iterator[tuple[slice, slice]]:
    """Stretches of `blocks` that follow each other: their places in the list, and in the pool."""
    start = 0
    for run in run_lengths(blocks):
        yield slice(start, start + run), slice(blocks[start], blocks[start] + run)
        start += run
