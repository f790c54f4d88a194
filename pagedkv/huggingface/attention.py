"""The attention implementation "pagedkv": Transformers' models attend through block tables."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from pagedkv.errors import BadValue
from pagedkv.huggingface.paged_cache import ATTENTION, tagged

# Arguments by which models ask for something else than plain causal attention.
NOT_PLAIN = ("sliding_window", "softcap", "s_aux", "position_bias", "cu_seq_lens_q")


def register() -> None:
    """Make "pagedkv" known to Transformers, as an attention and as a preparation of masks."""
    AttentionInterface.register(ATTENTION, attention_forward)
    AttentionMaskInterface.register(ATTENTION, attention_mask_as_given)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Store the new K and V of a layer in the cache they are meant for, and attend there.

    Returns:
        [rows, tokens, query_heads, head_dim], and None in place of attention weights.

    Raises:
        BadValue: without a `PagedCache`, or for anything but plain causal attention.
        OutOfBlocks: as `PagedCache.attend`.
    """
    found = tagged(key)
    if found is None:
        raise BadValue(
            f"the {ATTENTION} attention reads a PagedCache: pass cache=PagedCache(model.config, kv)"
        )
    causal = kwargs.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        raise BadValue(f"the {ATTENTION} attention is causal; use another implementation for this model")
    if dropout:
        raise BadValue(f"the {ATTENTION} attention has no dropout; call model.eval()")
    for name in NOT_PLAIN:
        if kwargs.get(name) is not None:
            raise BadValue(
                f"the {ATTENTION} attention has no {name}; use another implementation for this model"
            )
    cache, layer = found
    return cache.attend(layer, query, key, value, attention_mask, scaling), None


def attention_mask_as_given(
    *, mask_function: object = causal_mask_function, attention_mask: Tensor | None = None, **_: Any
) -> Tensor | None:
    """What a model hands on to its layers as their mask: the one of [rows, tokens], since causality is understood.

    Raises:
        BadValue: for any pattern but the plain causal one.
    """
    if mask_function is not causal_mask_function:
        raise BadValue(
            f"the {ATTENTION} attention is plainly causal; use another implementation for this model"
        )
    return attention_mask
