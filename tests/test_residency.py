from __future__ import annotations

import random
from collections import Counter

import pytest

from pagedkv.blocks import BlockPool
from pagedkv.errors import BadValue, OutOfBlocks
from pagedkv.fast_forward import CountedResidency
from pagedkv.residency import Residency, TableResidency


def both(blocks: int, size: int, host: int = 0) -> tuple[TableResidency, CountedResidency]:
    tables = TableResidency(BlockPool(blocks, size), BlockPool(host, size) if host else None)
    return tables, CountedResidency(blocks, size, host)


def state(residency: Residency) -> tuple[int, ...]:
    return residency.num_free, residency.host_free, residency.num_tokens, residency.wanted()


@pytest.mark.parametrize("residency", both(4, 16))
def test_residents_take_and_give_back_blocks(residency: Residency) -> None:
    residency.take(7, 33)
    assert state(residency) == (1, 0, 33, 0)
    residency.grow(15)
    assert state(residency) == (1, 0, 48, 1)
    residency.grow()
    assert state(residency) == (0, 0, 49, 0)
    residency.drop(7)
    assert state(residency) == (4, 0, 0, 0)


@pytest.mark.parametrize("residency", both(4, 16, 2))
def test_what_does_not_fit_is_refused_and_changes_nothing(residency: Residency) -> None:
    residency.take(0, 40)
    before = state(residency)
    with pytest.raises(OutOfBlocks, match="2 blocks needed, 1 free"):
        residency.take(1, 17)
    with pytest.raises(OutOfBlocks, match="3 blocks needed, 2 free"):
        residency.swap_out(0)
    assert state(residency) == before
    residency.drop(0)
    residency.take(2, 20)
    assert residency.swap_out(2) == 2
    residency.take(3, 60)
    before = state(residency)
    with pytest.raises(OutOfBlocks):
        residency.swap_in(2, 21)
    assert state(residency) == before
    residency.drop(3)
    assert residency.swap_in(2, 21) == 2
    assert state(residency) == (2, 2, 21, 0)


@pytest.mark.parametrize("residency", both(4, 16))
def test_without_a_host_pool_nothing_is_swapped_out(residency: Residency) -> None:
    residency.take(0, 40)
    with pytest.raises(OutOfBlocks, match="3 blocks needed, 0 free"):
        residency.swap_out(0)
    assert state(residency) == (1, 0, 40, 0)


@pytest.mark.parametrize("wrong", [(0, 16, 0), (4, 0, 0), (4, 16, -1), (4.0, 16, 0)])
def test_sizes_are_whole_numbers(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(BadValue):
        CountedResidency(*wrong)


def test_blocks_that_others_hold_are_not_free() -> None:
    pool = BlockPool(4, 16)
    pool.allocate(3)
    residency = TableResidency(pool)
    with pytest.raises(OutOfBlocks):
        residency.take(0, 17)
    residency.take(0, 16)
    assert (residency.num_free, residency.wanted()) == (0, 1)


def outcome(residency: Residency, kind: str, who: int, tokens: int) -> object:
    """What an operation returns, or what its refusal says."""
    try:
        if kind in ("take", "swap_in"):
            return getattr(residency, kind)(who, tokens)
        return residency.grow(tokens) if kind == "grow" else getattr(residency, kind)(who)
    except OutOfBlocks as refusal:
        return refusal.needed, refusal.free


@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_numbers_alone_agree_with_block_tables(size: int) -> None:
    """Any order of operations, refused ones too, and growth of many tokens at once against one by one."""
    chance = random.Random(size)
    seen = Counter[str]()
    for _ in range(60):
        tables, counted = both(60, size, 20)
        for name in range(60):
            kind = chance.choice(
                ["take", "take", "drop", "swap_out", "swap_in", "drop_host", "grow", "grow", "grow"]
            )
            on_device, on_host = list(tables.tables), list(tables.host_tables)
            pool = {"take": [name], "grow": [name], "swap_in": on_host, "drop_host": on_host}.get(
                kind, on_device
            )
            if not pool:
                continue
            who, tokens = chance.choice(pool), chance.randint(0, 5 * size)
            if kind == "swap_in":
                tokens += tables.host_tables[who].length
            if kind == "grow":
                tokens = counted.longest(chance.randint(1, 3 * size), chance.randint(-1, counted.num_free))
            results = [outcome(residency, kind, who, tokens) for residency in (tables, counted)]
            assert results[0] == results[1]
            assert state(tables) == state(counted)
            seen[kind + (" refused" if isinstance(results[0], tuple) else "")] += 1
    assert len(seen) == 9 and min(seen.values()) > 10
