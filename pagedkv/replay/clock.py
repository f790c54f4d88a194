"""The modelled time of a replay: an affine cost per iteration, and its sums in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pagedkv.errors import BadValue


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds that an iteration takes, as an affine function of what it does.

    Attributes:
        base: for any iteration, an idle one included: reading the weights, launching the kernels.
        per_token: for each token resident before the iteration: reading its keys and values.
        per_prefill_token: for each prompt or recomputed token of a newcomer.

    Raises:
        BadValue: unless base is positive and the others are not negative.
    """

    base: float
    per_token: float = 0.0
    per_prefill_token: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.base < math.inf and self.per_token >= 0 and self.per_prefill_token >= 0):
            raise BadValue(f"a clock needs a positive base and no negative costs, not {self}")

    def seconds(self, tokens: int, growth: int, count: int, prefill: int = 0) -> float:
        """Seconds of `count` iterations that start at `tokens` resident tokens and add `growth` each."""
        resident = count * tokens + growth * (count * (count - 1) // 2)
        return count * (self.base + self.per_prefill_token * prefill) + self.per_token * resident

    def token_seconds(self, tokens: int, growth: int, count: int, prefill: int = 0) -> float:
        """The tokens held at the end of each of those iterations times its seconds, added up."""
        # Iteration i takes a + b i seconds and ends with c + growth i tokens.
        a = self.base + self.per_prefill_token * prefill + self.per_token * tokens
        b, c = self.per_token * growth, tokens + growth
        sum_i = count * (count - 1) // 2
        sum_ii = sum_i * (2 * count - 1) // 3
        return a * c * count + (a * growth + b * c) * sum_i + b * growth * sum_ii


ITERATIONS = Clock(1.0)
"""Counts iterations: each takes 1, and arrivals are iteration numbers."""
