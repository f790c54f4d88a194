"""Some requests of one run in time: who waited, ran, was evicted and came back, from the scheduler's own log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from pagedkv.book.figures.base import look, patterns
from pagedkv.simulator import Setting, fast_forward
from pagedkv.workloads import Request

FIRST, COUNT = 120, 28
"""The requests that have a lane: early enough that the queue of a small pool is not yet long."""
SPAN = 600
"""Units of time that the lanes show, from the arrival of the first of their requests."""
UNIT = 0.04
"""Seconds; less than a pixel."""

SPACE = "\u00a0"
WINDOW = f"{SPAN * UNIT:g}{SPACE}s"

STATES = ("free", "tokens", "external")

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_ONE = 48  # numbers below this take one digit, larger ones two


@dataclass(frozen=True, slots=True)
class Lane:
    """What happened to one request, in units of time since the first request of the lanes arrived.

    Attributes:
        request: its number.
        arrival: when it came.
        spells: how long it waited, ran, was out, ran, and so on, up to its end or to that of the lanes.
    """

    request: int
    arrival: int
    spells: tuple[int, ...]

    @property
    def evictions(self) -> int:
        """Evictions seen here."""
        return (len(self.spells) - 1) // 2

    @property
    def end(self) -> int:
        """When it finished; at `SPAN` it had not yet."""
        return self.arrival + sum(self.spells)


def lanes(requests: Sequence[Request], setting: Setting) -> tuple[Lane, ...]:
    """The lanes of a run. What comes after them cannot change what was before, so only the start of it is run again."""
    begin = requests[FIRST].arrival
    seen = bisect_left(requests, begin + SPAN * UNIT, key=lambda request: request.arrival)
    # A sample of every iteration tells when each of them ended.
    report = fast_forward(requests[: max(seen, FIRST + COUNT)], replace(setting, samples=10**9))
    changes: dict[int, list[float]] = {number: [] for number in range(FIRST, FIRST + COUNT)}
    ends = [0.0, *(sample.seconds for sample in report.samples)]
    for iteration, kind, name in report.events:
        if name in changes:
            arrival = requests[name].arrival
            came, now = kind == "arrive", ends[iteration if kind == "finish" else iteration - 1]
            changes[name].append(arrival if came else max(now, arrival))
    return tuple(
        Lane(name, *_spells([round((at - begin) / UNIT) for at in times])) for name, times in changes.items()
    )


def _spells(times: list[int]) -> tuple[int, tuple[int, ...]]:
    """An arrival, and the lengths between one change and the next, up to the end of the lanes."""
    times = [time for time in times if time < SPAN] + [SPAN] * (max(times) >= SPAN)
    return times[0], tuple(after - before for before, after in pairwise(times))


def encode(strip: Sequence[Lane]) -> str:
    """All spells as text, one or two digits each, a point after every lane."""
    return "".join("".join(map(_digits, lane.spells)) + "." for lane in strip)


def _digits(number: int) -> str:
    if number < _ONE:
        return _DIGITS[number]
    high, low = divmod(number - _ONE, 64)
    return _DIGITS[_ONE + high] + _DIGITS[low]


def describe_lanes(strip: Sequence[Lane]) -> str:
    """The sentence over the lanes."""
    evictions = sum(lane.evictions for lane in strip)
    hit = sum(lane.evictions > 0 for lane in strip)
    done = sum(lane.end < SPAN for lane in strip)
    are, often = "is" if hit == 1 else "are", f", {_times(evictions)}" if evictions else ""
    return (
        f"This very run: of requests {FIRST} to {FIRST + COUNT - 1}, {hit} {are} evicted{often}; "
        f"{done} finish within {WINDOW}."
    )


def describe(lane: Lane) -> str:
    """The sentence for one request."""
    waited = lane.spells[0]
    text = f"Request {lane.request}: came at {_seconds(lane.arrival)}, "
    if len(lane.spells) == 1:
        return text + f"still waits at {WINDOW}."
    text += f"waited {_seconds(waited)}, "
    if lane.evictions:
        out = sum(lane.spells[2::2])
        text += f"was evicted {_times(lane.evictions)} and out for {_seconds(out)} in all, "
    if lane.end < SPAN:
        return text + f"finished at {_seconds(lane.end)}."
    return text + f"{'runs' if len(lane.spells) % 2 == 0 else 'is out'} at {WINDOW}."


def _seconds(units: int) -> str:
    return f"{units * UNIT:.1f}{SPACE}s"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def picture(strip: Sequence[Lane]) -> str:
    """The lanes: thin while a request waits, thick while it runs, hatched while it is out."""
    prefix, palette = "pkv-knee", look(STATES)
    strokes = {
        "free": ("currentColor", 1),
        "tokens": (palette["tokens"]["color"], 6),
        "external": (f"url(#{prefix}-external)", 4),
    }
    paths: dict[str, str] = dict.fromkeys(strokes, "")
    for row, lane in enumerate(strip):
        starts = accumulate(lane.spells, initial=lane.arrival)
        for index, (start, spell) in enumerate(zip(starts, lane.spells, strict=False)):
            state = "free" if index == 0 else "tokens" if index % 2 else "external"
            paths[state] += f"M{start} {row * 8 + 4}h{spell}"
    drawn = "".join(
        f'<path d="{path}" stroke="{strokes[state][0]}" stroke-width="{strokes[state][1]}"/>'
        for state, path in paths.items()
        if path
    )
    label = "Each request in time, a row each; the sentence above has the numbers."
    return (
        f'<svg viewBox="0 0 {SPAN} {COUNT * 8}" width="100%" role="img" aria-label="{label}">'
        f"{patterns(('external',), prefix)}{drawn}</svg>"
    )
