from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedkv.blocks import BlockPool
from pagedkv.errors import BadValue
from pagedkv.sharing import (
    Sharing,
    beam_sharing,
    parallel_sampling,
    parallel_sampling_savings,
    replay_ancestry,
)
from pagedkv.tables import BlockTable


def request(prompt: int, output: int) -> SimpleNamespace:
    return SimpleNamespace(prompt=prompt, output=output)


def by_forking(prompt: int, output: int, n: int, block_size: int) -> Sharing:
    """The definition: fork real tables, append token by token, count the pool's blocks in every iteration."""
    pool = BlockPool(n * (prompt + output + 1), block_size)
    tables = [BlockTable(pool)]
    tables[0].extend(prompt)
    tables += [tables[0].fork() for _ in range(n - 1)]
    total = Sharing()
    for _ in range(output):
        copies = sum(table.append() is not None for table in tables)
        total += Sharing(pool.num_used, sum(len(table.blocks) for table in tables), copies)
    return total


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=4),
    n=st.integers(1, 6),
    block_size=st.integers(1, 20),
)
def test_the_closed_form_counts_what_forked_tables_hold(
    sizes: list[tuple[int, int]], n: int, block_size: int
) -> None:
    counted = sum((by_forking(*size, n, block_size) for size in sizes), Sharing())
    assert parallel_sampling([request(*size) for size in sizes], n, block_size) == counted
    # Parallel sampling is the ancestry in which every branch stays alone after the fan-out.
    parents = [(0,) * n] + [tuple(range(n))] * 50
    replayed = [replay_ancestry(*size, parents, block_size) for size in sizes]
    assert sum((part for steps in replayed for part in steps), Sharing()) == counted


def lognormal(draw: random.Random, mean: float, variation: float) -> int:
    sigma = math.sqrt(math.log(1 + variation**2))
    return max(1, round(draw.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)))


@pytest.mark.parametrize(
    ("prompt", "output", "variation", "expected"),
    [
        (19.31, 58.45, 1.2, (6.31, 9.46, 10.51)),  # Alpaca; published: 6.09, 8.53, 9.79
        (161.31, 337.99, 0.87, (16.7, 25.1, 27.8)),  # ShareGPT; published: 16.2 to 30.5
    ],
)
def test_the_published_savings_of_parallel_sampling(
    prompt: float, output: float, variation: float, expected: tuple[float, ...]
) -> None:
    draw = random.Random(0)
    requests = [
        request(lognormal(draw, prompt, 1.0), lognormal(draw, output, variation)) for _ in range(60_000)
    ]
    for n, percent in zip((2, 4, 6), expected, strict=True):
        assert parallel_sampling_savings(requests, n) == pytest.approx(percent, abs=0.35)


def test_savings_by_hand() -> None:
    # 20 prompt tokens: one full block shared by four; three iterations at 2 blocks each.
    assert parallel_sampling([request(20, 3)], 4) == Sharing(live=15, duplicated=24, copies=3)
    assert parallel_sampling_savings([request(20, 3)], 4) == 37.5
    assert parallel_sampling_savings([request(16, 3)], 4) == 37.5
    assert parallel_sampling([request(16, 3)], 4).copies == 0
    assert parallel_sampling_savings([request(15, 3)], 4) == 0
    assert parallel_sampling([], 4) == parallel_sampling([request(5, 0)], 4) == Sharing()
    assert parallel_sampling_savings([request(5, 0)], 4) == 0


def test_a_beam_that_follows_one_parent_shares_nearly_everything() -> None:
    steps = replay_ancestry(4, 6, [(0, 0)] * 6, 4)
    # Each iteration both children come from branch 0: only the newest, partial block is private.
    assert [step.live for step in steps] == [3, 3, 3, 3, 4, 4]
    assert [step.duplicated for step in steps] == [4, 4, 4, 4, 6, 6]
    assert [step.copies for step in steps] == [0, 1, 1, 1, 0, 1]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), width=st.integers(1, 6), prompt=st.integers(0, 40), block_size=st.integers(1, 17))
def test_replayed_ancestry_shares_a_block_exactly_where_histories_agree(
    data: st.DataObject, width: int, prompt: int, block_size: int
) -> None:
    branch = st.integers(0, width - 1)
    later = data.draw(st.lists(st.lists(branch, min_size=width, max_size=width), max_size=25))
    parents = [[0] * width, *later]
    histories: list[tuple[int, ...]] = [()]
    for number, (choice, step) in enumerate(
        zip(parents, replay_ancestry(prompt, len(parents), parents, block_size), strict=True)
    ):
        histories = [(*histories[parent], number * width + child) for child, parent in enumerate(choice)]
        # A block is its tokens' history up to its end; different histories never share, equal ones may.
        tokens = [(*range(-prompt, 0), *history) for history in histories]
        ideal = {
            history[: end + block_size] for history in tokens for end in range(0, len(history), block_size)
        }
        assert step.duplicated == sum(-(-len(history) // block_size) for history in tokens)
        # Copies made on write are never merged again, so tables can hold more than the ideal, never less.
        assert len(ideal) <= step.live <= step.duplicated


def test_many_requests_take_turns_with_the_ancestries() -> None:
    alone = [(0, 0), (0, 1), (0, 1)]
    together = [(0, 0), (0, 0), (0, 0)]
    requests = [request(8, 3), request(8, 3)]
    expected = sum((*replay_ancestry(8, 3, alone, 4), *replay_ancestry(8, 3, together, 4)), Sharing())
    assert beam_sharing(requests, [alone, together], 4) == expected
    # A longer output repeats what follows the fan-out.
    longer = [alone[0], *alone[1:] * 4]
    assert beam_sharing([request(8, 9)], [alone], 4) == sum(replay_ancestry(8, 9, longer, 4), Sharing())
    assert beam_sharing([request(8, 5)], [[(0, 0)]], 4) == parallel_sampling([request(8, 5)], 2, 4)
    assert beam_sharing([], [alone]).saved_percent == 0


@pytest.mark.parametrize("bad", [0, -1, 1.5, True])
def test_counts_that_are_none_are_refused(bad: int) -> None:
    with pytest.raises(BadValue):
        parallel_sampling([request(1, 1)], bad)
    with pytest.raises(BadValue):
        parallel_sampling([request(1, 1)], 2, bad)


def test_an_ancestry_that_is_none_is_refused() -> None:
    for output, parents in (
        (3, [(0, 0), (0, 1)]),
        (1, [(1,)]),
        (2, [(0, 0), (0, 2)]),
        (2, [(0, 0), (0, -1)]),
    ):
        with pytest.raises(BadValue):
            replay_ancestry(8, output, parents)
    for ancestries in ([], [[]], [[(0, 0)], []]):
        with pytest.raises(BadValue):
            beam_sharing([request(8, 3)], ancestries)
