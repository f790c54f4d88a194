"""What every KV cache of this package offers to a model, whatever lies behind it.

A cache hands out sequences. `extend` makes room for new tokens and says in which slots they go; per layer the model
then writes K and V there and attends. A slot is a token's place in the cache, counted over all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pagedkv.errors import BadValue, require_count
from pagedkv.tables import Copy

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class CachedSequence:
    """Names one sequence in one cache. It is equal to itself only, and of no use once freed."""

    __slots__ = ("cache",)

    def __init__(self, cache: object) -> None:
        self.cache = cache


@dataclass(frozen=True, slots=True, eq=False)
class Extension:
    """New tokens of a ragged batch, sequence after sequence: where they stand and where their K and V go.

    Attributes:
        sequences: the sequences that grew.
        counts: new tokens of each.
        positions: of every new token in its own sequence.
        slots: [new tokens] int64 on the cache's device, for `write`.
        copies: the blocks that were copied before, because they were shared and about to be written.
    """

    sequences: tuple[CachedSequence, ...]
    counts: tuple[int, ...]
    positions: tuple[int, ...]
    slots: Tensor
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Which blocks a cache holds now.

    Attributes:
        reference_counts: of each distinct live block, in the order of physical ids.
    """

    reference_counts: tuple[int, ...]

    @property
    def live_blocks(self) -> int:
        """Distinct blocks in use."""
        return len(self.reference_counts)

    @property
    def duplicated_blocks(self) -> int:
        """Blocks that would be in use if every sequence had its own copy of everything."""
        return sum(self.reference_counts)

    @property
    def saved(self) -> float:
        """Share of the duplicated blocks that sharing saves, 0 to 1."""
        return 1 - self.live_blocks / self.duplicated_blocks if self.reference_counts else 0.0


class KVCache(Protocol):
    """A cache of K and V for all layers of a model."""

    @property
    def dtype(self) -> torch.dtype:
        """Element type of what is written and returned."""

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""

    @property
    def bytes_copied(self) -> int:
        """Bytes moved so far because sequences were forked, at the fork or at a later write."""

    def new_sequence(self) -> CachedSequence:
        """An empty sequence."""

    def extend(self, growth: Mapping[CachedSequence, int]) -> Extension:
        """Make room for so many new tokens of each sequence, all or nothing."""

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Store k and v [tokens, kv_heads, head_dim] of one layer in `slots`, as `extend` gave them."""

    def gather(self, layer: int, sequence: CachedSequence) -> tuple[Tensor, Tensor]:
        """K and V of a sequence in one layer, each [length, kv_heads, head_dim], copied out."""

    def attend(
        self, layer: int, q: Tensor, sequences: Sequence[CachedSequence], counts: Sequence[int] | None = None
    ) -> Tensor:
        """Attention of the last `counts` tokens (one each by default) of every sequence; shaped as `q`."""

    def fork(self, sequence: CachedSequence) -> CachedSequence:
        """A second sequence with the same contents so far."""

    def free(self, sequence: CachedSequence) -> None:
        """Give a sequence's memory back."""

    def length(self, sequence: CachedSequence) -> int:
        """Tokens of a sequence."""

    def sequences(self) -> tuple[CachedSequence, ...]:
        """All that are not freed, oldest first."""

    def occupancy(self) -> Occupancy:
        """What is in use now."""


class Dimensioned(Protocol):
    """What a cache needs to know of a model; `geometry.ModelGeometry` has it."""

    @property
    def layers(self) -> int:
        """Decoder layers."""

    @property
    def kv_heads(self) -> int:
        """Heads of K and V."""

    @property
    def head_dim(self) -> int:
        """Elements per head."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, element type and place of a cache's tensors, and the checks of what callers pass in.

    Raises:
        BadValue: for dimensions below 1, another dtype than float32, float16 and bfloat16, or a device there is not.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(model: Dimensioned, dtype: torch.dtype, device: str | torch.device) -> Layout:
        """The layout for a model on a device, checked."""
        for name in ("layers", "kv_heads", "head_dim"):
            require_count(name, getattr(model, name), 1)
        if dtype not in DTYPES:
            raise BadValue(f"dtype must be one of {', '.join(map(str, DTYPES))}, not {dtype}")
        try:
            place = torch.empty(0, device=device).device
        except (RuntimeError, AssertionError) as error:
            raise BadValue(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}") from error
        return Layout(model.layers, model.kv_heads, model.head_dim, dtype, place)

    @property
    def bytes_per_token(self) -> int:
        """Of K and V in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    def allocate(self, *places: int) -> Tensor:
        """Zeros [layers, 2 (K, V), *places, kv_heads, head_dim]."""
        shape = (self.layers, 2, *places, self.kv_heads, self.head_dim)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def check_layer(self, layer: int) -> None:
        """Refuse a layer that the cache does not have."""
        if not 0 <= require_count("layer", layer) < self.layers:
            raise BadValue(f"layer {layer} is outside a cache of {self.layers} layers")

    def check_write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor, capacity: int) -> None:
        """Refuse K, V or slots that do not fit the cache or each other."""
        self.check_layer(layer)
        if slots.dtype != torch.int64 or slots.ndim != 1 or slots.device != self.device:
            raise BadValue(
                f"slots must be one dimension of int64 on {self.device}, as extend returns them, "
                f"not {list(slots.shape)} of {slots.dtype} on {slots.device}"
            )
        for name, part in (("k", k), ("v", v)):
            self._check_tensor(name, part, (len(slots), self.kv_heads, self.head_dim))
        if len(slots) and not 0 <= int(slots.min()) <= int(slots.max()) < capacity:
            outside = int(slots.max()) if int(slots.max()) >= capacity else int(slots.min())
            raise BadValue(
                f"slot {outside} is outside a cache of {capacity} slots; write into what extend returned"
            )

    def check_attend(self, layer: int, q: Tensor, counts: Sequence[int], lengths: Sequence[int]) -> None:
        """Refuse queries that do not fit the cache, or counts that do not fit the queries and sequences."""
        self.check_layer(layer)
        if len(counts) != len(lengths):
            raise BadValue(f"{len(counts)} counts for {len(lengths)} sequences; give one each")
        for count, length in zip(counts, lengths, strict=True):
            if not 0 <= require_count("count", count) <= length:
                raise BadValue(f"{count} queries for a sequence of {length} tokens; extend it first")
        heads = q.shape[1] if q.ndim == 3 else 0
        if not heads or heads % self.kv_heads:
            raise BadValue(
                f"q must be [tokens, query_heads, head_dim] with query_heads a multiple of kv_heads = "
                f"{self.kv_heads}, not {list(q.shape)}"
            )
        self._check_tensor("q", q, (sum(counts), heads, self.head_dim))

    def _check_tensor(self, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
        if tuple(tensor.shape) != shape or tensor.dtype != self.dtype or tensor.device != self.device:
            raise BadValue(
                f"{name} must be {list(shape)} of {self.dtype} on {self.device}, "
                f"not {list(tensor.shape)} of {tensor.dtype} on {tensor.device}"
            )
