"""Where the KV of running sequences lies: what a scheduler asks of a block pool, and the answer by block tables.

A scheduler decides who is resident. `Residency` is all it needs for that, so that the same scheduler drives block
tables alone (`TableResidency`, here), the same in numbers (`pagedkv.fast_forward`) or a cache of tensors (an engine).
"""

from __future__ import annotations

from typing import Protocol

from pagedkv.blocks import BlockPool, blocks_needed
from pagedkv.errors import OutOfBlocks
from pagedkv.tables import BlockTable


class Residency(Protocol):
    """The resident sequences of one device pool, by request id, and those swapped out to a host pool.

    All residents advance together, one token each, which is what `wanted` and `grow` are about. A refusal, OutOfBlocks
    in every case, changes nothing.
    """

    @property
    def num_blocks(self) -> int:
        """Blocks of the device pool."""

    @property
    def block_size(self) -> int:
        """Tokens per block, on the device and on the host."""

    @property
    def num_free(self) -> int:
        """Free blocks of the device pool."""

    @property
    def host_free(self) -> int:
        """Free blocks of the host pool."""

    @property
    def num_tokens(self) -> int:
        """Tokens that all residents hold."""

    def wanted(self) -> int:
        """Blocks that one more token for every resident takes."""

    def grow(self, tokens: int = 1) -> None:
        """Make room for `tokens` more tokens of every resident, one after the other, oldest resident first.

        The blocks must be free: for one token those of `wanted`.
        """

    def take(self, name: int, tokens: int) -> None:
        """Make room for a newcomer of `tokens`, which becomes the youngest resident."""

    def drop(self, name: int) -> None:
        """Give a resident's blocks back, and its KV up."""

    def swap_out(self, name: int) -> int:
        """Move a resident's KV to the host and give its device blocks back; returns the blocks moved."""

    def swap_in(self, name: int, tokens: int) -> int:
        """Bring a sequence back from the host as the youngest resident, with room for `tokens` in all.

        Returns the blocks moved.
        """

    def drop_host(self, name: int) -> None:
        """Give up the KV of a sequence that is swapped out."""


class TableResidency:
    """A `BlockTable` per resident over one `BlockPool`, and one per swapped sequence over a host pool.

    Args:
        pool: the device pool; others may hold blocks of it too.
        host: the host pool, of equal block size; None for none at all.

    Attributes:
        pool, host: as given.
        tables: of the residents, by request id, oldest first.
        host_tables: of the swapped sequences, by request id.
    """

    __slots__ = ("host", "host_tables", "pool", "tables")

    def __init__(self, pool: BlockPool, host: BlockPool | None = None) -> None:
        self.pool = pool
        self.host = host
        self.tables: dict[int, BlockTable] = {}
        self.host_tables: dict[int, BlockTable] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks of the device pool."""
        return self.pool.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.pool.block_size

    @property
    def num_free(self) -> int:
        """Free blocks of the device pool."""
        return self.pool.num_free

    @property
    def host_free(self) -> int:
        """Free blocks of the host pool."""
        return self.host.num_free if self.host else 0

    @property
    def num_tokens(self) -> int:
        """Tokens that all residents hold."""
        return sum(table.length for table in self.tables.values())

    def wanted(self) -> int:
        """Blocks that one more token for every resident takes, asked of each table by the rule that `append` obeys."""
        return sum(table.blocks_to_extend(1) for table in self.tables.values())

    def grow(self, tokens: int = 1) -> None:
        """Append one token to every table, oldest first, as often as asked."""
        for _ in range(tokens):
            for table in self.tables.values():
                table.append()

    def take(self, name: int, tokens: int) -> None:
        """A table of `tokens` tokens."""
        table = BlockTable(self.pool)
        table.extend(tokens)
        self.tables[name] = table

    def drop(self, name: int) -> None:
        """Free a table."""
        self.tables.pop(name).free()

    def swap_out(self, name: int) -> int:
        """Move a table from the device pool to the host pool."""
        tokens = self.tables[name].length
        if self.host is None:
            raise OutOfBlocks(blocks_needed(tokens, self.block_size), 0)
        table = BlockTable(self.host)
        table.extend(tokens)
        self.host_tables[name] = table
        self.drop(name)
        return len(table.blocks)

    def swap_in(self, name: int, tokens: int) -> int:
        """Move a table from the host pool to the device pool, with room for `tokens` in all."""
        self.take(name, tokens)
        moved = len(self.host_tables[name].blocks)
        self.drop_host(name)
        return moved

    def drop_host(self, name: int) -> None:
        """Free a table of the host pool."""
        self.host_tables.pop(name).free()
