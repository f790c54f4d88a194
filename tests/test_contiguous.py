from __future__ import annotations

import random
from collections.abc import Callable
from itertools import groupby
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedkv.contiguous import (
    Allocator,
    Buddy,
    FirstFit,
    Fixed,
    Max,
    Oracle,
    Policy,
    PowerOfTwo,
    Span,
    external_fragmentation,
)
from pagedkv.errors import BadValue, NeverFits, NotAllocated, OutOfHoles

ALLOCATORS = [FirstFit, Buddy]


def request(prompt: int, output: int) -> SimpleNamespace:
    return SimpleNamespace(prompt=prompt, output=output)


# Policies


@pytest.mark.parametrize(
    ("policy", "slots"),
    [(Fixed(560), 560), (Max(2048), 2048), (PowerOfTwo(2048), 300 + 256), (Oracle(2048), 300 + 180)],
)
def test_what_each_policy_reserves(policy: Policy, slots: int) -> None:
    assert policy.reserve(request(300, 180)) == slots


@pytest.mark.parametrize(("output", "rounded"), [(0, 0), (1, 1), (2, 2), (3, 4), (256, 256), (257, 512)])
def test_the_power_of_two_applies_to_the_output_only(output: int, rounded: int) -> None:
    assert PowerOfTwo(2048).reserve(request(100, output)) == 100 + rounded


def test_a_rounded_reservation_stops_at_the_limit() -> None:
    assert PowerOfTwo(2048).reserve(request(1000, 1025)) == 2048


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_no_policy_reserves_too_little_and_none_more_than_the_limit(prompt: int, output: int) -> None:
    policies: list[Policy] = [Oracle(2048), PowerOfTwo(2048), Max(2048)]
    if prompt + output > 2048:
        for policy in policies:
            with pytest.raises(NeverFits) as refusal:
                policy.reserve(request(prompt, output))
            assert (refusal.value.needed, refusal.value.capacity) == (prompt + output, 2048)
            assert refusal.value.unit == "slots"
        return
    exact, rounded, most = (policy.reserve(request(prompt, output)) for policy in policies)
    assert prompt + output == exact <= rounded <= most == 2048
    assert rounded <= prompt + 2 * output


@pytest.mark.parametrize("policy", [Fixed, Max, PowerOfTwo, Oracle])
@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "560"])
def test_a_policy_refuses_a_limit_that_is_no_count(policy: Callable[[object], object], limit: object) -> None:
    with pytest.raises(BadValue):
        policy(limit)


# Allocators


# llama.cpp#3380, #9201: 200 slots free, and a request for 150 cannot have them.
def test_free_in_total_but_no_hole_is_large_enough() -> None:
    pool = FirstFit(300)
    first, second, third = (pool.allocate(100) for _ in range(3))
    pool.free(first)
    pool.free(third)
    with pytest.raises(OutOfHoles) as refusal:
        pool.allocate(150)
    assert (refusal.value.requested, refusal.value.largest, refusal.value.free) == (150, 100, 200)
    assert pool.free_slots == 200 and pool.largest_hole == 100
    assert external_fragmentation(pool) == 0.5
    assert pool.holes() == ((0, 100), (200, 100))
    pool.free(second)
    assert pool.holes() == ((0, 300),) and external_fragmentation(pool) == 0
    assert pool.allocate(150) == Span(0, 150, 150)


def test_a_pool_of_any_size_is_a_sum_of_powers_of_two() -> None:
    pool = Buddy(15_700)
    assert [hole.slots for hole in pool.holes()] == [8192, 4096, 2048, 1024, 256, 64, 16, 4]
    assert pool.capacity == 8192
    # 7 reservations of 2,048 fit: what is left over is large enough for none, though it is 1,364 slots.
    for _ in range(7):
        pool.allocate(2048)
    with pytest.raises(OutOfHoles) as refusal:
        pool.allocate(2048)
    assert (refusal.value.largest, refusal.value.free) == (1024, 1364)


@pytest.mark.parametrize(("slots", "held"), [(1, 1), (2, 2), (3, 4), (5, 8), (1024, 1024), (1025, 2048)])
def test_a_buddy_rounds_up_to_a_power_of_two_and_shows_it(slots: int, held: int) -> None:
    pool = Buddy(4096)
    assert pool.allocate(slots)[1:] == (slots, held)
    assert pool.free_slots == 4096 - held


def test_free_neighbours_that_are_not_two_halves_stay_apart() -> None:
    pool = Buddy(16)
    spans = [pool.allocate(4) for _ in range(4)]
    pool.free(spans[1])
    pool.free(spans[2])
    assert pool.holes() == ((4, 4), (8, 4))
    with pytest.raises(OutOfHoles):
        pool.allocate(8)
    pool.free(spans[0])
    assert pool.holes() == ((0, 8), (8, 4))


@pytest.mark.parametrize("make", ALLOCATORS)
def test_freeing_twice_or_what_was_never_given_is_refused(make: Callable[[int], Allocator]) -> None:
    pool = make(64)
    span, neighbour = pool.allocate(16), pool.allocate(16)
    for stranger in (
        Span(48, 16, 16),
        Span(span.start, 8, 8),
        Span(span.start + 1, 16, 16),
        Span(-16, 16, 16),
    ):
        with pytest.raises(NotAllocated):
            pool.free(stranger)
    pool.free(span)
    before = pool.holes(), pool.free_slots
    with pytest.raises(NotAllocated):
        pool.free(span)
    assert (pool.holes(), pool.free_slots) == before
    # The memory has a new owner, whose span looks different: the old one must not free it.
    pool.allocate(4)
    with pytest.raises(NotAllocated):
        pool.free(span)
    pool.free(neighbour)


@pytest.mark.parametrize("make", ALLOCATORS)
@pytest.mark.parametrize("slots", [0, -1, 1.0, True, None])
def test_a_size_that_is_no_count_is_refused(make: Callable[[object], Allocator], slots: object) -> None:
    with pytest.raises(BadValue):
        make(slots)
    pool = make(8)
    with pytest.raises(BadValue):
        pool.allocate(slots)  # type: ignore[arg-type]
    assert pool.free_slots == 8


class Owners:
    """The naive model: who owns each slot."""

    def __init__(self, slots: int) -> None:
        self.of: list[int | None] = [None] * slots

    def give(self, name: int, span: Span) -> None:
        assert self.of[span.start : span.start + span.held] == [None] * span.held
        self.of[span.start : span.start + span.held] = [name] * span.held

    def take(self, name: int) -> None:
        self.of = [None if owner == name else owner for owner in self.of]

    def runs(self) -> list[tuple[int, int]]:
        found, start = [], 0
        for free, group in groupby(self.of, key=lambda owner: owner is None):
            size = len(list(group))
            if free:
                found.append((start, size))
            start += size
        return found

    def aligned_chunk(self, size: int, pool: int) -> bool:
        """Whether a free chunk of `size` lies at a multiple of it, inside one of the chunks the pool began with."""
        base = 0
        for order in reversed(range(pool.bit_length())):
            if pool >> order & 1:
                for start in range(base, base + (1 << order) - size + 1, size):
                    if all(owner is None for owner in self.of[start : start + size]):
                        return True
                base += 1 << order
        return False


def check_first_fit(pool: FirstFit, owners: Owners) -> None:
    # The holes are exactly the maximal runs of free slots: so none is missing, and no two touch.
    assert list(pool.holes()) == owners.runs()


def check_buddy(pool: Buddy, owners: Owners) -> None:
    covered = [slot for start, size in pool.holes() for slot in range(start, start + size)]
    assert covered == [slot for slot, owner in enumerate(owners.of) if owner is None]
    chunks = set(pool.holes())
    for start, size in chunks:
        assert size & (size - 1) == 0 and start % size == 0
        assert (start ^ size, size) not in chunks, "two free halves were not merged"


def drive(make: Callable[[int], Allocator], slots: int, operations: list[tuple[bool, int]]) -> None:
    pool, owners, live = make(slots), Owners(slots), {}
    fresh = pool.holes()
    for name, (allocating, number) in enumerate(operations):
        if allocating:
            size = 1 + number % (slots + 2)
            rounded = size if isinstance(pool, FirstFit) else 1 << (size - 1).bit_length()
            if isinstance(pool, FirstFit):
                places = [start for start, run in owners.runs() if run >= size]
                possible = bool(places)
            else:
                possible = owners.aligned_chunk(rounded, slots)
            if not possible:
                before = pool.holes(), pool.free_slots
                with pytest.raises(OutOfHoles) as refusal:
                    pool.allocate(size)
                assert (pool.holes(), pool.free_slots) == before
                assert refusal.value.free == owners.of.count(None) and refusal.value.largest < size
                continue
            span = pool.allocate(size)
            assert (span.slots, span.held) == (size, rounded)
            if isinstance(pool, FirstFit):
                assert span.start == places[0]
            else:
                assert span.start % span.held == 0
            owners.give(name, span)
            live[name] = span
        elif live:
            gone = sorted(live)[number % len(live)]
            pool.free(live.pop(gone))
            owners.take(gone)
        assert pool.free_slots == owners.of.count(None) == slots - sum(s.held for s in live.values())
        assert pool.largest_hole == max((hole.slots for hole in pool.holes()), default=0)
        assert 0 <= external_fragmentation(pool) < 1
        if isinstance(pool, FirstFit):
            check_first_fit(pool, owners)
        elif isinstance(pool, Buddy):
            check_buddy(pool, owners)
    for span in live.values():
        pool.free(span)
    assert pool.holes() == fresh, "an emptied pool is as good as new"


@pytest.mark.parametrize("make", ALLOCATORS)
@settings(max_examples=150, deadline=None)
@given(st.integers(1, 70), st.lists(st.tuples(st.booleans(), st.integers(0, 1 << 16)), max_size=60))
def test_any_order_of_operations_agrees_with_a_list_of_owners(
    make: Callable[[int], Allocator], slots: int, operations: list[tuple[bool, int]]
) -> None:
    drive(make, slots, operations)


@pytest.mark.parametrize("make", ALLOCATORS)
@pytest.mark.parametrize("slots", [1, 157, 1024])
def test_long_lives_agree_with_a_list_of_owners(make: Callable[[int], Allocator], slots: int) -> None:
    rng = random.Random(slots)
    drive(make, slots, [(rng.random() < 0.55, rng.randrange(max(2, slots // 8))) for _ in range(1500)])


@pytest.mark.parametrize("make", ALLOCATORS)
def test_thousands_of_holes(make: Callable[[int], Allocator]) -> None:
    pool = make(1 << 18)
    spans = [pool.allocate(32) for _ in range(1 << 13)]
    for span in spans[::2]:
        pool.free(span)
    assert len(pool.holes()) == 1 << 12 and pool.largest_hole == 32
    assert external_fragmentation(pool) == 1 - 2**-12
    with pytest.raises(OutOfHoles):
        pool.allocate(33)
    for span in spans[1::2]:
        pool.free(span)
    assert pool.holes() == ((0, 1 << 18),)
