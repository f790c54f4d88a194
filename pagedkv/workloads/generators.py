"""Generated workloads: the stream of figure 1, fitted lengths, and arrival processes."""

from __future__ import annotations

import math
import random
from itertools import accumulate

from pagedkv.errors import BadValue, require_count
from pagedkv.workloads.request import Request, make_requests, require_real

TEACHING_REQUESTS = 24
TEACHING_LIMIT = 560
"""Slots of one contiguous reservation in figure 1: no request of the teaching stream is longer."""


def teaching_stream(seed: int = 7) -> tuple[Request, ...]:
    """The 24 requests of figure 1: chat-like totals up to 560 tokens, a few iterations apart.

    Every request starts empty (prompt 0) and grows by one token an iteration until it holds `total` tokens, so that the
    eye can follow it; `arrival` is the iteration at which it joins the queue. 21 totals are lognormal with median 190,
    three lie between 520 and 560: a reservation of 560 slots is needed by some, and mostly wasted by the rest.
    """
    rng = random.Random(require_count("seed", seed))
    totals = [round(rng.lognormvariate(math.log(190), 0.45)) for _ in range(TEACHING_REQUESTS - 3)]
    totals = [min(TEACHING_LIMIT, max(48, total)) for total in totals]
    totals += [rng.randint(520, TEACHING_LIMIT) for _ in range(3)]
    rng.shuffle(totals)
    gaps = [1 + round(rng.expovariate(1 / 5)) for _ in totals[1:]]
    return make_requests([(0, total) for total in totals], [float(t) for t in accumulate(gaps, initial=0)])


def uniform(
    n: int, rng: random.Random, *, prompt: tuple[int, int], output: tuple[int, int]
) -> list[tuple[int, int]]:
    """`n` (prompt, output) pairs, each uniform between its (lowest, highest), both included.

    Raises:
        BadValue: for a negative or fractional bound, or a highest below its lowest.
    """
    for name, (low, high) in (("prompt", prompt), ("output", output)):
        require_count(f"highest {name}", high, require_count(f"lowest {name}", low))
    return [(rng.randint(*prompt), rng.randint(*output)) for _ in range(require_count("n", n))]


def lognormal(
    n: int,
    rng: random.Random,
    *,
    prompt_mean: float,
    output_mean: float,
    prompt_cv: float,
    output_cv: float,
    prompt_cap: int = 1024,
    total_cap: int = 2048,
) -> list[tuple[int, int]]:
    """`n` (prompt, output) pairs, lognormal, capped, and scaled so that the *capped* sample has the given means.

    Capping lowers a mean, and a published mean was taken after the cap. So the draws are multiplied by the one factor
    that brings the mean after rounding and capping to its target. The spread left after the cap is below the given CV.

    Args:
        n: pairs to draw.
        rng: where the draws come from.
        prompt_mean: tokens, after the cap.
        output_mean: tokens, after the cap.
        prompt_cv: standard deviation / mean of the uncapped lognormal.
        output_cv: likewise.
        prompt_cap: longest prompt, tokens.
        total_cap: longest prompt + output, tokens; above `prompt_cap`, so that at least one token is generated.

    Raises:
        BadValue: when a mean cannot be reached under its cap.
    """
    require_count("total_cap", total_cap, require_count("prompt_cap", prompt_cap, 1) + 1)
    draws = [(_spread(rng, prompt_cv), _spread(rng, output_cv)) for _ in range(require_count("n", n))]
    prompts = _scaled("prompt_mean", [p for p, _ in draws], [prompt_cap] * n, prompt_mean)
    outputs = _scaled("output_mean", [o for _, o in draws], [total_cap - p for p in prompts], output_mean)
    return list(zip(prompts, outputs, strict=True))


def _spread(rng: random.Random, cv: float) -> float:
    """One draw from a lognormal of the given CV; its mean is left to `_scaled`."""
    return rng.lognormvariate(0.0, math.sqrt(math.log1p(require_real("cv", cv) ** 2)))


def _scaled(name: str, draws: list[float], caps: list[int], target: float) -> list[int]:
    """Whole lengths proportional to `draws`, at least 1 and at most their cap, with mean `target`."""
    factor = _factor(name, draws, caps, require_real(name, target))
    lengths = []
    left = 0.0  # what rounding took or gave goes into the next length, so that the sum stays right
    for draw, cap in zip(draws, caps, strict=True):
        exact = min(cap, max(1.0, factor * draw)) + left
        length = min(cap, max(1, round(exact)))
        left = exact - length
        lengths.append(length)
    return lengths


def _factor(name: str, draws: list[float], caps: list[int], target: float) -> float:
    """The factor under which the draws, kept between 1 and their caps, have the mean `target`.

    Their sum as a function of the factor is a chain of straight lines: each draw joins the slope where it passes 1 and
    leaves it at its cap. So the factor is found by walking the turns, not by trying.
    """
    turns = sorted(
        [(1 / draw, draw) for draw in draws]
        + [(cap / draw, -draw) for draw, cap in zip(draws, caps, strict=True)]
    )
    at, total, slope = 0.0, float(len(draws)), 0.0
    goal = target * len(draws)
    for turn, change in turns:
        reached = total + slope * (turn - at)
        if total <= goal <= reached:
            return at + (goal - total) / slope if slope > 0 else turn
        at, total, slope = turn, reached, slope + change
    if draws:
        raise BadValue(f"{name} {target} is out of reach: lengths lie between 1 and a cap of {max(caps)}")
    return 1.0


def sharegpt_like(n: int, seed: int, *, rate: float | None = None) -> tuple[Request, ...]:
    """Lengths like the ShareGPT workload of the PagedAttention paper: means 161.31 in and 337.99 out, at most 2,048.

    The means are the paper's (Kwon et al. 2023, Fig. 11); it gives no spread. Prompt CV 1.0 is assumed, and output CV
    0.87 was fitted to the Orca (Max) row of its Fig. 2, so that the other rows are predictions.

    Args:
        n: requests.
        seed: of lengths and arrivals; the lengths do not depend on the rate.
        rate: requests per second (Poisson), or None for a saturated queue: all arrive at 0.
    """
    return _chat(n, seed, rate, prompt_mean=161.31, output_mean=337.99, output_cv=0.87)


def alpaca_like(n: int, seed: int, *, rate: float | None = None) -> tuple[Request, ...]:
    """Lengths like the paper's Alpaca workload: means 19.31 in and 58.45 out. Arguments as for `sharegpt_like`.

    Prompt CV 1.0 is assumed; output CV 1.2 was fitted to the paper's Fig. 15 at two samples.
    """
    return _chat(n, seed, rate, prompt_mean=19.31, output_mean=58.45, output_cv=1.2)


def _chat(
    n: int, seed: int, rate: float | None, *, prompt_mean: float, output_mean: float, output_cv: float
) -> tuple[Request, ...]:
    rng = random.Random(require_count("seed", seed))
    lengths = lognormal(
        n, rng, prompt_mean=prompt_mean, output_mean=output_mean, prompt_cv=1.0, output_cv=output_cv
    )
    return make_requests(lengths, None if rate is None else poisson(n, rng, rate=rate))


def poisson(n: int, rng: random.Random, *, rate: float) -> list[float]:
    """`n` arrivals (seconds) of a Poisson process of `rate` requests per second, the first at 0.

    Raises:
        BadValue: for a rate that is not a positive number.
    """
    if require_real("rate", rate) == 0:
        raise BadValue("rate must be above 0 requests per second")
    return renewal(n, rng, mean_gap=1 / rate, cv=1.0)


def renewal(n: int, rng: random.Random, *, mean_gap: float, cv: float) -> list[float]:
    """`n` arrivals (seconds), the first at 0, with independent gamma gaps of a given mean and CV.

    The gamma's shape is 1 / cv^2: a CV of 0 is a metronome, 1 a Poisson process, and above 1 come bursts and silences.
    A trace has more than a mean and a CV, and this keeps neither the order of its gaps (busy minutes stand next to busy
    minutes, loads drift) nor the shape of a burst. At the CV of 13 of the Azure code trace four gaps in five come out
    as zero: a burst arrives at once, and the busiest second sees two or three times as many requests as the real one.
    The span of n requests varies by cv / sqrt(n), 14 % for that trace.
    """
    require_count("n", n)
    require_real("mean_gap", mean_gap)
    if require_real("cv", cv) == 0 or mean_gap == 0:
        return [i * mean_gap for i in range(n)]
    gaps = (rng.gammavariate(1 / cv**2, mean_gap * cv**2) for _ in range(n - 1))
    return list(accumulate(gaps, initial=0.0))[:n]
