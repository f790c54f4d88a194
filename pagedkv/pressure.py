"""Experiments on a pool under pressure: the knee, watermark policies, a published curve, and shedding at the gateway.

Every experiment runs workloads through `pagedkv.simulator.fast_forward`, one run per setting and seed, and returns one
`Outcome` per run: rows for a table or a plot, with nothing averaged away. A workload is anything that makes requests
from a seed:

>>> workload = replace(OUTPUT_HEAVY, rate=5.0, count=200)
>>> rows = knee(workload, pools=[2000, 1000], seeds=[0, 1])
>>> [(row.num_blocks, row.seed, row.preemptions_per_request > 0.5) for row in rows]
[(2000, 0, False), (2000, 1, False), (1000, 0, True), (1000, 1, True)]
>>> rate = spread(rows, "preemptions_per_request")["none", 1000]
>>> rate.lowest <= rate.mean <= rate.highest
True
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from pagedkv.clock import AffineClock
from pagedkv.errors import BadValue, require_count
from pagedkv.geometry import LLAMA_3_1_8B, QWEN_2_5_7B
from pagedkv.hardware import H100_SXM
from pagedkv.metrics import Report
from pagedkv.preemption import RecomputeCost
from pagedkv.simulator import Setting, fast_forward
from pagedkv.watermarks import OFF, POLICIES, Watermarks
from pagedkv.workloads import Request, make_requests, poisson, uniform

Workload = Callable[[int], Sequence[Request]]
"""Makes requests, in order of arrival, from a seed."""

SERVER = AffineClock.from_roofline(LLAMA_3_1_8B, H100_SXM)
"""The clock of the knee: Llama 3.1 8B on an H100, modelled; a block of 16 tokens is 2 MiB there."""

MOST_FIRST_TOKEN = 2.0
MOST_PER_TOKEN = 0.020
"""What counts as good: the first token within so many seconds, and so many at most from token to token, on average over
a request. A setting of this course; unpressed, the traffic below takes about 6 ms per token."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """A workload with Poisson arrivals and lengths drawn evenly between two ends.

    The lengths of a seed do not depend on the rate, and arrivals only scale with it: the same requests, faster.

    Attributes:
        prompt, output: (shortest, longest), in tokens.
        rate: requests per second.
        count: requests.
    """

    prompt: tuple[int, int]
    output: tuple[int, int]
    rate: float
    count: int = 1000

    def __call__(self, seed: int) -> tuple[Request, ...]:
        """The requests of a seed."""
        chance = random.Random(require_count("seed", seed))
        lengths = uniform(self.count, chance, prompt=self.prompt, output=self.output)
        return make_requests(lengths, poisson(self.count, chance, rate=self.rate))


OUTPUT_HEAVY = Traffic(prompt=(100, 300), output=(500, 1500), rate=5.0)
BALANCED = Traffic(prompt=(800, 1200), output=(500, 1500), rate=3.0)
PROMPT_HEAVY = Traffic(prompt=(1500, 2500), output=(50, 150), rate=6.0)
"""Outputs five times as long as prompts, as long, and a twentieth: what a pool under pressure does depends on that."""


def windows(requests: Sequence[Request], count: int, speed: float = 1.0) -> Workload:
    """A trace as a workload: each seed takes `count` requests in a row from another place of it.

    Args:
        requests: of the trace, in order of arrival.
        count: requests in a window.
        speed: how many times as fast they arrive.

    Raises:
        BadValue: for more requests than the trace has, or a speed that is not above 0.
    """
    if not 0 < require_count("count", count, 1) <= len(requests) or not speed > 0:
        raise BadValue(f"no {count} of {len(requests)} requests at speed {speed!r}; both must be above 0")

    def window(seed: int) -> tuple[Request, ...]:
        first = random.Random(require_count("seed", seed)).randrange(len(requests) - count + 1)
        part = requests[first : first + count]
        return tuple(
            Request(number, (request.arrival - part[0].arrival) / speed, request.prompt, request.output)
            for number, request in enumerate(part)
        )

    return window


def shed(requests: Sequence[Request], keep: float, seed: int = 0) -> tuple[Request, ...]:
    """What a gateway lets through that turns requests away by chance and keeps this share of them.

    Raises:
        BadValue: unless 0 < keep <= 1.
    """
    if not 0 < keep <= 1:
        raise BadValue(f"the share to keep must be above 0 and at most 1, not {keep!r}")
    chance = random.Random(require_count("seed", seed))
    return tuple(request for request in requests if chance.random() < keep)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run in numbers; times are seconds.

    Attributes:
        policy, num_blocks, seed: what was run: a name that the experiment gives, the pool, and the workload.
        requests: that got all their tokens.
        num_preemptions_total: evictions.
        preemptions_per_request: those, per request that got all its tokens.
        preemptions_max: evictions of the request that had most.
        recompute_multiple: tokens prefilled over tokens of prompts; 1 without recomputation.
        tokens_per_second: output tokens over the time until the last request left.
        goodput: requests per second that kept `MOST_FIRST_TOKEN` and `MOST_PER_TOKEN`.
        first_token_p50, first_token_p99: from arrival to the first token.
        gap_p99: from token to token, over all tokens.
        completion_p50, completion_p99: from arrival to the last token.
        gate_flips: how often the watermark gate opened or closed.
        seconds: of the run.
    """

    policy: str
    num_blocks: int
    seed: int
    requests: int
    num_preemptions_total: int
    preemptions_per_request: float
    preemptions_max: int
    recompute_multiple: float
    tokens_per_second: float
    goodput: float
    first_token_p50: float
    first_token_p99: float
    gap_p99: float
    completion_p50: float
    completion_p99: float
    gate_flips: int
    seconds: float

    @classmethod
    def of(cls, report: Report, policy: str, num_blocks: int, seed: int) -> Outcome:
        """The row that a run makes."""
        return cls(
            policy=policy,
            num_blocks=num_blocks,
            seed=seed,
            requests=report.request_success_total,
            num_preemptions_total=report.num_preemptions_total,
            preemptions_per_request=report.preemptions_per_request,
            preemptions_max=max(report.preemptions, default=0),
            recompute_multiple=report.recompute_multiple,
            tokens_per_second=report.tokens_per_second,
            goodput=report.goodput(MOST_FIRST_TOKEN, MOST_PER_TOKEN),
            first_token_p50=report.time_to_first_token(50),
            first_token_p99=report.time_to_first_token(99),
            gap_p99=report.inter_token_latency.percentile(99),
            completion_p50=report.completion(50),
            completion_p99=report.completion(99),
            gate_flips=report.gate_flips,
            seconds=report.seconds,
        )


def knee(
    workload: Workload,
    pools: Iterable[int],
    clock: AffineClock = SERVER,
    seeds: Iterable[int] = (0,),
    marks: Mapping[str, Watermarks] | None = None,
) -> tuple[Outcome, ...]:
    """The same arrivals against pools of different sizes, in blocks of 16 tokens.

    Below the knee the queue grows as long as the requests keep coming, so latencies there are those of a run of this
    length, and a longer run has longer ones. The preemptions per request do not depend on it.

    Args:
        workload: one is made for each seed.
        pools: sizes, in the order of the rows.
        clock: of all runs.
        seeds: of the workloads.
        marks: policies by name; no marks at all by default.
    """
    seeds, policies_by_name = tuple(seeds), {"none": OFF} if marks is None else marks
    arrivals = {seed: workload(seed) for seed in seeds}
    return tuple(
        _run(arrivals[seed], Setting(blocks, clock, watermarks=watermarks), name, seed)
        for name, watermarks in policies_by_name.items()
        for blocks in pools
        for seed in seeds
    )


def policies(
    workload: Workload,
    setting: Setting,
    seeds: Iterable[int],
    marks: Mapping[str, Watermarks] = POLICIES,
) -> tuple[Outcome, ...]:
    """The same arrivals in one setting under different watermarks, by default those of `POLICIES`."""
    arrivals = {seed: workload(seed) for seed in seeds}
    return tuple(
        _run(requests, replace(setting, watermarks=watermarks), name, seed)
        for name, watermarks in marks.items()
        for seed, requests in arrivals.items()
    )


def gateway(
    workload: Workload, setting: Setting, keeps: Iterable[float], seeds: Iterable[int]
) -> tuple[Outcome, ...]:
    """The same arrivals with some of them turned away before the scheduler sees them; rows by the share kept."""
    arrivals = {seed: workload(seed) for seed in seeds}
    return tuple(
        _run(shed(requests, keep, seed), setting, f"{keep:.0%}", seed)
        for keep in keeps
        for seed, requests in arrivals.items()
    )


class Published(NamedTuple):
    """One row of a published curve; latencies in seconds, None where there was no number."""

    preemptions: int
    tokens_per_second: float
    gap_p99: float
    first_token_p50: float | None


PUBLISHED_CURVE: Mapping[str, Published] = {
    "off": Published(1065, 11_582, 0.04062, 6.56),
    "0.02": Published(400, 12_134, 0.01880, None),
    "0.05": Published(187, 12_167, 0.01770, 11.20),
    "0.10": Published(168, 11_835, 0.01757, None),
}
"""vllm PR #44594 (2026): Qwen2.5-7B, 299,584 KV tokens, about 1,000 tokens in and 5,000 out, 128 at a time."""

PUBLISHED_MARKS: Mapping[str, Watermarks] = {
    name: OFF if name == "off" else Watermarks(float(name), float(name)) for name in PUBLISHED_CURVE
}
"""The same rows as one mark on admission, which is what that pull request adds."""

PUBLISHED_SETTING = Setting(
    num_blocks=299_584 // 16,
    clock=AffineClock(
        base=0.004,
        per_resident_token=QWEN_2_5_7B.kv_bytes_per_token / 6e12,
        prefill=RecomputeCost(QWEN_2_5_7B.linear_flops(1) / 1e15),
    ),
    max_prefill_tokens=8192,
    concurrency=128,
)
"""Pool, model and concurrency are the published ones. The rest was not published and is chosen here: 4 ms an iteration,
6 TB/s, 1 PFLOP/s in prefill, at most 8,192 prompt tokens in an iteration. So shapes can be compared, absolute values
cannot."""


def published_traffic(seed: int, count: int = 600) -> tuple[Request, ...]:
    """About 1,000 tokens in and 5,000 out: within half of that either way, evenly. A closed loop sets the arrivals."""
    chance = random.Random(require_count("seed", seed))
    return make_requests(uniform(count, chance, prompt=(500, 1500), output=(2500, 7500)))


def watermark_curve(seeds: Iterable[int]) -> tuple[Outcome, ...]:
    """The published curve, simulated: `PUBLISHED_MARKS` in `PUBLISHED_SETTING`, a run of 600 requests per seed."""
    return policies(published_traffic, PUBLISHED_SETTING, seeds, PUBLISHED_MARKS)


class Spread(NamedTuple):
    """One column over the seeds."""

    mean: float
    lowest: float
    highest: float


def spread(rows: Iterable[Outcome], column: str) -> dict[tuple[str, int], Spread]:
    """One column of `Outcome` over the seeds, by policy and pool size, in the order of the rows.

    Raises:
        BadValue: for a column that rows do not have.
    """
    if column not in Outcome.__dataclass_fields__ or column == "policy":
        raise BadValue(f"an outcome has no numbers called {column!r}; see pressure.Outcome for those it has")
    groups: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        groups.setdefault((row.policy, row.num_blocks), []).append(getattr(row, column))
    return {key: Spread(fmean(values), min(values), max(values)) for key, values in groups.items()}


def _run(requests: Sequence[Request], setting: Setting, name: str, seed: int) -> Outcome:
    return Outcome.of(fast_forward(requests, setting), name, setting.num_blocks, seed)
