"""Two memories that a replay can run requests through: contiguous spans, and blocks.

Both hold real allocators: `Reserved` a `FirstFit` or a `Buddy`, `Paged` a `BlockPool` with a `BlockTable` per request.
They know which request holds what and when it needs more, and nothing of queues or time; `pagedkv.replay` does.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Protocol

from pagedkv.blocks import BlockPool, blocks_needed
from pagedkv.contiguous import Allocator, Policy, Span
from pagedkv.errors import BadValue, NeverFits, OutOfHoles, require_count
from pagedkv.tables import BlockTable
from pagedkv.waste import Breakdown
from pagedkv.workloads import Request

Placement = Span | tuple[int, ...]
"""Where a request's tokens lie: its span, or its physical blocks in logical order."""


class Memory(Protocol):
    """What `replay` asks of a memory. Requests are told apart by their ids."""

    def check(self, request: Request) -> None:
        """Raise NeverFits if the request would not fit even if it were alone."""

    def admit(self, request: Request, held: int, step: int) -> bool:
        """Take room for `held` tokens and the one of iteration `step`, or change nothing and return False."""

    def grow(self, step: int) -> list[tuple[int, Placement]]:
        """Give all residents room for their next token. Returns who was preempted, youngest first, and from where."""

    def quiet(self, step: int) -> int:
        """Iterations, at least 1, from `step` up to the next one in which `grow` may have something to do."""

    def release(self, request: Request) -> Placement:
        """Take back all that the request holds, and say where that was."""

    def breakdown(self, tokens: float, final: int, waiting: Request | None) -> Breakdown:
        """Where the slots are, when residents hold `tokens` now and `final` at their ends, and `waiting` is next."""


class Reserved:
    """One span per request, taken at admission and kept to the end: residents never need more.

    Args:
        allocator: where spans come from; nothing in it yet.
        policy: how many slots each request asks for.
    """

    __slots__ = ("_asked", "_spans", "allocator", "policy")

    def __init__(self, allocator: Allocator, policy: Policy) -> None:
        if allocator.free_slots != allocator.slots:
            raise BadValue("the allocator is already in use; a replay starts with an empty one")
        self.allocator = allocator
        self.policy = policy
        self._spans: dict[int, Span] = {}
        self._asked = 0

    def check(self, request: Request) -> None:
        """Raise NeverFits beyond the policy's limit, and for a reservation larger than the pool can give."""
        asked = self.policy.reserve(request)
        if asked > self.allocator.capacity:
            raise NeverFits(asked, self.allocator.capacity, "slots")

    def admit(self, request: Request, held: int, step: int) -> bool:
        """Reserve the request's whole span. One that needs no slot at all still gets one."""
        try:
            span = self.allocator.allocate(max(1, self.policy.reserve(request)))
        except OutOfHoles:
            return False
        self._spans[request.id] = span
        self._asked += span.slots
        return True

    def grow(self, step: int) -> list[tuple[int, Placement]]:
        """Nothing: the room is there."""
        return []

    def quiet(self, step: int) -> int:
        """For ever."""
        return sys.maxsize

    def release(self, request: Request) -> Placement:
        """Free the request's span."""
        span = self._spans.pop(request.id)
        self.allocator.free(span)
        self._asked -= span.slots
        return span

    def breakdown(self, tokens: float, final: int, waiting: Request | None) -> Breakdown:
        """As `waste.of_spans`, from running sums."""
        free = self.allocator.free_slots
        rounding = self.allocator.slots - free - self._asked
        wanted = self.policy.reserve(waiting) if waiting else 0
        stranded = free if wanted > self.allocator.largest_hole else 0
        return Breakdown(tokens, final - tokens, self._asked - final, 0, rounding + stranded, free - stranded)


@dataclass(slots=True, eq=False)
class _Sequence:
    table: BlockTable
    start: int  # iteration in which it would have held no token, had it grown by one in each
    total: int  # tokens at its end

    def catch_up(self, step: int) -> None:
        """Bring the table to the tokens that the sequence has at the end of iteration `step`."""
        self.table.extend(min(step + 1 - self.start, self.total) - self.table.length)

    @property
    def sliver(self) -> int:
        """Slots of the last block that will never be used; 0 as long as the last block is not its final one."""
        return max(0, self.table.length + self.table.slack - self.total)


class Paged:
    """Blocks as the tokens arrive. A resident that finds no free block has the youngest resident preempted.

    All residents advance together, so one that takes a block now takes the next one `block_size` iterations later:
    each waits in one of `block_size` groups for its turn, and an iteration only touches the group whose turn it is.
    Tables are brought up to date when their turn comes, one block at a time.

    Args:
        pool: where blocks come from; nothing in it yet.
        spare: blocks that an admission must leave free, so that residents can grow. It does not hold for the first
            resident, or a request of almost the size of the pool would wait for ever.
    """

    __slots__ = ("_groups", "_residents", "_sliver", "pool", "spare")

    def __init__(self, pool: BlockPool, spare: int = 0) -> None:
        if pool.num_used:
            raise BadValue("the pool is already in use; a replay starts with an empty one")
        self.pool = pool
        self.spare = require_count("spare", spare)
        # Dictionaries as ordered sets: within each, oldest first.
        self._residents: dict[int, _Sequence] = {}
        self._groups: list[dict[int, _Sequence]] = [{} for _ in range(pool.block_size)]
        self._sliver = 0

    def check(self, request: Request) -> None:
        """Raise NeverFits for a request with more blocks than the pool has."""
        needed = blocks_needed(request.total, self.pool.block_size)
        if needed > self.pool.num_blocks:
            raise NeverFits(needed, self.pool.num_blocks)

    def admit(self, request: Request, held: int, step: int) -> bool:
        """Take the blocks of `held` tokens and the next one, if `spare` blocks are left after that."""
        needed = blocks_needed(min(held + 1, request.total), self.pool.block_size)
        if needed > self.pool.num_free - (self.spare if self._residents else 0):
            return False
        sequence = _Sequence(BlockTable(self.pool), step - held, request.total)
        sequence.catch_up(step)
        self._residents[request.id] = sequence
        self._groups[sequence.start % self.pool.block_size][request.id] = sequence
        self._sliver += sequence.sliver
        return True

    def grow(self, step: int) -> list[tuple[int, Placement]]:
        """Give a block to each resident whose last one is full, oldest first, at the expense of the youngest."""
        group = self._groups[step % self.pool.block_size]
        victims: list[tuple[int, Placement]] = []
        for name, sequence in list(group.items()):
            while name in group and not self.pool.num_free:
                youngest = next(reversed(self._residents))
                victims.append((youngest, self._remove(youngest)))
            if name in group:
                sequence.catch_up(step)
                self._sliver += sequence.sliver
        return victims

    def quiet(self, step: int) -> int:
        """Iterations until a group that is not empty has its turn."""
        size = self.pool.block_size
        return next((k for k in range(1, size) if self._groups[(step + k) % size]), size)

    def release(self, request: Request) -> Placement:
        """Free the request's blocks."""
        return self._remove(request.id)

    def breakdown(self, tokens: float, final: int, waiting: Request | None) -> Breakdown:
        """As `waste.of_tables`, from running sums. No free block is ever external: it fits everywhere."""
        held = self.pool.num_used * self.pool.block_size
        free = self.pool.slots - held
        return Breakdown(tokens, held - self._sliver - tokens, 0, self._sliver, 0, free)

    def _remove(self, name: int) -> tuple[int, ...]:
        sequence = self._residents.pop(name)
        del self._groups[sequence.start % self.pool.block_size][name]
        self._sliver -= sequence.sliver
        blocks = tuple(sequence.table.blocks)
        sequence.table.free()
        return blocks
