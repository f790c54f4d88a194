"""What block sharing saves: the accounting of Kwon et al. 2023, Fig. 15, for parallel sampling and for beam search.

Savings are summed over time: in every decode iteration of every request, count the blocks in use and the blocks that
would be in use if each sequence held its own copy of everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pagedkv.blocks import BlockPool, blocks_needed
from pagedkv.errors import BadValue, require_count
from pagedkv.tables import BlockTable


class Sized(Protocol):
    """A request's lengths in tokens; `workloads.Request` has them."""

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""

    @property
    def output(self) -> int:
        """Tokens of each continuation."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Blocks, summed over decode iterations.

    Attributes:
        live: distinct blocks in use.
        duplicated: blocks without sharing.
        copies: blocks copied on write, not summed over time but counted.
    """

    live: int = 0
    duplicated: int = 0
    copies: int = 0

    @property
    def saved_percent(self) -> float:
        """Blocks saved, as a percentage of those without sharing; 0 for nothing at all."""
        return 100 * (1 - self.live / self.duplicated) if self.duplicated else 0.0

    def __add__(self, other: Sharing) -> Sharing:
        return Sharing(self.live + other.live, self.duplicated + other.duplicated, self.copies + other.copies)


def parallel_sampling(requests: Iterable[Sized], n: int, block_size: int = 16) -> Sharing:
    """Sharing when each request is answered with `n` samples, all as long as its output.

    After the first token only the prompt's full blocks are shared: each sample writes into a private copy of the
    partial one, and the last holder into the original. So a request of p prompt tokens saves
    (n - 1) * floor(p / block_size) blocks in each of its iterations, and holds n * ceil((p + t) / block_size) without
    sharing in iteration t.

    Raises:
        BadValue: for n or block_size below 1.
    """
    require_count("n", n, 1)
    require_count("block_size", block_size, 1)
    total = Sharing()
    for request in requests:
        prompt, output = request.prompt, request.output
        spread = _blocks_up_to(prompt + output, block_size) - _blocks_up_to(prompt, block_size)
        saved = (n - 1) * (prompt // block_size) * output
        partial = prompt % block_size != 0 and output > 0
        total += Sharing(n * spread - saved, n * spread, (n - 1) * partial)
    return total


def parallel_sampling_savings(requests: Iterable[Sized], n: int, block_size: int = 16) -> float:
    """Memory saved by sharing the prompt among `n` samples, in percent; see `parallel_sampling`."""
    return parallel_sampling(requests, n, block_size).saved_percent


def replay_ancestry(
    prompt: int, output: int, parents: Sequence[Sequence[int]], block_size: int = 16
) -> tuple[Sharing, ...]:
    """Rebuild the sharing of a beam search from its ancestry, on block tables without tensors.

    Args:
        prompt: tokens of the prompt.
        output: tokens of each beam, at most len(parents).
        parents: for each choice, the branch that each branch came from, as `Generation.parents` records them. The first
            entry is the fan-out from the prompt: all zeros.
        block_size: tokens per block.

    Returns:
        One `Sharing` per iteration, after its tokens were written.

    Raises:
        BadValue: if the ancestry is shorter than the output, or names a branch that did not exist.
    """
    require_count("prompt", prompt)
    if require_count("output", output) > len(parents):
        raise BadValue(
            f"an ancestry of {len(parents)} choices cannot give {output} tokens; record a longer one"
        )
    width = max((len(choice) for choice in parents[:output]), default=0)
    pool = BlockPool(2 * (1 + width) * max(1, blocks_needed(prompt + output, block_size)), block_size)
    beams = [BlockTable(pool)]
    beams[0].extend(prompt)
    iterations = []
    for choice in parents[:output]:
        for parent in choice:
            if require_count("parent", parent) >= len(beams):
                raise BadValue(
                    f"branch {parent} does not exist among {len(beams)}; is this one prompt's ancestry?"
                )
        children = [beams[parent].fork() for parent in choice]
        for beam in beams:
            beam.free()
        beams = children
        copies = sum(beam.append() is not None for beam in beams)
        duplicated = sum(len(beam.blocks) for beam in beams)
        iterations.append(Sharing(pool.num_used, duplicated, copies))
    return tuple(iterations)


def beam_sharing(
    requests: Iterable[Sized], ancestries: Sequence[Sequence[Sequence[int]]], block_size: int = 16
) -> Sharing:
    """Sharing when each request is answered by beam search, its beams related as in a recorded search.

    Request i takes ancestry i modulo their number. Where an output is longer than its ancestry, the ancestry goes on
    from its second choice again (the first is the fan-out from the prompt).

    Raises:
        BadValue: without ancestries, or for one that is no ancestry.
    """
    if not ancestries or not all(ancestries):
        raise BadValue(
            "at least one ancestry is needed, each with at least one choice; record them with generate"
        )
    total = Sharing()
    for index, request in enumerate(requests):
        parents = list(ancestries[index % len(ancestries)])
        tail = parents[1:] or [range(len(parents[0]))]
        while len(parents) < request.output:
            parents += tail
        total = sum(replay_ancestry(request.prompt, request.output, parents, block_size), total)
    return total


def _blocks_up_to(tokens: int, block_size: int) -> int:
    """The sum of ceil(i / block_size) over i = 1 ... tokens."""
    full, rest = divmod(tokens, block_size)
    return block_size * full * (full + 1) // 2 + rest * (full + 1)
