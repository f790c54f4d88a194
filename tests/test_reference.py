from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from pagedkv.kernels import paged_attention, ragged_attention
from pagedkv.kernels.reference import attention_float64

torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other

# Of the result's own rounding: what lies between is computed in float32.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-4, torch.bfloat16: 4e-3}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padded(parts: list[Tensor], filler: float) -> Tensor:
    out = torch.full((len(parts), max(map(len, parts), default=0), *parts[0].shape[1:]), filler).to(
        parts[0].dtype
    )
    for row, part in zip(out, parts, strict=True):
        row[: len(part)] = part
    return out


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (8, 2), (6, 1)])
@pytest.mark.parametrize(("new", "length"), [(1, 1), (1, 9), (5, 5), (3, 11)])
def test_the_oracle_agrees_with_torch(heads: int, kv_heads: int, new: int, length: int) -> None:
    q, k, v = (
        normal(new, heads, 8, seed=1),
        normal(length, kv_heads, 8, seed=2),
        normal(length, kv_heads, 8, seed=3),
    )
    seen = torch.ones(new, length, dtype=torch.bool).tril(length - new)
    expected = functional.scaled_dot_product_attention(
        *(part.transpose(0, 1)[None] for part in (q, k, v)), attn_mask=seen, enable_gqa=True
    )[0].transpose(0, 1)
    torch.testing.assert_close(attention_float64(q, k, v), expected, atol=1e-12, rtol=0)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 24)), min_size=1, max_size=5),
    kv_heads=st.sampled_from([1, 2, 3]),
    group=st.sampled_from([1, 2, 4]),
    head_dim=st.sampled_from([1, 2, 8, 32]),
    dtype=st.sampled_from(list(TOLERANCE)),
    block_size=st.sampled_from([1, 3, 16]),
    seed=st.integers(0, 10_000),
)
def test_a_ragged_batch_equals_the_oracle_sequence_by_sequence(
    batch: list[tuple[int, int]],
    kv_heads: int,
    group: int,
    head_dim: int,
    dtype: torch.dtype,
    block_size: int,
    seed: int,
) -> None:
    counts = [count for count, _ in batch]
    lengths = [count + before for count, before in batch]
    q = normal(sum(counts), kv_heads * group, head_dim, seed=seed).to(dtype)
    keys = [normal(n, kv_heads, head_dim, seed=seed + 1).to(dtype) for n in lengths]
    values = [normal(n, kv_heads, head_dim, seed=seed + 2).to(dtype) for n in lengths]
    expected = [
        attention_float64(part, k, v) for part, k, v in zip(torch.split(q, counts), keys, values, strict=True)
    ]
    # What no sequence holds is poison: it may reach no result.
    dense = ragged_attention(q, padded(keys, torch.nan), padded(values, torch.nan), counts, lengths)
    tables, blocks = scattered([keys, values], block_size, seed)
    paged = paged_attention(q, blocks[0], blocks[1], tables, counts, lengths)
    assert dense.dtype == paged.dtype == dtype and dense.shape == q.shape
    torch.testing.assert_close(
        dense.double(), torch.cat(expected), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]
    )
    assert torch.equal(dense, paged)  # one order of operations, so one result to the last bit


def scattered(parts: list[list[Tensor]], block_size: int, seed: int) -> tuple[Tensor, list[Tensor]]:
    """Blocks in random physical order, poison in every other slot, and tables padded with someone else's block."""
    needed = [-(-len(part) // block_size) for part in parts[0]]
    order = torch.randperm(sum(needed) + 2, generator=torch.Generator().manual_seed(seed)).tolist()
    tables = torch.full((len(needed), max(needed)), order[-1], dtype=torch.int32)
    shape = (len(order), block_size, *parts[0][0].shape[1:])
    blocks = [torch.full(shape, torch.nan, dtype=parts[0][0].dtype) for _ in parts]
    for row, count in enumerate(needed):
        mine = [order.pop(0) for _ in range(count)]
        tables[row, :count] = torch.tensor(mine, dtype=torch.int32)
        for pool, sequences in zip(blocks, parts, strict=True):
            for position, token in enumerate(sequences[row]):
                pool[mine[position // block_size], position % block_size] = token
    return tables, blocks


def test_a_prompt_in_chunks_equals_the_prompt_at_once() -> None:
    q, k, v = normal(12, 4, 8).float(), normal(12, 2, 8, seed=1).float(), normal(12, 2, 8, seed=2).float()
    whole = ragged_attention(q, k[None], v[None], [12], [12])
    for sizes in ([1] * 12, [5, 7], [4, 4, 4], [11, 1]):
        done, parts = 0, []
        for size in sizes:
            done += size
            parts.append(
                ragged_attention(q[done - size : done], k[None, :done], v[None, :done], [size], [done])
            )
        torch.testing.assert_close(torch.cat(parts), whole, atol=1e-6, rtol=0)


def test_nothing_to_attend_is_nothing() -> None:
    empty = torch.empty(0, 4, 8)
    assert ragged_attention(empty, torch.empty(0, 0, 2, 8), torch.empty(0, 0, 2, 8), [], []).shape == (
        0,
        4,
        8,
    )
    blocks = torch.empty(3, 16, 2, 8)
    assert paged_attention(
        empty, blocks, blocks, torch.empty(2, 0, dtype=torch.int32), [0, 0], [0, 0]
    ).shape == (0, 4, 8)


def test_large_scores_do_not_overflow() -> None:
    q, k, v = ((300 * normal(4, 1, 16, seed=seed)).half() for seed in (1, 2, 3))
    out = ragged_attention(q, k[None], v[None], [4], [4])
    assert out.isfinite().all()
    torch.testing.assert_close(out.double(), attention_float64(q, k, v), atol=0.2, rtol=2e-3)
