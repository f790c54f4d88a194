"""What a workload looks like in a few numbers, and workloads made from such numbers."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pagedkv.errors import BadValue, require_count
from pagedkv.workloads.generators import renewal
from pagedkv.workloads.request import Request, make_requests, require_real

POINTS = (
    *(0.0, 0.01, 0.025),
    *(step / 20 for step in range(1, 19)),
    *(0.925, 0.95, 0.965, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 1.0),
)
"""Where `quantile_table` samples a distribution: closer at the long end, where the tokens are."""

BANDS = 5
"""Into how many equally full bands of prompt length `quantile_table` sorts the outputs."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One length distribution, in tokens."""

    mean: float
    median: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A workload in a few numbers.

    Attributes:
        requests: how many.
        prompt: prompt lengths.
        output: output lengths.
        span: seconds from the first arrival to the last.
        rate: arrivals per second over the span; infinite when all arrive at once.
        mean_gap: seconds between two arrivals.
        gap_cv: standard deviation / mean of the gaps: 1 for Poisson arrivals; 0 when all arrive at once.
        longest_gap: seconds.
    """

    requests: int
    prompt: Spread
    output: Spread
    span: float
    rate: float
    mean_gap: float
    gap_cv: float
    longest_gap: float


def quantile(ordered: Sequence[float], point: float) -> float:
    """The value below which the share `point` of a sorted sequence lies, interpolated linearly between neighbours.

    >>> quantile([10, 20, 40], 0.5), quantile([10, 20, 40], 0.75)
    (20.0, 30.0)

    Raises:
        BadValue: for an empty sequence, or a point outside 0 to 1.
    """
    if not ordered or not 0.0 <= point <= 1.0:
        raise BadValue(f"the quantile {point!r} of {len(ordered)} values does not exist")
    position = (len(ordered) - 1) * point
    left = int(position)
    right = min(left + 1, len(ordered) - 1)
    return ordered[left] + (position - left) * (ordered[right] - ordered[left])


def _spread(lengths: list[int]) -> Spread:
    ordered = sorted(lengths)
    return Spread(
        sum(ordered) / len(ordered), quantile(ordered, 0.5), quantile(ordered, 0.9), quantile(ordered, 0.99)
    )


def summary(requests: Sequence[Request]) -> Summary:
    """Describe a workload.

    Raises:
        BadValue: when it has no request.
    """
    if not requests:
        raise BadValue("a workload without requests has no summary")
    gaps = [later.arrival - earlier.arrival for earlier, later in pairwise(requests)]
    span = requests[-1].arrival - requests[0].arrival
    mean_gap = span / len(gaps) if gaps else 0.0
    deviation = math.sqrt(math.fsum((gap - mean_gap) ** 2 for gap in gaps) / len(gaps)) if gaps else 0.0
    return Summary(
        requests=len(requests),
        prompt=_spread([request.prompt for request in requests]),
        output=_spread([request.output for request in requests]),
        span=span,
        rate=1 / mean_gap if mean_gap else math.inf,
        mean_gap=mean_gap,
        gap_cv=deviation / mean_gap if mean_gap else 0.0,
        longest_gap=max(gaps, default=0.0),
    )


@dataclass(frozen=True, slots=True)
class QuantileTable:
    """What is kept of a trace: its length distributions at a few points, and how its gaps behave.

    Outputs are kept by band of prompt length, because the two belong together: in the Azure conversation trace the
    longest prompts have the shortest answers. Drawn independently, its lengths would fill 44 % of a 2,048-slot
    reservation; the trace fills 53 %, and so do lengths drawn from five bands.

    Attributes:
        requests: how many the trace had.
        points: shares, rising from 0 to 1.
        prompt: prompt tokens at each point.
        output: for each band, equally many requests with the shortest prompts first, output tokens at each point.
        mean_gap: seconds between two arrivals.
        gap_cv: standard deviation / mean of the gaps.

    Raises:
        BadValue: when the points do not rise from 0 to 1, or the lengths fall or are not as many.
    """

    requests: int
    points: tuple[float, ...]
    prompt: tuple[float, ...]
    output: tuple[tuple[float, ...], ...]
    mean_gap: float
    gap_cv: float

    def __post_init__(self) -> None:
        require_count("requests", self.requests, 1)
        rising = all(earlier < later for earlier, later in pairwise(self.points))
        if not rising or self.points[:1] != (0,) or self.points[-1:] != (1,) or len(self.points) < 2:
            raise BadValue(f"the points of a quantile table rise from 0 to 1; these are {self.points!r}")
        require_count("output bands", len(self.output), 1)
        for lengths in (self.prompt, *self.output):
            values = [require_real("length", length) for length in lengths]
            if len(values) != len(self.points) or values != sorted(values):
                raise BadValue(f"{len(self.points)} lengths that do not fall are needed, not {lengths!r}")
        require_real("mean_gap", self.mean_gap)
        require_real("gap_cv", self.gap_cv)


def quantile_table(requests: Sequence[Request]) -> QuantileTable:
    """The table of a workload: all that `from_quantiles` needs to make another one like it."""
    facts = summary(requests)
    by_prompt = sorted(requests, key=lambda request: request.prompt)
    bands = min(BANDS, len(by_prompt))
    edges = [len(by_prompt) * band // bands for band in range(bands + 1)]
    outputs = [sorted(request.output for request in by_prompt[low:high]) for low, high in pairwise(edges)]
    prompts = [request.prompt for request in by_prompt]
    return QuantileTable(
        requests=len(requests),
        points=POINTS,
        prompt=tuple(quantile(prompts, point) for point in POINTS),
        output=tuple(tuple(quantile(band, point) for point in POINTS) for band in outputs),
        mean_gap=facts.mean_gap,
        gap_cv=facts.gap_cv,
    )


def from_quantiles(table: QuantileTable, n: int, seed: int) -> tuple[Request, ...]:
    """`n` requests whose lengths follow a quantile table, with gamma gaps (see `generators.renewal` for their limits).

    A length is the table, joined by straight lines, read at a uniform random point (inverse-transform sampling); the
    prompt's point says in which band the output is read. Every request is drawn independently, which loses any order.
    The gaps are scaled so that their mean is the table's: with gaps as uneven as the Azure code trace's, the load would
    otherwise be a matter of the seed.
    """
    rng = random.Random(require_count("seed", seed))
    lengths = []
    for _ in range(require_count("n", n)):
        at = rng.random()
        band = table.output[int(at * len(table.output))]
        lengths.append((_read(table.points, table.prompt, at), _read(table.points, band, rng.random())))
    arrivals = renewal(n, rng, mean_gap=table.mean_gap, cv=table.gap_cv)
    span = arrivals[-1] if arrivals else 0.0
    scale = table.mean_gap * (n - 1) / span if span else 1.0
    return make_requests(lengths, [arrival * scale for arrival in arrivals])


def _read(points: Sequence[float], lengths: Sequence[float], at: float) -> int:
    """The whole length nearest to the straight line through the table, at a point below 1."""
    right = bisect_right(points, at)
    left = right - 1
    share = (at - points[left]) / (points[right] - points[left])
    return round(lengths[left] + share * (lengths[right] - lengths[left]))
