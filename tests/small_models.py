"""Decoders small enough for a cross product of tests, with weights wide enough apart that tokens are never a tie."""

from __future__ import annotations

import torch
from torch import Tensor

from pagedkv.geometry import ModelGeometry
from pagedkv.model import Decoder

# These tensors are too small to share out, and two test workers with two threads each wait for each other.
torch.set_num_threads(1)


def geometry(query_heads: int = 4, kv_heads: int = 2, layers: int = 2) -> ModelGeometry:
    return ModelGeometry("tiny", layers, 32, 48, query_heads, kv_heads, 8, 64, tied_embeddings=True)


def decoder(shape: ModelGeometry | None = None, seed: int = 0) -> Decoder:
    model = Decoder(shape or geometry())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.normal_(std=0.3, generator=generator)
    return model.eval().requires_grad_(False)


def prompt(length: int, seed: int = 0) -> list[int]:
    return [
        int(token) for token in torch.randint(64, (length,), generator=torch.Generator().manual_seed(seed))
    ]


def dense_scores(model: Decoder, tokens: list[int]) -> Tensor:
    """Log-probabilities [vocabulary] of the next token, from everything again and without any cache."""
    with torch.no_grad():
        return model(torch.tensor([tokens]))[0, -1].double().log_softmax(-1)
