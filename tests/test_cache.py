from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch import Tensor

from pagedkv.cache import CachedSequence, PagedKVCache
from pagedkv.contiguous_cache import ContiguousKVCache
from pagedkv.errors import BadValue, FreedTable, NeverFits, NotAllocated, OutOfBlocks
from pagedkv.geometry import ModelGeometry
from pagedkv.kernels.reference import attention_float64
from pagedkv.tables import Copy

torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@dataclass(frozen=True)
class Shape:
    layers: int = 1
    kv_heads: int = 1
    head_dim: int = 1


def poisoned(num_blocks: int, block_size: int, shape: Shape = Shape(), **where: Any) -> PagedKVCache:
    """A paged cache whose every slot is NaN, so that a slot read before it was written shows."""
    cache = PagedKVCache(shape, num_blocks, block_size, **where)
    cache.storage.fill_(torch.nan)
    return cache


def state(cache: PagedKVCache | ContiguousKVCache) -> object:
    """Everything that a refused operation must leave alone."""
    bits = cache.storage.clone().view(torch.int32 if cache.dtype == torch.float32 else torch.int16)
    lengths = [cache.length(sequence) for sequence in cache.sequences()]
    if isinstance(cache, ContiguousKVCache):
        return lengths, list(cache._free_rows), bits.tolist()
    tables = [list(cache.table(sequence).blocks) for sequence in cache.sequences()]
    counts = [cache.pool.reference_count(block) for block in range(cache.pool.num_blocks)]
    return lengths, tables, counts, cache.pool.free_list(), bits.tolist()


def write(
    cache: PagedKVCache | ContiguousKVCache, growth: dict[CachedSequence, int], first: float = 1.0
) -> Any:
    """Extend and write first, first + 1, ... as K of the new tokens, and minus that as V, in all layers and heads."""
    extension = cache.extend(growth)
    codes = (first + torch.arange(len(extension.slots))).to(cache.dtype).to(cache.device)
    k = codes[:, None, None].expand(-1, cache.layout.kv_heads, cache.layout.head_dim)
    for layer in range(cache.layout.layers):
        cache.write(layer, extension.slots, k, -k)
    return extension


def contents(
    cache: PagedKVCache | ContiguousKVCache, sequence: CachedSequence, layer: int = 0
) -> list[float]:
    k, v = cache.gather(layer, sequence)
    assert torch.equal(k, -v)
    codes: list[float] = k[:, 0, 0].tolist()
    return codes


class Shadowed:
    """A paged cache beside the plain list of token contents that each sequence must have."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.cache = poisoned(num_blocks, block_size)
        self.pool = self.cache.pool
        self.shadow: dict[CachedSequence, list[float]] = {}
        self.blocks: list[int] = []
        self.next = 1
        self.refused = 0
        self.copies = 0

    def new(self) -> None:
        self.shadow[self.cache.new_sequence()] = []

    def fork(self, parent: CachedSequence) -> None:
        free = self.pool.num_free
        self.shadow[self.cache.fork(parent)] = list(self.shadow[parent])
        assert self.pool.num_free == free

    def free(self, sequence: CachedSequence) -> None:
        before = set(self.live())
        self.cache.free(sequence)
        del self.shadow[sequence]
        gone = sorted(before - set(self.live()))
        self.cache.storage[:, :, gone] = torch.nan  # whoever still reads them is found out

    def extend(self, growth: dict[CachedSequence, int]) -> None:
        needed = self.expected_blocks(growth)
        free = self.pool.num_free
        if needed > free:
            before = self.tables(), self.pool.free_list()
            with pytest.raises(OutOfBlocks) as refusal:
                self.cache.extend(growth)
            assert (refusal.value.needed, refusal.value.free) == (needed, free)
            assert (self.tables(), self.pool.free_list()) == before
            self.refused += 1
            return
        extension = write(self.cache, growth, self.next)
        assert self.pool.num_free == free - needed
        for sequence, count in growth.items():
            self.shadow[sequence] += range(self.next, self.next + count)
            self.next += count
        self.copies += len(extension.copies)

    def expected_blocks(self, growth: dict[CachedSequence, int]) -> int:
        """New blocks by arithmetic; of h holders of a partial block, w writers copy min(w, h - 1) times."""
        size = self.pool.block_size
        lengths = {sequence: len(tokens) for sequence, tokens in self.shadow.items()}
        new = sum(-(-(lengths[s] + n) // size) - -(-lengths[s] // size) for s, n in growth.items())
        lasts = {s: self.cache.table(s).blocks[-1] for s, length in lengths.items() if length % size}
        holders = Counter(block for s in lengths for block in self.cache.table(s).blocks)
        writers = Counter(lasts[s] for s, n in growth.items() if n and s in lasts)
        return new + sum(min(w, holders[block] - 1) for block, w in writers.items())

    def tables(self) -> list[tuple[int, list[int]]]:
        return [(self.cache.length(s), list(self.cache.table(s).blocks)) for s in self.shadow]

    def live(self) -> Counter[int]:
        return Counter(block for sequence in self.shadow for block in self.cache.table(sequence).blocks)

    def check(self) -> None:
        pool, live = self.pool, self.live()
        assert pool.num_free + len(live) == pool.num_blocks
        assert all(pool.reference_count(block) == count for block, count in live.items())
        assert not live.keys() & set(pool.free_list())
        assert self.cache.occupancy().duplicated_blocks == live.total()
        for sequence, tokens in self.shadow.items():
            assert contents(self.cache, sequence) == tokens


@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 40), (3, 24), (16, 10), (256, 9)])
def test_every_gather_equals_the_shadow_over_many_operations(block_size: int, num_blocks: int) -> None:
    draw = random.Random(block_size)
    world = Shadowed(num_blocks, block_size)
    operations = Counter[str]()
    world.new()
    while operations.total() < 25_500:
        alive = list(world.shadow)
        choices = ["extend"] * 6 + ["append"] * 6
        choices += (
            ["new"] * (len(alive) < 8) + ["fork"] * 4 * (len(alive) < 8) + ["free"] * 2 * (len(alive) > 1)
        )
        operation = draw.choice(choices)
        operations[operation] += 1
        if operation == "new":
            world.new()
        elif operation == "fork":
            world.fork(draw.choice(alive))
        elif operation == "free":
            # The oldest first, more often than not: parents go before their children.
            world.free(alive[0] if draw.random() < 0.6 else draw.choice(alive))
        elif operation == "append":
            world.extend(dict.fromkeys(draw.sample(alive, draw.randint(1, len(alive))), 1))
        else:
            world.extend({draw.choice(alive): draw.randint(0, min(2 * block_size, 40))})
        world.check()
    assert min(operations.values()) > 500
    assert world.refused > 100 and world.copies >= 100 * (block_size > 1)


class CacheMachine(RuleBasedStateMachine):
    """The same world, driven by hypothesis, which shrinks what it finds."""

    @initialize(num_blocks=st.integers(1, 12), block_size=st.sampled_from([1, 2, 3, 16, 256]))
    def start(self, num_blocks: int, block_size: int) -> None:
        self.world = Shadowed(num_blocks, block_size)
        self.world.new()

    @rule()
    def new(self) -> None:
        if len(self.world.shadow) < 8:
            self.world.new()

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        if self.world.shadow and len(self.world.shadow) < 8:
            self.world.fork(data.draw(st.sampled_from(list(self.world.shadow))))

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.world.shadow:
            self.world.free(data.draw(st.sampled_from(list(self.world.shadow))))

    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        if self.world.shadow:
            chosen = st.dictionaries(st.sampled_from(list(self.world.shadow)), st.integers(0, 20), max_size=8)
            self.world.extend(data.draw(chosen))

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()


CacheMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestCacheMachine = CacheMachine.TestCase


# Fork: what is shared and what is copied (amd-shark-ai PR #1089, nm-vllm PR #3, vllm PR #32).
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 3, 16, 256])
@pytest.mark.parametrize("writers", [1, 2, 4, 7])
def test_writers_of_a_partial_block_copy_all_but_once(
    writers: int, block_size: int, dtype: torch.dtype, device: str
) -> None:
    for extra in {0, 1, block_size - 1}:
        prompt = block_size + extra
        cache = poisoned(4 + 2 * writers, block_size, Shape(2, 2, 3), dtype=dtype, device=device)
        parent = cache.new_sequence()
        write(cache, {parent: prompt})
        shared = cache.gather(1, parent)
        branches = [parent] + [cache.fork(parent) for _ in range(writers - 1)]
        held = cache.occupancy().live_blocks
        extension = write(cache, dict.fromkeys(branches, 1), 500)
        partial = prompt % block_size != 0
        assert len(extension.copies) == (writers - 1 if partial else 0)
        assert cache.bytes_copied == len(extension.copies) * cache.bytes_per_block
        assert cache.occupancy().live_blocks == held + (writers - 1 if partial else writers)
        for branch, code in zip(branches, torch.arange(500, 500 + writers).to(dtype), strict=True):
            k, v = cache.gather(1, branch)
            assert torch.equal(k[:-1], shared[0]) and torch.equal(v[:-1], shared[1])
            assert (k[-1].cpu() == code).all() and (v[-1].cpu() == -code).all()


def test_a_prompt_of_20_tokens_and_three_forks_live_in_five_blocks() -> None:
    cache = poisoned(8, 16)
    parent = cache.new_sequence()
    write(cache, {parent: 20})
    branches = [parent, *(cache.fork(parent) for _ in range(3))]
    copies = write(cache, dict.fromkeys(branches, 1), 100).copies
    assert copies == (Copy(1, 2), Copy(1, 3), Copy(1, 4))
    assert cache.occupancy().reference_counts == (4, 1, 1, 1, 1)
    assert cache.occupancy().duplicated_blocks == 8 and cache.occupancy().saved == 3 / 8
    for copy in copies:
        assert torch.equal(cache.storage[:, :, copy.destination, :4], cache.storage[:, :, 1, :4])


def test_writing_one_by_one_copies_for_all_but_the_last_holder() -> None:
    cache = poisoned(8, 16)
    parent = cache.new_sequence()
    write(cache, {parent: 20})
    branches = [parent, *(cache.fork(parent) for _ in range(3))]
    assert [len(write(cache, {branch: 1}, 100 + i).copies) for i, branch in enumerate(branches)] == [
        1,
        1,
        1,
        0,
    ]
    assert [contents(cache, branch)[20] for branch in branches] == [100, 101, 102, 103]


# Bookkeeping of a shared block must outlive its first owner: mlx-node PR #7.
def test_children_keep_everything_when_the_parent_goes_first() -> None:
    cache = poisoned(8, 16)
    parent = cache.new_sequence()
    write(cache, {parent: 20})
    child = cache.fork(parent)
    grandchild = cache.fork(child)
    cache.free(parent)
    cache.free(child)
    assert contents(cache, grandchild) == list(range(1, 21))
    assert cache.occupancy().reference_counts == (1, 1)
    assert write(cache, {grandchild: 1}, 99).copies == ()
    assert cache.table(grandchild).slots() == list(range(21))


def test_a_batch_is_charged_for_the_copies_it_really_makes() -> None:
    cache = poisoned(5, 16)
    parent = cache.new_sequence()
    write(cache, {parent: 20})
    branches = [parent, *(cache.fork(parent) for _ in range(3))]
    # Table by table each of the four would need a copy, but the last holder writes in place.
    assert sum(cache.table(branch).blocks_to_extend(1) for branch in branches) == 4
    assert cache.blocks_to_extend(dict.fromkeys(branches, 1)) == 3 == cache.pool.num_free
    assert len(write(cache, dict.fromkeys(branches, 1)).copies) == 3


def test_a_batch_that_does_not_fit_leaves_all_of_it_as_it_was() -> None:
    cache = poisoned(4, 16)
    parent = cache.new_sequence()
    write(cache, {parent: 20})
    branches = [parent, *(cache.fork(parent) for _ in range(3))]
    before = state(cache)
    with pytest.raises(OutOfBlocks) as refusal:
        cache.extend(dict.fromkeys(branches, 1))
    assert (refusal.value.needed, refusal.value.free) == (3, 2)
    assert state(cache) == before
    for bad in (-1, 1.0, True, "1"):
        with pytest.raises(BadValue):
            cache.extend({parent: 1, branches[1]: bad})  # type: ignore[dict-item]
        assert state(cache) == before
    cache.free(branches[2])
    before = state(cache)
    with pytest.raises(FreedTable):
        cache.extend({parent: 1, branches[2]: 1})
    assert state(cache) == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 2), (3, 1)])
@pytest.mark.parametrize("block_size", [1, 3, 16, 64])
def test_paged_and_contiguous_attend_to_the_last_bit_alike(
    block_size: int, heads: int, kv_heads: int, dtype: torch.dtype, device: str
) -> None:
    draw = random.Random(block_size * heads)
    shape = Shape(2, kv_heads, 8)
    paged = poisoned(200, block_size, shape, dtype=dtype, device=device)
    contiguous = ContiguousKVCache(shape, 6, 80, dtype=dtype, device=device)
    contiguous.storage.fill_(torch.nan)
    twins = [(paged.new_sequence(), contiguous.new_sequence()) for _ in range(3)]
    for step in range(7):
        if step in (2, 4):
            twins.append((paged.fork(twins[1][0]), contiguous.fork(twins[1][1])))
        if step == 5:
            paged.free(twins[0][0])
            contiguous.free(twins.pop(0)[1])
        # Prompts, then single tokens, then chunks and single tokens in one batch.
        counts = [draw.choice([0, 1, 7] if step > 3 else [1]) if step else draw.randint(1, 40) for _ in twins]
        extensions = [
            cache.extend({pair[side]: count for pair, count in zip(twins, counts, strict=True)})
            for side, cache in enumerate((paged, contiguous))
        ]
        assert extensions[0].positions == extensions[1].positions
        for layer in range(2):
            k, v, q = (
                torch.randn(sum(counts), n, 8).to(dtype).to(device) for n in (kv_heads, kv_heads, heads)
            )
            results = []
            for side, (cache, extension) in enumerate(zip((paged, contiguous), extensions, strict=True)):
                cache.write(layer, extension.slots, k, v)
                results.append(cache.attend(layer, q, [pair[side] for pair in twins], counts))
            assert torch.equal(*results)
            for pair, query, result in zip(
                twins, torch.split(q, counts), torch.split(results[0], counts), strict=True
            ):
                gathered = paged.gather(layer, pair[0])
                for mine, other in zip(gathered, contiguous.gather(layer, pair[1]), strict=True):
                    assert torch.equal(mine, other) and mine.isfinite().all()
                tolerance = 1e-5 if dtype == torch.float32 else 3e-2
                oracle = attention_float64(query, *gathered)
                torch.testing.assert_close(result.double(), oracle, atol=tolerance, rtol=tolerance)


def test_one_query_per_sequence_is_the_default() -> None:
    cache = poisoned(8, 4)
    pair = [cache.new_sequence(), cache.new_sequence()]
    write(cache, {pair[0]: 5, pair[1]: 2})
    q = torch.ones(2, 3, 1)
    assert torch.equal(cache.attend(0, q, pair), cache.attend(0, q, pair, [1, 1]))


def test_tables_are_padded_for_a_kernel_in_int32_and_slots_are_int64() -> None:
    cache = poisoned(8, 4)
    a, b, c = (cache.new_sequence() for _ in range(3))
    extension = cache.extend({a: 9, b: 1, c: 0})
    tables = cache.block_tables([b, a, c])
    assert tables.dtype == torch.int32 and tables.tolist() == [[3, 0, 0], [0, 1, 2], [0, 0, 0]]
    # A slot times its stride overflows 32 bits long before the slot itself does (vllm PR #47671, aiter#3062).
    assert extension.slots.dtype == torch.int64
    assert cache.block_tables([]).shape == (0, 0)


def test_dimensions_come_from_a_model_geometry() -> None:
    model = ModelGeometry("toy", 3, 64, 128, 4, 2, 16, 100)
    cache = PagedKVCache(model, 5, 4, torch.bfloat16)
    assert cache.storage.shape == (3, 2, 5, 4, 2, 16)
    assert cache.bytes_per_block == 4 * model.kv_bytes_per_token
    assert cache.storage.numel() * 2 == 5 * cache.bytes_per_block


def both(**where: Any) -> list[PagedKVCache | ContiguousKVCache]:
    shape = Shape(2, 2, 4)
    return [poisoned(6, 4, shape, **where), ContiguousKVCache(shape, 3, 24, **where)]


@pytest.mark.parametrize("cache", both(), ids=lambda cache: type(cache).__name__)
def test_tensors_that_do_not_fit_are_refused_and_nothing_is_written(cache: Any) -> None:
    sequence = cache.new_sequence()
    slots = write(cache, {sequence: 3}).slots
    before = state(cache)
    good = torch.zeros(3, 2, 4)
    bad: list[Tensor] = [
        good.half(), good.double(), good.long(), good.to("meta"), good[:2], torch.zeros(3, 4, 4), torch.zeros(3, 1, 4),
        torch.zeros(3, 2, 8), torch.zeros(3, 8), torch.zeros(3, 2, 4, 1), torch.zeros(()),
    ]  # fmt: skip
    for tensor in bad:
        for k, v in ((tensor, good), (good, tensor)):
            with pytest.raises(BadValue, match=r"must be \[3, 2, 4\] of torch.float32 on cpu"):
                cache.write(0, slots, k, v)
    for wrong in (slots.int(), slots[None], slots.float(), slots.to("meta")):
        with pytest.raises(BadValue, match="slots must be"):
            cache.write(0, wrong, good, good)
    for outside in (-1, 10_000):
        with pytest.raises(BadValue, match=f"slot {outside} is outside"):
            cache.write(0, torch.tensor([0, outside, 1]), good, good)
    with pytest.raises(BadValue):
        cache.write(0, slots[:2], good, good)
    for layer in (-1, 2, 0.0, True):
        for call in (
            partial(cache.write, layer, slots, good, good),
            partial(cache.gather, layer, sequence),
            partial(cache.attend, layer, torch.zeros(1, 2, 4), [sequence]),
        ):
            with pytest.raises(BadValue):
                call()
    assert state(cache) == before


@pytest.mark.parametrize("cache", both(), ids=lambda cache: type(cache).__name__)
def test_queries_that_do_not_fit_are_refused(cache: Any) -> None:
    sequence = cache.new_sequence()
    write(cache, {sequence: 3})
    for heads in (2, 4, 6):
        assert cache.attend(0, torch.zeros(2, heads, 4), [sequence], [2]).shape == (2, heads, 4)
    bad = [(2, 3, 4), (2, 1, 4), (2, 0, 4), (2, 4, 5), (3, 4, 4), (1, 4, 4), (2, 16)]
    for shape in bad:
        with pytest.raises(BadValue):
            cache.attend(0, torch.zeros(shape), [sequence], [2])
    for counts in ([4], [-1], [1.0], [1, 1], []):
        with pytest.raises(BadValue):
            cache.attend(0, torch.zeros(1, 4, 4), [sequence], counts)
    for q in (torch.zeros(1, 4, 4).half(), torch.zeros(1, 4, 4, device="meta")):
        with pytest.raises(BadValue):
            cache.attend(0, q, [sequence])


@pytest.mark.parametrize("cache", both(), ids=lambda cache: type(cache).__name__)
def test_a_sequence_that_is_gone_or_a_stranger_is_refused(cache: Any) -> None:
    kept, gone = cache.new_sequence(), cache.new_sequence()
    write(cache, {kept: 3, gone: 3})
    cache.free(gone)
    before = state(cache)
    other = both()[0].new_sequence()
    for sequence, error in ((gone, FreedTable), (other, BadValue), (7, BadValue), (None, BadValue)):
        for call in (
            partial(cache.fork, sequence),
            partial(cache.free, sequence),
            partial(cache.length, sequence),
            partial(cache.extend, {kept: 1, sequence: 1}),
            partial(cache.gather, 0, sequence),
            partial(cache.attend, 0, torch.zeros(1, 2, 4), [sequence]),
        ):
            with pytest.raises(error):
                call()
        assert state(cache) == before
    assert cache.sequences() == (kept,)


def test_a_full_contiguous_cache_refuses_and_stays_as_it_was() -> None:
    cache = ContiguousKVCache(Shape(), 2, 8)
    a, b = cache.new_sequence(), cache.new_sequence()
    write(cache, {a: 8, b: 3})
    before = state(cache)
    for call in (cache.new_sequence, partial(cache.fork, b)):
        with pytest.raises(OutOfBlocks):
            call()
    with pytest.raises(NeverFits) as refusal:
        cache.extend({b: 1, a: 1})
    assert (refusal.value.needed, refusal.value.capacity) == (9, 8)
    assert state(cache) == before
    cache.free(a)
    child = cache.fork(b)
    assert contents(cache, child) == contents(cache, b)
    assert cache.bytes_copied == 3 * 2 * 4
    assert cache.occupancy().reference_counts == (1, 1) and cache.occupancy().saved == 0


def test_a_fork_copies_nothing_until_somebody_writes() -> None:
    cache = poisoned(8, 16)
    parent = cache.new_sequence()
    write(cache, {parent: 20})
    before = cache.storage.nan_to_num(-7).tolist()
    for _ in range(5):
        cache.fork(parent)
    assert cache.storage.nan_to_num(-7).tolist() == before and cache.bytes_copied == 0
    assert cache.occupancy().saved == pytest.approx(5 / 6)


def test_copies_that_would_corrupt_something_are_refused() -> None:
    cache = poisoned(8, 4)
    a, b = cache.new_sequence(), cache.new_sequence()
    write(cache, {a: 8, b: 8})
    child = cache.fork(b)
    assert cache.table(child).blocks == [2, 3]
    before = state(cache)
    for pairs, error in (
        ([(7, 0)], NotAllocated),
        ([(0, 7)], NotAllocated),
        ([(0, 2)], NotAllocated),
        ([(0, 1), (2, 1)], BadValue),
        ([(0, 1), (1, 0)], BadValue),
        ([(0, 0)], BadValue),
        ([(0, 99)], BadValue),
        ([(-1, 0)], BadValue),
    ):
        with pytest.raises(error):
            cache.copy_blocks([Copy(*pair) for pair in pairs])
        assert state(cache) == before
    cache.copy_blocks([])
    cache.copy_blocks([Copy(2, 0), Copy(2, 1)])
    assert contents(cache, a) == contents(cache, b)[:4] * 2


@pytest.mark.parametrize("make", [lambda **k: PagedKVCache(num_blocks=2, block_size=4, **k),
                                  lambda **k: ContiguousKVCache(max_sequences=2, max_length=4, **k)])  # fmt: skip
def test_a_cache_that_cannot_be_is_refused(make: Any) -> None:
    fine = {"layers": 1, "kv_heads": 1, "head_dim": 1}
    for name in fine:
        for value in (0, -1, 1.0, True):
            with pytest.raises(BadValue, match=name):
                make(model=SimpleNamespace(**{**fine, name: value}))
    for dtype in (torch.float64, torch.int8, torch.complex64):
        with pytest.raises(BadValue, match="dtype must be one of"):
            make(model=Shape(), dtype=dtype)
    for device in ("nowhere", "cuda:77"):
        with pytest.raises(BadValue, match=f"'{device}' cannot be used"):
            make(model=Shape(), device=device)


def test_gradients_do_not_reach_into_the_cache() -> None:
    cache = poisoned(2, 4)
    sequence = cache.new_sequence()
    slots = cache.extend({sequence: 1}).slots
    k = torch.ones(1, 1, 1, requires_grad=True)
    cache.write(0, slots, k, -k)
    assert not cache.storage.requires_grad and cache.storage.grad_fn is None
    assert contents(cache, sequence) == [1.0]


def test_an_empty_sequence_is_no_trouble() -> None:
    for cache in both():
        empty = cache.new_sequence()
        extension = cache.extend({empty: 0})
        assert extension.slots.shape == (0,) and extension.copies == ()
        cache.write(0, extension.slots, torch.zeros(0, 2, 4), torch.zeros(0, 2, 4))
        assert cache.gather(0, empty)[0].shape == (0, 2, 4)
        assert cache.attend(0, torch.zeros(0, 2, 4), [empty], [0]).shape == (0, 2, 4)
        assert cache.attend(0, torch.zeros(0, 2, 4), [], []).shape == (0, 2, 4)
        assert cache.extend({}).slots.shape == (0,)
        cache.free(cache.fork(empty))
        cache.free(empty)
        assert cache.sequences() == ()
