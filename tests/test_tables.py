from __future__ import annotations

import random

import pytest

from naive import NaiveManager
from pagedkv.blocks import BlockPool, blocks_needed
from pagedkv.errors import BadValue, FreedTable, OutOfBlocks
from pagedkv.tables import BlockTable, Copy, run_lengths, table_bytes


def state(pool: BlockPool, *tables: BlockTable) -> object:
    counts = [pool.reference_count(b) for b in range(pool.num_blocks)]
    return pool.free_list(), counts, [(list(t.blocks), t.length, t.slack) for t in tables]


def table_of(pool: BlockPool, tokens: int) -> BlockTable:
    table = BlockTable(pool)
    table.extend(tokens)
    return table


def test_translation_from_token_to_slot() -> None:
    pool = BlockPool(8, 16)
    other = table_of(pool, 16)
    table = table_of(pool, 20)
    table.extend(1)
    other.free()
    assert table.blocks == [1, 2]
    assert table.slot(0) == 16 and table.slot(15) == 31 and table.slot(20) == 2 * 16 + 4
    assert table.slots() == [table.slot(i) for i in range(21)]
    assert table.slots(14, 18) == [30, 31, 32, 33]
    assert table.slots(21) == []


@pytest.mark.parametrize("position", [-1, 3, 100, 1.0])
def test_slot_of_a_token_that_is_not_there_is_refused(position: int) -> None:
    with pytest.raises(BadValue):
        table_of(BlockPool(4, 4), 3).slot(position)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 4), (2, 1), (4, None)])
def test_slots_of_a_range_that_is_not_there_are_refused(start: int, stop: int | None) -> None:
    with pytest.raises(BadValue):
        table_of(BlockPool(4, 4), 3).slots(start, stop)


# The edge of a block: nano-vllm#30, #91, #150; MinivLLM PR #85. The new token is not counted until it is appended.
def test_append_asks_for_a_block_only_when_the_last_one_is_full() -> None:
    pool = BlockPool(1, 4)
    table = table_of(pool, 3)
    assert table.blocks_to_extend(1) == 0 and table.append() is None  # 3 -> 4 with none free
    assert not table.can_extend(1)
    with pytest.raises(OutOfBlocks) as refusal:
        table.append()  # 4 -> 5 with none free
    assert (refusal.value.needed, refusal.value.free) == (1, 0)
    assert (table.length, table.blocks) == (4, [0])
    roomy = BlockPool(2, 4)
    table = table_of(roomy, 4)
    table.append()
    assert (table.length, roomy.num_free) == (5, 0)


@pytest.mark.parametrize("size", [1, 2, 3, 16, 256])
def test_appending_one_by_one_equals_extending_at_once(size: int) -> None:
    for tokens in {0, 1, size - 1, size, size + 1, 3 * size}:
        one, many = BlockTable(BlockPool(10, size)), BlockTable(BlockPool(10, size))
        for _ in range(tokens):
            one.append()
        many.extend(tokens)
        assert state(one.pool, one) == state(many.pool, many)
        assert len(one.blocks) == blocks_needed(tokens, size)


# Growth fills the partial block first and is charged only the difference: inference-sim#492, #352; sparkinfer#110.
def test_growth_is_charged_the_difference() -> None:
    pool = BlockPool(3, 4)
    table = table_of(pool, 3)
    assert table.blocks_to_extend(5) == 1
    table.extend(5)
    assert (len(table.blocks), pool.num_free, table.length) == (2, 1, 8)
    pool = BlockPool(3, 16)
    table = table_of(pool, 40)
    table.extend(8)
    assert (pool.num_free, table.length) == (0, 48)
    with pytest.raises(OutOfBlocks):
        table.extend(1)
    assert table.length == 48
    before = state(pool, table)
    assert table.extend(0) is None
    assert state(pool, table) == before


# Half an allocation: inference-sim#200, #1061; kvcached#364.
def test_a_refused_growth_keeps_what_the_sequence_had() -> None:
    pool = BlockPool(3, 16)
    a, b = table_of(pool, 20), BlockTable(pool)
    before = state(pool, a, b)
    with pytest.raises(OutOfBlocks):
        b.extend(33)
    assert state(pool, a, b) == before
    with pytest.raises(OutOfBlocks) as refusal:
        a.extend(40)
    assert (refusal.value.needed, refusal.value.free) == (2, 1)
    assert state(pool, a, b) == before


# A length that is a multiple of the block size: MinivLLM PR #87.
@pytest.mark.parametrize("size", [1, 3, 4, 16])
@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_a_full_last_block_has_no_slack(size: int, blocks: int) -> None:
    pool = BlockPool(4, size)
    table = table_of(pool, blocks * size)
    assert (len(table.blocks), table.slack, len(table.slots())) == (blocks, 0, blocks * size)
    assert all(pool.reference_count(b) == 1 for b in table.blocks)
    table.free()
    assert pool.num_free == 4


def test_growth_moves_nothing() -> None:
    pool = BlockPool(16, 4)
    a, b = BlockTable(pool), BlockTable(pool)
    seen: list[int] = []
    for _ in range(30):
        a.append()
        b.append()
        assert a.slots()[: len(seen)] == seen
        seen = a.slots()


@pytest.mark.parametrize("use", ["append", "free", "fork"])
def test_a_freed_table_is_of_no_more_use(use: str) -> None:
    pool = BlockPool(4, 16)
    table = table_of(pool, 40)
    table.free()
    assert pool.num_free == 4
    with pytest.raises(FreedTable):
        getattr(table, use)()
    with pytest.raises(FreedTable):
        table.extend(1)
    assert not table.can_extend(1)
    assert pool.num_free == 4 and (table.blocks, table.length) == ([], 0)


@pytest.mark.parametrize("bad", [-1, 0.5, 2.0, "1", True])
def test_tokens_must_be_whole_and_not_negative(bad: object) -> None:
    pool = BlockPool(4, 16)
    table = table_of(pool, 4)
    before = state(pool, table)
    for method in (table.extend, table.blocks_to_extend):
        with pytest.raises(BadValue):
            method(bad)  # type: ignore[arg-type]
    assert state(pool, table) == before


# Fork and copy-on-write: amd-shark-ai PR #1089, nm-vllm PR #3, vllm PR #32.
def test_n_writers_of_a_partial_block_make_n_minus_1_copies() -> None:
    pool = BlockPool(16, 16)
    parent = table_of(pool, 20)
    tables = [parent, *(parent.fork() for _ in range(3))]
    shared = parent.blocks[1]
    assert pool.num_used == 2 and pool.reference_count(shared) == 4
    copies = [table.append() for table in tables]
    assert [c.source if c else None for c in copies] == [shared, shared, shared, None]
    assert pool.num_used == 5
    assert len({t.blocks[1] for t in tables}) == 4 and len({t.blocks[0] for t in tables}) == 1
    assert [t.append() for t in tables] == [None] * 4  # private now


def test_a_prefix_that_ends_on_a_block_boundary_copies_nothing() -> None:
    pool = BlockPool(16, 16)
    parent = table_of(pool, 32)
    tables = [parent, *(parent.fork() for _ in range(3))]
    assert [t.append() for t in tables] == [None] * 4
    assert pool.num_used == 6


def test_one_write_of_many_tokens_copies_once_and_pays_for_both() -> None:
    pool = BlockPool(6, 4)
    parent = table_of(pool, 6)
    child = parent.fork()
    assert child.blocks_to_extend(3) == 2  # a private copy of the partial block and one new block
    assert child.extend(3) == Copy(parent.blocks[1], child.blocks[1])
    assert pool.num_used == 4 and child.length == 9 and parent.length == 6


def test_a_copy_that_finds_no_block_is_refused_and_changes_nothing() -> None:
    pool = BlockPool(2, 4)
    parent = table_of(pool, 6)
    child = parent.fork()
    before = state(pool, parent, child)
    for table in (parent, child):
        assert not table.can_extend(1)
        with pytest.raises(OutOfBlocks):
            table.append()
    assert state(pool, parent, child) == before
    parent.free()
    assert child.append() is None  # the last holder writes in place


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8])
def test_truncating_keeps_the_slots_before_and_frees_the_blocks_behind(size: int, length: int) -> None:
    pool = BlockPool(16, size)
    table = table_of(pool, 8)
    slots = table.slots()
    table.truncate(length)
    assert table.slots() == slots[:length]
    assert (pool.num_used, table.length) == (blocks_needed(length, size), length)
    table.extend(8)
    assert table.slots()[:length] == slots[:length] and len(set(table.slots())) == length + 8


def test_truncating_a_fork_leaves_the_other_alone_and_copies_before_writing() -> None:
    pool = BlockPool(16, 4)
    parent = table_of(pool, 8)
    child, slots = parent.fork(), parent.slots()
    child.truncate(6)  # into the middle of a block that was full, and is shared
    assert child.append() == Copy(parent.blocks[1], child.blocks[1])
    assert parent.slots() == slots and parent.length == 8
    for bad in (9, -1, 1.5):
        with pytest.raises(BadValue):
            parent.truncate(bad)  # type: ignore[arg-type]
    child.free()
    with pytest.raises(FreedTable):
        child.truncate(0)


# What a parent leaves behind must stay complete: mlx-node PR #7.
def test_children_outlive_their_parent() -> None:
    pool = BlockPool(8, 4)
    parent = table_of(pool, 6)
    slots = parent.slots()
    child, grandchild = parent.fork(), parent.fork().fork()
    parent.free()
    assert child.slots() == slots and grandchild.slots() == slots
    child.free()
    assert pool.reference_count(grandchild.blocks[0]) == 2  # the fork in between is still held


def test_a_fork_of_nothing_is_nothing() -> None:
    pool = BlockPool(2, 4)
    child = BlockTable(pool).fork()
    assert (child.blocks, child.length) == ([], 0)
    child.append()
    assert pool.num_used == 1


@pytest.mark.parametrize("size", [1, 3, 16, 256])
def test_any_order_of_operations_agrees_with_the_naive_model(size: int) -> None:
    """30,000 operations a block size: append, extend, fork, free, refused ones too, contents shadowed by slot."""
    chance = random.Random(size)
    pool_blocks = 40 if size < 16 else 12
    refused = forks = copies = 0
    operations = 0
    while operations < 30_000:
        pool, naive = BlockPool(pool_blocks, size), NaiveManager(pool_blocks, size)
        tables: dict[int, BlockTable] = {}
        memory: dict[int, int] = {}  # slot -> token written there, as a kernel would
        for name in range(400):
            operations += 1
            kind = chance.choices(["append", "extend", "fork", "free", "new"], [12, 4, 2, 1.2, 1.5])[0]
            if not tables or (kind == "new" and len(tables) < 8):
                tables[name] = BlockTable(pool)
                naive.new(name)
                continue
            who = chance.choice(list(tables))
            table = tables[who]
            if kind == "fork" and len(tables) < 8:
                tables[name] = table.fork()
                naive.fork(who, name)
                forks += 1
            elif kind == "free":
                tables.pop(who).free()
                naive.drop(who)
            else:
                count = (
                    1
                    if kind == "append"
                    else chance.choice([0, 1, 2, size - 1, size, size + 1, 2 * size + 1])
                )
                tokens = [chance.randrange(1 << 30) for _ in range(count)]
                before = state(pool, *tables.values())
                fits = naive.cost(who, count) <= naive.free
                assert table.blocks_to_extend(count) == naive.cost(who, count)
                assert table.can_extend(count) == fits
                start = table.length
                try:
                    copy = table.append() if kind == "append" else table.extend(count)
                except OutOfBlocks:
                    assert not fits
                    assert state(pool, *tables.values()) == before
                    refused += 1
                    continue
                assert naive.extend(who, tokens)
                if copy:
                    copies += 1
                    for offset in range(size):
                        if (token := memory.get(copy.source * size + offset)) is not None:
                            memory[copy.destination * size + offset] = token
                for position, token in enumerate(tokens, start):
                    memory[table.slot(position)] = token
            # Conservation, counts, and every sequence's contents, after every operation.
            live = [b for t in tables.values() for b in t.blocks]
            assert pool.num_free == naive.free == pool_blocks - len(set(live))
            assert len(set(pool.free_list())) == pool.num_free and not set(pool.free_list()) & set(live)
            assert all(pool.reference_count(b) == live.count(b) for b in set(live))
            touched = tables.get(who)
            if touched is not None:
                assert [memory[s] for s in touched.slots()] == naive.sequences[who].tokens
            if operations % 20 == 0:
                for each, sequence in naive.sequences.items():
                    assert [memory[s] for s in tables[each].slots()] == sequence.tokens
    assert refused > 100 and forks > 100  # the run really reached both
    assert copies > 100 or size == 1


def test_bytes_of_tables_with_and_without_padding() -> None:
    assert table_bytes([], 16) == (0, 0)
    assert table_bytes([0, 1], 16) == (4, 8)
    assert table_bytes([160, 16, 16], 16) == (4 * 12, 4 * 3 * 10)


@pytest.mark.parametrize(
    ("blocks", "runs"),
    [([], []), ([7], [1]), ([0, 1, 2], [3]), ([2, 1, 0], [1, 1, 1]), ([1, 2, 8, 9, 3], [2, 2, 1])],
)
def test_runs_of_consecutive_blocks(blocks: list[int], runs: list[int]) -> None:
    assert run_lengths(blocks) == runs and sum(runs) == len(blocks)
