"""The modelled clock: how long an iteration takes on an accelerator, and what time it is after many of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import inf

from pagedkv.errors import BadValue
from pagedkv.geometry import ModelGeometry
from pagedkv.hardware import Accelerator
from pagedkv.preemption import EFFICIENCY, RecomputeCost, SwapCost
from pagedkv.sequences import Plan

_NO_TIME = RecomputeCost(0.0)
_NO_SWAP_TIME = SwapCost(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class AffineClock:
    """How long an iteration takes: a constant, and so much for everything it handles. All in seconds.

    >>> from pagedkv.geometry import LLAMA_3_1_8B
    >>> from pagedkv.hardware import H100_SXM
    >>> clock = AffineClock.from_roofline(LLAMA_3_1_8B, H100_SXM)
    >>> round(clock.decode_seconds(tokens=100_000, sequences=50) * 1e3, 2)  # milliseconds
    8.71

    Attributes:
        base: per iteration; reading the weights.
        per_resident_token: per token of KV that the sequences of the iteration hold; reading it.
        per_sequence: per sequence in the iteration.
        prefill: of the sequences let in without KV.
        swap: of the sequences moved; half of it in each direction.

    Raises:
        BadValue: unless `base` is above 0 and everything is finite and not negative.
    """

    base: float
    per_resident_token: float = 0.0
    per_sequence: float = 0.0
    prefill: RecomputeCost = _NO_TIME
    swap: SwapCost = _NO_SWAP_TIME

    def __post_init__(self) -> None:
        """Refuse a clock that could stand still or run backwards."""
        if not (0 < self.base < inf and 0 <= self.per_resident_token < inf and 0 <= self.per_sequence < inf):
            raise BadValue(f"an iteration takes finite time, and more than 0 for its base; not {self}")

    @classmethod
    def from_roofline(
        cls,
        model: ModelGeometry,
        accelerator: Accelerator,
        efficiency: float = EFFICIENCY,
        swap: SwapCost = _NO_SWAP_TIME,
    ) -> AffineClock:
        """A decode reads the weights and all resident KV once, at full bandwidth; a prefill is bound by compute.

        A prefill counts attention, and runs at `efficiency` of the dense bf16 peak. Launches, sampling and
        communication are left out, so a real server is slower.
        """
        return cls(
            base=model.weight_bytes / accelerator.bandwidth,
            per_resident_token=model.kv_bytes_per_token / accelerator.bandwidth,
            prefill=RecomputeCost.with_attention(model, accelerator, efficiency),
            swap=swap,
        )

    def decode_seconds(self, tokens: int, sequences: int) -> float:
        """For one iteration over so many resident tokens and sequences, without prefill and swap."""
        return self.base + self.per_resident_token * tokens + self.per_sequence * sequences

    def entry_seconds(self, plan: Plan) -> float:
        """For what a plan prefills and moves."""
        seconds = 0.0
        for _, tokens in plan.prefills:
            seconds += self.prefill.seconds(tokens)
        for transfers in (plan.swapped_out, plan.swapped_in):
            for _, _, tokens in transfers:
                seconds += self.swap.seconds(tokens) / 2
        return seconds


ITERATIONS = AffineClock(1.0)
"""Counts iterations: every one takes 1."""


class Timeline:
    """The time of a run, computed from whole numbers and not summed up iteration by iteration.

    Iterations, tokens read and sequences run are added up as integers since the last time when nobody was there. So it
    makes no difference, to the last bit, whether they were added one iteration at a time or many.

    Attributes:
        clock: what an iteration costs.
        now: seconds since the start of the run.
    """

    __slots__ = ("_entries", "_epoch", "_iterations", "_sequences", "_tokens", "clock", "now")

    def __init__(self, clock: AffineClock) -> None:
        self.clock = clock
        self.restart(0.0)

    def restart(self, now: float) -> None:
        """Let it be `now`, after a time in which nothing ran."""
        self.now = self._epoch = now
        self._iterations = self._tokens = self._sequences = 0
        self._entries = 0.0  # seconds of prefill and swap

    def advance(self, iterations: int, tokens: int, sequences: int, entries: float = 0.0) -> float:
        """Let iterations pass, with all their tokens and sequences, and seconds of prefill and swap; returns `now`."""
        self._iterations += iterations
        self._tokens += tokens
        self._sequences += sequences
        self._entries += entries
        self.now = self.after(0, 0, 0)
        return self.now

    def after(self, iterations: int, tokens: int, sequences: int) -> float:
        """What time it will be after so many more."""
        clock = self.clock
        return self._epoch + (
            clock.base * (self._iterations + iterations)
            + clock.per_resident_token * (self._tokens + tokens)
            + clock.per_sequence * (self._sequences + sequences)
            + self._entries
        )

    def iterations_until(self, moment: float, most: int, tokens: int, sequences: int) -> int:
        """Iterations of growth, 1 to `most`, after which it is `moment` or later for the first time.

        Args:
            moment: seconds since the start of the run.
            most: where to stop.
            tokens, sequences: resident now. Each sequence grows by one token per iteration.
        """

        def after(count: int) -> float:
            return self.after(count, growing(tokens, sequences, count), sequences * count)

        # The time is a parabola in the count. Solve it, then step to where the rounded times cross the moment.
        wait = moment - self.now
        half = self.clock.per_resident_token * sequences / 2
        linear = self.clock.decode_seconds(tokens, sequences) + half
        count = int(2 * wait / (linear + math.sqrt(linear * linear + 4 * half * wait))) + 1
        count = min(max(count, 1), most)
        while count > 1 and after(count - 1) >= moment:
            count -= 1
        while count < most and after(count) < moment:
            count += 1
        return count


def growing(tokens: int, sequences: int, iterations: int) -> int:
    """Tokens read in all by `sequences` sequences that hold `tokens` before, and grow by one each per iteration.

    >>> growing(100, 2, 3)  # 102 + 104 + 106
    312
    """
    return tokens * iterations + sequences * (iterations * (iterations + 1) // 2)
