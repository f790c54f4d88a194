from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pagedkv.cache import KVCache, PagedKVCache
from pagedkv.contiguous_cache import ContiguousKVCache
from pagedkv.errors import BadValue, NeverFits, OutOfBlocks, PagedKVError
from pagedkv.generate import Beam, Continuation, Greedy, Sample, Strategy, generate, refork
from pagedkv.model import Decoder
from pagedkv.sharing import Sharing, replay_ancestry
from small_models import decoder, dense_scores, prompt

STRATEGIES: list[Strategy] = [Greedy(), Sample(4, 0.9, seed=3), Beam(4)]
NAMES = ["greedy", "sample", "beam"]


@pytest.fixture(scope="module")
def model() -> Decoder:
    return decoder()


def paged(model: Decoder, block_size: int = 16, num_blocks: int = 600) -> PagedKVCache:
    cache = PagedKVCache(model.geometry, num_blocks, block_size)
    cache.storage.fill_(torch.nan)
    return cache


def contiguous(model: Decoder, rows: int = 16, length: int = 240) -> ContiguousKVCache:
    cache = ContiguousKVCache(model.geometry, rows, length)
    cache.storage.fill_(torch.nan)
    return cache


def lengths_around(block_size: int) -> list[int]:
    return sorted({max(1, block_size - 1), block_size, block_size + 1, 3 * block_size})


@pytest.mark.parametrize("strategy", STRATEGIES, ids=NAMES)
@pytest.mark.parametrize("block_size", [1, 8, 16, 64])
def test_paged_and_contiguous_generate_identical_tokens(
    model: Decoder, block_size: int, strategy: Strategy
) -> None:
    prompts = [prompt(length, seed) for seed, length in enumerate(lengths_around(block_size))]
    max_new = min(block_size, 16) + 3
    for batch in ([text] for text in prompts):
        compare(model, block_size, batch, max_new, strategy)
    compare(model, block_size, prompts, max_new, strategy)  # ragged, and every length beside every other


def compare(
    model: Decoder, block_size: int, prompts: list[list[int]], max_new: int, strategy: Strategy
) -> None:
    shared, twin = paged(model, block_size), contiguous(model)
    results = [
        generate(model, cache, prompts, max_new=max_new, strategy=strategy) for cache in (shared, twin)
    ]
    assert results[0].continuations == results[1].continuations  # log-probabilities to the last bit, too
    assert results[0].parents == results[1].parents
    assert all(len(c.tokens) == max_new for part in results[0].continuations for c in part)
    assert shared.pool.num_free == shared.pool.num_blocks and shared.sequences() == twin.sequences() == ()
    assert len(results[0].steps) == max_new
    # Paging never moves more than one block a divergence; the twin copies whole sequences.
    assert shared.bytes_copied == results[0].copies * shared.bytes_per_block
    for number, text in enumerate(prompts):
        assert_ancestry_explains_the_blocks(model, text, results[0].parents[number], block_size, strategy)


def assert_ancestry_explains_the_blocks(
    model: Decoder, text: list[int], parents: tuple[tuple[int, ...], ...], block_size: int, strategy: Strategy
) -> None:
    """The last token is never written, so a replay of one token less must see the cache's own block counts."""
    alone = generate(model, paged(model, block_size), [text], max_new=len(parents), strategy=strategy)
    replayed = replay_ancestry(len(text), len(parents) - 1, alone.parents[0][:-1], block_size)
    seen = [
        Sharing(step.occupancy.live_blocks, step.occupancy.duplicated_blocks, len(step.copies))
        for step in alone.steps[1:]
    ]
    assert list(replayed) == seen


def test_greedy_is_the_greedy_of_the_dense_model(model: Decoder) -> None:
    prompts = [prompt(length, length) for length in (1, 7, 8, 9, 24)]
    result = generate(model, paged(model, 8), prompts, max_new=20)
    for text, (continuation,) in zip(prompts, result.continuations, strict=True):
        tokens, total = list(text), 0.0
        for _ in range(20):
            scores = dense_scores(model, tokens)
            tokens.append(int(scores.argmax()))
            total += float(scores.max())
        assert continuation.tokens == tuple(tokens[len(text) :])
        assert continuation.log_probability == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize("width", [1, 2, 4, 6])
def test_beam_search_is_the_beam_search_of_the_dense_model(model: Decoder, width: int) -> None:
    text = prompt(9, 5)
    beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for _ in range(8):
        candidates = [
            (total + float(score), (*tokens, token))
            for total, tokens in beams
            for token, score in enumerate(dense_scores(model, [*text, *tokens]))
        ]
        beams = sorted(candidates, reverse=True)[:width]
    found = generate(model, paged(model, 4), [text], max_new=8, strategy=Beam(width))
    assert [c.tokens for c in found.continuations[0]] == [tokens for _, tokens in beams]
    assert [c.log_probability for c in found.continuations[0]] == pytest.approx(
        [total for total, _ in beams], abs=1e-3
    )
    assert found.best() == found.continuations[0][0]
    if width == 1:
        assert found.continuations == generate(model, paged(model, 4), [text], max_new=8).continuations


def test_samples_follow_the_distribution_of_the_dense_model(model: Decoder) -> None:
    text, temperature, n = prompt(5, 1), 2.0, 3000
    expected = (dense_scores(model, text) / temperature).softmax(-1)
    result = generate(model, paged(model, 8, 3100), [text], max_new=1, strategy=Sample(n, temperature))
    drawn = torch.bincount(torch.tensor([c.tokens[0] for c in result.continuations[0]]), minlength=64) / n
    assert float((drawn - expected).abs().sum()) / 2 < 0.06  # total variation; about 0.04 is chance
    assert float(drawn.max()) < 0.9


def test_a_sample_depends_on_its_seed_and_number_not_on_its_neighbours(model: Decoder) -> None:
    texts = [prompt(length, length) for length in (3, 16, 30)]

    def samples(order: list[int], strategy: Sample) -> dict[int, tuple[tuple[int, ...], ...]]:
        result = generate(model, paged(model), [texts[i] for i in order], max_new=12, strategy=strategy)
        return {i: tuple(c.tokens for c in part) for i, part in zip(order, result.continuations, strict=True)}

    together = samples([0, 1, 2], Sample(3, 1.0, 7))
    assert samples([2, 0, 1], Sample(3, 1.0, 7)) == together
    assert samples([1], Sample(3, 1.0, 7))[1] == together[1]
    assert samples([1], Sample(5, 1.0, 7))[1][:3] == together[1]  # more samples leave the first as they were
    assert samples([1], Sample(3, 1.0, 8))[1] != together[1]
    assert len(set(together[1])) == 3


@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("length", [16, 20, 32, 33])
def test_n_samples_copy_the_partial_block_all_but_once(model: Decoder, n: int, length: int) -> None:
    result = generate(model, paged(model), [prompt(length)], max_new=4, strategy=Sample(n))
    assert [len(step.copies) for step in result.steps] == [0, (n - 1) * (length % 16 != 0), 0, 0]
    assert result.parents[0] == ((0,) * n, *[tuple(range(n))] * 3)
    last = result.steps[-1].occupancy
    assert sorted(last.reference_counts, reverse=True) == [n] * (length // 16) + [1] * n
    assert last.duplicated_blocks == n * (length // 16 + 1)


def test_best_of_n_is_the_likeliest_sample(model: Decoder) -> None:
    result = generate(model, paged(model), [prompt(8)], max_new=5, strategy=Sample(8, 1.5))
    assert result.best() in result.continuations[0]
    assert result.best().log_probability == max(c.log_probability for c in result.continuations[0])
    for continuation in result.continuations[0]:
        tokens, total = prompt(8), 0.0
        for token in continuation.tokens:
            total += float(dense_scores(model, tokens)[token])
            tokens.append(token)
        assert continuation.log_probability == pytest.approx(total, abs=1e-3)


def test_beams_re_fork_and_share_more_than_samples(model: Decoder) -> None:
    beam = generate(model, paged(model, 4), [prompt(16)], max_new=30, strategy=Beam(4))
    sample = generate(model, paged(model, 4), [prompt(16)], max_new=30, strategy=Sample(4))
    assert any(len(set(parents)) < 4 for parents in beam.parents[0][1:])
    assert sample.copies == 0 < beam.copies
    assert 0 < sample.saved < beam.saved < 1


@pytest.mark.parametrize("strategy", STRATEGIES, ids=NAMES)
@pytest.mark.parametrize("make", [paged, contiguous])
def test_other_sequences_of_the_cache_stay_as_they_are(
    model: Decoder, make: Callable[[Decoder], KVCache], strategy: Strategy
) -> None:
    cache = make(model)
    guest = cache.new_sequence()
    model.step(torch.tensor(prompt(21)), cache.extend({guest: 21}), cache)
    before = [part.clone() for layer in range(2) for part in cache.gather(layer, guest)]
    generate(model, cache, [prompt(5), prompt(40)], max_new=6, strategy=strategy)
    after = [part for layer in range(2) for part in cache.gather(layer, guest)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert cache.sequences() == (guest,)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda model: paged(model, 4, 2), OutOfBlocks),  # too small for the prompt
        (lambda model: paged(model, 4, 6), OutOfBlocks),  # too small for the branches, some steps later
        (lambda model: contiguous(model, 2, 40), OutOfBlocks),  # no rows for the branches
        (lambda model: contiguous(model, 8, 12), NeverFits),
    ],
)
@pytest.mark.parametrize("strategy", STRATEGIES[1:], ids=NAMES[1:])
def test_a_cache_that_is_too_small_is_given_back_as_it_was(
    model: Decoder, strategy: Strategy, make: Callable[[Decoder], Any], error: type[PagedKVError]
) -> None:
    cache = make(model)
    with pytest.raises(error):
        generate(model, cache, [prompt(9)], max_new=20, strategy=strategy)
    assert cache.sequences() == () and cache.occupancy().live_blocks == 0
    if isinstance(cache, PagedKVCache):
        assert sorted(cache.pool.free_list()) == list(range(cache.pool.num_blocks))


def test_zero_new_tokens_and_no_prompts_are_fine(model: Decoder) -> None:
    cache = paged(model)
    assert generate(model, cache, [prompt(5)], max_new=0).continuations == ((Continuation((), 0.0),),)
    assert generate(model, cache, [], max_new=5).continuations == ()
    assert generate(model, cache, [prompt(5)], max_new=0).saved == 0


# An empty prompt is the caller's error and nobody else's: vllm#7283, #7632, PR #7746.
@pytest.mark.parametrize("bad", [[], [64], [-1], [1.5], [True], ["a"]])
def test_a_prompt_that_is_none_is_refused_before_anything_happens(model: Decoder, bad: list[Any]) -> None:
    cache = paged(model)
    with pytest.raises(BadValue):
        generate(model, cache, [prompt(5), bad], max_new=3)
    assert cache.pool.num_free == cache.pool.num_blocks


@pytest.mark.parametrize("max_new", [-1, 1.0, None])
def test_a_number_of_tokens_that_is_none_is_refused(model: Decoder, max_new: Any) -> None:
    with pytest.raises(BadValue):
        generate(model, paged(model), [prompt(5)], max_new=max_new)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sample(0), lambda: Sample(2.0), lambda: Sample(2, 0.0), lambda: Sample(2, -1.0),  # type: ignore[arg-type]
        lambda: Sample(2, math.inf), lambda: Sample(2, math.nan), lambda: Beam(0), lambda: Beam(1.5),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_strategy_that_is_none_is_refused(make: Callable[[], Strategy]) -> None:
    with pytest.raises(BadValue):
        make()


def test_a_beam_wider_than_the_vocabulary_is_refused(model: Decoder) -> None:
    cache = paged(model)
    with pytest.raises(BadValue, match="wider than the vocabulary"):
        generate(model, cache, [prompt(5)], max_new=3, strategy=Beam(65))
    assert cache.sequences() == ()


def test_refork_frees_the_childless_and_forks_only_for_second_children(model: Decoder) -> None:
    cache = contiguous(model, 3)
    a, b, c = (cache.new_sequence() for _ in range(3))
    cache.extend({a: 1, b: 2, c: 3})
    children = refork(cache, [a, b, c], [2, 0, 2])
    assert children[:2] == [c, a] and [cache.length(s) for s in children] == [3, 1, 3]
    assert set(cache.sequences()) == set(children)


def test_what_is_generated_does_not_depend_on_the_rounding_of_the_cache_alone(model: Decoder) -> None:
    halves = [
        PagedKVCache(model.geometry, 50, 8, torch.float16),
        ContiguousKVCache(model.geometry, 4, 64, torch.float16),
    ]
    results = [generate(model, cache, [prompt(9)], max_new=12, strategy=Beam(3)) for cache in halves]
    assert results[0].continuations == results[1].continuations
