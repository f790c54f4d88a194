"""Where the KV of an engine's requests lies: a `pagedkv.residency` over a paged cache of tensors and its host pool."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from pagedkv.blocks import blocks_needed
from pagedkv.cache import PagedKVCache
from pagedkv.cache_interface import CachedSequence, Extension
from pagedkv.errors import OutOfBlocks
from pagedkv.swap import HostPool, SwappedSequence


class CacheResidency:
    """A sequence of the cache per resident, and one of the host pool per swapped request: a `Residency`.

    It takes and gives back the same blocks in the same order as `TableResidency`, and moves KV at once when told to.

    Args:
        cache: the device pool; others may hold sequences in it too.
        host: its host pool; None for none at all.

    Attributes:
        cache, host: as given.
        sequences: of the residents, by request id, oldest first.
        swapped: of those swapped out, by request id.
    """

    __slots__ = ("cache", "host", "sequences", "swapped")

    def __init__(self, cache: PagedKVCache, host: HostPool | None = None) -> None:
        self.cache = cache
        self.host = host
        self.sequences: dict[int, CachedSequence] = {}
        self.swapped: dict[int, SwappedSequence] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks of the device pool."""
        return self.cache.pool.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.cache.pool.block_size

    @property
    def num_free(self) -> int:
        """Free blocks of the device pool."""
        return self.cache.pool.num_free

    @property
    def host_free(self) -> int:
        """Free blocks of the host pool."""
        return self.host.pool.num_free if self.host else 0

    @property
    def num_tokens(self) -> int:
        """Tokens that all residents hold, those of the running iteration included."""
        return sum(map(self.cache.length, self.sequences.values()))

    def wanted(self) -> int:
        """Blocks that one more token for every resident takes."""
        return self.cache.blocks_to_extend(dict.fromkeys(self.sequences.values(), 1))

    def grow(self, tokens: int = 1) -> None:
        """Room for one more token of everybody, oldest first, as often as asked."""
        for _ in range(tokens):
            self.cache.extend(dict.fromkeys(self.sequences.values(), 1))

    def take(self, name: int, tokens: int) -> None:
        """A sequence with room for `tokens` tokens."""
        sequence = self.cache.new_sequence()
        try:
            self.cache.extend({sequence: tokens})
        except OutOfBlocks:
            self.cache.free(sequence)
            raise
        self.sequences[name] = sequence

    def drop(self, name: int) -> None:
        """Free a sequence."""
        self.cache.free(self.sequences.pop(name))

    def swap_out(self, name: int) -> int:
        """Copy a sequence to the host, and free it here."""
        sequence = self.sequences[name]
        if self.host is None:
            raise OutOfBlocks(blocks_needed(self.cache.length(sequence), self.block_size), 0)
        swapped = self.host.swap_out(sequence)
        del self.sequences[name]
        self.swapped[name] = swapped
        return len(self.host.table(swapped).blocks)

    def swap_in(self, name: int, tokens: int) -> int:
        """Copy a sequence back, with room for `tokens` in all."""
        swapped = self.swapped[name]
        table = swapped.host.table(swapped)
        moved = len(table.blocks)
        self.sequences[name] = swapped.host.swap_in(swapped, tokens - table.length)
        del self.swapped[name]
        return moved

    def drop_host(self, name: int) -> None:
        """Free a sequence of the host pool."""
        swapped = self.swapped.pop(name)
        swapped.host.free(swapped)

    def newest(self, counts: Mapping[int, int]) -> Extension:
        """The last tokens of residents, as many of each as said: where `grow`, `take` and `swap_in` made room.

        Whatever a decoder writes goes there. No block here is shared, so there is nothing to copy before.
        """
        positions: list[int] = []
        slots: list[int] = []
        for name, count in counts.items():
            table = self.cache.table(self.sequences[name])
            start = table.length - count
            positions += range(start, table.length)
            slots += table.slots(start)
        return Extension(
            sequences=tuple(self.sequences[name] for name in counts),
            counts=tuple(counts.values()),
            positions=tuple(positions),
            slots=torch.tensor(slots, dtype=torch.int64, device=self.cache.device),
            copies=(),
        )
