"""Figure 5, recompute or swap: what evicting a sequence costs either way, by the tokens that it holds.

The settings have too many combinations to compute them all here. Python hands over what each model and the accelerator
put into the formulas of `pagedkv.preemption`, and the script evaluates those; it is the same arithmetic, and everything
that the figure says is also computed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from pagedkv.book.figures.base import Figure, look
from pagedkv.errors import BadValue, require_count
from pagedkv.geometry import PRESETS, ModelGeometry
from pagedkv.hardware import H100_SXM, PCIE_4_X16, PCIE_5_X16
from pagedkv.preemption import Cheaper, Decision, RecomputeCost, SwapCost, crossover
from pagedkv.workloads.request import require_real

LIMITS = {
    "gigabytes_per_second": (2.0, 64.0, 0.5),
    "setup_ms": (0.0, 40.0, 1.0),
    "efficiency_percent": (20.0, 80.0, 1.0),
    "per_block_us": (0.0, 100.0, 1.0),
}
"""Least, most and step of every slider; a state between two steps is shown as it is."""
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SPANS = (2_000, 8_000, 32_000, 128_000)
"""Lengths of the axis in tokens."""

STATES = ("tokens", "moving")
"""Recompute in the colour of what runs, swap in that of what moves."""

CAPTION = (
    "Recompute or swap: recompute costs nothing to begin with and much per token, swap costs a set-up and less per "
    "token, so they cross. If the host link is so slow that a swapped token costs more than a recomputed one, there is "
    "no crossover, and recompute always wins."
)
"""Two sentences for the paragraph beside the figure; the page without JavaScript opens with them."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """One setting of the figure, in the units of its sliders.

    Attributes:
        model: a key of `pagedkv.geometry.PRESETS`, on one H100.
        gigabytes_per_second: of the host link, in one direction.
        setup_ms: milliseconds of fixed set-up per swap, both ways together.
        efficiency_percent: of the dense bf16 peak that a prefill reaches.
        block_size: tokens.
        per_block_us: microseconds of transfer overhead per block, both ways together.
        attention: whether recompute counts attention.

    Raises:
        BadValue: for a setting that the figure does not offer.
    """

    model: str = "llama-3.1-8b"
    gigabytes_per_second: float = 25.0
    setup_ms: float = 20.0
    efficiency_percent: float = 40.0
    block_size: int = 16
    per_block_us: float = 0.0
    attention: bool = False

    def __post_init__(self) -> None:
        """Refuse what no slider can be set to."""
        if self.model not in PRESETS:
            raise BadValue(f"model must be one of {', '.join(PRESETS)}, not {self.model!r}")
        if self.block_size not in BLOCK_SIZES:
            raise BadValue(
                f"block_size must be one of {', '.join(map(str, BLOCK_SIZES))}, not {self.block_size!r}"
            )
        for name, (least, most, _) in LIMITS.items():
            if not least <= require_real(name, getattr(self, name)) <= most:
                raise BadValue(f"{name} must be from {least:g} to {most:g}, not {getattr(self, name)!r}")

    @property
    def geometry(self) -> ModelGeometry:
        """The model's."""
        return PRESETS[self.model]

    @property
    def recompute(self) -> RecomputeCost:
        """Of prefilling a sequence again."""
        make = RecomputeCost.with_attention if self.attention else RecomputeCost.linear
        return make(self.geometry, H100_SXM, self.efficiency_percent / 100)

    @property
    def swap(self) -> SwapCost:
        """Of copying a sequence out and back in."""
        return SwapCost.over_link(
            self.geometry,
            self.gigabytes_per_second * 1e9,
            fixed=self.setup_ms / 1e3,
            per_block=self.per_block_us / 1e6,
            block_size=self.block_size,
        )

    @property
    def crossover(self) -> float | None:
        """In tokens; None without one."""
        return crossover(self.recompute, self.swap)

    @property
    def slowest_link(self) -> float | None:
        """Host link in GB/s above which there is a crossover, attention left out; None if no link is fast enough."""
        gain = RecomputeCost.linear(self.geometry, H100_SXM, self.efficiency_percent / 100).per_token
        gain -= self.swap.per_block / self.block_size
        return 2 * self.geometry.kv_bytes_per_token / gain / 1e9 if gain > 0 else None

    def decide(self, tokens: int) -> Decision:
        """What to do with a sequence of `tokens`."""
        return Cheaper(self.recompute, self.swap).decide(tokens)


def evict(
    tokens: int = 1200,
    *,
    model: str = "llama-3.1-8b",
    gigabytes_per_second: float = 25.0,
    setup_ms: float = 20.0,
    efficiency_percent: float = 40.0,
    block_size: int = 16,
    per_block_us: float = 0.0,
    attention: bool = False,
    span: int = 2_000,
) -> Figure:
    """Figure 5: the cost of both ways to evict, where they cross, and what to do with a sequence of some length.

    Args:
        tokens: that the sequence holds for which the figure decides; at most `span`.
        model, gigabytes_per_second, setup_ms, efficiency_percent, block_size, per_block_us, attention: as `Eviction`
            has them.
        span: length of the axis in tokens; 2,000, 8,000, 32,000 or 128,000.

    Raises:
        BadValue: for a setting that the figure does not offer.
    """
    if span not in SPANS:
        raise BadValue(f"span must be one of {', '.join(map(str, SPANS))}, not {span!r}")
    if require_count("tokens", tokens) > span:
        raise BadValue(f"{tokens} tokens are beyond the axis, which ends at {span}")
    eviction = Eviction(
        model, gigabytes_per_second, setup_ms, efficiency_percent, block_size, per_block_us, attention
    )
    return Figure(
        kind="evict",
        title="Recompute or swap: the cost of evicting a sequence and bringing it back, by the tokens that it holds",
        data={
            "models": {
                name: {
                    "name": geometry.name,
                    "linear": geometry.linear_flops(1),
                    "pair": geometry.attention_flops(1),
                    "kv_bytes": geometry.kv_bytes_per_token,
                }
                for name, geometry in PRESETS.items()
            },
            "flops": H100_SXM.bf16_flops,
            "device": H100_SXM.name,
            "limits": LIMITS,
            "block_sizes": BLOCK_SIZES,
            "spans": SPANS,
            "links": {"PCIe 4": PCIE_4_X16.bandwidth / 1e9, "PCIe 5": PCIE_5_X16.bandwidth / 1e9},
            "start": selection(Eviction(), 1200, 2_000),
        },
        state=selection(eviction, tokens, span),
        states=STATES,
        fallback=_fallback(eviction, tokens, span),
    )


def selection(eviction: Eviction, tokens: int, span: int) -> dict[str, Any]:
    """What the figure reports to the kernel, under the names that its `state` has; times in seconds."""
    decision = eviction.decide(tokens)
    return {
        "model": eviction.model,
        "gigabytes_per_second": float(eviction.gigabytes_per_second),
        "setup_ms": float(eviction.setup_ms),
        "efficiency_percent": float(eviction.efficiency_percent),
        "block_size": eviction.block_size,
        "per_block_us": float(eviction.per_block_us),
        "attention": eviction.attention,
        "tokens": tokens,
        "span": span,
        "crossover": eviction.crossover,
        "recompute_seconds": decision.recompute_seconds,
        "swap_seconds": decision.swap_seconds,
        "mode": decision.mode.value,
    }


def read_out(eviction: Eviction, tokens: int) -> str:
    """The decision for one length, as a sentence."""
    decision = eviction.decide(tokens)
    recompute, swap = milliseconds(decision.recompute_seconds, decision.swap_seconds)
    return f"At {tokens:,} tokens: recompute {recompute} ms, swap {swap} ms: {decision.mode.value}."


def verdict(eviction: Eviction) -> str:
    """Where the curves cross, or why they do not, as a sentence."""
    crossing, recompute, swap = eviction.crossover, eviction.recompute, eviction.swap
    if crossing is None:
        link = eviction.slowest_link
        return (
            f"No crossover: swap costs {rounded(1e6 * swap.slope, 1)} µs per token and recompute "
            f"{rounded(1e6 * recompute.per_token, 1)}, so recompute is cheaper at every length. "
            + (
                "No host link is fast enough: the overhead of the blocks alone costs as much."
                if link is None
                else f"It takes a host link of more than {rounded(link, 2)} GB/s."
            )
        )
    if crossing == 0:
        first = "block" if swap.per_block else "token"
        return f"Swap has no set-up to win back: it is cheaper from the first {first} on."
    where = rounded(crossing, 1 if crossing < 10_000 and not swap.per_block else 0)
    if swap.per_block:
        return f"Crossover near {where} tokens, counting full blocks: beyond it swap is cheaper."
    return f"Crossover at {where} tokens: from {math.floor(crossing) + 1:,} on swap is cheaper."


def milliseconds(*seconds: float) -> list[str]:
    """Times in ms, with as many decimals, up to 3, as it takes to tell them apart; at least 1 below 10 ms."""
    for digits in range(0 if min(seconds) >= 0.01 else 1, 4):
        texts = [rounded(1e3 * one, digits) for one in seconds]
        if len(set(texts)) == len(texts):
            break
    return texts


def rounded(value: float, digits: int) -> str:
    """With thousands separators, and exactly half a step up, as the script rounds."""
    return f"{math.floor(value * 10**digits + 0.5) / 10**digits:,.{digits}f}"


def _fallback(eviction: Eviction, tokens: int, span: int) -> str:
    """Both curves, the decision, what other lengths cost, and where other host links cross."""
    model = eviction.geometry.name
    lengths = sorted({span // 16, span // 4, tokens, span // 2, span})
    costs = []
    for length in lengths:
        decision = eviction.decide(length)
        recompute, swap = milliseconds(decision.recompute_seconds, decision.swap_seconds)
        costs.append(
            f'<tr><th scope="row">{length:,}</th><td>{recompute} ms</td><td>{swap} ms</td>'
            f"<td>{decision.mode.value}</td></tr>"
        )
    links = []
    for link in sorted({6.0, 10.0, 25.0, 31.5, 55.0, 63.0, eviction.gigabytes_per_second}):
        crossing = replace(eviction, gigabytes_per_second=link).crossover
        said = "none: recompute is always cheaper" if crossing is None else f"{rounded(crossing, 1)} tokens"
        links.append(f'<tr><th scope="row">{link:g} GB/s</th><td>{said}</td></tr>')
    return (
        f"<p>{CAPTION}</p>{_picture(eviction, span)}"
        f"<p>{model} on one {H100_SXM.name} at {eviction.efficiency_percent:g} % of its peak, a host link of "
        f"{eviction.gigabytes_per_second:g} GB/s, {eviction.setup_ms:g} ms of set-up per swap. "
        f"{verdict(eviction)} {read_out(eviction, tokens)}</p>"
        '<table class="table"><caption>Cost by cached tokens</caption><tr><th scope="col">tokens</th>'
        '<th scope="col">recompute</th><th scope="col">swap</th><th scope="col">cheaper</th></tr>'
        f'{"".join(costs)}</table><table class="table"><caption>Crossover by host link</caption>'
        f'<tr><th scope="col">host link</th><th scope="col">crossover</th></tr>{"".join(links)}</table>'
    )


def _picture(eviction: Eviction, span: int) -> str:
    """Both curves up to the end of the axis."""
    width, height, paint = 600, 170, look(STATES)
    ends = eviction.decide(span)
    top = 1.05 * max(ends.recompute_seconds, ends.swap_seconds)
    curves = (
        ("recompute", "tokens", "none", eviction.recompute.seconds),
        ("swap", "moving", "9 5", eviction.swap.seconds),
    )
    parts = []
    for at, (name, state, dash, seconds) in enumerate(curves):
        lengths = range(0, span + 1, span // 40)
        points = " ".join(f"{n * width / span:.0f},{height - seconds(n) * height / top:.1f}" for n in lengths)
        ink = f'stroke="{paint[state]["color"]}" stroke-width="2.5" stroke-dasharray="{dash}" fill="none"'
        parts.append(
            f'<polyline points="{points}" {ink}/><path d="M8 {14 + 20 * at}h34" {ink}/>'
            f'<text x="50" y="{18 + 20 * at}">{name}</text>'
        )
    crossing = eviction.crossover
    if crossing is not None and 0 < crossing < span:
        x = crossing * width / span
        parts.append(
            f'<path d="M{x:.0f} 0v{height}" stroke="currentColor" stroke-dasharray="3 3"/>'
            f'<text x="{x + 6:.0f}" y="{height - 8}">crossover: {rounded(crossing, 1)} tokens</text>'
        )
    label = f"Cost of recompute and of swap from 0 to {span:,} tokens. {verdict(eviction)}"
    return (
        f'<svg viewBox="-1 -1 602 194" width="100%" role="img" aria-label="{label}" font-size="12" '
        f'fill="currentColor"><path d="M0 0v{height}h{width}" stroke="currentColor" fill="none"/>{"".join(parts)}'
        f'<text y="{height + 16}">0</text><text x="{width}" y="{height + 16}" text-anchor="end">'
        f"{span:,} cached tokens, up to {1e3 * top:,.0f} ms</text></svg>"
    )
