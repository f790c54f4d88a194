"""What a run is judged by: latencies, throughput, preemptions and memory, under the names that engines give them.

A report grows with the number of requests and events, never with tokens: the gaps between tokens go into a histogram,
and usage over time into a bounded number of samples.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import floor, log
from operator import sub
from typing import NamedTuple

from pagedkv.errors import BadValue, NeverFits
from pagedkv.sequences import Event
from pagedkv.workloads.request import Request


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed, interpolated linearly; NaNs do not count.

    NaN when there is none.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50)
    2.5
    """
    ordered = sorted(value for value in values if value == value)
    rank = _share(percent) * (len(ordered) - 1)
    if not ordered:
        return math.nan
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return low + (high - low) * (rank % 1)


@dataclass(slots=True)
class LatencyHistogram:
    """Any number of durations in bins 1 % wide; a percentile is off by half of that at most.

    >>> histogram = LatencyHistogram()
    >>> for milliseconds in range(1, 101):
    ...     histogram.add(milliseconds / 1000)
    >>> round(histogram.percentile(99), 3), histogram.total
    (0.099, 100)

    Attributes:
        counts: durations by bin. Bin i holds those from 1.01 ** i up to 1.01 ** (i + 1) seconds; nanoseconds and less
            share one bin.
    """

    counts: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))

    @staticmethod
    def bin(seconds: float) -> int:
        """The bin of a duration; it does not fall when the duration rises."""
        return floor(log(seconds if seconds > 1e-9 else 1e-9) * _BINS_PER_LOG)

    @property
    def total(self) -> int:
        """Durations counted."""
        return sum(self.counts.values())

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a duration `count` times."""
        self.counts[self.bin(seconds)] += count

    def percentile(self, percent: float) -> float:
        """The middle of the bin of the duration with that rank, in seconds; NaN when nothing was counted."""
        rank = math.ceil(_share(percent) * self.total)
        for index in sorted(self.counts):
            rank -= self.counts[index]
            if rank <= 0:
                return math.exp((index + 0.5) / _BINS_PER_LOG)
        return math.nan


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one request; times in seconds on the clock of the run.

    Attributes:
        request: what was asked for.
        arrival: when it came.
        first_token: when its first token was there; NaN without one.
        finish: when it left with its last token; NaN when it was rejected.
        preemptions: how often it was evicted.
        recomputed_tokens: tokens prefilled again because of that.
        rejected: why it was rejected, or None.
    """

    request: Request
    arrival: float
    first_token: float
    finish: float
    preemptions: int
    recomputed_tokens: int
    rejected: NeverFits | None

    @property
    def time_to_first_token(self) -> float:
        """From arrival to the first token; NaN without one."""
        return self.first_token - self.arrival

    @property
    def completion(self) -> float:
        """From arrival to the last token; NaN when it was rejected."""
        return self.finish - self.arrival

    @property
    def time_per_output_token(self) -> float:
        """Mean gap between its tokens, waits while preempted included; NaN with fewer than two tokens."""
        gaps = self.request.output - 1
        return (self.finish - self.first_token) / gaps if gaps > 0 else math.nan


class Sample(NamedTuple):
    """The pool in one iteration, before those that finish in it leave.

    Attributes:
        iteration: its number.
        seconds: its end.
        free_blocks: of the device pool.
        kv_cache_usage_perc: blocks in use / blocks; as in vLLM 1 means all. A full pool is no error.
        kv_slot_usage_perc: slots that hold a token / slots. Lower than the former by what last blocks leave empty.
        running: sequences in the iteration.
        waiting: sequences in the queue, preempted ones included.
    """

    iteration: int
    seconds: float
    free_blocks: int
    kv_cache_usage_perc: float
    kv_slot_usage_perc: float
    running: int
    waiting: int


@dataclass(slots=True)
class Report:
    """What came out of one run. Columns have one entry per request, in their order; times are seconds.

    Attributes:
        requests: as they were given.
        arrivals, first_tokens, finishes, preemptions, recomputed_tokens: columns of what `Record` describes.
        rejected: the requests that never fit, by position, and why.
        events: the scheduler's log.
        samples: the pool in evenly spaced iterations.
        inter_token_latency: gaps between two tokens of one sequence, all of them, waits while preempted included.
        iterations: iterations run.
        seconds: end of the last one, on the clock of the run.
        num_preemptions_total: evictions, of both modes.
        prefill_tokens: tokens prefilled, for the first time or again.
        swapped_blocks: blocks moved between device and host, either way.
        gate_flips: how often the watermark gate opened or closed.
        peak_blocks: most blocks in use in any iteration.
    """

    requests: Sequence[Request]
    arrivals: array[float]
    first_tokens: array[float]
    finishes: array[float]
    preemptions: array[int]
    recomputed_tokens: array[int]
    rejected: dict[int, NeverFits]
    events: list[Event]
    samples: list[Sample]
    inter_token_latency: LatencyHistogram
    iterations: int
    seconds: float
    num_preemptions_total: int
    prefill_tokens: int
    swapped_blocks: int
    gate_flips: int
    peak_blocks: int

    @property
    def records(self) -> list[Record]:
        """The columns as one record per request."""
        columns = self.arrivals, self.first_tokens, self.finishes, self.preemptions, self.recomputed_tokens
        reasons = (self.rejected.get(position) for position in range(len(self.requests)))
        return [Record(*row) for row in zip(self.requests, *columns, reasons, strict=True)]

    @property
    def request_success_total(self) -> int:
        """Requests that got all their tokens."""
        return len(self.requests) - len(self.rejected)

    @property
    def useful_tokens(self) -> int:
        """Output tokens of those requests, each counted once."""
        return sum(r.output for position, r in enumerate(self.requests) if position not in self.rejected)

    @property
    def preemptions_per_request(self) -> float:
        """`num_preemptions_total` over `request_success_total`; NaN when no request succeeded."""
        return _ratio(self.num_preemptions_total, self.request_success_total)

    @property
    def recompute_multiple(self) -> float:
        """Tokens prefilled over tokens of the prompts: 1 without recomputation; NaN when nothing was prefilled."""
        return _ratio(self.prefill_tokens, self.prefill_tokens - sum(self.recomputed_tokens))

    @property
    def tokens_per_second(self) -> float:
        """Useful tokens per second of the run."""
        return _ratio(self.useful_tokens, self.seconds)

    def time_to_first_token(self, percent: float) -> float:
        """That percentile over the requests that got a token, in seconds."""
        return percentile(map(sub, self.first_tokens, self.arrivals), percent)

    def completion(self, percent: float) -> float:
        """That percentile of the time from arrival to the last token, over successful requests, in seconds."""
        return percentile(map(sub, self.finishes, self.arrivals), percent)

    def goodput(self, time_to_first_token: float, time_per_output_token: float) -> float:
        """Successful requests per second that kept both limits, in seconds; the second is on a request's mean gap.

        What a request has not, as one without output has no first token, is within every limit.
        """
        good = sum(
            record.rejected is None
            and not record.time_to_first_token > time_to_first_token
            and not record.time_per_output_token > time_per_output_token
            for record in self.records
        )
        return _ratio(good, self.seconds)

    def summary(self) -> dict[str, float]:
        """The run in numbers, under the names of vLLM's metrics where it has one, in seconds, tokens and shares."""
        usage = [sample.kv_cache_usage_perc for sample in self.samples]
        slots = [sample.kv_slot_usage_perc for sample in self.samples]
        gaps = self.inter_token_latency
        return {
            "requests": len(self.requests),
            "request_success_total": self.request_success_total,
            "requests_rejected": len(self.rejected),
            "iterations": self.iterations,
            "seconds": self.seconds,
            "num_preemptions_total": self.num_preemptions_total,
            "preemptions_per_request": self.preemptions_per_request,
            "preemptions_max": max(self.preemptions, default=0),
            "useful_tokens": self.useful_tokens,
            "prompt_tokens": self.prefill_tokens - sum(self.recomputed_tokens),
            "recomputed_tokens": sum(self.recomputed_tokens),
            "swapped_blocks": self.swapped_blocks,
            "tokens_per_second": self.tokens_per_second,
            "kv_cache_usage_perc_mean": sum(usage) / len(usage) if usage else math.nan,
            "kv_cache_usage_perc_max": max(usage, default=math.nan),
            "kv_slot_usage_perc_mean": sum(slots) / len(slots) if slots else math.nan,
            "gate_flips": self.gate_flips,
            **{f"time_to_first_token_seconds_p{p}": self.time_to_first_token(p) for p in (50, 90, 99)},
            **{f"inter_token_latency_seconds_p{p}": gaps.percentile(p) for p in (50, 90, 99)},
            **{f"e2e_request_latency_seconds_p{p}": self.completion(p) for p in (50, 90, 99)},
        }


_BINS_PER_LOG = 1 / math.log(1.01)


def _share(percent: float) -> float:
    if not 0 <= percent <= 100:
        raise BadValue(f"percent must be from 0 to 100, not {percent!r}")
    return percent / 100


def _ratio(count: float, by: float) -> float:
    return count / by if by else math.nan
