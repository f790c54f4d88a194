from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

from pagedkv.blocks import BlockPool
from pagedkv.cache import PagedKVCache
from pagedkv.cache_residency import CacheResidency
from pagedkv.errors import OutOfBlocks
from pagedkv.residency import Residency, TableResidency
from pagedkv.swap import HostPool
from small_models import geometry


def both(blocks: int, size: int, host: int = 0) -> tuple[CacheResidency, TableResidency]:
    cache = PagedKVCache(geometry(2, 1, 1), blocks, size)
    return (
        CacheResidency(cache, HostPool(cache, host) if host else None),
        TableResidency(BlockPool(blocks, size), BlockPool(host, size) if host else None),
    )


def tables(residency: CacheResidency | TableResidency) -> object:
    """Who holds which blocks, in which order, and which block each pool would hand out next."""
    if isinstance(residency, TableResidency):
        inside, outside = residency.tables, residency.host_tables
        pools = residency.pool, residency.host
    else:
        inside = {name: residency.cache.table(s) for name, s in residency.sequences.items()}
        outside = {name: s.host.table(s) for name, s in residency.swapped.items()}
        pools = residency.cache.pool, residency.host.pool if residency.host else None
    return (
        *([(name, table.length, table.blocks) for name, table in side.items()] for side in (inside, outside)),
        *(pool.free_list() if pool else None for pool in pools),
    )


def numbers(residency: Residency) -> tuple[int, ...]:
    return (
        residency.num_blocks, residency.block_size, residency.num_free, residency.host_free, residency.num_tokens,
        residency.wanted(),
    )  # fmt: skip


def random_call(plain: TableResidency, newcomer: int, chance: random.Random) -> tuple[str, tuple[int, ...]]:
    """Something that a scheduler could ask for now: the name of a method, and its arguments."""
    size = plain.block_size
    calls: list[tuple[str, tuple[int, ...]]] = [("take", (newcomer, chance.randint(0, 3 * size)))] * 2
    if plain.wanted() <= plain.num_free:
        calls += [("grow", ())] * 2
    if plain.tables:
        who = chance.choice(list(plain.tables))
        calls += [("drop", (who,)), ("swap_out", (who,))]
    if plain.host_tables:
        who = chance.choice(list(plain.host_tables))
        calls += [("swap_in", (who, plain.host_tables[who].length + chance.randint(0, 1)))] * 2
        calls += [("drop_host", (who,))]
    return chance.choice(calls)


@pytest.mark.parametrize("seed", range(12))
def test_it_holds_block_for_block_what_bare_tables_hold(seed: int) -> None:
    """What one of them refuses, the other refuses too; the same words, and nothing changes."""
    chance = random.Random(seed)
    cache, plain = both(chance.randint(3, 12), chance.choice([1, 2, 4, 16]), (0, 3, 10)[seed % 3])
    seen = Counter[str]()
    for newcomer in range(250):
        method, arguments = random_call(plain, newcomer, chance)
        before, outcomes = tables(cache), []
        for residency in (cache, plain):
            try:
                outcomes.append(getattr(residency, method)(*arguments))
            except OutOfBlocks as refusal:
                outcomes.append(str(refusal))
        assert outcomes[0] == outcomes[1]
        if isinstance(outcomes[0], str):
            method += " refused"
            assert tables(cache) == before
        assert tables(cache) == tables(plain) and numbers(cache) == numbers(plain)
        assert set(cache.cache.sequences()) == set(cache.sequences.values())
        seen[method] += 1
    expected = {"take", "take refused", "grow", "drop"}
    if plain.host:
        expected |= {"swap_out", "swap_in", "drop_host"}
    if not plain.host or plain.host.num_blocks == 3:
        expected.add("swap_out refused")
    assert expected <= set(seen)


def test_many_tokens_of_growth_are_one_after_the_other() -> None:
    cache, plain = both(20, 4)
    for residency in (cache, plain):
        for name, tokens in enumerate((3, 0, 8)):
            residency.take(name, tokens)
        residency.grow(7)
    assert tables(cache) == tables(plain)
    assert numbers(cache)[2:] == (20 - 3 - 2 - 4, 0, 32, 0)


def test_the_newest_tokens_stand_where_extend_would_have_put_them() -> None:
    residency, _ = both(20, 4)
    twin = PagedKVCache(geometry(2, 1, 1), 20, 4)
    for name, tokens in enumerate((6, 3)):
        residency.take(name, tokens)
    first, second = (twin.new_sequence() for _ in range(2))
    twin.extend({first: 6, second: 3})
    residency.grow()
    residency.take(2, 9)
    expected = twin.extend({first: 1, second: 1, twin.new_sequence(): 9})
    newest = residency.newest({0: 1, 1: 1, 2: 9})
    assert torch.equal(newest.slots, expected.slots)
    assert (newest.counts, newest.positions, newest.copies) == (expected.counts, expected.positions, ())
    assert newest.sequences == tuple(residency.sequences.values())
