"""Train the small decoder on the reference manual that ships with Python: `python -m pagedkv.train`.

The text is `pydoc_data.topics` of the running interpreter (the pages behind `help("topics")`), under the PSF licence.
Topics repeat whole paragraphs of each other: each is kept where it comes first. Every eighth topic is held out, so the
held-out loss is over text that training never saw. Writes the weights (bf16 safetensors) and a record of how they came
about next to each other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pagedkv.geometry import ModelGeometry
from pagedkv.model import RECORD, SMALL, WEIGHTS, Decoder

BATCH, LENGTH = 16, 256
PEAK_RATE, WARM_UP = 3e-3, 30
HELD_OUT_EVERY = 8


def manual() -> tuple[bytes, bytes]:
    """Training text and held-out text of the running Python's reference manual, which share no paragraph."""
    from pydoc_data.topics import topics

    seen: set[str] = set()
    train: list[str] = []
    held_out: list[str] = []
    for index, name in enumerate(sorted(topics)):
        fresh = [part for part in topics[name].strip().split("\n\n") if part not in seen]
        seen.update(fresh)
        half = held_out if index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else train
        half.append("\n\n".join(fresh))
    return "\n\n\n".join(train).encode(), "\n\n\n".join(held_out).encode()


def as_tokens(text: bytes) -> Tensor:
    """Token ids [length] of a text."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


@torch.inference_mode()
def held_out_loss(model: Decoder, text: bytes, windows: int | None = None) -> float:
    """Mean loss in nats per byte over the first `windows` windows (all by default) of a text."""
    tokens = as_tokens(text)
    rows = tokens[: (len(tokens) - 1) // LENGTH * LENGTH + 1].unfold(0, LENGTH + 1, LENGTH)[:windows]
    losses = [
        functional.cross_entropy(model(part[:, :-1]).flatten(0, 1).float(), part[:, 1:].flatten()).item()
        * len(part)
        for part in torch.split(rows, BATCH)
    ]
    return sum(losses) / len(rows)


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine from the peak down to a tenth of it."""
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    progress = (step - WARM_UP) / max(1, steps - WARM_UP)
    return PEAK_RATE * (0.55 + 0.45 * math.cos(math.pi * progress))


def train(
    steps: int, seed: int, threads: int, geometry: ModelGeometry = SMALL
) -> tuple[Decoder, dict[str, Any]]:
    """Train a decoder of some size and return it with the record of the training."""
    from tqdm import tqdm

    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    text, held_out = manual()
    tokens = as_tokens(text)
    model = Decoder(geometry)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], betas=(0.9, 0.95)
    )
    draw = torch.Generator().manual_seed(seed)
    curve: list[dict[str, float]] = []
    recent: list[float] = []
    started = time.perf_counter()
    with tqdm(total=steps, unit="step", desc="training") as bar:
        for step in range(steps):
            starts = torch.randint(len(tokens) - LENGTH, (BATCH,), generator=draw)
            rows = torch.stack([tokens[start : start + LENGTH + 1] for start in starts.tolist()])
            loss = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps)
            optimizer.step()
            recent.append(loss.item())
            if (step + 1) % 50 == 0 or step + 1 == steps:
                held = held_out_loss(model, held_out, windows=64)
                curve.append(
                    {
                        "step": step + 1,
                        "train": round(sum(recent) / len(recent), 4),
                        "held_out": round(held, 4),
                    }
                )
                recent.clear()
                bar.set_postfix(curve[-1])
            bar.update()
    seconds = time.perf_counter() - started
    model.to(torch.bfloat16).to(torch.float32)  # what is stored, and what the final loss is of
    record = {
        "model": geometry.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "text": {
            "source": "pydoc_data.topics of CPython, repeated paragraphs once, every eighth topic held out",
            "licence": "PSF-2.0; copyright Python Software Foundation",
            "python": platform.python_version(),
            "train_bytes": len(text),
            "train_sha256": hashlib.sha256(text).hexdigest(),
            "held_out_bytes": len(held_out),
            "held_out_sha256": hashlib.sha256(held_out).hexdigest(),
        },
        "training": {
            "steps": steps,
            "batch": BATCH,
            "length": LENGTH,
            "optimizer": f"AdamW, peak rate {PEAK_RATE}, cosine to a tenth, {WARM_UP} steps warm-up, weight decay 0.1",
            "seed": seed,
            "threads": threads,
            "seconds": round(seconds),
            "torch": torch.__version__,
            "machine": platform.machine(),
        },
        "held_out_nats_per_byte": round(held_out_loss(model, held_out), 4),
        "curve": curve,
    }
    return model, record


def main() -> None:
    """Train, then write weights and record."""
    from safetensors.torch import save

    parser = argparse.ArgumentParser(prog="python -m pagedkv.train", description="Train the small decoder.")
    parser.add_argument(
        "--steps", type=int, default=600, help="optimizer steps (600: 7 minutes on two idle cores)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--threads", type=int, default=2, help="results repeat bit by bit only at equal threads"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "weights", help="folder to write into"
    )
    arguments = parser.parse_args()
    model, record = train(arguments.steps, arguments.seed, arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()}
    (arguments.out / WEIGHTS).write_bytes(save(weights))
    (arguments.out / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{record['held_out_nats_per_byte']} nats per byte on held-out text, written to {arguments.out}")


if __name__ == "__main__":
    main()
