"""Greedy, sampled and beam-searched text from the small model, on either cache through one interface.

All three are one loop. Each prompt is prefilled once; then, every iteration, a strategy picks the branches that go on
and a token for each, the cache is re-forked to match, and one batched step scores what comes next. Greedy keeps one
branch; sampling forks n after the prefill and never again; beam search re-forks in every iteration.

The last token of a branch is chosen but never fed back, so its K and V are never written.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from pagedkv.cache_interface import CachedSequence, KVCache, Occupancy
from pagedkv.errors import BadValue, require_count
from pagedkv.model import Decoder
from pagedkv.tables import Copy


class Choice(NamedTuple):
    """A branch that goes on: which branch it comes from, its next token, and that token's log-probability (nats)."""

    parent: int
    token: int
    log_probability: float


# From log-probabilities [branches, vocabulary] in float64 on the CPU, and the branches' totals so far.
Chooser = Callable[[Tensor, Sequence[float]], list[Choice]]


class Strategy(Protocol):
    """How to go on from a distribution. It makes one chooser per prompt, which may remember things."""

    def chooser(self, prompt: Sequence[int]) -> Chooser:
        """A chooser for the branches of one prompt."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """The likeliest token, always; one branch."""

    def chooser(self, prompt: Sequence[int]) -> Chooser:
        """Takes the first of equally likely tokens."""

        def choose(scores: Tensor, totals: Sequence[float]) -> list[Choice]:
            return [_choice(scores, 0, int(scores[0].argmax()))]

        return choose


@dataclass(frozen=True, slots=True)
class Sample:
    """`n` independent samples per prompt.

    Each sample draws from a generator of its own, seeded by `seed`, the prompt's tokens and the sample's number: what
    it draws depends neither on the other prompts of the batch and their order nor on the cache. One prompt submitted
    twice therefore gives the same samples twice; ask for a larger `n` instead.

    Raises:
        BadValue: for n below 1 or a temperature that is not a positive number.
    """

    n: int = 1
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_count("n", self.n, 1)
        if not 0 < self.temperature < math.inf:
            raise BadValue(
                f"temperature must be positive, not {self.temperature}; use Greedy() for the limit 0"
            )

    def chooser(self, prompt: Sequence[int]) -> Chooser:
        """Forks into n branches at the first choice, and keeps them."""
        generators = [self._generator(prompt, number) for number in range(self.n)]

        def choose(scores: Tensor, totals: Sequence[float]) -> list[Choice]:
            choices = []
            for number, generator in enumerate(generators):
                parent = min(number, len(scores) - 1)
                cumulative = (scores[parent] / self.temperature).softmax(-1).cumsum(-1)
                point = torch.rand((), generator=generator, dtype=torch.float64) * cumulative[-1]
                token = int(torch.searchsorted(cumulative, point, right=True).clamp(max=len(cumulative) - 1))
                choices.append(_choice(scores, parent, token))
            return choices

        return choose

    def _generator(self, prompt: Sequence[int], number: int) -> torch.Generator:
        digest = hashlib.sha256(repr((self.seed, number, tuple(prompt))).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True, slots=True)
class Beam:
    """Beam search: the `width` continuations with the highest total log-probability survive each iteration.

    Raises:
        BadValue: for a width below 1.
    """

    width: int = 4

    def __post_init__(self) -> None:
        require_count("width", self.width, 1)

    def chooser(self, prompt: Sequence[int]) -> Chooser:
        """Branches come out best first."""

        def choose(scores: Tensor, totals: Sequence[float]) -> list[Choice]:
            if self.width > scores.shape[1]:
                raise BadValue(f"a beam of {self.width} is wider than the vocabulary of {scores.shape[1]}")
            candidates = torch.tensor(totals, dtype=torch.float64)[:, None] + scores
            best = candidates.flatten().topk(self.width).indices.tolist()
            return [_choice(scores, *divmod(index, scores.shape[1])) for index in best]

        return choose


@dataclass(frozen=True, slots=True)
class Continuation:
    """What follows a prompt.

    Attributes:
        tokens: ids, without the prompt.
        log_probability: of all of them under the model, in nats, at temperature 1.
    """

    tokens: tuple[int, ...]
    log_probability: float


@dataclass(frozen=True, slots=True)
class Step:
    """What one iteration did to the cache; iteration 0 is the prefill.

    Attributes:
        copies: blocks copied because they were shared and about to be written.
        occupancy: live blocks with their reference counts, after the iteration; of the whole cache, other sequences
            included.
    """

    copies: tuple[Copy, ...]
    occupancy: Occupancy


@dataclass(frozen=True, slots=True)
class Generation:
    """The outcome of `generate`.

    Attributes:
        continuations: for each prompt, its branches at the end; a beam's best comes first, samples keep their number.
        parents: for each prompt and choice, the branch that each branch came from: the ancestry.
        steps: what each iteration did to the cache.
    """

    continuations: tuple[tuple[Continuation, ...], ...]
    parents: tuple[tuple[tuple[int, ...], ...], ...]
    steps: tuple[Step, ...]

    @property
    def copies(self) -> int:
        """Blocks copied in all iterations."""
        return sum(len(step.copies) for step in self.steps)

    @property
    def saved(self) -> float:
        """Share of the blocks that sharing saved against a full copy per branch, 0 to 1, over all decode iterations."""
        decode = [step.occupancy for step in self.steps[1:]]
        duplicated = sum(occupancy.duplicated_blocks for occupancy in decode)
        return 1 - sum(occupancy.live_blocks for occupancy in decode) / duplicated if duplicated else 0.0

    def best(self, prompt: int = 0) -> Continuation:
        """The likeliest continuation of a prompt under the model."""
        return max(self.continuations[prompt], key=lambda continuation: continuation.log_probability)


@dataclass(slots=True)
class _Branches:
    """All branches of one prompt, as the loop goes."""

    chooser: Chooser
    sequences: list[CachedSequence]
    tokens: list[tuple[int, ...]]
    totals: list[float]
    parents: list[tuple[int, ...]]

    def advance(self, scores: Tensor) -> None:
        """Choose from log-probabilities [branches, vocabulary]; the cache has yet to follow."""
        choices = self.chooser(scores, self.totals)
        self.parents.append(tuple(choice.parent for choice in choices))
        self.tokens = [(*self.tokens[choice.parent], choice.token) for choice in choices]
        self.totals = [self.totals[choice.parent] + choice.log_probability for choice in choices]


def generate(
    model: Decoder,
    cache: KVCache,
    prompts: Sequence[Sequence[int]],
    *,
    max_new: int,
    strategy: Strategy | None = None,
) -> Generation:
    """Continue every prompt by `max_new` tokens.

    The cache may hold other sequences, which stay as they are; everything that was allocated here is freed at the end,
    also when an error ends it.

    Args:
        model, cache: on one device; the cache's layers, KV heads and head_dim are the model's.
        prompts: token ids, each prompt with at least one; they may differ in length.
        max_new: tokens per continuation.
        strategy: `Greedy()` by default, `Sample(...)` or `Beam(...)`.

    Raises:
        BadValue: for an empty prompt, or a token that the model does not know.
        OutOfBlocks, NeverFits: if the cache is too small.
    """
    strategy = Greedy() if strategy is None else strategy
    require_count("max_new", max_new)
    _check_prompts(prompts, model.geometry.vocabulary)
    before = set(cache.sequences())
    steps: list[Step] = []
    try:
        groups = [
            _Branches(strategy.chooser(prompt), [cache.new_sequence()], [()], [0.0], []) for prompt in prompts
        ]
        feed: list[Sequence[int]] = list(prompts)
        for number in range(max_new):
            if number:
                for group in groups:
                    group.sequences = refork(cache, group.sequences, group.parents[-1])
                feed = [tokens[-1:] for group in groups for tokens in group.tokens]
            sequences = [sequence for group in groups for sequence in group.sequences]
            scores = _iterate(model, cache, sequences, feed, steps)
            parts = torch.split(scores, [len(group.sequences) for group in groups])
            for group, part in zip(groups, parts, strict=True):
                group.advance(part)
    finally:
        for sequence in cache.sequences():
            if sequence not in before:
                cache.free(sequence)
    return Generation(
        continuations=tuple(tuple(map(Continuation, group.tokens, group.totals)) for group in groups),
        parents=tuple(tuple(group.parents) for group in groups),
        steps=tuple(steps),
    )


def refork(
    cache: KVCache, sequences: Sequence[CachedSequence], parents: Sequence[int]
) -> list[CachedSequence]:
    """One sequence for each entry of `parents`, continuing that one of `sequences`; the childless are freed first.

    The first child takes its parent's sequence over, so a branch that goes on alone costs nothing on any cache.
    """
    for index, sequence in enumerate(sequences):
        if index not in parents:
            cache.free(sequence)
    taken: set[int] = set()
    children = []
    for parent in parents:
        children.append(cache.fork(sequences[parent]) if parent in taken else sequences[parent])
        taken.add(parent)
    return children


def _iterate(
    model: Decoder,
    cache: KVCache,
    sequences: Sequence[CachedSequence],
    feed: Sequence[Sequence[int]],
    steps: list[Step],
) -> Tensor:
    """Feed each sequence its new tokens; log-probabilities [sequences, vocabulary] of the next, float64 on the CPU."""
    extension = cache.extend(dict(zip(sequences, map(len, feed), strict=True)))
    tokens = torch.tensor([token for part in feed for token in part], dtype=torch.int64, device=model.device)
    scores = model.step(tokens, extension, cache).double().log_softmax(-1).cpu()
    steps.append(Step(extension.copies, cache.occupancy()))
    return scores


def _choice(scores: Tensor, parent: int, token: int) -> Choice:
    return Choice(parent, token, float(scores[parent, token]))


def _check_prompts(prompts: Sequence[Sequence[int]], vocabulary: int) -> None:
    for number, prompt in enumerate(prompts):
        if not len(prompt):
            raise BadValue(f"prompt {number} is empty; there is nothing to continue from")
        for token in prompt:
            if require_count("token", token) >= vocabulary:
                raise BadValue(f"token {token} of prompt {number} is outside a vocabulary of {vocabulary}")
