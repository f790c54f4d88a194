"""Attention in plain torch: a float64 oracle that is easy to trust, and the batched form that every device runs.

Shapes throughout: q is [new tokens, query_heads, head_dim]; k and v are [length, kv_heads, head_dim]; query head h
reads KV head h // (query_heads / kv_heads) (grouped-query attention). The new tokens of a sequence are its last
ones, so new token i of n in a sequence of `length` tokens sees the first length - n + i + 1 of them: one rule for a
whole prompt, a chunk of it, and a single decode token. Scores are scaled by 1 / sqrt(head_dim).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def attention_float64(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The oracle: one sequence, one query and one head at a time, in float64.

    Returns:
        [new tokens, query_heads, head_dim] in float64.
    """
    q, k, v = q.double(), k.double(), v.double()
    new, query_heads, head_dim = q.shape
    length, kv_heads, _ = k.shape
    out = torch.empty_like(q)
    for i in range(new):
        seen = length - new + i + 1
        for head in range(query_heads):
            kv_head = head * kv_heads // query_heads
            scores = k[:seen, kv_head] @ q[i, head] / head_dim**0.5
            weights = (scores - scores.max()).exp()
            out[i, head] = weights @ v[:seen, kv_head] / weights.sum()
    return out


def paged_attention(
    q: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    tables: Tensor,
    counts: Sequence[int],
    lengths: Sequence[int],
) -> Tensor:
    """Attention of a ragged batch through block tables: gather what the tables point at, then attend.

    Args:
        q: [sum(counts), query_heads, head_dim], sequence after sequence.
        key_blocks, value_blocks: [blocks, block_size, kv_heads, head_dim], one layer of a paged cache.
        tables: [sequences, blocks of the longest] int32 physical block ids; what lies beyond a sequence's own
            blocks may be any block of the pool.
        counts: new tokens of each sequence.
        lengths: tokens of each sequence, the new ones included.

    Returns:
        As `q`, same dtype.
    """
    longest = max(lengths, default=0)
    shape = (len(tables), tables.shape[1] * key_blocks.shape[1], *key_blocks.shape[2:])
    keys, values = (
        blocks.index_select(0, tables.flatten()).reshape(shape)[:, :longest]
        for blocks in (key_blocks, value_blocks)
    )
    return ragged_attention(q, keys, values, counts, lengths)


def ragged_attention(
    q: Tensor, keys: Tensor, values: Tensor, counts: Sequence[int], lengths: Sequence[int]
) -> Tensor:
    """Attention of a ragged batch over padded keys and values.

    Decode tokens (a count of 1) run as one padded batch; longer chunks run one sequence at a time, because padding them
    to each other would cost the square of the longest.

    Args:
        q: [sum(counts), query_heads, head_dim], sequence after sequence.
        keys, values: [sequences, longest, kv_heads, head_dim]; whatever the padding holds, NaN included, is not read
            into any result.
        counts, lengths: as in `paged_attention`.

    Returns:
        As `q`, same dtype; computed in float32 at least.
    """
    out = torch.empty_like(q)
    decode: list[int] = []
    decode_rows: list[int] = []
    row = 0
    for index, count in enumerate(counts):
        if count == 1:
            decode.append(index)
            decode_rows.append(row)
        elif count:
            length = lengths[index]
            chunk = slice(row, row + count)
            k, v = keys[index : index + 1, :length], values[index : index + 1, :length]
            out[chunk] = _padded(q[chunk][None], k, v, [length])[0]
        row += count
    if decode:
        rows = torch.tensor(decode_rows, device=q.device)
        longest = max(lengths[index] for index in decode)
        picked = torch.tensor(decode, device=q.device)
        k, v = (part[:, :longest].index_select(0, picked) for part in (keys, values))
        out[rows] = _padded(q[rows][:, None], k, v, [lengths[index] for index in decode])[:, 0]
    return out


def _padded(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int]) -> Tensor:
    """Attention [sequences, new, query_heads, head_dim], where all sequences have as many new tokens.

    k and v are copied to one memory layout first, so that equal values give equal bits, however they were gathered.
    """
    precise = torch.promote_types(q.dtype, torch.float32)
    new, longest = q.shape[1], k.shape[1]
    grouped = q.to(precise).reshape(*q.shape[:2], k.shape[2], -1, q.shape[3])
    ends = torch.tensor(lengths, device=q.device)
    key_positions = torch.arange(longest, device=q.device)
    query_positions = ends[:, None] - new + torch.arange(new, device=q.device)
    unseen = key_positions > query_positions[..., None]
    padding = (key_positions >= ends[:, None])[..., None, None]
    # Masking the weights is not enough: 0 * NaN is NaN, so padded values themselves become 0.
    k = k.to(precise).contiguous()
    v = v.to(precise).masked_fill(padding, 0.0).contiguous()
    scores = torch.einsum("snkgd,slkd->skgnl", grouped, k) * k.shape[-1] ** -0.5
    weights = scores.masked_fill(unseen[:, None, None], float("-inf")).softmax(-1)
    return torch.einsum("skgnl,slkd->snkgd", weights, v).flatten(2, 3).to(q.dtype)
