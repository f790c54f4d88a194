from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.blocks import BlockPool, blocks_needed
from pagedkv.errors import BadValue, NotAllocated, OutOfBlocks, PagedKVError


def state(pool: BlockPool) -> tuple[tuple[int, ...], list[int]]:
    return pool.free_list(), [pool.reference_count(b) for b in range(pool.num_blocks)]


@pytest.mark.parametrize(
    ("tokens", "size", "blocks"), [(0, 16, 0), (1, 16, 1), (16, 16, 1), (17, 16, 2), (5, 1, 5), (7, 3, 3)]
)
def test_blocks_needed_is_the_ceiling(tokens: int, size: int, blocks: int) -> None:
    assert blocks_needed(tokens, size) == blocks


def test_fresh_pool_hands_out_in_order_and_reuses_the_tail_first() -> None:
    pool = BlockPool(6, 16)
    table = pool.allocate(4)
    assert table == [0, 1, 2, 3]
    pool.free(table)
    assert pool.free_list() == (3, 2, 1, 0, 4, 5)  # the tail of the freed table is on top, as in vLLM's pool


def test_one_by_one_equals_in_one_call() -> None:
    one, many = BlockPool(9, 4), BlockPool(9, 4)
    for pool in (one, many):
        pool.free(pool.allocate(5))
    assert [one.allocate_one() for _ in range(6)] == many.allocate(6)
    assert state(one) == state(many)


def test_allocating_nothing_gives_nothing() -> None:
    pool = BlockPool(2, 4)
    assert pool.allocate(0) == []
    pool.free([])
    assert state(pool) == state(BlockPool(2, 4))


@pytest.mark.parametrize("count", [5, 100])
def test_too_many_blocks_is_refused_and_changes_nothing(count: int) -> None:
    pool = BlockPool(6, 16)
    pool.allocate(2)
    before = state(pool)
    with pytest.raises(OutOfBlocks, match=f"{count} blocks needed, 4 free") as refusal:
        pool.allocate(count)
    assert (refusal.value.needed, refusal.value.free) == (count, 4)
    assert state(pool) == before


def test_an_empty_pool_refuses_one_block() -> None:
    pool = BlockPool(1, 16)
    pool.allocate_one()
    with pytest.raises(OutOfBlocks):
        pool.allocate_one()
    assert pool.num_free == 0


# Freed twice, in every way there is: vllm#1556, vllm#1584, vllm#1930, vllm#42571.
@pytest.mark.parametrize(
    "wrong",
    [[3], [0, 0], [0, 3], [3, 0], [1, 0, 1], [-1], [0, -1], [4], [0, 99], [0, 1.0], ["0"], [None]],
)
def test_freeing_what_is_not_held_is_refused_and_changes_nothing(wrong: list[object]) -> None:
    pool = BlockPool(4, 16)
    pool.allocate(3)
    before = state(pool)
    with pytest.raises(NotAllocated):
        pool.free(wrong)  # type: ignore[arg-type]
    assert state(pool) == before


def test_a_negative_id_is_not_the_last_block() -> None:
    pool = BlockPool(4, 16)
    pool.allocate(4)
    before = state(pool)
    for wrong in ([-1], [0, -1], [-4]):
        with pytest.raises(NotAllocated):
            pool.free(wrong)
        with pytest.raises(NotAllocated):
            pool.share(wrong)
    assert state(pool) == before


def test_freeing_twice_is_refused() -> None:
    pool = BlockPool(4, 16)
    blocks = pool.allocate(3)
    pool.free(blocks)
    with pytest.raises(NotAllocated, match="already free"):
        pool.free(blocks)
    assert pool.num_free == 4


@pytest.mark.parametrize("wrong", [[0, 3], [3], [0, 0], [7]])
def test_sharing_what_is_not_held_is_refused_and_changes_nothing(wrong: list[int]) -> None:
    pool = BlockPool(4, 16)
    pool.allocate(3)
    before = state(pool)
    with pytest.raises(NotAllocated):
        pool.share(wrong)
    assert state(pool) == before


def test_a_shared_block_returns_with_its_last_reference() -> None:
    pool = BlockPool(4, 16)
    a, b = pool.allocate(2)
    pool.share([b])
    pool.free([a, b])
    assert pool.reference_count(b) == 1 and pool.num_free == 3
    pool.free([b])
    assert pool.num_free == 4


@pytest.mark.parametrize("bad", [0, -1, 1.5, "16", None, True])
def test_sizes_must_be_positive_whole_numbers(bad: object) -> None:
    with pytest.raises(BadValue, match="num_blocks"):
        BlockPool(bad, 16)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="block_size"):
        BlockPool(16, bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1, 1.0, "1", None, True])
def test_counts_must_be_whole_and_not_negative(bad: object) -> None:
    pool = BlockPool(4, 16)
    with pytest.raises(BadValue):
        pool.allocate(bad)  # type: ignore[arg-type]
    assert pool.num_free == 4


@pytest.mark.parametrize("block", [-1, 4])
def test_reference_count_of_no_block_is_refused(block: int) -> None:
    with pytest.raises(BadValue):
        BlockPool(4, 16).reference_count(block)


@given(
    st.lists(
        st.tuples(st.sampled_from(["allocate", "free", "share"]), st.lists(st.integers(-1, 8))), max_size=60
    )
)
def test_conservation_against_a_dictionary(operations: list[tuple[str, list[int]]]) -> None:
    pool, counts = BlockPool(7, 3), dict.fromkeys(range(7), 0)
    for name, blocks in operations:
        before = state(pool)
        legal = len(set(blocks)) == len(blocks) and all(counts.get(b, 0) for b in blocks)
        try:
            if name == "allocate":
                for block in pool.allocate(len(blocks)):
                    assert counts[block] == 0
                    counts[block] = 1
                continue
            getattr(pool, name)(blocks)
            assert legal
            for block in blocks:
                counts[block] += 1 if name == "share" else -1
        except PagedKVError:
            assert state(pool) == before
            assert not legal or len(blocks) > len(before[0])
        free = pool.free_list()
        assert len(set(free)) == len(free)
        assert {b: pool.reference_count(b) for b in counts} == counts
        assert set(free) == {b for b, n in counts.items() if not n}
