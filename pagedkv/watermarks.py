"""Watermarks: when a scheduler stops letting sequences in, and when it starts again.

Two marks on the number of free blocks. Below `low` the gate closes; it opens again once at least `high` blocks are
free. The band between them is hysteresis: with one mark, a single freed block opens the gate and a single block of
growth closes it again.

The marks hold for sequences that want to come in, new or preempted. A running sequence is granted any free block, the
last one included. With `shed` the scheduler does more than wait: it preempts the youngest running sequences until the
free blocks are back at `low`.

The pair 4 % / 8 % is this course's choice. vLLM has had one mark at most: 1 % by default in its first engine, off by
default in its second (vllm PR #44594), tested on admission only in both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real

from pagedkv.errors import BadValue, require_count


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The marks as fractions of the pool, whatever its size.

    >>> Watermarks(low=0.04, high=0.08).in_blocks(1000)
    (40, 80)

    Attributes:
        low: below this share of free blocks nothing is admitted any more.
        high: from this share of free blocks on, admission starts again. As low: a single mark, without hysteresis.
        shed: whether falling below low also preempts, the youngest first, as long as more than one sequence runs.

    Raises:
        BadValue: unless 0 <= low <= high < 1.
    """

    low: float
    high: float
    shed: bool = False

    def __post_init__(self) -> None:
        """Refuse marks that no pool can be run by."""
        for name, mark in (("low", self.low), ("high", self.high)):
            if isinstance(mark, bool) or not isinstance(mark, Real) or not 0 <= mark < 1:
                raise BadValue(
                    f"{name} must be a share of the pool from 0 up to but not including 1, not {mark!r}"
                )
        if self.low > self.high:
            raise BadValue(
                f"low {self.low} is above high {self.high}: the gate would open before it closes; swap them"
            )

    def in_blocks(self, num_blocks: int) -> tuple[int, int]:
        """Both marks in blocks of a pool of `num_blocks`, rounded up.

        Rounding up keeps a mark above 0 at one block at least, so that a small pool does not lose its marks without a
        word (vLLM rounds down: its 1 % vanishes below 100 blocks). The price is that in a pool of few blocks both
        marks can fall on the same block, and the hysteresis is gone: 4 % and 8 % do so up to 12 blocks.
        """
        require_count("num_blocks", num_blocks, 1)
        # Through the decimal that was written: 0.07 * 100 is 7.000000000000001 and would round up to 8.
        low, high = (math.ceil(Fraction(str(float(mark))) * num_blocks) for mark in (self.low, self.high))
        return low, high


OFF = Watermarks(0.0, 0.0)
"""No marks: whoever fits comes in, and preemption waits for the last block."""

POLICIES: dict[str, Watermarks] = {
    "none": OFF,
    "one mark": Watermarks(0.04, 0.04),
    "two marks": Watermarks(0.04, 0.08),
    "one mark, shedding": Watermarks(0.04, 0.04, shed=True),
    "two marks, shedding": Watermarks(0.04, 0.08, shed=True),
}
"""What can be done with a mark at 4 %: nothing; vLLM's way; this course's; and both with preemption at the low mark."""


class Gate:
    """The marks at work on one pool: open or closed, and how often that changed.

    >>> gate = Gate(Watermarks(low=0.1, high=0.2), num_blocks=100)
    >>> [(gate.observe(free), gate.open)[1] for free in (30, 10, 9, 15, 19, 20)]
    [True, True, False, False, False, True]
    >>> gate.flips
    2

    Attributes:
        low, high: the marks in blocks.
        shed: whether to preempt below low.
        open: whether sequences may come in. A new gate is open.
        flips: changes of `open` so far.
    """

    __slots__ = ("flips", "high", "low", "open", "shed")

    def __init__(self, watermarks: Watermarks, num_blocks: int) -> None:
        self.low, self.high = watermarks.in_blocks(num_blocks)
        self.shed = watermarks.shed
        self.open = True
        self.flips = 0

    def observe(self, free: int) -> bool:
        """Take note of the free blocks; returns whether the gate opened or closed."""
        if free < self.low if self.open else free >= self.high:
            self.open = not self.open
            self.flips += 1
            return True
        return False

    def admits(self, free_after: int) -> bool:
        """Whether a sequence may come in that would leave `free_after` blocks free."""
        return self.open and free_after >= self.low
