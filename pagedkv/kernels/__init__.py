"""Attention over a cache. One place decides which implementation runs; callers import from here."""

from __future__ import annotations

from pagedkv.kernels.reference import paged_attention, ragged_attention

__all__ = ["paged_attention", "ragged_attention"]
