"""Fig. 2 of the PagedAttention paper (Kwon et al. 2023) reproduced: how much of the KV cache holds token states.

The published numbers of Fig. 2, 13a and 15 stand here too, for whoever compares with them.

OPT-13B on an A100 with 40 GB leaves 12 GB for the cache: 15,700 slots of 800 KiB. Three contiguous baselines reserve
for each request over a buddy allocator; the fourth system takes blocks of 16. The memory is saturated: requests wait
at all times, which is where the four differ, and the averages stop before the last requests drain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

from pagedkv.blocks import BlockPool
from pagedkv.contiguous import Buddy, Max, Oracle, PowerOfTwo
from pagedkv.errors import BadValue
from pagedkv.geometry import OPT_13B
from pagedkv.hardware import A100_40GB
from pagedkv.replay import ITERATIONS, Clock, Memory, Paged, Replay, Reserved, replay
from pagedkv.workloads import Request

SLOTS = 15_700
"""Slots of the KV cache (section 6.1, Table 1)."""

LIMIT = 2048
"""Longest sequence of the model, and the reservation of Orca (Max)."""

BLOCK_SIZE = 16
SPARE = SLOTS // BLOCK_SIZE // 100
"""Blocks that an admission leaves free: 1 % of them, vLLM's `watermark` at the time."""

SYSTEMS: Mapping[str, Callable[[], Memory]] = {
    "Orca (Max)": lambda: Reserved(Buddy(SLOTS), Max(LIMIT)),
    "Orca (Pow2)": lambda: Reserved(Buddy(SLOTS), PowerOfTwo(LIMIT)),
    "Orca (Oracle)": lambda: Reserved(Buddy(SLOTS), Oracle(LIMIT)),
    "paged": lambda: Paged(BlockPool(SLOTS // BLOCK_SIZE, BLOCK_SIZE), SPARE),
}
"""For each system of the figure, a function that makes its memory, empty. All else is the same for all of them."""

CLOCK = Clock(
    base=0.038,
    per_token=OPT_13B.kv_bytes_per_token / A100_40GB.bandwidth,
    per_prefill_token=OPT_13B.linear_flops(1) / (0.5 * A100_40GB.bf16_flops),
)
"""Seconds, for runs with a rate of arrivals: resident KV is read at the data sheet's bandwidth, prompts are computed at
half the data sheet's peak. The base is fitted: with 38 ms the paged system saturates at about 2 requests a second, the
rate at which the paper counted batched requests. Saturated runs count iterations instead; the shares come out alike."""


class Shares(NamedTuple):
    """Percent of the KV-cache memory; None where the paper gives no number."""

    token_states: float
    reserved: float | None
    internal: float | None
    external_and_others: float | None


PUBLISHED: Mapping[str, Shares] = {
    "Orca (Max)": Shares(20.4, 13.3, 57.3, 8.9),
    "Orca (Pow2)": Shares(26.8, 17.9, 13.6, 41.6),
    "Orca (Oracle)": Shares(38.2, 25.2, 0.0, 36.6),
    "paged": Shares(96.3, None, None, None),
}
"""Fig. 2."""

PUBLISHED_BATCHED: Mapping[str, float] = {
    "Orca (Max)": 7.00,
    "Orca (Pow2)": 9.81,
    "Orca (Oracle)": 13.62,
    "paged": 30.42,
}
"""Fig. 13a: mean number of batched requests at 2 requests a second, ShareGPT lengths."""

PUBLISHED_SAMPLING: Mapping[int, float] = {2: 6.09, 4: 8.53, 6: 9.79}
"""Fig. 15: percent of blocks saved by sharing on Alpaca, by the number of parallel samples."""

PUBLISHED_BEAM: Mapping[int, float] = {2: 37.56, 4: 53.13, 6: 55.16}
"""Fig. 15: percent of blocks saved by sharing on Alpaca, by beam width."""

PUBLISHED_SHAREGPT: Mapping[str, tuple[float, float]] = {"sampling": (16.2, 30.5), "beam": (44.3, 66.3)}
"""Section 6.3: the ranges over the same widths on ShareGPT, percent."""


@dataclass(frozen=True, slots=True)
class Row:
    """One system of the figure, reproduced.

    Attributes:
        system: its name in `SYSTEMS`.
        shares: percent of the memory, averaged over time and then over workloads.
        lowest, highest: token states of the workloads that had the least and the most, percent.
        batched: mean number of resident requests.
    """

    system: str
    shares: Shares
    lowest: float
    highest: float
    batched: float

    @property
    def deviations(self) -> tuple[float, ...]:
        """Reproduced minus published, in points, for each share that the paper gives."""
        published = PUBLISHED[self.system]
        pairs = zip(self.shares, published, strict=True)
        return tuple(ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None)


def figure_2(workloads: Sequence[Sequence[Request]], until_queue: int = 300) -> tuple[Row, ...]:
    """Run each workload through each system, saturated.

    Args:
        workloads: requests that all arrive at 0, as `[workloads.sharegpt_like(6000, seed) for seed in range(1, 5)]`.
            Four such take some seconds.
        until_queue: a run ends when fewer requests than this wait.

    Raises:
        BadValue: without workloads.
    """
    if not workloads:
        raise BadValue("no workload to reproduce the figure with; pass at least one")
    return tuple(
        _row(system, [replay(w, make(), clock=ITERATIONS, until_queue=until_queue) for w in workloads])
        for system, make in SYSTEMS.items()
    )


def _row(system: str, runs: list[Replay]) -> Row:
    terms = [run.breakdown.percent().paper_terms() for run in runs]
    tokens = [term.token_states for term in terms]
    shares = Shares(
        mean(tokens),
        mean(term.reserved for term in terms),
        mean(term.internal for term in terms),
        mean(term.external + term.free for term in terms),
    )
    return Row(system, shares, min(tokens), max(tokens), mean(run.mean_resident for run in runs))
