"""The replay itself: one iteration after the other, or many at once when they are alike."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pagedkv.errors import BadValue, NeverFits, require_count
from pagedkv.replay.clock import ITERATIONS, Clock
from pagedkv.replay.memories import Memory, Placement
from pagedkv.replay.results import Moment, Replay, Stay
from pagedkv.waste import Breakdown
from pagedkv.workloads import Request


def replay(
    requests: Iterable[Request],
    memory: Memory,
    *,
    clock: Clock = ITERATIONS,
    max_running: int | None = None,
    until_queue: int = 0,
    horizon: float = math.inf,
    watch: Callable[[Moment], object] | None = None,
) -> Replay:
    """Run requests through an empty memory. It is empty again afterwards.

    For a saturated run let all requests arrive at 0 and stop with `until_queue`, before the last ones drain out of a
    memory that nobody else wants.

    Args:
        requests: in any order, each with an id of its own. They queue by arrival, then as listed.
        memory: `memories.Reserved` or `memories.Paged`.
        clock: what an iteration takes. Arrivals are in the same unit, and are seen when an iteration starts.
        max_running: the most requests in one iteration; by default only the memory limits them.
        until_queue: stop when all requests have arrived and fewer than this many wait. 0 runs until all are finished.
        horizon: stop before the first iteration that would start at this time or later.
        watch: called with the `Moment` of every iteration.

    Raises:
        BadValue: if two requests share an id, an argument is out of range, or somebody else uses the memory.
    """
    run = _Run(requests, memory, clock, max_running)
    until_queue = require_count("until_queue", until_queue)
    while run.seconds < horizon and run.arrive(until_queue):
        changed = run.preempt() or run.admit()
        count = 1 if changed or watch else run.alike(horizon)
        moment = run.advance(count)
        if watch:
            watch(moment)
        run.leave()
    return run.result()


@dataclass(slots=True)
class _Waiting:
    request: Request
    held: int
    queued: int


@dataclass(slots=True)
class _Resident:
    request: Request
    held: int
    queued: int
    admitted: int
    end: int  # the first iteration that it will be no part of, unless it is preempted before

    def stay(self, left: int, placement: Placement) -> Stay:
        return Stay(self.request, self.queued, self.admitted, left, self.held, placement, left == self.end)


class _Run:
    """The state of a replay. Its methods are the parts of an iteration, in the order in which they happen."""

    def __init__(
        self, requests: Iterable[Request], memory: Memory, clock: Clock, max_running: int | None
    ) -> None:
        self.arrivals = deque(sorted(requests, key=lambda request: request.arrival))
        if len({request.id for request in self.arrivals}) != len(self.arrivals):
            raise BadValue("two requests have the same id; number them apart")
        self.memory = memory
        self.clock = clock
        self.max_running = math.inf if max_running is None else require_count("max_running", max_running, 1)
        self.step = 0
        self.seconds = 0.0
        self.queue: deque[_Waiting] = deque()
        self.running: dict[int, _Resident] = {}
        self.ends: list[tuple[int, int]] = []  # a heap of (end, id); who is preempted leaves an entry behind
        self.tokens = self.final = self.growing = (
            0  # of the residents: tokens now, at their ends, each iteration
        )
        self.prefill = 0  # of this iteration's newcomers
        self.stays: list[Stay] = []
        self.rejected: list[tuple[Request, NeverFits]] = []
        self.parts = [0.0] * 6  # slot-seconds of each part of a breakdown
        self.resident_seconds = self.waiting_seconds = 0.0
        self.peak = self.preemptions = self.recomputed = 0

    def arrive(self, until_queue: int) -> bool:
        """Queue what has arrived. Returns whether there is anything left to do."""
        while self.arrivals and self.arrivals[0].arrival <= self.seconds:
            request = self.arrivals.popleft()
            try:
                self.memory.check(request)
            except NeverFits as reason:
                self.rejected.append((request, reason))
            else:
                self.queue.append(_Waiting(request, request.prompt, self.step))
        if self.arrivals:
            return True
        return len(self.queue) >= until_queue and bool(self.queue or self.running)

    def preempt(self) -> bool:
        """Let residents grow; put those that lost their blocks at the head of the queue, the oldest first."""
        victims = self.memory.grow(self.step)
        for name, placement in victims:
            victim = self.running.pop(name)
            held = victim.held + self.step - victim.admitted
            self.stays.append(victim.stay(self.step, placement))
            self.queue.appendleft(_Waiting(victim.request, held, self.step))
            self.tokens -= held
            self.final -= victim.request.total
            self.growing -= 1
        self.preemptions += len(victims)
        return bool(victims)

    def admit(self) -> bool:
        """Admit from the head of the queue until one does not fit. Returns whether there is a newcomer."""
        before = len(self.running)
        while self.queue and len(self.running) < self.max_running:
            request, held, queued = (head := self.queue[0]).request, head.held, head.queued
            if not self.memory.admit(request, held, self.step):
                if not self.running:
                    raise BadValue("the memory is empty and has no room: somebody else holds a part of it")
                break
            self.queue.popleft()
            end = self.step + max(1, request.total - held)
            self.running[request.id] = _Resident(request, held, queued, self.step, end)
            heapq.heappush(self.ends, (end, request.id))
            self.tokens += held
            self.final += request.total
            self.growing += held < request.total
            self.prefill += held
            self.recomputed += held if held > request.prompt else 0
        return len(self.running) > before

    def alike(self, horizon: float) -> int:
        """Iterations up to the next end, arrival, new block or the horizon, whichever is first."""
        count = self.memory.quiet(self.step)
        end = self._next_end()
        if end is not None:
            count = min(count, end - self.step)
        until = min(horizon, self.arrivals[0].arrival if self.arrivals else math.inf)
        if until < math.inf:
            count = min(count, math.ceil((until - self.seconds) / self.clock.base) + 1)
            count = 1 + bisect_left(range(1, count), until, key=self._seconds_after)
        return count

    def advance(self, count: int) -> Moment:
        """Run `count` iterations and account for them."""
        load = (self.tokens, self.growing, count, self.prefill)
        took = self.clock.seconds(*load)
        tokens = self.clock.token_seconds(*load) / took
        where = self.memory.breakdown(tokens, self.final, self.queue[0].request if self.queue else None)
        self.parts = [total + took * part for total, part in zip(self.parts, where.parts, strict=True)]
        resident, waiting = len(self.running), len(self.queue)
        self.resident_seconds += took * resident
        self.waiting_seconds += took * waiting
        self.peak = max(self.peak, resident)
        self.seconds += took
        self.tokens += self.growing * count
        self.prefill = 0
        moment = Moment(self.step, self.seconds, resident, waiting, where)
        self.step += count
        return moment

    def leave(self) -> None:
        """Release the requests that have all their tokens."""
        while self._next_end() == self.step:
            done = self.running.pop(heapq.heappop(self.ends)[1])
            self.stays.append(done.stay(self.step, self.memory.release(done.request)))
            self.tokens -= done.request.total
            self.final -= done.request.total
            self.growing -= done.held < done.request.total

    def result(self) -> Replay:
        """Release the rest and sum up."""
        finished = len(self.stays) - self.preemptions
        for rest in self.running.values():
            self.stays.append(rest.stay(self.step, self.memory.release(rest.request)))
        seconds = self.seconds or 1.0
        parts = self.parts if self.step else self.memory.breakdown(0, 0, None).parts
        return Replay(
            Breakdown(*(part / seconds for part in parts)),
            self.resident_seconds / seconds,
            self.peak,
            self.waiting_seconds / seconds,
            finished,
            self.preemptions,
            self.recomputed,
            self.step,
            self.seconds,
            tuple(self.stays),
            tuple(self.rejected),
            tuple(waiting.request for waiting in self.queue),
        )

    def _next_end(self) -> int | None:
        """When the next resident will have all its tokens; forgets those that were preempted meanwhile."""
        while self.ends:
            end, name = self.ends[0]
            if name in self.running and self.running[name].end == end:
                return end
            heapq.heappop(self.ends)
        return None

    def _seconds_after(self, count: int) -> float:
        return self.seconds + self.clock.seconds(self.tokens, self.growing, count)
