"""A small decoder of the Llama shape that runs on any KV cache of this package.

RMSNorm, rotary positions, grouped-query attention and a SwiGLU MLP over bytes, with the embedding tied to the output.
`Decoder.forward` is the dense form without a cache, for training and as the oracle; `Decoder.step` is one iteration
of serving: it takes a ragged batch of new tokens, prompts and single tokens alike, and reads and writes a cache.

`load_small` loads weights that `python -m pagedkv.train` made from the reference manual that ships with Python.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pagedkv.errors import BadValue
from pagedkv.geometry import ModelGeometry

if TYPE_CHECKING:
    from pagedkv.cache import Extension, KVCache

ROTARY_BASE = 10_000.0  # of the original Llama; positions up to some thousands
NORM_EPSILON = 1e-5
WEIGHTS, RECORD = "small.safetensors", "small.json"

SMALL = ModelGeometry(
    name="small",
    layers=4,
    hidden=256,
    intermediate=688,  # 8/3 of the width, rounded up to a multiple of 16
    query_heads=8,
    kv_heads=2,
    head_dim=32,
    vocabulary=256,  # bytes
    tied_embeddings=True,
    source="pagedkv.train",
)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Turn each pair (i, i + head_dim / 2) of `x` by an angle that grows with the position.

    Args:
        x: [..., tokens, heads, head_dim].
        positions: [tokens] integers, of the tokens in their sequences.
    """
    half = x.shape[-1] // 2
    exponents = torch.arange(half, device=x.device, dtype=torch.float32) / half
    angles = positions.to(torch.float32)[:, None] * ROTARY_BASE**-exponents
    cos, sin = angles.cos()[:, None].to(x.dtype), angles.sin()[:, None].to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Layer(nn.Module):
    """One decoder layer: attention and MLP, each behind a norm and added to its input."""

    def __init__(self, geometry: ModelGeometry) -> None:
        super().__init__()
        width, head_dim = geometry.hidden, geometry.head_dim
        self.head_dim = head_dim
        self.attention_norm = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.query = nn.Linear(width, geometry.query_heads * head_dim, bias=False)
        self.key = nn.Linear(width, geometry.kv_heads * head_dim, bias=False)
        self.value = nn.Linear(width, geometry.kv_heads * head_dim, bias=False)
        self.attention_out = nn.Linear(geometry.query_heads * head_dim, width, bias=False)
        self.mlp_norm = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.gate = nn.Linear(width, geometry.intermediate, bias=False)
        self.up = nn.Linear(width, geometry.intermediate, bias=False)
        self.down = nn.Linear(geometry.intermediate, width, bias=False)

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [..., tokens, heads, head_dim] of `x` [..., tokens, width], q and k rotated."""
        x = self.attention_norm(x)
        q, k, v = (part(x).unflatten(-1, (-1, self.head_dim)) for part in (self.query, self.key, self.value))
        return rotate(q, positions), rotate(k, positions), v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add the projected attention [..., tokens, heads, head_dim] to `x`, then the MLP."""
        x = x + self.attention_out(attended.flatten(-2))
        y = self.mlp_norm(x)
        result: Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return result


class Decoder(nn.Module):
    """The decoder; `geometry` says its size.

    Raises:
        BadValue: for a geometry that this code does not build (odd head_dim, untied embedding, learned positions).
    """

    def __init__(self, geometry: ModelGeometry = SMALL) -> None:
        super().__init__()
        if (
            geometry.head_dim % 2
            or not geometry.tied_embeddings
            or geometry.positions
            or geometry.mlp_matrices != 3
        ):
            raise BadValue(
                "Decoder needs an even head_dim, tied_embeddings=True, positions=0 and mlp_matrices=3; "
                f"got {geometry}"
            )
        self.geometry = geometry
        self.embedding = nn.Embedding(geometry.vocabulary, geometry.hidden)
        self.layers = nn.ModuleList(Layer(geometry) for _ in range(geometry.layers))
        self.norm = nn.RMSNorm(geometry.hidden, eps=NORM_EPSILON)
        # Residual branches start small, so that the depth does not blow the sum up.
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                scale = (
                    (2 * geometry.layers) ** -0.5
                    if name.endswith(("attention_out.weight", "down.weight"))
                    else 1
                )
                nn.init.normal_(weight, std=0.02 * scale)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.weight.device

    def logits(self, x: Tensor) -> Tensor:
        """Scores [..., vocabulary] of the next token after each state of `x` [..., width]."""
        return functional.linear(self.norm(x), self.embedding.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [batch, length, vocabulary] of token ids [batch, length], without a cache."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x: Tensor = self.embedding(tokens)
        for layer in self._layers():
            q, k, v = (part.transpose(1, 2) for part in layer.project(x, positions))
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = layer.finish(x, attended.transpose(1, 2))
        return self.logits(x)

    @torch.inference_mode()
    def step(self, tokens: Tensor, extension: Extension, cache: KVCache) -> Tensor:
        """One iteration: write the K and V of a ragged batch of new tokens, attend, and score what comes next.

        Args:
            tokens: [new tokens] ids, those of each sequence in order, sequence after sequence.
            extension: what `cache.extend` returned for them.
            cache: holds everything before them, and from now on them too.

        Returns:
            [sequences, vocabulary]: the logits after the last new token of each sequence.

        Raises:
            BadValue: if `tokens` are not those that the cache was extended by, or a sequence got none.
        """
        if tuple(tokens.shape) != (len(extension.positions),):
            raise BadValue(
                f"tokens are {list(tokens.shape)}, but the cache was extended by {len(extension.positions)}"
            )
        if not all(extension.counts):
            raise BadValue(
                "every sequence of a step needs at least one new token; leave idle ones out of extend"
            )
        x: Tensor = self.embedding(tokens)
        positions = torch.tensor(extension.positions, dtype=torch.int64, device=x.device)
        for index, layer in enumerate(self._layers()):
            q, k, v = (part.to(cache.dtype) for part in layer.project(x, positions))
            cache.write(index, extension.slots, k, v)
            attended = cache.attend(index, q, extension.sequences, extension.counts)
            x = layer.finish(x, attended.to(x.dtype))
        last = torch.tensor(extension.counts, dtype=torch.int64, device=x.device).cumsum(0) - 1
        return self.logits(x[last])

    def _layers(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]


def load_small(device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Decoder:
    """The trained small decoder, ready to generate; its weights are stored in bf16 and computed with in `dtype`."""
    from safetensors.torch import load

    model = Decoder(SMALL)
    model.load_state_dict(load(_weights().joinpath(WEIGHTS).read_bytes()))
    return model.to(device=device, dtype=dtype).eval().requires_grad_(False)


def small_record() -> dict[str, Any]:
    """How the weights of `load_small` were made: text, seed, losses, versions."""
    record: dict[str, Any] = json.loads(_weights().joinpath(RECORD).read_text(encoding="utf-8"))
    return record


def _weights() -> resources.abc.Traversable:
    return resources.files("pagedkv") / "weights"


def encode(text: str) -> list[int]:
    """Token ids of `text`: its UTF-8 bytes."""
    return list(text.encode())


def decode(tokens: list[int] | tuple[int, ...]) -> str:
    """The text of token ids; a character cut in two shows as a replacement sign."""
    return bytes(tokens).decode(errors="replace")
