"""Which models a paged cache can serve, and a `PagedKVCache` of the right shape for one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from pagedkv.cache import PagedKVCache
from pagedkv.errors import BadValue


@dataclass(frozen=True, slots=True)
class _Shape:
    """The dimensions of a model's cache."""

    layers: int
    kv_heads: int
    head_dim: int


class _FirstUpdate(Exception):
    """Carries the first K and V out of a forward pass."""

    def __init__(self, k: Tensor, v: Tensor) -> None:
        self.k = k
        self.v = v


class _Probe(Cache):
    """Ends a forward pass at its first K and V."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        raise _FirstUpdate(key_states, value_states)


def kv_cache_for(model: PreTrainedModel, num_blocks: int, block_size: int = 16) -> PagedKVCache:
    """An empty `PagedKVCache` that fits a model, on its device and in its dtype.

    Configurations name KV heads and head sizes in many ways, so the model itself is asked: one token goes in, as far as
    the first K and V.

    Args:
        model: a causal language model.
        num_blocks, block_size: of the pool.

    Raises:
        BadValue: if the model keeps anything else than one K and one V of equal size per token, KV head and layer, or
            for arguments that describe no cache.
    """
    layers = plain_layers(model.config)
    name = type(model).__name__
    try:
        with torch.inference_mode():
            model(input_ids=torch.zeros((1, 1), dtype=torch.int64, device=model.device), cache=_Probe())
    except _FirstUpdate as first:
        k, v = first.k, first.v
    else:
        raise BadValue(f"{name} writes nothing into the cache it is given; PagedCache cannot serve it")
    if k.shape != v.shape:
        raise BadValue(
            f"{name} has keys {list(k.shape)} and values {list(v.shape)} of one token; a PagedKVCache needs one shape"
        )
    return PagedKVCache(_Shape(layers, k.shape[1], k.shape[3]), num_blocks, block_size, k.dtype, k.device)


def plain_layers(config: PreTrainedConfig) -> int:
    """How many layers a model has, if each of them keeps K and V of its own and nothing else.

    Raises:
        BadValue: if one does otherwise (recurrent states, K and V shared between layers, an encoder's K and V).
    """
    if config.is_encoder_decoder:
        raise BadValue(f"{config.model_type} is an encoder-decoder; PagedCache serves causal models")
    layers = DynamicCache(config=config).layers
    for index, layer in enumerate(layers):
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise BadValue(
                f"layer {index} of {config.model_type} needs a {type(layer).__name__}; "
                f"PagedCache serves layers that keep K and V of their own and nothing else"
            )
    return len(layers)
