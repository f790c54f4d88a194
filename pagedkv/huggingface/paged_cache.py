"""`PagedCache`: one batch of a Transformers model, as forks and tables over a `PagedKVCache`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin

from pagedkv.cache import CachedSequence, PagedKVCache
from pagedkv.errors import BadValue, require_count
from pagedkv.generate import refork
from pagedkv.huggingface.fitting import plain_layers
from pagedkv.huggingface.forward_pass import ForwardPass, begin

ATTENTION = "pagedkv"
_TAG = (
    "_pagedkv"  # on the keys that `update` returns, so that the attention finds the cache they are meant for
)


class PagedCache(Cache):
    """One batch of sequences in a `PagedKVCache`, as Transformers' models and `generate` use it.

    It is empty until the first forward pass, which fixes the number of rows. Several may live in one `PagedKVCache`
    and share its blocks. Blocks are given back by `reset`, or at the end of a `with` block.

    Args:
        config: the model's.
        kv: holds the blocks; `kv_cache_for` makes one that fits.

    Attributes:
        kv: as given; `kv.occupancy()`, `kv.pool` and `kv.table(sequence)` show what is where.

    Raises:
        BadValue: for a model that no PagedCache can serve, or a `kv` with another number of layers.
    """

    def __init__(self, config: PreTrainedConfig, kv: PagedKVCache) -> None:
        layers = plain_layers(config)
        if kv.layout.layers != layers:
            raise BadValue(
                f"the model has {layers} layers, the cache {kv.layout.layers}; use kv_cache_for(model)"
            )
        super().__init__(layers=[_LayerView(self, index) for index in range(layers)])
        self.kv = kv
        self._config = config.get_text_config(decoder=True)
        self._rows: list[CachedSequence] = []
        self._length = 0  # tokens of each row as the model counts them, padding included
        self._pass: ForwardPass | None = None

    @property
    def sequences(self) -> tuple[CachedSequence, ...]:
        """The rows of the batch, as sequences of `kv`; none before the first forward pass."""
        return tuple(self._rows)

    @property
    def batch_size(self) -> int:
        """Rows, or -1 before the first forward pass."""
        return len(self._rows) or -1

    def layer_length(self, layer: int) -> int:
        """Tokens of each row in one layer, padding included; within a forward pass, layers differ."""
        ahead = self._pass is not None and layer not in self._pass.written
        return self._length - (self._pass.tokens if self._pass is not None and ahead else 0)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the new K and V of a layer.

        Args:
            key_states, value_states: [rows, kv_heads, new tokens, head_dim].
            layer_idx: which layer.

        Returns:
            K and V of all tokens so far, [rows, kv_heads, tokens, head_dim], copied out of the blocks. For the
            "pagedkv" attention, which stores them itself, the arguments.

        Raises:
            OutOfBlocks: if the pool cannot take all new tokens; nothing is changed then.
            BadValue: for K and V that do not fit the cache or the batch; nothing is changed then.
        """
        if self._config._attn_implementation == ATTENTION:
            setattr(key_states, _TAG, (self, layer_idx))
            return key_states, value_states
        tables = self._store(layer_idx, key_states, value_states, None).tables
        blocks = self.kv.storage[layer_idx].index_select(1, tables.flatten())
        slots = blocks.reshape(2, len(tables), -1, *blocks.shape[-2:])
        k, v = slots[:, :, : self._length].transpose(2, 3)
        return k, v

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float | None = None
    ) -> Tensor:
        """Store the new K and V of a layer, and attend through the block tables.

        Args:
            layer: which.
            q: [rows, query_heads, new tokens, head_dim].
            k, v: [rows, kv_heads, new tokens, head_dim].
            mask: [rows, tokens so far and new], 0 for left padding; None if there is no padding.
            scaling: of the scores; 1 / sqrt(head_dim) by default.

        Returns:
            [rows, new tokens, query_heads, head_dim]; zeros for padding.

        Raises:
            OutOfBlocks, BadValue: as `update`.
        """
        current = self._store(layer, k, v, mask)
        factor = 1.0 if scaling is None else scaling * math.sqrt(q.shape[-1])
        queries = q.transpose(1, 2).flatten(0, 1)
        if not math.isclose(factor, 1.0):
            queries = queries * factor
        batch = current.extension.sequences, current.extension.counts
        if current.real is None:
            out = self.kv.attend(layer, queries, *batch)
        else:
            out = torch.zeros_like(queries)
            out[current.real] = self.kv.attend(layer, queries[current.real], *batch)
        return out.reshape(q.shape[0], q.shape[2], *out.shape[1:])

    def fork(self) -> PagedCache:
        """A second batch that continues from the same blocks; no tensor is touched."""
        self._require_no_pass()
        child = PagedCache(self._config, self.kv)
        child._rows = [self.kv.fork(row) for row in self._rows]
        child._length = self._length
        return child

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i continue what was row `beam_idx[i]`, by fork and free. Raises as `batch_select_indices`."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Fork every row into `repeats` rows that stand together. Raises as `batch_select_indices`."""
        require_count("repeats", repeats, 1)
        self.batch_select_indices(torch.arange(len(self._rows)).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows at `indices` (or where a bool mask is set), forked where one is named more than once.

        Raises:
            BadValue: for a row that there is not, or within a forward pass; nothing is changed then.
        """
        self._require_no_pass()
        try:
            parents: list[int] = torch.arange(len(self._rows))[indices.cpu()].tolist()
        except IndexError as error:
            raise BadValue(f"no such rows in a batch of {len(self._rows)}: {error}") from error
        self._rows = refork(self.kv, self._rows, parents)

    def crop(self, tokens_to_remove: int) -> None:
        """Take the last tokens of every row away; blocks that nothing else holds become free.

        Args:
            tokens_to_remove: 0 or negative, as Transformers counts: -3 removes three tokens.

        Raises:
            BadValue: for a positive number, more tokens than there are, or fewer than an interrupted forward pass left;
                nothing is changed then.
        """
        count = require_count("-tokens_to_remove", -tokens_to_remove)
        left = self._pass.tokens if self._pass is not None and count else 0
        if not left <= count <= self._length:
            raise BadValue(f"{left} to {self._length} tokens can be removed, not {count}")
        length = self._length - count
        for row in self._rows if count else ():
            padding = self._length - self.kv.length(row)
            self.kv.table(row).truncate(max(0, length - padding))
        self._length, self._pass = length, None if count else self._pass

    def reset(self) -> None:
        """Give all blocks back and forget the batch; the cache may then serve another one."""
        for row in self._rows:
            self.kv.free(row)
        self._rows, self._length, self._pass = [], 0, None

    def __enter__(self) -> PagedCache:
        return self

    def __exit__(self, *exception: object) -> None:
        self.reset()

    def __repr__(self) -> str:
        return f"PagedCache({len(self._rows)} rows of {self._length} tokens in {self.kv.pool})"

    def _store(self, layer: int, k: Tensor, v: Tensor, mask: Tensor | None) -> ForwardPass:
        """Write a layer's new K and V; the first layer to come makes room for those of all."""
        self._check(layer, k, v)
        current = self._pass
        if current is None:
            current = begin(self.kv, self._rows, self._length, k.shape[0], k.shape[2], mask)
            self._rows, self._length = list(current.extension.sequences), self._length + current.tokens
        elif layer in current.written:
            self._require_no_pass()
        keys, values = (part.transpose(1, 2).flatten(0, 1) for part in (k, v))
        if current.real is not None:
            keys, values = keys[current.real], values[current.real]
        self.kv.write(layer, current.extension.slots, keys, values)
        current.written.add(layer)
        self._pass = None if len(current.written) == len(self.layers) else current
        return current

    def _check(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Refuse K and V that the cache cannot hold, before anything is changed."""
        layout = self.kv.layout
        layout.check_layer(layer)
        expected = (*k.shape[:1], layout.kv_heads, *k.shape[2:3], layout.head_dim)
        for name, part in (("keys", k), ("values", v)):
            if tuple(part.shape) != expected or part.dtype != layout.dtype or part.device != layout.device:
                raise BadValue(
                    f"the cache takes {name} [rows, {layout.kv_heads}, tokens, {layout.head_dim}] of {layout.dtype} "
                    f"on {layout.device}, not {list(part.shape)} of {part.dtype} on {part.device}; "
                    f"use kv_cache_for(model)"
                )
            if part.requires_grad:
                raise BadValue("the cache keeps no gradients; run the model under torch.inference_mode()")

    def _require_no_pass(self) -> None:
        if self._pass is not None:
            missing = min(set(range(len(self.layers))) - self._pass.written)
            raise BadValue(
                f"the last forward pass stopped before layer {missing}; "
                f"take its tokens back with crop({-self._pass.tokens}), or reset"
            )


class _LayerView(CacheLayerMixin):
    """What Transformers asks of one layer, answered by the cache, which holds all layers together."""

    is_sliding = False
    is_croppable = True
    supports_early_init = False

    def __init__(self, cache: PagedCache, index: int) -> None:
        self.keys = self.values = None  # all of them are in the cache's blocks
        self.cache = cache
        self.index = index
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the blocks exist already."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self.cache.update(key_states, value_states, self.index)

    def get_seq_length(self) -> int:
        return self.cache.layer_length(self.index)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1  # as long as the pool has blocks


def tagged(key: Tensor) -> tuple[PagedCache, int] | None:
    """The cache and layer that keys from `PagedCache.update` are meant for; None for other keys."""
    return getattr(key, _TAG, None)
