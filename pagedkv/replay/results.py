"""What a replay returns: averages over time, every stay in the memory, and the moments of a watched one."""

from __future__ import annotations

from dataclasses import dataclass

from pagedkv.errors import NeverFits
from pagedkv.replay.memories import Placement
from pagedkv.waste import Breakdown
from pagedkv.workloads import Request


@dataclass(frozen=True, slots=True)
class Moment:
    """One iteration of a watched replay, after its tokens and before anybody leaves.

    Attributes:
        step: its number, from 0.
        seconds: when it ended.
        resident: requests in the memory.
        waiting: requests in the queue.
        breakdown: where the slots were.
    """

    step: int
    seconds: float
    resident: int
    waiting: int
    breakdown: Breakdown


@dataclass(frozen=True, slots=True)
class Stay:
    """One request in the memory: from admission until it is finished, preempted, or the replay ends.

    Attributes:
        request: who.
        queued: iteration at whose start it joined the queue.
        admitted: its first iteration, at whose end it holds `held + 1` tokens, and one more after each further one.
        left: the first iteration that it is no part of.
        held: tokens prefilled at admission: the prompt, and what it had generated before a preemption.
        placement: its span, or its blocks in logical order.
        finished: whether it got all its tokens.
    """

    request: Request
    queued: int
    admitted: int
    left: int
    held: int
    placement: Placement
    finished: bool

    def block_steps(self, block_size: int) -> list[int]:
        """Of a paged stay: the iteration in which each block of `placement` was taken."""
        first = -(-self.held // block_size)
        later = range(first, len(self.placement))
        return [self.admitted] * first + [self.admitted + block * block_size - self.held for block in later]


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay measured.

    Attributes:
        breakdown: where the slots were, averaged over time.
        mean_resident: requests in the memory, averaged over time.
        peak_resident: the most in one iteration.
        mean_waiting: requests in the queue, averaged over time.
        finished: requests that got all their tokens.
        preemptions: how often a request lost its blocks.
        recomputed: tokens that had to be prefilled again for that.
        iterations: how many there were, idle ones included.
        seconds: what the clock said at the end.
        stays: in the order in which they ended.
        rejected: requests that this memory can never hold, each with the reason; they were not queued.
        unserved: requests in the queue at the end, first to last.
    """

    breakdown: Breakdown
    mean_resident: float
    peak_resident: int
    mean_waiting: float
    finished: int
    preemptions: int
    recomputed: int
    iterations: int
    seconds: float
    stays: tuple[Stay, ...]
    rejected: tuple[tuple[Request, NeverFits], ...]
    unserved: tuple[Request, ...]
