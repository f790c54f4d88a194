"""The residents of a block pool in numbers: any number of iterations of growth in one step.

All residents advance together, so nobody's length needs to be stored. A clock counts the tokens that everybody has
grown by, and a resident is remembered by its birth: the reading of that clock at which its length would have been 0. It
holds `clock - birth` tokens, and takes a new block whenever that is a multiple of the block size, which depends on
`birth % block_size` alone. Counting the residents by that phase gives the blocks that k more tokens each will take in
`block_size` steps at most, however many residents there are.
"""

from __future__ import annotations

from pagedkv.blocks import blocks_needed
from pagedkv.errors import OutOfBlocks, require_count


class CountedResidency:
    """As `pagedkv.residency.TableResidency`, without blocks: it only knows how many each sequence holds.

    Args:
        num_blocks, block_size: of the device pool.
        host_blocks: of the host pool; 0 for none.

    Attributes:
        num_blocks, block_size: as given.
        num_free, host_free: free blocks of either pool.
    """

    __slots__ = (
        "_births",
        "_clock",
        "_host",
        "_phases",
        "_sum",
        "block_size",
        "host_free",
        "num_blocks",
        "num_free",
    )

    def __init__(self, num_blocks: int, block_size: int, host_blocks: int = 0) -> None:
        self.num_blocks = self.num_free = require_count("num_blocks", num_blocks, 1)
        self.block_size = require_count("block_size", block_size, 1)
        self.host_free = require_count("host_blocks", host_blocks)
        self._clock = 0
        self._births: dict[int, int] = {}
        self._sum = 0  # of all births
        self._phases = [0] * block_size
        self._host: dict[int, int] = {}  # blocks of each swapped sequence

    @property
    def num_tokens(self) -> int:
        """Tokens that all residents hold."""
        return len(self._births) * self._clock - self._sum

    def wanted(self, tokens: int = 1) -> int:
        """Blocks that `tokens` more tokens for every resident take."""
        phases, now = self._phases, self._clock % self.block_size
        if tokens == 1:
            return phases[now]
        rounds, rest = divmod(tokens, self.block_size)
        return rounds * len(self._births) + sum((phases[now:] + phases[:now])[:rest])

    def longest(self, tokens: int, blocks: int) -> int:
        """Most tokens, up to `tokens`, that every resident can grow by while that takes at most `blocks` blocks."""
        residents, size = len(self._births), self.block_size
        if residents * -(-tokens // size) <= blocks:
            return tokens
        if blocks < 0:
            return 0
        rounds, blocks = divmod(blocks, residents)
        grown = rounds * size
        phase = self._clock % size
        while grown < tokens and self._phases[phase] <= blocks:
            blocks -= self._phases[phase]
            phase = phase + 1 if phase + 1 < size else 0
            grown += 1
        return min(grown, tokens)

    def grow(self, tokens: int = 1) -> None:
        """Make room for `tokens` more tokens of every resident."""
        self.num_free -= self.wanted(tokens)
        self._clock += tokens

    def take(self, name: int, tokens: int) -> None:
        """A resident of `tokens` tokens."""
        needed = blocks_needed(tokens, self.block_size)
        if needed > self.num_free:
            raise OutOfBlocks(needed, self.num_free)
        self.num_free -= needed
        birth = self._births[name] = self._clock - tokens
        self._sum += birth
        self._phases[birth % self.block_size] += 1

    def drop(self, name: int) -> None:
        """Give a resident's blocks back."""
        birth = self._births.pop(name)
        self._sum -= birth
        self._phases[birth % self.block_size] -= 1
        self.num_free += blocks_needed(self._clock - birth, self.block_size)

    def swap_out(self, name: int) -> int:
        """Move a resident from the device to the host."""
        blocks = blocks_needed(self._clock - self._births[name], self.block_size)
        if blocks > self.host_free:
            raise OutOfBlocks(blocks, self.host_free)
        self.host_free -= blocks
        self._host[name] = blocks
        self.drop(name)
        return blocks

    def swap_in(self, name: int, tokens: int) -> int:
        """Move a sequence from the host to the device, with room for `tokens` in all."""
        self.take(name, tokens)
        blocks = self._host[name]
        self.drop_host(name)
        return blocks

    def drop_host(self, name: int) -> None:
        """Give up a sequence that is swapped out."""
        self.host_free += self._host.pop(name)
