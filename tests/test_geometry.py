from __future__ import annotations

import dataclasses

import pytest

from pagedkv.errors import BadValue
from pagedkv.geometry import LLAMA_3_1_8B, OPT_13B, PRESETS, QWEN_2_5_7B, ModelGeometry
from pagedkv.hardware import A100_40GB, ACCELERATORS, H100_SXM


def test_kv_bytes_per_token_as_published() -> None:
    assert LLAMA_3_1_8B.kv_bytes_per_token == 128 * 1024
    assert OPT_13B.kv_bytes_per_token == 800 * 1024  # Kwon et al. 2023, section 3
    assert QWEN_2_5_7B.kv_bytes_per_token == 56 * 1024


@pytest.mark.parametrize(("model", "billions"), [(LLAMA_3_1_8B, 8.03), (OPT_13B, 12.85), (QWEN_2_5_7B, 7.62)])
def test_parameters_as_published(model: ModelGeometry, billions: float) -> None:
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.002)


@pytest.mark.parametrize(("tokens", "percent"), [(4096, 6.7), (8192, 13.4), (32768, 53.5), (131072, 214)])
def test_attention_share_of_a_prefill(tokens: int, percent: float) -> None:
    share = LLAMA_3_1_8B.attention_flops(tokens) / LLAMA_3_1_8B.linear_flops(tokens)
    assert 100 * share == pytest.approx(percent, rel=0.01)


def test_attention_flops_count_every_visible_key() -> None:
    tiny = ModelGeometry("tiny", 2, 8, 8, 4, 2, 3, 10)
    keys = sum(i + 1 for i in range(5))
    assert tiny.attention_flops(5) == 2 * 4 * keys * (2 * 3 + 2 * 3)


def test_slots_beside_the_weights() -> None:
    # The paper gives OPT-13B 12 GB of a 40 GB A100 for KV: 15.7 thousand slots of 800 KB. The default 0.9 is near it.
    assert A100_40GB.kv_slots(OPT_13B) == pytest.approx(12_571, rel=0.01)
    assert H100_SXM.kv_slots(LLAMA_3_1_8B, fraction=0.1) == 0


@pytest.mark.parametrize("field", ["layers", "hidden", "kv_heads", "head_dim", "vocabulary"])
@pytest.mark.parametrize("bad", [0, -1, 1.5])
def test_shapes_that_no_model_has_are_refused(field: str, bad: object) -> None:
    with pytest.raises(BadValue):
        dataclasses.replace(LLAMA_3_1_8B, **{field: bad})


def test_query_heads_must_be_a_multiple_of_kv_heads() -> None:
    with pytest.raises(BadValue, match="multiple"):
        dataclasses.replace(LLAMA_3_1_8B, kv_heads=7)


def test_every_preset_names_its_source() -> None:
    assert all(model.source for model in PRESETS.values())
    assert all(device.source for device in ACCELERATORS.values())
