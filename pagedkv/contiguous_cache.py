"""The contiguous twin of the paged cache: one reserved row per sequence, and a fork copies everything.

It exists to be compared with: same interface, same results, and nothing shared. It uses neither block pool nor
block tables. Storage is one tensor [layers, 2 (K, V), rows, max_length, kv_heads, head_dim]; token p of the sequence in
row r has slot r * max_length + p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pagedkv.cache_interface import CachedSequence, Dimensioned, Extension, Layout, Occupancy
from pagedkv.errors import BadValue, FreedTable, NeverFits, OutOfBlocks, require_count
from pagedkv.kernels import ragged_attention


class ContiguousKVCache:
    """A KV cache that reserves `max_length` slots for every sequence.

    Args:
        model: layers, kv_heads and head_dim.
        max_sequences: rows, each for one sequence.
        max_length: slots reserved per sequence, in tokens.
        dtype, device: as for `PagedKVCache`.

    Raises:
        BadValue: for arguments that describe no cache.
    """

    def __init__(
        self,
        model: Dimensioned,
        max_sequences: int,
        max_length: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        self.layout = Layout.of(model, dtype, device)
        self.max_sequences = require_count("max_sequences", max_sequences, 1)
        self.max_length = require_count("max_length", max_length, 1)
        self.storage = self.layout.allocate(max_sequences, max_length)
        self._rows: dict[CachedSequence, int] = {}
        self._lengths: dict[CachedSequence, int] = {}
        self._free_rows = list(range(max_sequences - 1, -1, -1))
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
    def bytes_copied(self) -> int:
        """Bytes of all tokens copied by forks so far."""
        return self._bytes_copied

    def length(self, sequence: CachedSequence) -> int:
        """Tokens of a sequence.

        Raises:
            FreedTable: if the sequence has been freed.
            BadValue: if it is another cache's.
        """
        if sequence not in self._lengths:
            if getattr(sequence, "cache", None) is not self:
                raise BadValue(f"{sequence!r} is not a sequence of this cache")
            raise FreedTable
        return self._lengths[sequence]

    def sequences(self) -> tuple[CachedSequence, ...]:
        """All that are not freed, oldest first."""
        return tuple(self._rows)

    def new_sequence(self) -> CachedSequence:
        """An empty sequence, in a row of its own.

        Raises:
            OutOfBlocks: if all rows are taken (a row is one block of `max_length` slots here).
        """
        if not self._free_rows:
            raise OutOfBlocks(1, 0)
        sequence = CachedSequence(self)
        self._rows[sequence] = self._free_rows.pop()
        self._lengths[sequence] = 0
        return sequence

    def fork(self, sequence: CachedSequence) -> CachedSequence:
        """A copy of a sequence in another row, every token of every layer. Raises as `length` and `new_sequence`."""
        length = self.length(sequence)
        child = self.new_sequence()
        source, destination = self._rows[sequence], self._rows[child]
        self.storage[:, :, destination, :length] = self.storage[:, :, source, :length]
        self._lengths[child] = length
        self._bytes_copied += length * self.layout.bytes_per_token
        return child

    def free(self, sequence: CachedSequence) -> None:
        """Give the row back. Raises as `length`."""
        self.length(sequence)
        self._free_rows.append(self._rows.pop(sequence))
        del self._lengths[sequence]

    def extend(self, growth: Mapping[CachedSequence, int]) -> Extension:
        """Make room for new tokens of many sequences, all or nothing.

        Raises:
            NeverFits: if a sequence would outgrow its row; nothing is changed then.
            FreedTable, BadValue: as `length`, and for negative or fractional counts; nothing is changed then.
        """
        for sequence, tokens in growth.items():
            after = self.length(sequence) + require_count("tokens", tokens)
            if after > self.max_length:
                raise NeverFits(after, self.max_length, "slots")
        positions: list[int] = []
        slots: list[int] = []
        for sequence, tokens in growth.items():
            start = self._lengths[sequence]
            self._lengths[sequence] = start + tokens
            first = self._rows[sequence] * self.max_length
            positions += range(start, start + tokens)
            slots += range(first + start, first + start + tokens)
        return Extension(
            sequences=tuple(growth),
            counts=tuple(growth.values()),
            positions=tuple(positions),
            slots=torch.tensor(slots, dtype=torch.int64, device=self.device),
            copies=(),
        )

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Store k and v [tokens, kv_heads, head_dim] of one layer in `slots`. Raises BadValue for what does not fit."""
        self.layout.check_write(layer, slots, k, v, self.max_sequences * self.max_length)
        rows = self.storage[layer].flatten(1, 2)
        rows[0].index_copy_(0, slots, k.detach())
        rows[1].index_copy_(0, slots, v.detach())

    def gather(self, layer: int, sequence: CachedSequence) -> tuple[Tensor, Tensor]:
        """K and V of a sequence in one layer, each [length, kv_heads, head_dim], copied out. Raises as `length`."""
        length = self.length(sequence)
        self.layout.check_layer(layer)
        k, v = self.storage[layer, :, self._rows[sequence], :length].clone()
        return k, v

    def attend(
        self, layer: int, q: Tensor, sequences: Sequence[CachedSequence], counts: Sequence[int] | None = None
    ) -> Tensor:
        """Attention of the newest tokens of a ragged batch; as `PagedKVCache.attend`."""
        lengths = [self.length(sequence) for sequence in sequences]
        counts = [1] * len(lengths) if counts is None else counts
        self.layout.check_attend(layer, q, counts, lengths)
        rows = torch.tensor(
            [self._rows[sequence] for sequence in sequences], dtype=torch.int64, device=self.device
        )
        keys, values = self.storage[layer, :, :, : max(lengths, default=0)].index_select(1, rows)
        return ragged_attention(q, keys, values, counts, lengths)

    def occupancy(self) -> Occupancy:
        """One block per row in use; none is ever shared."""
        return Occupancy((1,) * len(self._rows))
