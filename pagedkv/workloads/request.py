"""One request, and how lengths and arrivals become a workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real

from pagedkv.errors import BadValue, require_count


def require_real(name: str, value: object) -> float:
    """Return `value` as a float if it is a real number (not a bool), finite and at least 0.

    Raises:
        BadValue: for anything else.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise BadValue(f"{name} must be a number, not {value!r}")
    number = float(value)
    if not 0.0 <= number < math.inf:
        raise BadValue(f"{name} must be finite and at least 0, not {value!r}")
    return number


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it comes and how long it will get.

    Attributes:
        id: its number in its workload.
        arrival: seconds from the start of the workload (iterations, in the teaching stream).
        prompt: tokens it comes with; 0 is allowed.
        output: tokens it will generate; 0 is allowed.

    Raises:
        BadValue: for a negative, fractional or boolean count, and for an arrival that is negative or not finite.
    """

    id: int
    arrival: float
    prompt: int
    output: int

    def __post_init__(self) -> None:
        for name in ("id", "prompt", "output"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:  # rare: refuse it, or turn a numpy integer into an int
                object.__setattr__(self, name, require_count(name, value))
        if type(self.arrival) is not float or not 0.0 <= self.arrival < math.inf:
            object.__setattr__(self, "arrival", require_real("arrival", self.arrival))

    @property
    def total(self) -> int:
        """Tokens in the cache at its longest: prompt + output."""
        return self.prompt + self.output


def make_requests(
    lengths: Sequence[tuple[int, int]], arrivals: Sequence[float] | None = None
) -> tuple[Request, ...]:
    """Join (prompt, output) pairs with arrivals, numbered from 0; without arrivals all wait from the start.

    Raises:
        BadValue: when there are not as many arrivals as lengths, or they are not in order.
    """
    times = [0.0] * len(lengths) if arrivals is None else list(arrivals)
    if len(times) != len(lengths):
        raise BadValue(f"{len(lengths)} lengths need as many arrivals, not {len(times)}")
    requests = tuple(Request(i, times[i], prompt, output) for i, (prompt, output) in enumerate(lengths))
    if any(later.arrival < earlier.arrival for earlier, later in pairwise(requests)):
        raise BadValue("arrivals must be in order; sort them first")
    return requests
