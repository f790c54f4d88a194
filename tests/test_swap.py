from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pagedkv.swap
from pagedkv.cache import CachedSequence, PagedKVCache
from pagedkv.errors import BadValue, FreedTable, OutOfBlocks
from pagedkv.model import Decoder
from pagedkv.swap import HostPool, SwappedSequence
from small_models import decoder, geometry, prompt

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
SHAPE = geometry()


def pools(
    blocks: int, host_blocks: int, size: int = 4, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[PagedKVCache, HostPool]:
    """A cache and a host pool whose every slot is NaN, so that a slot read before it was written shows."""
    cache = PagedKVCache(SHAPE, blocks, size, dtype, device)
    host = HostPool(cache, host_blocks)
    cache.storage.fill_(torch.nan)
    host.storage.fill_(torch.nan)
    return cache, host


def filled(cache: PagedKVCache, tokens: int, seed: int = 0) -> CachedSequence:
    """A sequence of random K and V."""
    generator = torch.Generator().manual_seed(seed)
    sequence = cache.new_sequence()
    slots = cache.extend({sequence: tokens}).slots
    for layer in range(SHAPE.layers):
        k, v = torch.randn(2, tokens, SHAPE.kv_heads, SHAPE.head_dim, generator=generator).to(
            cache.device, cache.dtype
        )
        cache.write(layer, slots, k, v)
    return sequence


def contents(cache: PagedKVCache, sequence: CachedSequence) -> torch.Tensor:
    """K and V of all layers, [layers, 2, tokens, kv_heads, head_dim], on the CPU."""
    gathered = (torch.stack(cache.gather(layer, sequence)) for layer in range(SHAPE.layers))
    return torch.stack(list(gathered)).cpu()


def state(cache: PagedKVCache, host: HostPool) -> object:
    """Everything that a refused operation must leave alone."""
    device_side = [
        (sequence, list(cache.table(sequence).blocks), cache.length(sequence))
        for sequence in cache.sequences()
    ]
    host_side = [(swapped, list(host.table(swapped).blocks)) for swapped in host.sequences()]
    bits = [tensor.contiguous().view(torch.int32).tolist() for tensor in (cache.storage.cpu(), host.storage)]
    return device_side, host_side, cache.pool.free_list(), host.pool.free_list(), host.bytes_moved, bits


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 3, 4, 16])
def test_a_sequence_comes_back_to_the_last_bit(size: int, dtype: torch.dtype, device: str) -> None:
    cache, host = pools(60, 50, size, dtype, device)
    for tokens in (1, size, size + 1, 3 * size - 1, 3 * size):
        guest = filled(cache, 2 * size + 1, seed=99)
        sequence = filled(cache, tokens, seed=tokens)
        before, other = contents(cache, sequence), contents(cache, guest)
        swapped = host.swap_out(sequence)
        assert host.length(swapped) == tokens and host.sequences() == (swapped,)
        assert host.pool.num_used == -(-tokens // size) and cache.sequences() == (guest,)
        squatter = filled(cache, 3 * size, seed=7)  # takes the blocks that were given up, and writes on them
        back = host.swap_in(swapped)
        assert cache.length(back) == tokens and torch.equal(contents(cache, back), before)
        assert torch.equal(contents(cache, guest), other)
        assert host.pool.num_used == 0 and host.sequences() == ()
        for each in (guest, squatter, back):
            cache.free(each)
    assert cache.pool.num_free == 60
    assert host.bytes_moved == 2 * cache.bytes_per_block * sum(
        -(-t // size) for t in (1, size, size + 1, 3 * size - 1, 3 * size)
    )


@pytest.mark.parametrize("staged", [1, 2, 3, 100])
@pytest.mark.parametrize("device", DEVICES)
def test_scattered_blocks_and_a_small_staging_buffer_change_nothing(
    staged: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = PagedKVCache(SHAPE, 1, 4).bytes_per_block
    monkeypatch.setattr(pagedkv.swap, "STAGING_BYTES", staged * block + block // 2)
    cache, host = pools(40, 40, device=device)
    chance = random.Random(staged)
    for pool in (cache.pool, host.pool):
        blocks = pool.allocate(40)
        chance.shuffle(blocks)
        pool.free(blocks)
    inside = {number: filled(cache, 1 + 3 * number, seed=number) for number in range(7)}
    expected = {number: contents(cache, sequence) for number, sequence in inside.items()}
    outside: dict[int, SwappedSequence] = {}
    for _ in range(60):
        number = chance.randrange(7)
        if number in inside:
            outside[number] = host.swap_out(inside.pop(number))
        else:
            inside[number] = host.swap_in(outside.pop(number))
        assert all(torch.equal(contents(cache, s), expected[n]) for n, s in inside.items())
        assert cache.pool.num_used == sum(len(cache.table(s).blocks) for s in inside.values())
        assert host.pool.num_used == sum(len(host.table(s).blocks) for s in outside.values())
    assert len(host._staging) == min(40, staged)


def test_a_block_is_in_one_piece_on_the_host() -> None:
    cache, host = pools(6, 3)
    sequence = filled(cache, 9)
    before = contents(cache, sequence)
    swapped = host.swap_out(sequence)
    for logical, block in enumerate(host.table(swapped).blocks):
        assert host.storage[block].is_contiguous()
        part = before[:, :, 4 * logical : 4 * logical + 4]
        assert torch.equal(host.storage[block][:, :, : part.shape[2]], part)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_host_memory_is_pinned_beside_a_gpu() -> None:
    cache, host = pools(4, 4, device="cuda")
    assert host.storage.is_pinned() and host._staging.device == cache.device


@pytest.mark.parametrize("tokens", [7, 8])
def test_a_shared_sequence_leaves_its_sharers_alone_and_comes_back_private(tokens: int) -> None:
    cache, host = pools(12, 12)
    parent = filled(cache, tokens)
    child = cache.fork(parent)
    before = contents(cache, parent)
    swapped = host.swap_out(child)
    assert cache.pool.num_used == 2 and host.pool.num_used == 2
    assert cache.occupancy().reference_counts == (1, 1)
    back = host.swap_in(swapped)
    assert cache.pool.num_used == 4 and cache.occupancy().reference_counts == (1,) * 4
    cache.free(parent)
    assert torch.equal(contents(cache, back), before)


def test_an_empty_sequence_needs_no_host_block() -> None:
    cache, host = pools(2, 1)
    keeper = filled(cache, 3)
    host.swap_out(keeper)
    swapped = host.swap_out(cache.new_sequence())
    back = host.swap_in(swapped, more=1)
    assert cache.length(back) == 1 and cache.pool.num_used == 1 and host.pool.num_free == 0


def test_room_for_more_tokens_comes_with_it() -> None:
    cache, host = pools(4, 4)
    sequence = filled(cache, 8)
    before = contents(cache, sequence)
    back = host.swap_in(host.swap_out(sequence), more=5)
    assert cache.length(back) == 13 and cache.pool.num_used == 4
    assert torch.equal(contents(cache, back)[:, :, :8], before)


# Swap space is a pool of its own, and finite: vllm#787, #588, #546.
def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    cache, host = pools(4, 2)
    sequence = filled(cache, 9)
    before = state(cache, host)
    with pytest.raises(OutOfBlocks, match="3 blocks needed, 2 free"):
        host.swap_out(sequence)
    assert state(cache, host) == before
    cache.free(sequence)
    swapped = host.swap_out(filled(cache, 8))
    filled(cache, 9)
    before = state(cache, host)
    with pytest.raises(OutOfBlocks, match="2 blocks needed, 1 free"):
        host.swap_in(swapped)
    assert state(cache, host) == before


def test_the_device_must_have_room_for_the_new_tokens_too() -> None:
    cache, host = pools(4, 2)
    swapped = host.swap_out(filled(cache, 8))
    filled(cache, 8)
    before = state(cache, host)
    with pytest.raises(OutOfBlocks, match="3 blocks needed, 2 free"):
        host.swap_in(swapped, more=1)
    for wrong in (-1, 0.5, True):
        with pytest.raises(BadValue):
            host.swap_in(swapped, more=wrong)  # type: ignore[arg-type]
    assert state(cache, host) == before
    host.swap_in(swapped)


@pytest.mark.parametrize("way", ["_copy_out", "_copy_in"])
def test_a_copy_that_fails_leaves_both_pools_as_they_were(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, host = pools(5, 5)
    inside, swapped = filled(cache, 6), host.swap_out(filled(cache, 5))

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    before = state(cache, host)
    monkeypatch.setattr(host, way, fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        host.swap_out(inside) if way == "_copy_out" else host.swap_in(swapped)
    assert sorted_pools(state(cache, host)) == sorted_pools(before)


def sorted_pools(seen: Any) -> object:
    """A state, free lists in any order: blocks taken and given back may lie in another one."""
    return [sorted(part) if isinstance(part, tuple) else part for part in seen]


@pytest.mark.parametrize(
    "use", [HostPool.swap_in, HostPool.free, HostPool.length, HostPool.table], ids=lambda f: f.__name__
)
def test_a_sequence_that_is_gone_or_anothers_is_refused(use: Callable[[HostPool, Any], object]) -> None:
    cache, host = pools(8, 8)
    back, freed = (host.swap_out(filled(cache, 5)) for _ in range(2))
    host.swap_in(back)
    host.free(freed)
    before = state(cache, host)
    for gone in (back, freed):
        with pytest.raises(FreedTable):
            use(host, gone)
    for strange in (HostPool(cache, 1).swap_out(cache.new_sequence()), cache.sequences()[0], "a"):
        with pytest.raises(BadValue, match="not a sequence of this host pool"):
            use(host, strange)
    assert state(cache, host) == before


def test_only_a_live_sequence_of_its_own_cache_is_swapped_out() -> None:
    cache, host = pools(8, 8)
    other, _ = pools(8, 8)
    sequence = filled(cache, 5)
    host.swap_out(sequence)
    with pytest.raises(FreedTable):
        host.swap_out(sequence)
    with pytest.raises(BadValue, match="not a sequence of this cache"):
        host.swap_out(other.new_sequence())
    assert host.pool.num_used == 2 and cache.pool.num_free == 8


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_a_host_pool_has_a_whole_number_of_blocks(wrong: Any) -> None:
    with pytest.raises(BadValue):
        HostPool(PagedKVCache(SHAPE, 4, 4), wrong)


@pytest.fixture(scope="module")
def model() -> Decoder:
    return decoder(SHAPE)


def feed(model: Decoder, cache: PagedKVCache, sequence: CachedSequence, tokens: list[int]) -> torch.Tensor:
    """Logits [vocabulary] after these tokens."""
    return model.step(torch.tensor(tokens), cache.extend({sequence: len(tokens)}), cache)[0]


def greedy(
    model: Decoder, cache: PagedKVCache, sequence: CachedSequence, token: int, count: int
) -> list[int]:
    """The tokens that follow `token`."""
    tokens = [token]
    for _ in range(count):
        tokens.append(int(feed(model, cache, sequence, tokens[-1:]).argmax()))
    return tokens[1:]


@pytest.mark.parametrize("length", [1, 4, 14, 15])
def test_swapped_and_recomputed_sequences_go_on_with_the_same_tokens(model: Decoder, length: int) -> None:
    """After 10 generated tokens. A prefill sums in another order than single tokens do, so KV differs in last bits."""
    text = prompt(length, length)

    def started(cache: PagedKVCache) -> tuple[CachedSequence, list[int]]:
        sequence = cache.new_sequence()
        first = int(feed(model, cache, sequence, text).argmax())
        return sequence, [first, *greedy(model, cache, sequence, first, 9)]

    cache, host = pools(60, 10)
    untouched, tokens = started(cache)
    there = contents(cache, untouched)
    expected = greedy(model, cache, untouched, tokens[-1], 20)

    moved, again = started(cache)
    assert again == tokens
    back = host.swap_in(host.swap_out(moved))
    assert torch.equal(contents(cache, back), there)
    assert greedy(model, cache, back, tokens[-1], 20) == expected

    dropped, again = started(cache)
    cache.free(dropped)
    fresh = cache.new_sequence()
    logits = feed(model, cache, fresh, text + tokens)
    held = length + 9
    torch.testing.assert_close(contents(cache, fresh)[:, :, :held], there, atol=1e-5, rtol=1e-5)
    assert int(logits.argmax()) == expected[0]
    assert greedy(model, cache, fresh, expected[0], 19) == expected[1:]
