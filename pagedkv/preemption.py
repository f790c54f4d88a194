"""What evicting a sequence costs: recompute against swap, where the two costs cross, and the choice between them.

A preempted sequence gives all its blocks back. To run on, its KV values must come back:

* **recompute** prefills prompt and generated tokens again. Each token costs 2 FLOPs per parameter, and attention adds a
  term that grows with the square of the length;
* **swap** copies the blocks to host memory and later back: twice the bytes over the host link, a transfer overhead for
  each block, and a fixed set-up.

Both are nearly linear, so slopes and set-up decide. If swap's slope is the steeper one, recompute always wins and there
is no crossover. If it is not, they cross only because of the set-up: without one, swap wins from the first token on.
Kwon et al. 2023 compare the two in section 7.3 and find swap hurt by small blocks, which is the per-block term.

All times are seconds, lengths are tokens, bandwidths bytes per second in one direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pagedkv.blocks import blocks_needed
from pagedkv.errors import BadValue, require_count
from pagedkv.geometry import ModelGeometry
from pagedkv.hardware import H100_SXM, Accelerator

EFFICIENCY = 0.4
"""Share of the dense bf16 peak that a prefill reaches: the setting of this course, not a measurement."""

SWAP_SETUP = 0.020
"""Seconds of fixed set-up per swap, both ways together: the setting of this course. Engines that pin their host pool
once at start have next to none of it; what they do have is an overhead per block."""


class Mode(StrEnum):
    """What becomes of a victim's KV values."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


Choice = Callable[[int], Mode]
"""Chooses a mode for a victim that holds so many tokens."""


def always_recompute(tokens: int) -> Mode:
    """What vLLM's second engine does."""
    return Mode.RECOMPUTE


def always_swap(tokens: int) -> Mode:
    """Swap as long as the host pool has room; a scheduler recomputes when it has not."""
    return Mode.SWAP


@dataclass(frozen=True, slots=True)
class RecomputeCost:
    """Seconds to prefill a sequence again: `per_token` n + `per_pair` n (n + 1) / 2 for n tokens.

    Attributes:
        per_token: seconds per token of all matrix products with weights.
        per_pair: seconds per pair of a query token and a key token it attends to; 0 leaves attention out.
    """

    per_token: float
    per_pair: float = 0.0

    def __post_init__(self) -> None:
        """Refuse costs that are not finite and at least 0."""
        _require_seconds(per_token=self.per_token, per_pair=self.per_pair)

    @classmethod
    def linear(
        cls, model: ModelGeometry, accelerator: Accelerator = H100_SXM, efficiency: float = EFFICIENCY
    ) -> RecomputeCost:
        """2 FLOPs per parameter and token at `efficiency` of the accelerator's dense bf16 peak; attention left out."""
        return cls(model.linear_flops(1) / _rate(accelerator, efficiency))

    @classmethod
    def with_attention(
        cls, model: ModelGeometry, accelerator: Accelerator = H100_SXM, efficiency: float = EFFICIENCY
    ) -> RecomputeCost:
        """As `linear`, with causal attention at the same rate: 4 FLOPs per pair, query head, head dim and layer."""
        rate = _rate(accelerator, efficiency)
        return cls(model.linear_flops(1) / rate, model.attention_flops(1) / rate)

    def seconds(self, tokens: int) -> float:
        """Seconds for a sequence of `tokens`. Raises BadValue unless they are whole and not negative."""
        if type(tokens) is not int or tokens < 0:
            tokens = require_count("tokens", tokens)
        return self.per_token * tokens + self.per_pair * (tokens * (tokens + 1) // 2)


@dataclass(frozen=True, slots=True)
class SwapCost:
    """Seconds to copy a sequence out and back in: `fixed` + `per_token` n + `per_block` ceil(n / block_size).

    All three count both directions together; half of each is spent on the way out.

    Attributes:
        fixed: seconds of set-up per swap.
        per_token: seconds of pure transfer per token.
        per_block: seconds of overhead per block, on top of its bytes.
        block_size: tokens per block.
    """

    fixed: float
    per_token: float
    per_block: float = 0.0
    block_size: int = 16

    def __post_init__(self) -> None:
        """Refuse costs that are not finite and at least 0."""
        _require_seconds(fixed=self.fixed, per_token=self.per_token, per_block=self.per_block)
        require_count("block_size", self.block_size, 1)

    @classmethod
    def over_link(
        cls,
        model: ModelGeometry,
        bandwidth: float,
        *,
        fixed: float = SWAP_SETUP,
        per_block: float = 0.0,
        block_size: int = 16,
    ) -> SwapCost:
        """Twice the KV bytes over a link of `bandwidth` bytes per second in each direction."""
        if not bandwidth > 0:
            raise BadValue(f"bandwidth must be above 0 bytes per second, not {bandwidth!r}")
        return cls(fixed, 2 * model.kv_bytes_per_token / bandwidth, per_block, block_size)

    @property
    def slope(self) -> float:
        """Seconds per token with the block overhead spread over the tokens of a full block."""
        return self.per_token + self.per_block / self.block_size

    def seconds(self, tokens: int) -> float:
        """Seconds for a sequence of `tokens`, out and back in."""
        blocks = blocks_needed(require_count("tokens", tokens), self.block_size)
        return self.fixed + self.per_token * tokens + self.per_block * blocks


def crossover(recompute: RecomputeCost, swap: SwapCost) -> float | None:
    """Length in tokens from which on swap is the cheaper one, in closed form; None when recompute always is.

    With a the recompute cost per token, c the cost per pair, b the slope of swap and f its set-up, it is the positive
    root of c n (n + 1) / 2 + (a - b) n = f; without attention f / (a - b), which exists only for a > b. The per-block
    overhead counts as if every block were full, so the answer is exact at multiples of the block size.

    >>> from pagedkv.geometry import LLAMA_3_1_8B as model
    >>> recompute = RecomputeCost.linear(model)
    >>> round(crossover(recompute, SwapCost.over_link(model, 25e9)), 1)
    664.2
    >>> crossover(recompute, SwapCost.over_link(model, 6e9)) is None
    True
    """
    half = recompute.per_pair / 2
    gain = recompute.per_token + half - swap.slope
    if not half:
        return swap.fixed / gain if gain > 0 else None
    # The positive root of half n^2 + gain n = fixed, in the form that subtracts no two near numbers.
    root = math.sqrt(gain * gain + 4 * half * swap.fixed)
    return 2 * swap.fixed / (gain + root) if gain > 0 else (root - gain) / (2 * half)


def break_even_bandwidth(model: ModelGeometry, recompute: RecomputeCost) -> float:
    """Bytes per second of the host link at which both slopes are equal, attention and block overhead left out.

    On a slower link recompute is the cheaper one at every length.

    >>> from pagedkv.geometry import LLAMA_3_1_8B as model
    >>> round(break_even_bandwidth(model, RecomputeCost.linear(model)) / 1e9, 2)
    6.46
    """
    return 2 * model.kv_bytes_per_token / recompute.per_token if recompute.per_token else math.inf


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a victim of one length, and what either way would cost."""

    tokens: int
    mode: Mode
    recompute_seconds: float
    swap_seconds: float


@dataclass(frozen=True, slots=True)
class Cheaper:
    """A `Choice`: whichever costs less at the victim's length, recompute when both cost the same."""

    recompute: RecomputeCost
    swap: SwapCost

    def decide(self, tokens: int) -> Decision:
        """The choice for a sequence of `tokens`, with both costs."""
        recompute, swap = self.recompute.seconds(tokens), self.swap.seconds(tokens)
        return Decision(tokens, Mode.SWAP if swap < recompute else Mode.RECOMPUTE, recompute, swap)

    def __call__(self, tokens: int) -> Mode:
        """The mode alone, as a scheduler asks for it."""
        return self.decide(tokens).mode


def _rate(accelerator: Accelerator, efficiency: float) -> float:
    if not 0 < efficiency <= 1:
        raise BadValue(f"efficiency must be above 0 and at most 1, not {efficiency!r}")
    return accelerator.bf16_flops * efficiency


def _require_seconds(**costs: float) -> None:
    for name, value in costs.items():
        if not 0 <= value < math.inf:
            raise BadValue(f"{name} must be finite and at least 0 seconds, not {value!r}")
