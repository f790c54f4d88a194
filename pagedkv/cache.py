"""The paged KV cache: real tensors over the block pool and block tables that the rest of the package uses.

One logical block of a table is a K and a V block in every layer. Storage is one tensor
[layers, 2 (K, V), blocks, block_size, kv_heads, head_dim], so that slot s of a layer is row s of its flattened blocks,
and a block is copied in all layers at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from pagedkv.blocks import BlockPool
from pagedkv.cache_interface import CachedSequence, Dimensioned, Extension, KVCache, Layout, Occupancy
from pagedkv.errors import BadValue, FreedTable, NotAllocated, OutOfBlocks
from pagedkv.kernels import paged_attention
from pagedkv.tables import BlockTable, Copy

__all__ = ["CachedSequence", "Extension", "KVCache", "Occupancy", "PagedKVCache"]


class PagedKVCache:
    """A KV cache in blocks, with fork and copy-on-write.

    >>> from pagedkv.geometry import LLAMA_3_1_8B
    >>> cache = PagedKVCache(LLAMA_3_1_8B, num_blocks=4, block_size=16, dtype=torch.bfloat16)
    >>> parent = cache.new_sequence()
    >>> cache.extend({parent: 20}).slots[-1]
    tensor(19)
    >>> child = cache.fork(parent)
    >>> cache.extend({parent: 1, child: 1}).copies  # the second writer is the last holder and writes in place
    (Copy(source=1, destination=2),)
    >>> cache.occupancy().reference_counts
    (2, 1, 1)

    Args:
        model: layers, kv_heads and head_dim; a `ModelGeometry` or anything else that has these.
        num_blocks, block_size: of the pool; any positive block size.
        dtype: torch.float32, float16 or bfloat16.
        device: "cpu", "cuda", ...

    Attributes:
        pool: the block pool.
        storage: the tensor described above.

    Raises:
        BadValue: for arguments that describe no cache.
    """

    def __init__(
        self,
        model: Dimensioned,
        num_blocks: int,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        self.layout = Layout.of(model, dtype, device)
        self.pool = BlockPool(num_blocks, block_size)
        self.storage = self.layout.allocate(self.pool.num_blocks, self.pool.block_size)
        self._tables: dict[CachedSequence, BlockTable] = {}
        self._bytes_copied = 0

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the cache."""
        return self.layout.dtype

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.layout.device

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one logical block: K and V of `block_size` tokens in all layers."""
        return self.layout.bytes_per_token * self.pool.block_size

    @property
    def bytes_copied(self) -> int:
        """Bytes of all blocks copied so far."""
        return self._bytes_copied

    def table(self, sequence: CachedSequence) -> BlockTable:
        """The block table of a sequence, to look at; growing it by hand would leave shared blocks uncopied.

        Raises:
            FreedTable: if the sequence has been freed.
            BadValue: if it is another cache's.
        """
        table = self._tables.get(sequence)
        if table is None:
            if getattr(sequence, "cache", None) is not self:
                raise BadValue(f"{sequence!r} is not a sequence of this cache")
            raise FreedTable
        return table

    def length(self, sequence: CachedSequence) -> int:
        """Tokens of a sequence; raises as `table`."""
        return self.table(sequence).length

    def sequences(self) -> tuple[CachedSequence, ...]:
        """All that are not freed, oldest first."""
        return tuple(self._tables)

    def new_sequence(self) -> CachedSequence:
        """An empty sequence, which holds no block yet."""
        return self._hold(BlockTable(self.pool))

    def fork(self, sequence: CachedSequence) -> CachedSequence:
        """A second sequence over the same blocks; no tensor is touched. Raises as `table`."""
        return self._hold(self.table(sequence).fork())

    def free(self, sequence: CachedSequence) -> None:
        """Take the sequence's references off its blocks; what others share stays. Raises as `table`."""
        self.table(sequence).free()
        del self._tables[sequence]

    def blocks_to_extend(self, growth: Mapping[CachedSequence, int]) -> int:
        """Blocks that `extend(growth)` takes, copies included.

        This can be one less for each shared block than the tables count one by one: when all holders of a partial block
        are about to write, the last of them will not need a copy.
        """
        needed = 0
        copied_away: Counter[int] = Counter()
        for sequence, tokens in growth.items():
            table = self.table(sequence)
            needed += table.blocks_to_extend(tokens)
            if tokens and table.slack:
                last = table.blocks[-1]
                holders = self.pool.reference_count(last)
                if holders - copied_away[last] > 1:
                    copied_away[last] += 1
                elif holders > 1:
                    needed -= 1
        return needed

    def extend(self, growth: Mapping[CachedSequence, int]) -> Extension:
        """Make room for new tokens of many sequences at once; shared partial blocks are copied in one go.

        Raises:
            OutOfBlocks: if the pool cannot serve all of them; nothing is changed then.
            FreedTable, BadValue: as `table`, and for negative or fractional counts; nothing is changed then.
        """
        needed = self.blocks_to_extend(growth)
        if needed > self.pool.num_free:
            raise OutOfBlocks(needed, self.pool.num_free)
        copies: list[Copy] = []
        positions: list[int] = []
        slots: list[int] = []
        for sequence, tokens in growth.items():
            table = self._tables[sequence]
            start = table.length
            copy = table.extend(tokens)
            if copy is not None:
                copies.append(copy)
            positions += range(start, table.length)
            slots += table.slots(start)
        self.copy_blocks(copies)
        return Extension(
            sequences=tuple(growth),
            counts=tuple(growth.values()),
            positions=tuple(positions),
            slots=torch.tensor(slots, dtype=torch.int64, device=self.device),
            copies=tuple(copies),
        )

    def copy_blocks(self, copies: Iterable[Copy]) -> None:
        """Copy whole blocks, K and V of every layer, all at once. `extend` does this by itself.

        Raises:
            NotAllocated: if a block is free, or a destination is shared; nothing is copied then.
            BadValue: if a block is a destination twice, or a source and a destination; nothing is copied then.
        """
        pairs = [Copy(*pair) for pair in copies]
        if not pairs:
            return
        sources, destinations = ([pair[side] for pair in pairs] for side in (0, 1))
        for block in (*sources, *destinations):
            if not self.pool.reference_count(block):
                raise NotAllocated(f"block {block} is free; allocate it before copying")
        for block in destinations:
            if self.pool.reference_count(block) > 1:
                raise NotAllocated(f"block {block} is shared; copying into it would change other sequences")
        if len(set(destinations) | set(sources)) != len(destinations) + len(set(sources)):
            raise BadValue("copies made at once need distinct destinations that are no sources")
        moved = self.storage.index_select(2, torch.tensor(sources, device=self.device))
        self.storage.index_copy_(2, torch.tensor(destinations, device=self.device), moved)
        self._bytes_copied += len(pairs) * self.bytes_per_block

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Store k and v [tokens, kv_heads, head_dim] of one layer in `slots` [tokens] int64.

        Pass the slots that `extend` returned: those blocks are private to their sequence. The check that all slots
        exist waits for the device.

        Raises:
            BadValue: for a wrong layer, shape, dtype or device, or a slot that the cache does not have.
        """
        self.layout.check_write(layer, slots, k, v, self.pool.slots)
        rows = self.storage[layer].flatten(1, 2)
        rows[0].index_copy_(0, slots, k.detach())
        rows[1].index_copy_(0, slots, v.detach())

    def gather(self, layer: int, sequence: CachedSequence) -> tuple[Tensor, Tensor]:
        """K and V of a sequence in one layer, each [length, kv_heads, head_dim], copied out. Raises as `table`."""
        table = self.table(sequence)
        self.layout.check_layer(layer)
        blocks = torch.tensor(table.blocks, dtype=torch.int64, device=self.device)
        k, v = self.storage[layer].index_select(1, blocks).flatten(1, 2)[:, : table.length]
        return k, v

    def attend(
        self, layer: int, q: Tensor, sequences: Sequence[CachedSequence], counts: Sequence[int] | None = None
    ) -> Tensor:
        """Attention of the newest tokens of a ragged batch, whose K and V have been written.

        Args:
            layer: which.
            q: [sum(counts), query_heads, head_dim], sequence after sequence; query_heads is a multiple of kv_heads.
            sequences: the batch.
            counts: queries of each sequence, its last tokens; one each by default.

        Returns:
            As `q`.

        Raises:
            BadValue, FreedTable: for arguments that do not fit the cache or each other.
        """
        tables = [self.table(sequence) for sequence in sequences]
        lengths = [table.length for table in tables]
        counts = [1] * len(tables) if counts is None else counts
        self.layout.check_attend(layer, q, counts, lengths)
        keys, values = self.storage[layer]
        return paged_attention(q, keys, values, self.block_tables(sequences), counts, lengths)

    def block_tables(self, sequences: Sequence[CachedSequence]) -> Tensor:
        """The tables of a batch as a kernel reads them: [sequences, blocks of the longest] int32, padded with 0."""
        tables = [self.table(sequence).blocks for sequence in sequences]
        width = max(map(len, tables), default=0)
        padded = [blocks + [0] * (width - len(blocks)) for blocks in tables]
        return torch.tensor(padded, dtype=torch.int32, device=self.device).reshape(len(tables), width)

    def occupancy(self) -> Occupancy:
        """Reference counts of all live blocks."""
        live = sorted({block for table in self._tables.values() for block in table.blocks})
        return Occupancy(tuple(self.pool.reference_count(block) for block in live))

    def _hold(self, table: BlockTable) -> CachedSequence:
        sequence = CachedSequence(self)
        self._tables[sequence] = table
        return sequence
