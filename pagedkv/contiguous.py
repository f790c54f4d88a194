"""Contiguous reservation: how much a request asks for, and an allocator that must find it in one piece.

This is what paging replaces. A reservation **policy** turns a request into a number of slots, before its output is
known; an **allocator** finds that many adjacent slots, or refuses. The policies and the buddy allocator are those of
the baselines in Kwon et al. 2023, section 6.1 ("Orca"); first fit is the allocator that everybody writes first.

Units: slots, one per token. A request ends with prompt + output slots in use.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pagedkv.errors import NeverFits, NotAllocated, OutOfHoles, require_count


class Lengths(Protocol):
    """Anything with a prompt and an output length in tokens; `workloads.Request` is one."""

    @property
    def prompt(self) -> int:
        """Tokens that are there when the request arrives."""

    @property
    def output(self) -> int:
        """Tokens that it will generate."""


class Policy(Protocol):
    """A rule that fixes the size of a reservation when a request is admitted."""

    def reserve(self, request: Lengths) -> int:
        """Slots to ask the allocator for. Raises NeverFits if the request will outgrow any such reservation."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same number of slots for every request. The paper's Orca (Max) is `Fixed(the model's limit)`."""

    slots: int

    def __post_init__(self) -> None:
        require_count("slots", self.slots, 1)

    def reserve(self, request: Lengths) -> int:
        """`slots`. Raises NeverFits for a request that will be longer."""
        _length_within(self.slots, request)
        return self.slots


Max = Fixed  # the name it has in the paper, when `slots` is the model's limit


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """The prompt, and the output rounded up to a power of two: the paper's Orca (Pow2).

    Only the output is rounded, because the prompt's length is known: at most twice the output is reserved. The sum
    never exceeds `limit`, the longest sequence that the model can produce.

    >>> from types import SimpleNamespace
    >>> PowerOfTwo(limit=2048).reserve(SimpleNamespace(prompt=100, output=25))
    132
    """

    limit: int

    def __post_init__(self) -> None:
        require_count("limit", self.limit, 1)

    def reserve(self, request: Lengths) -> int:
        """Prompt + the power of two at or above the output, at most `limit`. Raises NeverFits beyond `limit`."""
        _length_within(self.limit, request)
        rounded = 1 << (request.output - 1).bit_length() if request.output else 0
        return min(self.limit, request.prompt + rounded)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Exactly what the request will need: the paper's Orca (Oracle). No server can know it; it is the upper bound."""

    limit: int

    def __post_init__(self) -> None:
        require_count("limit", self.limit, 1)

    def reserve(self, request: Lengths) -> int:
        """Prompt + output. Raises NeverFits beyond `limit`."""
        return _length_within(self.limit, request)


def _length_within(limit: int, request: Lengths) -> int:
    """Slots of the request at its end, refused when they exceed `limit`."""
    total = request.prompt + request.output
    if total > limit:
        raise NeverFits(total, limit, "slots")
    return total


class Span(NamedTuple):
    """A contiguous allocation.

    Attributes:
        start: its first slot.
        slots: how many were asked for.
        held: how many the allocator took, from `start` on; more than `slots` when it rounds.
    """

    start: int
    slots: int
    held: int


class Hole(NamedTuple):
    """A run of free slots that the allocator can give out in one piece."""

    start: int
    slots: int


class Allocator(Protocol):
    """What `FirstFit` and `Buddy` have in common: live spans and holes always tile the pool.

    Attributes:
        slots: size of the pool.
        free_slots: slots of all holes together.
    """

    slots: int
    free_slots: int

    @property
    def capacity(self) -> int:
        """Slots of the longest span that the empty pool could give."""

    @property
    def largest_hole(self) -> int:
        """Slots of the largest hole; 0 when full."""

    def holes(self) -> tuple[Hole, ...]:
        """The holes, by address."""

    def allocate(self, slots: int) -> Span:
        """Take adjacent slots. OutOfHoles if no hole is large enough; nothing is changed then."""

    def free(self, span: Span) -> None:
        """Give a span back. NotAllocated if it is not live now; nothing is changed then."""


def external_fragmentation(allocator: Allocator) -> float:
    """Share of the free slots that lie outside the largest hole, from 0 to below 1; 0 when nothing is free."""
    return 1 - allocator.largest_hole / allocator.free_slots if allocator.free_slots else 0.0


class FirstFit:
    """Takes each span from the lowest hole that holds it; a freed span merges with the holes beside it.

    No two holes are ever adjacent. Allocation looks at the holes in turn, freeing finds its place by bisection.

    >>> pool = FirstFit(300)
    >>> a, b, c = (pool.allocate(100) for _ in range(3))
    >>> pool.free(a); pool.free(c)
    >>> pool.free_slots, pool.largest_hole, external_fragmentation(pool)
    (200, 100, 0.5)
    """

    __slots__ = ("_live", "_sizes", "_starts", "free_slots", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = self.free_slots = require_count("slots", slots, 1)
        # Hole i covers _sizes[i] slots from _starts[i] on; both lists are in order of address.
        self._starts = [0]
        self._sizes = [self.slots]
        self._live: dict[int, Span] = {}

    @property
    def capacity(self) -> int:
        """The whole pool."""
        return self.slots

    @property
    def largest_hole(self) -> int:
        """Slots of the largest hole; 0 when full."""
        return max(self._sizes, default=0)

    def holes(self) -> tuple[Hole, ...]:
        """The holes, by address; no two of them touch."""
        return tuple(map(Hole, self._starts, self._sizes))

    def allocate(self, slots: int) -> Span:
        """Take `slots` slots from the lowest hole that has them; `held` equals `slots`.

        Raises:
            OutOfHoles: if no hole is large enough; nothing is changed then.
            BadValue: for fewer than one slot.
        """
        slots = require_count("slots", slots, 1)
        starts, sizes = self._starts, self._sizes
        hole = next((i for i, size in enumerate(sizes) if size >= slots), None)
        if hole is None:
            raise OutOfHoles(slots, self.largest_hole, self.free_slots)
        span = self._live[starts[hole]] = Span(starts[hole], slots, slots)
        if sizes[hole] == slots:
            del starts[hole], sizes[hole]
        else:
            starts[hole] += slots
            sizes[hole] -= slots
        self.free_slots -= slots
        return span

    def free(self, span: Span) -> None:
        """Give a span back, and merge it with the holes that touch it. NotAllocated if it is not live now."""
        _forget(self._live, span)
        starts, sizes = self._starts, self._sizes
        start, size = span.start, span.held
        place = bisect_left(starts, start)
        if place < len(starts) and starts[place] == start + size:
            size += sizes[place]
            del starts[place], sizes[place]
        if place and starts[place - 1] + sizes[place - 1] == start:
            sizes[place - 1] += size
        else:
            starts.insert(place, start)
            sizes.insert(place, size)
        self.free_slots += span.held

    def __repr__(self) -> str:
        return f"FirstFit({self.slots} slots, {self.free_slots} free in {len(self._starts)} holes)"


class Buddy:
    """Gives out chunks of a power of two, splitting larger ones and merging two halves when both are free.

    A pool of any size starts as chunks of the powers of two that it is the sum of, largest first: 15,700 slots are
    8192 + 4096 + 2048 + 1024 + 256 + 64 + 16 + 4. Each chunk starts at a multiple of its size, so the other half of a
    chunk at `start` is at `start ^ size`. Free neighbours that are not two halves of one chunk stay apart: that, and
    rounding up to a power of two, is what buddies pay for being fast.

    >>> pool = Buddy(24)
    >>> pool.allocate(5)
    Span(start=16, slots=5, held=8)
    >>> pool.allocate(5), pool.holes()
    (Span(start=0, slots=5, held=8), (Hole(start=8, slots=8),))
    """

    __slots__ = ("_chunks", "_live", "free_slots", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = self.free_slots = require_count("slots", slots, 1)
        # _chunks[k]: starts of the free chunks of 2**k slots, ascending. Taking the lowest keeps the rest whole.
        self._chunks: list[list[int]] = [[] for _ in range(self.slots.bit_length())]
        self._live: dict[int, Span] = {}
        start = 0
        for order in reversed(range(len(self._chunks))):
            if self.slots >> order & 1:
                self._chunks[order].append(start)
                start += 1 << order

    @property
    def capacity(self) -> int:
        """The largest power of two in the pool."""
        return 1 << (len(self._chunks) - 1)

    @property
    def largest_hole(self) -> int:
        """Slots of the largest free chunk; 0 when full."""
        return max((1 << order for order, starts in enumerate(self._chunks) if starts), default=0)

    def holes(self) -> tuple[Hole, ...]:
        """The free chunks, by address. Two may touch, but never the two halves of one chunk."""
        return tuple(sorted(Hole(s, 1 << order) for order, starts in enumerate(self._chunks) for s in starts))

    def allocate(self, slots: int) -> Span:
        """Take the lowest of the smallest free chunks that hold `slots`; `held` is the power of two at or above.

        Raises:
            OutOfHoles: if no free chunk is large enough; nothing is changed then.
            BadValue: for fewer than one slot.
        """
        slots = require_count("slots", slots, 1)
        order = (slots - 1).bit_length()
        found = next((k for k in range(order, len(self._chunks)) if self._chunks[k]), None)
        if found is None:
            raise OutOfHoles(slots, self.largest_hole, self.free_slots)
        start = self._chunks[found].pop(0)
        for half in range(order, found):
            # The lower half is split on; the upper halves, one of each size, stay free.
            insort(self._chunks[half], start + (1 << half))
        span = self._live[start] = Span(start, slots, 1 << order)
        self.free_slots -= span.held
        return span

    def free(self, span: Span) -> None:
        """Give a span back, and merge halves as far up as they go. NotAllocated if it is not live now."""
        _forget(self._live, span)
        start, order = span.start, span.held.bit_length() - 1
        while True:
            # A first chunk of the pool has no other half, since what follows it is smaller: the walk ends there.
            chunks, other = self._chunks[order], start ^ (1 << order)
            place = bisect_left(chunks, other)
            if chunks[place : place + 1] != [other]:
                break
            del chunks[place]
            start = min(start, other)
            order += 1
        insort(chunks, start)
        self.free_slots += span.held

    def __repr__(self) -> str:
        return f"Buddy({self.slots} slots, {self.free_slots} free, largest chunk {self.largest_hole})"


def _forget(live: dict[int, Span], span: Span) -> None:
    """Drop a live span from an allocator's books, or refuse."""
    if live.get(span.start) != span:
        raise NotAllocated(f"{span} is not live: it was freed before, or comes from another pool")
    del live[span.start]
