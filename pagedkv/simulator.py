"""Runs a scheduler over a workload on a modelled clock, iteration by iteration or from event to event.

`step_by_step` is the definition: it schedules every iteration, on real block tables. `fast_forward` is the speed: where
`Scheduler.quiet` says that nothing but growth can happen, it takes all those iterations at once, on
`CountedResidency`. Both make the same report, events and times included, bit for bit. That holds because the
scheduler is the same, and because time is never summed up iteration by iteration: it is computed from whole numbers
(iterations, tokens read, sequences run), which come out the same either way.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan

from pagedkv.blocks import BlockPool
from pagedkv.clock import AffineClock, Timeline, growing
from pagedkv.errors import BadValue, NeverFits, require_count
from pagedkv.fast_forward import CountedResidency
from pagedkv.metrics import LatencyHistogram, Report, Sample
from pagedkv.preemption import Choice, always_recompute
from pagedkv.residency import Residency, TableResidency
from pagedkv.scheduler import Scheduler
from pagedkv.sequences import Plan
from pagedkv.sequences import Sequence as Finished
from pagedkv.watermarks import OFF, Watermarks
from pagedkv.workloads.request import Request


@dataclass(frozen=True, slots=True)
class Setting:
    """All that a run depends on besides its requests.

    Attributes:
        num_blocks, block_size: of the device pool.
        clock: how long an iteration takes.
        watermarks, choose, max_running, max_prefill_tokens: as `Scheduler` takes them.
        host_blocks: blocks of the host pool.
        concurrency: None to let requests come at their arrival times; else that many are in the system at any time, and
            the next one comes when one leaves (a closed loop; arrival times are not used then).
        samples: most samples of the pool to keep.
    """

    num_blocks: int
    clock: AffineClock
    block_size: int = 16
    watermarks: Watermarks = OFF
    choose: Choice = always_recompute
    host_blocks: int = 0
    max_running: int | None = None
    max_prefill_tokens: int | None = None
    concurrency: int | None = None
    samples: int = 512

    def __post_init__(self) -> None:
        """Refuse counts below their minimum."""
        for name in ("num_blocks", "block_size", "concurrency", "samples"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name), 2 if name == "samples" else 1)
        require_count("host_blocks", self.host_blocks)


Observe = Callable[[Scheduler, Plan, float], object]
"""Called in every iteration, with its plan and its end in seconds, before those that finish in it leave."""

Progress = Callable[[int], object]
"""Called with a number of requests that have just left."""


def step_by_step(
    requests: Sequence[Request],
    setting: Setting,
    *,
    observe: Observe | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run all requests, one iteration after the other, on block tables.

    Raises:
        BadValue: for requests that are not in order of arrival, or share an id.
    """
    host = BlockPool(setting.host_blocks, setting.block_size) if setting.host_blocks else None
    residency = TableResidency(BlockPool(setting.num_blocks, setting.block_size), host)
    run = _Run(requests, setting, residency, progress)
    scheduler, time = run.scheduler, run.time
    while (run.next_arrival > time.now and scheduler.live) or run.feed():
        plan = run.iterate()
        if observe:
            observe(scheduler, plan, time.now)
        run.leave(scheduler.retire())
    return run.report()


def fast_forward(
    requests: Sequence[Request], setting: Setting, *, progress: Progress | None = None
) -> Report:
    """As `step_by_step`, from event to event. Raises as it does."""
    residency = CountedResidency(setting.num_blocks, setting.block_size, setting.host_blocks)
    run = _Run(requests, setting, residency, progress)
    scheduler, time = run.scheduler, run.time
    while (run.next_arrival > time.now and scheduler.live) or run.feed():
        iterations, blocks = scheduler.quiet()
        if iterations and (iterations := residency.longest(iterations, blocks)):
            run.leap(iterations, residency)
        else:
            run.iterate()
        if finished := scheduler.retire():
            run.leave(finished)
    return run.report()


class _Run:
    """One run: a scheduler, the time, and what is recorded.

    Attributes:
        scheduler, time: as they stand.
        next_arrival: when the next request can come; infinite when none can.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        setting: Setting,
        residency: Residency,
        progress: Progress | None,
    ) -> None:
        if setting.concurrency is None and any(b.arrival < a.arrival for a, b in pairwise(requests)):
            raise BadValue("requests must be in order of arrival; sort them by it first")
        self.scheduler = Scheduler(
            residency,
            setting.watermarks,
            setting.choose,
            max_running=setting.max_running,
            max_prefill_tokens=setting.max_prefill_tokens,
        )
        self.time = Timeline(setting.clock)
        self._requests = requests
        self._setting = setting
        self._residency = residency
        self._progress = progress
        self._live: dict[int, int] = {}  # positions in `requests`, by id
        self._came = 0  # requests that have come so far
        self._paused: dict[int, float] = {}  # when a preempted request got its last token, by id
        self._arrivals, self._first_tokens, self._finishes = (
            array("d", [nan]) * len(requests) for _ in range(3)
        )
        self._preemptions, self._recomputed_tokens = (array("q", [0]) * len(requests) for _ in range(2))
        self._rejected: dict[int, NeverFits] = {}
        self._gaps = LatencyHistogram()
        self._samples: list[Sample] = []
        self._stride = self._next_sample = 1
        self._least_free = residency.num_blocks
        self._swapped = 0
        self._expect()

    def feed(self) -> bool:
        """Add the requests that have come by now. When nobody is there, wait for one; False when none is left."""
        time, scheduler = self.time, self.scheduler
        while self.next_arrival <= time.now or not self._live:
            position = self._came
            if position == len(self._requests):
                return bool(self._live)
            if self.next_arrival > time.now:
                time.restart(self.next_arrival)
            request = self._requests[position]
            sequence = scheduler.add(request)
            self._arrivals[position] = self.next_arrival
            self._came += 1
            if sequence.reason:
                self._rejected[position] = sequence.reason
            else:
                self._live[request.id] = position
            self._expect()
        return True

    def iterate(self) -> Plan:
        """Schedule one iteration and run it."""
        scheduler, residency, time = self.scheduler, self._residency, self.time
        plan = scheduler.schedule()
        before, free = time.now, residency.num_free
        tokens, sequences = residency.num_tokens, len(scheduler.running)
        entries = time.clock.entry_seconds(plan)
        now = time.advance(1, tokens, sequences, entries)
        if plan.decodes:
            self._gaps.add(time.clock.decode_seconds(tokens, sequences) + entries, plan.decodes)
        for sequence, _ in plan.prefills:
            if sequence.preemptions:
                self._gaps.add(now - self._paused.pop(sequence.request.id))
            elif sequence.request.output:
                self._first_tokens[self._live[sequence.request.id]] = now
        for sequence in plan.recomputing:
            self._paused[sequence.request.id] = before
        for sequence, blocks, _ in plan.swapped_out:
            self._paused[sequence.request.id] = before
            self._swapped += blocks
        for sequence, blocks, _ in plan.swapped_in:
            self._gaps.add(now - self._paused.pop(sequence.request.id))
            self._swapped += blocks
        if free < self._least_free:
            self._least_free = free
        if plan.iteration == self._next_sample:
            self._sample(now, free, tokens)
        return plan

    def leap(self, count: int, residency: CountedResidency) -> None:
        """Run `count` quiet iterations at once, or as many of them as begin before the next request comes."""
        scheduler, time = self.scheduler, self.time
        tokens, sequences = residency.num_tokens, len(scheduler.running)
        total = growing(tokens, sequences, count)
        if time.after(count, total, sequences * count) >= self.next_arrival:
            count = time.iterations_until(self.next_arrival, count, tokens, sequences)
            total = growing(tokens, sequences, count)
        self._count_gaps(tokens, sequences, 1, count)
        while self._next_sample <= scheduler.iteration + count:
            step = self._next_sample - scheduler.iteration
            seconds = time.after(step, growing(tokens, sequences, step), sequences * step)
            self._sample(seconds, residency.num_free - residency.wanted(step), tokens + sequences * step)
        scheduler.skip(count)
        time.advance(count, total, sequences * count)
        if residency.num_free < self._least_free:
            self._least_free = residency.num_free

    def leave(self, finished: list[Finished]) -> None:
        """Record those that have all their tokens."""
        for sequence in finished:
            position = self._live.pop(sequence.request.id)
            self._finishes[position] = self.time.now
            if sequence.preemptions:
                self._preemptions[position] = sequence.preemptions
                self._recomputed_tokens[position] = sequence.recomputed_tokens
        if finished:
            self._expect()
            if self._progress:
                self._progress(len(finished))

    def report(self) -> Report:
        """What came out."""
        scheduler = self.scheduler
        return Report(
            requests=self._requests,
            arrivals=self._arrivals,
            first_tokens=self._first_tokens,
            finishes=self._finishes,
            preemptions=self._preemptions,
            recomputed_tokens=self._recomputed_tokens,
            rejected=self._rejected,
            events=scheduler.events,
            samples=self._samples,
            inter_token_latency=self._gaps,
            iterations=scheduler.iteration,
            seconds=self.time.now,
            num_preemptions_total=scheduler.num_preemptions_total,
            prefill_tokens=scheduler.prefill_tokens,
            swapped_blocks=self._swapped,
            gate_flips=scheduler.gate.flips,
            peak_blocks=self._setting.num_blocks - self._least_free,
        )

    def _expect(self) -> None:
        """Set when the next request can come."""
        if self._came == len(self._requests):
            self.next_arrival = inf
        elif self._setting.concurrency is None:
            self.next_arrival = self._requests[self._came].arrival
        else:
            self.next_arrival = self.time.now if len(self._live) < self._setting.concurrency else inf

    def _count_gaps(self, tokens: int, sequences: int, first: int, last: int) -> None:
        """Count the gaps of quiet iterations, from the `first` to the `last` after one with so many tokens."""
        gaps, clock = self._gaps, self.time.clock
        index = gaps.bin(clock.decode_seconds(tokens + sequences * first, sequences))
        if first == last or index == gaps.bin(clock.decode_seconds(tokens + sequences * last, sequences)):
            gaps.counts[index] += sequences * (last - first + 1)
        else:
            middle = (first + last) // 2
            self._count_gaps(tokens, sequences, first, middle)
            self._count_gaps(tokens, sequences, middle + 1, last)

    def _sample(self, seconds: float, free: int, tokens: int) -> None:
        """Keep a sample of the iteration whose turn it is, and of every other one only when there are too many."""
        blocks = self._residency.num_blocks
        usage, slots = (blocks - free) / blocks, tokens / (blocks * self._residency.block_size)
        running, waiting = len(self.scheduler.running), len(self.scheduler.queue)
        self._samples.append(Sample(self._next_sample, seconds, free, usage, slots, running, waiting))
        if len(self._samples) > self._setting.samples:
            self._stride *= 2
            self._samples = [sample for sample in self._samples if not sample.iteration % self._stride]
        self._next_sample += self._stride - self._next_sample % self._stride
