"""The naive model that the block manager is tested against: sets and dictionaries, no cleverness, no speed.

It knows nothing of free-list order; it says which operations must succeed, how many blocks they may take, and what
each sequence must contain afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class NaiveSequence:
    """Tokens of one sequence, and the identity of the logical block that each lies in."""

    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)  # ids of naive blocks, unrelated to physical ids


class NaiveManager:
    """Blocks are keys of a dictionary block -> set of holders; a block without holders does not exist."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.holders: dict[int, set[int]] = {}
        self.sequences: dict[int, NaiveSequence] = {}
        self._next = 0

    @property
    def free(self) -> int:
        return self.num_blocks - len(self.holders)

    def new(self, name: int) -> None:
        self.sequences[name] = NaiveSequence()

    def cost(self, name: int, count: int) -> int:
        sequence = self.sequences[name]
        cost, length, blocks = 0, len(sequence.tokens), len(sequence.blocks)
        for i in range(count):
            if length == blocks * self.block_size:
                blocks, cost = blocks + 1, cost + 1
            elif i == 0 and len(self.holders[sequence.blocks[-1]]) > 1:
                cost += 1
            length += 1
        return cost

    def extend(self, name: int, tokens: list[int]) -> bool:
        """False when it must be refused; True after doing it token by token."""
        if self.cost(name, len(tokens)) > self.free:
            return False
        sequence = self.sequences[name]
        for token in tokens:
            if len(sequence.tokens) == len(sequence.blocks) * self.block_size:
                sequence.blocks.append(self._block(name))
            elif len(self.holders[sequence.blocks[-1]]) > 1:
                self.holders[sequence.blocks[-1]].discard(name)
                sequence.blocks[-1] = self._block(name)
            sequence.tokens.append(token)
        return True

    def fork(self, name: int, child: int) -> None:
        parent = self.sequences[name]
        self.sequences[child] = NaiveSequence(list(parent.tokens), list(parent.blocks))
        for block in parent.blocks:
            self.holders[block].add(child)

    def drop(self, name: int) -> None:
        for block in self.sequences.pop(name).blocks:
            self.holders[block].discard(name)
            if not self.holders[block]:
                del self.holders[block]

    def _block(self, name: int) -> int:
        self._next += 1
        self.holders[self._next] = {name}
        return self._next
