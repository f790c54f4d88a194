"""The library's own cache is the oracle: same model, same tokens, logits and choices equal."""

from __future__ import annotations

import copy
import itertools
import runpy
import sys
from collections.abc import Callable
from functools import cache as remember
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedModel

import pagedkv.huggingface
from pagedkv.blocks import blocks_needed
from pagedkv.cache import PagedKVCache
from pagedkv.errors import BadValue, OutOfBlocks, PagedKVError
from pagedkv.huggingface import PagedCache, kv_cache_for
from pagedkv.huggingface.attention import attention_forward
from small_models import prompt

SIZES = {
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
LLAMA = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", LLAMA),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "gpt2-scaled": (
        "gpt2",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "scale_attn_by_inverse_layer_idx": True},
    ),
    "sliding": ("mistral", LLAMA | {"sliding_window": 6}),
    "alternating": ("gemma3_text", LLAMA | {"head_dim": 8, "sliding_window": 6, "sliding_window_pattern": 2}),
    "multi-query": (
        "falcon",
        LLAMA | {"multi_query": True, "new_decoder_architecture": False, "alibi": False},
    ),
}
BOTH = pytest.mark.parametrize("attention", ["sdpa", "pagedkv"])
MODELS = pytest.mark.parametrize("name", ["llama", "gpt2"])


@remember
def model(name: str, attention: str = "sdpa", dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    kind, sizes = CONFIGS[name]
    built = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **(SIZES | sizes)), attn_implementation=attention
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in built.parameters():
            if weight.ndim == 2:
                weight.normal_(std=0.3, generator=generator)
    return built.to(dtype).eval().requires_grad_(False)


def paged(built: PreTrainedModel, num_blocks: int = 200, block_size: int = 4) -> PagedCache:
    kv = kv_cache_for(built, num_blocks, block_size)
    kv.storage.fill_(torch.nan)  # whatever is read without having been written shows
    return PagedCache(built.config, kv)


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    """None of them is padding (0), which `generate` would mask wherever it stands."""
    return torch.tensor([prompt(length, 100 * seed + row) for row in range(rows)]).clamp(min=2)


def padded(lengths: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Ragged prompts as Transformers wants them: padding on the left, and the mask that says so."""
    longest = max(lengths)
    ids, mask = torch.zeros(2, len(lengths), longest, dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, longest - length :] = tokens(row + 1, length, seed)[row]
        mask[row, longest - length :] = 1
    return ids, mask


def snapshot(cache: PagedCache) -> tuple[Any, ...]:
    kv = cache.kv
    tables = [(kv.table(row).blocks.copy(), kv.length(row)) for row in kv.sequences()]
    return (
        cache.get_seq_length(),
        cache.sequences,
        tables,
        kv.pool.free_list(),
        kv.storage.nan_to_num().clone(),
    )


def assert_unchanged(before: tuple[Any, ...], cache: PagedCache) -> None:
    after = snapshot(cache)
    assert before[:-1] == after[:-1]
    assert torch.equal(before[-1], after[-1])


def assert_all_free(cache: PagedCache) -> None:
    cache.reset()
    kv = cache.kv
    assert kv.sequences() == () and kv.pool.num_free == kv.pool.num_blocks
    assert sorted(kv.pool.free_list()) == list(range(kv.pool.num_blocks))


def assert_close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@BOTH
@MODELS
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_logits_of_every_step_are_those_of_the_librarys_cache(
    name: str, attention: str, block_size: int
) -> None:
    ours, theirs = model(name, attention), model(name)
    cache = paged(ours, block_size=block_size)
    for length in sorted({max(1, block_size - 1), block_size, block_size + 1, 3 * block_size}):
        oracle = DynamicCache(config=theirs.config)
        feeds = [tokens(2, length), *tokens(2, 5, seed=1).split(1, dim=1)]
        for done, feed in enumerate(feeds):
            logits = ours(feed, cache=cache).logits
            assert_close(logits, theirs(feed, cache=oracle).logits)
            assert cache.get_seq_length() == oracle.get_seq_length() == length + done
            assert cache.get_mask_sizes(3, 1) == (length + done + 3, 0)
            assert cache.kv.pool.num_used == 2 * blocks_needed(length + done, block_size)
        assert_all_free(cache)


@BOTH
@MODELS
def test_chunked_prefill(name: str, attention: str) -> None:
    ours, theirs = model(name, attention), model(name)
    ids = tokens(2, 21)
    whole = theirs(ids).logits
    cache = paged(ours)
    chunks = [ours(chunk, cache=cache).logits for chunk in ids.split([1, 3, 4, 8, 5], dim=1)]
    assert_close(torch.cat(chunks, dim=1), whole)
    cache.reset()
    plain = theirs.generate(ids, max_new_tokens=6, do_sample=False)
    assert torch.equal(plain, ours.generate(ids, max_new_tokens=6, prefill_chunk_size=5, cache=cache))
    assert_all_free(cache)


STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "num_return_sequences": 3, "top_k": 0},
    "beams": {"do_sample": False, "num_beams": 3, "num_return_sequences": 3},
}


@BOTH
@MODELS
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_generate_gives_the_tokens_of_the_librarys_cache(name: str, attention: str, strategy: str) -> None:
    ours, theirs = model(name, attention), model(name)
    ragged, mask = padded([11, 3, 8])
    for ids, extra in ((tokens(2, 8), {}), (ragged, {"attention_mask": mask})):
        for block_size in (1, 4, 16):
            arguments = STRATEGIES[strategy] | extra | {"max_new_tokens": 9}
            torch.manual_seed(0)
            expected = theirs.generate(ids, cache=DynamicCache(config=theirs.config), **arguments)
            torch.manual_seed(0)
            cache = paged(ours, 400, block_size)
            assert torch.equal(ours.generate(ids, cache=cache, **arguments), expected)
            assert len(set(expected[:, -9:].flatten().tolist())) > 3  # one token over and over proves little
            assert_all_free(cache)


@BOTH
def test_beams_share_blocks_and_copy_only_what_diverges(attention: str) -> None:
    ours = model("llama", attention)
    cache = paged(ours, 200, 4)
    kv = cache.kv
    reorders: list[int] = []
    reorder = cache.reorder_cache

    def watched(beam_idx: Tensor) -> None:
        before = kv.bytes_copied, kv.storage.nan_to_num().clone()
        reorder(beam_idx)
        assert (kv.bytes_copied, True) == (before[0], torch.equal(before[1], kv.storage.nan_to_num()))
        assert len(cache.sequences) == len(beam_idx) == len(kv.sequences())
        reorders.append(kv.bytes_copied)

    cache.reorder_cache = watched  # type: ignore[method-assign]
    ours.generate(tokens(1, 14), cache=cache, num_beams=4, do_sample=False, max_new_tokens=10)
    occupancy = kv.occupancy()
    assert len(reorders) == 10
    assert occupancy.duplicated_blocks == 4 * blocks_needed(14 + 9, 4)
    assert max(occupancy.reference_counts) == 4 and occupancy.saved > 0.4
    copies = [(b - a) // kv.bytes_per_block for a, b in itertools.pairwise(reorders)]
    assert copies[0] == 3  # all four continue the best beam, whose last block is half full
    assert max(copies) <= 3 and sum(copies) > 3
    assert_all_free(cache)


@BOTH
def test_reordering_forks_and_frees(attention: str) -> None:
    ours, theirs = model("llama", attention), model("llama")
    cache, oracle = paged(ours), DynamicCache(config=theirs.config)
    ids = tokens(3, 6)
    for built, held in ((ours, cache), (theirs, oracle)):
        built(ids, cache=held)
        held.reorder_cache(torch.tensor([2, 2, 0]))
    assert cache.kv.occupancy().reference_counts == (1, 1, 2, 2)
    for step in tokens(3, 4, seed=1).split(1, dim=1):
        assert_close(ours(step, cache=cache).logits, theirs(step, cache=oracle).logits)
    assert cache.kv.bytes_copied == cache.kv.bytes_per_block
    assert sorted(cache.kv.occupancy().reference_counts) == [1, 1, 1, 1, 1, 1, 1, 2]
    assert_all_free(cache)


@BOTH
@MODELS
def test_left_padding_changes_nothing(name: str, attention: str) -> None:
    ours, theirs = model(name, attention), model(name)
    lengths = [11, 1, 4, 8]
    ids, mask = padded(lengths)
    after = tokens(4, 3, seed=1)
    cache = paged(ours)
    got, positions = [], (mask.cumsum(1) - 1).clamp(min=0)
    for start, end in ((0, 2), (2, 9), (9, 11)):  # padding reaches into the second and the third chunk
        part = slice(start, end)
        out = ours(ids[:, part], attention_mask=mask[:, :end], position_ids=positions[:, part], cache=cache)
        got.append(out.logits)
    for step in range(3):
        mask = torch.cat((mask, torch.ones_like(mask[:, :1])), dim=1)
        place = mask.sum(1, keepdim=True) - 1
        out = ours(after[:, step : step + 1], attention_mask=mask, position_ids=place, cache=cache)
        got.append(out.logits)
    for row, length in enumerate(lengths):
        alone = torch.cat((ids[row, 11 - length :], after[row]))[None]
        assert_close(torch.cat(got, dim=1)[row, 11 - length :], theirs(alone).logits[0])
    stored = [length + 3 if attention == "pagedkv" else 14 for length in lengths]
    assert [cache.kv.length(row) for row in cache.sequences] == stored
    assert cache.kv.pool.num_used == sum(blocks_needed(length, 4) for length in stored)
    cache.crop(-5)
    assert cache.get_seq_length() == 9
    assert [cache.kv.length(row) for row in cache.sequences] == [max(0, length - 5) for length in stored]
    assert_all_free(cache)


@BOTH
def test_one_prefill_serves_many_samples(attention: str) -> None:
    ours, theirs = model("llama", attention), model("llama")
    ids = tokens(1, 15)
    arguments: dict[str, Any] = {
        "do_sample": True,
        "num_return_sequences": 4,
        "top_k": 0,
        "max_new_tokens": 6,
    }
    torch.manual_seed(0)
    expected = theirs.generate(ids, **arguments)
    prefix = paged(ours)
    ours(ids[:, :-1], cache=prefix)
    for _ in range(2):
        torch.manual_seed(0)
        with prefix.fork() as branch:
            branch.batch_repeat_interleave(4)
            assert torch.equal(ours.generate(ids, cache=branch, **arguments), expected)
            # 14 tokens in 4 blocks, the last one half full: three full ones are shared, and the prefix keeps its own.
            assert prefix.kv.occupancy().reference_counts[:3] == (5, 5, 5)
            assert prefix.kv.pool.num_used == 4 + 4 * (blocks_needed(15 + 5, 4) - 3)
    assert prefix.kv.pool.num_used == 4
    assert_close(ours(ids[:, -1:], cache=prefix).logits[:, -1], theirs(ids).logits[:, -1])
    assert_all_free(prefix)


@BOTH
@MODELS
def test_a_second_turn_continues_the_first(name: str, attention: str) -> None:
    ours, theirs = model(name, attention), model(name)
    arguments: dict[str, Any] = {"do_sample": False, "max_new_tokens": 6}
    with paged(ours) as cache:
        said = torch.cat((ours.generate(tokens(2, 7), cache=cache, **arguments), tokens(2, 5, seed=1)), dim=1)
        with pytest.warns(FutureWarning, match="past_key_values"):  # the name that older code uses
            answer = ours.generate(said, past_key_values=cache, **arguments)
        assert torch.equal(answer, theirs.generate(said, **arguments))
        assert cache.get_seq_length() == 7 + 6 + 5 + 6 - 1
    assert cache.kv.pool.num_used == 0 and cache.sequences == ()


@BOTH
@MODELS
def test_cropping_takes_back_what_speculation_got_wrong(name: str, attention: str) -> None:
    ours, theirs = model(name, attention), model(name)
    ids = tokens(1, 7).repeat(1, 3)
    expected = theirs.generate(ids, do_sample=False, max_new_tokens=12)
    cache = paged(ours)
    crops: list[int] = []
    crop = cache.crop
    cache.crop = lambda count: (crops.append(count), crop(count))[1]  # type: ignore[method-assign]
    assert torch.equal(
        ours.generate(ids, prompt_lookup_num_tokens=3, max_new_tokens=12, cache=cache), expected
    )
    assert min(crops) < 0
    assert cache.kv.pool.num_used == blocks_needed(cache.get_seq_length(), 4)
    assert_all_free(cache)


def test_models_with_sliding_windows_keep_all_tokens_and_see_the_window() -> None:
    for name in ("sliding", "alternating"):
        built = model(name)
        cache, oracle = paged(built), DynamicCache(config=built.config)
        assert any(oracle.is_sliding)
        for feed in (tokens(2, 9), *tokens(2, 5, seed=1).split([2, 1, 1, 1], dim=1)):
            assert_close(built(feed, cache=cache).logits, built(feed, cache=oracle).logits)
        assert cache.kv.length(cache.sequences[0]) == 14
        assert_all_free(cache)


def test_shapes_dtypes_and_scalings_come_from_the_model() -> None:
    assert kv_cache_for(model("llama"), 2).layout.kv_heads == 2
    assert kv_cache_for(model("multi-query"), 2).layout.kv_heads == 1  # no configuration field says so
    for attention in ("eager", "sdpa", "pagedkv"):
        built = model("gpt2-scaled", attention)
        feed = tokens(2, 9)
        assert_close(built(feed, cache=paged(built)).logits, model("gpt2-scaled")(feed).logits)
    half = model("llama", "pagedkv", torch.bfloat16)
    cache = paged(half)
    assert cache.kv.dtype == torch.bfloat16
    exact = model("llama", "sdpa", torch.bfloat16)(tokens(2, 9)).logits
    torch.testing.assert_close(half(tokens(2, 9), cache=cache).logits, exact, rtol=0.05, atol=0.2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@BOTH
def test_on_a_gpu(attention: str) -> None:
    ours = copy.deepcopy(model("llama", attention)).to("cuda")
    ids, mask = padded([11, 3, 8])
    arguments = {"attention_mask": mask.cuda(), "do_sample": False, "num_beams": 3, "max_new_tokens": 9}
    cache = paged(ours)
    assert cache.kv.device.type == "cuda"
    theirs = copy.deepcopy(model("llama")).to("cuda")
    assert torch.equal(
        ours.generate(ids.cuda(), cache=cache, **arguments), theirs.generate(ids.cuda(), **arguments)
    )
    assert_all_free(cache)


class Shape:
    layers, kv_heads, head_dim = 2, 2, 3


@settings(max_examples=200)
@given(st.data())
def test_any_order_of_operations_gives_the_tensors_of_the_librarys_cache(data: st.DataObject) -> None:
    config = model("llama").config
    kv = PagedKVCache(Shape(), 300, data.draw(st.integers(1, 5), "block size"))
    kv.storage.fill_(torch.nan)
    pairs = [(PagedCache(config, kv), DynamicCache())]
    generator = torch.Generator().manual_seed(0)
    for _ in range(data.draw(st.integers(1, 14), "operations")):
        index = data.draw(st.integers(0, len(pairs) - 1))
        ours, oracle = pairs[index]
        held = ours.get_seq_length()
        rows = len(ours.sequences)
        operation = data.draw(
            st.sampled_from(["feed", "feed", "reorder", "repeat", "select", "crop", "fork", "reset"])
        )
        if operation == "feed":
            rows = rows or data.draw(st.integers(1, 3))
            new = data.draw(st.integers(1, 6))
            for layer in range(2):
                k, v = torch.randn(2, rows, 2, new, 3, generator=generator)
                for mine, expected in zip(ours.update(k, v, layer), oracle.update(k, v, layer), strict=True):
                    assert torch.equal(mine, expected)
        elif operation == "reset":
            ours.reset()
            pairs[index] = (ours, DynamicCache())
        elif not rows:
            continue
        elif operation == "crop":
            count = -data.draw(st.integers(0, held - 1)) if held else 0
            ours.crop(count)
            oracle.crop(count)
        elif operation == "fork" and len(pairs) < 3:
            pairs.append((ours.fork(), copy.deepcopy(oracle)))
        elif operation == "repeat" and rows < 4:
            ours.batch_repeat_interleave(2)
            oracle.batch_repeat_interleave(2)
        elif operation == "select":
            mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
            mask[0] |= not mask.any()
            ours.batch_select_indices(mask)
            oracle.batch_select_indices(mask)
        elif operation == "reorder":
            beams = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1), min_size=rows, max_size=rows)))
            ours.reorder_cache(beams)
            oracle.reorder_cache(beams)
        lengths = [kv.length(row) for cache, _ in pairs for row in cache.sequences]
        assert lengths == [cache.get_seq_length() for cache, _ in pairs for _ in cache.sequences]
        assert len(kv.sequences()) == len(lengths)
        assert kv.occupancy().duplicated_blocks == sum(blocks_needed(n, kv.pool.block_size) for n in lengths)
        assert kv.occupancy().live_blocks == kv.pool.num_used
    for ours, oracle in pairs:
        if ours.get_seq_length():  # everything once more, at the end
            k, v = torch.zeros(2, len(ours.sequences), 2, 1, 3)
            assert torch.equal(ours.update(k, v, 0)[0], oracle.update(k, v, 0)[0])
        ours.reset()
    assert kv.pool.num_free == kv.pool.num_blocks


@BOTH
def test_a_full_pool_refuses_and_changes_nothing(attention: str) -> None:
    built = model("llama", attention)
    cache = paged(built, num_blocks=5, block_size=4)
    before = snapshot(cache)
    with pytest.raises(OutOfBlocks) as refusal:
        built(tokens(2, 9), cache=cache)
    assert (refusal.value.needed, refusal.value.free) == (6, 5)
    assert_unchanged(before, cache)
    built(tokens(2, 8), cache=cache)
    before = snapshot(cache)
    with pytest.raises(OutOfBlocks):
        built(tokens(2, 1), cache=cache)
    assert_unchanged(before, cache)
    cache.batch_select_indices(torch.tensor([1]))
    oracle = model("llama")(torch.cat((tokens(2, 8)[1:], tokens(1, 1)), dim=1)).logits
    assert_close(built(tokens(1, 1), cache=cache).logits[:, -1], oracle[:, -1])
    with pytest.raises(OutOfBlocks):
        built.generate(
            tokens(1, 40)[:, :10], cache=cache, max_new_tokens=40, attention_mask=torch.ones(1, 10)
        )
    assert_all_free(cache)


def feed(cache: PagedCache, rows: int = 2, **changes: Any) -> None:
    like = {"dtype": torch.float32, "kv_heads": 2, "head_dim": 8, "layer": 0, "values": 3} | changes
    k = torch.zeros(rows, like["kv_heads"], 3, like["head_dim"], dtype=like["dtype"])
    cache.update(k, k[:, :, : like["values"]], like["layer"])


BAD: dict[str, Callable[[PagedCache], object]] = {
    "rows": lambda cache: feed(cache, rows=4),
    "dtype": lambda cache: feed(cache, dtype=torch.float16),
    "kv heads": lambda cache: feed(cache, kv_heads=4),
    "head_dim": lambda cache: feed(cache, head_dim=4),
    "values": lambda cache: feed(cache, values=2),
    "layer": lambda cache: feed(cache, layer=2),
    "device": lambda cache: cache.update(*torch.zeros(2, 2, 2, 3, 8, device="meta"), 0),
    "gradients": lambda cache: cache.update(*torch.zeros(2, 2, 2, 3, 8, requires_grad=True), 0),
    "beam": lambda cache: cache.reorder_cache(torch.tensor([0, 2])),
    "repeats": lambda cache: cache.batch_repeat_interleave(0),
    "crop to a length": lambda cache: cache.crop(3),
    "crop too much": lambda cache: cache.crop(-6),
    "crop half": lambda cache: cache.crop(-0.5),  # type: ignore[arg-type]
    "other model": lambda cache: PagedCache(AutoConfig.for_model("llama", num_hidden_layers=3), cache.kv),
    "recurrent": lambda cache: PagedCache(AutoConfig.for_model("mamba", num_hidden_layers=2), cache.kv),
    "encoder": lambda cache: PagedCache(AutoConfig.for_model("t5", num_layers=2), cache.kv),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_and_changes_nothing(case: str) -> None:
    built = model("llama")
    cache = paged(built)
    built(tokens(2, 5), cache=cache)
    before = snapshot(cache)
    with pytest.raises(BadValue):
        BAD[case](cache)
    assert_unchanged(before, cache)
    assert_close(built(tokens(2, 1), cache=cache).logits[:, -1],
                 built(torch.cat((tokens(2, 5), tokens(2, 1)), dim=1)).logits[:, -1])  # fmt: skip


def test_an_interrupted_forward_pass_is_noticed() -> None:
    built = model("llama")
    cache = paged(built)
    built(tokens(2, 5), cache=cache)
    feed(cache)
    assert [layer.get_seq_length() for layer in cache.layers] == [8, 5]
    for refused in (
        lambda: feed(cache), cache.fork, lambda: cache.reorder_cache(torch.tensor([1, 0])), lambda: cache.crop(-2)
    ):  # fmt: skip
        before = snapshot(cache)
        with pytest.raises(BadValue, match=r"layer 1|3 to 8"):
            refused()
        assert_unchanged(before, cache)
    cache.crop(-3)
    assert_close(built(tokens(2, 1), cache=cache).logits[:, -1],
                 built(torch.cat((tokens(2, 5), tokens(2, 1)), dim=1)).logits[:, -1])  # fmt: skip
    feed(cache)
    assert_all_free(cache)


def test_attention_through_tables_refuses_what_it_cannot_do() -> None:
    built = model("llama", "pagedkv")
    ids, mask = padded([5, 3])
    with pytest.raises(BadValue, match="PagedCache"):
        built(ids)
    with pytest.raises(BadValue, match="PagedCache"):
        built(ids, cache=DynamicCache())
    cache = paged(built)
    before = snapshot(cache)
    right, hole = mask.flip(1), mask.clone()
    hole[0, 2] = 0
    for wrong in (right, hole, mask[:, :4], torch.zeros(2, 1, 5, 5)):
        with pytest.raises(BadValue):
            built(ids, attention_mask=wrong, cache=cache)
    for argument in ("sliding_window", "softcap", "position_bias"):
        with pytest.raises(BadValue, match=argument):
            built(ids, cache=cache, **{argument: 4})
    with pytest.raises(BadValue, match="causal"):
        built(ids, cache=cache, is_causal=False)
    encoder = torch.nn.Identity()
    encoder.is_causal = False  # type: ignore[assignment]
    k, v = cache.update(*torch.zeros(2, 2, 2, 5, 8), 0)
    with pytest.raises(BadValue, match="causal"):
        attention_forward(encoder, k, k, v, None)
    assert_unchanged(before, cache)
    other = model("sliding", "pagedkv")
    with pytest.raises(BadValue, match="causal"):
        other(ids, cache=paged(other))
    noisy = copy.deepcopy(built).train()
    noisy.config.attention_dropout = 0.5
    for layer in noisy.model.layers:
        layer.self_attn.attention_dropout = 0.5
    with pytest.raises(BadValue, match="eval"):
        noisy(ids, cache=paged(noisy))
    built(ids, attention_mask=mask, cache=cache)
    before = snapshot(cache)
    longer = torch.ones(2, 6, dtype=torch.int64)
    for built_now, mask_now in ((built, longer), (built, None), (built, padded([6, 2])[1])):
        with pytest.raises(BadValue, match="padding"):
            built_now(ids[:, :1], attention_mask=mask_now, cache=cache)
    assert_unchanged(before, cache)


def test_padding_left_out_cannot_be_gathered() -> None:
    built = copy.deepcopy(model("llama", "pagedkv"))
    ids, mask = padded([5, 3])
    cache = paged(built)
    built(ids, attention_mask=mask, cache=cache)
    before = snapshot(cache)
    built.set_attn_implementation("sdpa")
    with pytest.raises(BadValue, match="padding"):
        built(ids[:, :1], attention_mask=torch.cat((mask, mask[:, -1:]), dim=1), cache=cache)
    assert_unchanged(before, cache)


def test_models_whose_keys_and_values_differ_are_refused() -> None:
    sizes = LLAMA | {
        "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
        "v_head_dim": 4, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1,
        "moe_intermediate_size": 16,
    }  # fmt: skip
    latent = AutoModelForCausalLM.from_config(AutoConfig.for_model("deepseek_v3", **(SIZES | sizes)))
    with pytest.raises(BadValue, match=r"keys .* values"):
        kv_cache_for(latent, 4)
    with pytest.raises(BadValue):
        kv_cache_for(model("llama"), 0)


@pytest.mark.parametrize("absent", [True, False])
def test_transformers_missing_or_too_old_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, absent: bool
) -> None:
    if absent:
        monkeypatch.setitem(sys.modules, "transformers", None)
    else:
        monkeypatch.setattr("transformers.__version__", "5.3.0")
    with pytest.raises(ImportError, match=r"pip install --upgrade 'pagedkv\[transformers\]'") as refusal:
        runpy.run_path(str(Path(pagedkv.huggingface.__file__)))
    assert isinstance(refusal.value, PagedKVError)
