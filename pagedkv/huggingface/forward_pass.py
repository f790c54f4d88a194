"""One forward pass of a batch: how much each row grows, and where the new tokens go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pagedkv.cache import CachedSequence, Extension, PagedKVCache
from pagedkv.errors import BadValue, PagedKVError


@dataclass(frozen=True, slots=True, eq=False)
class ForwardPass:
    """A forward pass that has reached some layers.

    Attributes:
        extension: the rows of the batch, and where their real tokens go.
        tokens: new ones of each row, padding included.
        real: [real tokens] int64 places in the flattened [rows, tokens]; None if nothing is padding.
        tables: block tables of the rows after it, as `PagedKVCache.block_tables` gives them.
        written: layers that have stored theirs.
    """

    extension: Extension
    tokens: int
    real: Tensor | None
    tables: Tensor
    written: set[int] = field(default_factory=set)


def begin(
    kv: PagedKVCache,
    rows: Sequence[CachedSequence],
    length: int,
    batch: int,
    tokens: int,
    mask: Tensor | None,
) -> ForwardPass:
    """Make room for new tokens in every row, all or nothing.

    Args:
        kv: the cache that the rows are in.
        rows: the batch so far; none if it starts now.
        length: tokens of each row so far, padding included.
        batch: rows of the new tokens.
        tokens: new ones of each row, padding included.
        mask: [batch, length + tokens], 0 for left padding, which is not stored; None if there is no padding.

    Raises:
        OutOfBlocks: if the pool cannot take all of them.
        BadValue: if the new tokens or the mask do not fit the batch so far.
    """
    if rows and len(rows) != batch:
        raise BadValue(
            f"the cache holds {len(rows)} rows and was given {batch}; "
            f"batch_repeat_interleave forks each of them, reset forgets them"
        )
    padding = left_padding(mask, batch, length + tokens)
    for index, row in enumerate(rows):
        if kv.length(row) != max(0, length - padding[index]):
            raise BadValue(
                f"row {index} holds {kv.length(row)} of {length} tokens, which does not fit a padding of "
                f"{padding[index]}; keep the attention mask and the attention implementation, or reset"
            )
    counts = [min(tokens, length + tokens - padded) for padded in padding]
    new = [kv.new_sequence() for _ in range(0 if rows else batch)]
    try:
        extension = kv.extend(dict(zip(rows or new, counts, strict=True)))
    except PagedKVError:
        for row in new:
            kv.free(row)
        raise
    real = None
    if any(padding) and min(counts) < tokens:
        ends = range(tokens, batch * tokens + 1, tokens)
        places = [place for end, count in zip(ends, counts, strict=True) for place in range(end - count, end)]
        real = torch.tensor(places, dtype=torch.int64, device=kv.device)
    return ForwardPass(extension, tokens, real, kv.block_tables(extension.sequences))


def left_padding(mask: Tensor | None, batch: int, length: int) -> list[int]:
    """Padded tokens of each row, from a mask [batch, length] that is 0 for them.

    Raises:
        BadValue: for a mask of another shape, or one that hides anything but the first tokens of a row.
    """
    if mask is None:
        return [0] * batch
    if tuple(mask.shape) != (batch, length):
        raise BadValue(
            f"attention through block tables takes a mask of [rows, tokens] = {[batch, length]}, "
            f"not {list(mask.shape)}; use another attention implementation"
        )
    padding = length - mask.bool().sum(1)
    if not torch.equal(mask.bool(), torch.arange(length, device=mask.device) >= padding[:, None]):
        raise BadValue(
            "attention through block tables takes padding on the left only; pad there, or use another implementation"
        )
    counts: list[int] = padding.tolist()
    return counts
