"""Figure 2, from token to block: a logical token strip, a block table and the physical pool that it points into.

For each block size the state is the work of a real `BlockPool`: earlier sequences came and went, which scattered the
free list, and then sequences A and B grew side by side. What the reader appends or frees from there is done by the
port of the manager in `js/manager.js`.
"""

from __future__ import annotations

import random
from typing import Any

from pagedkv.blocks import BlockPool
from pagedkv.book.figures.base import Figure
from pagedkv.errors import BadValue, require_count
from pagedkv.tables import TABLE_ENTRY_BYTES, BlockTable

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SLOTS = 512


def block_table(
    tokens: int = 37, other: int = 54, *, token: int = 21, block_size: int = 16, seed: int = 260
) -> Figure:
    """Figure 2: follow a token through the block table to its slot, at any block size from 1 to 256.

    Args:
        tokens: length of sequence A, whose table is shown, in tokens (1 to 96).
        other: length of sequence B, which shares the pool of 512 slots (0 to 128).
        token: position of the token selected at first.
        block_size: slots per block at first; one of 1, 2, 4, ..., 256.
        seed: of the traffic that scattered the free list.

    Raises:
        BadValue: for lengths, a position or a block size that the figure cannot show.
    """
    if block_size not in SIZES:
        raise BadValue(f"block_size must be one of {', '.join(map(str, SIZES))}, not {block_size!r}")
    if require_count("tokens", tokens, 1) > 96 or require_count("other", other) > 128:
        raise BadValue(f"the figure has room for 96 tokens of A and 128 of B, not {tokens} and {other}")
    if require_count("token", token) >= tokens:
        raise BadValue(f"token {token} is outside a sequence of {tokens} tokens")
    start: dict[str, Any] = {}
    tables: dict[int, BlockTable] = {}
    for size in SIZES:
        pool, a, b = scattered(size, tokens, other, seed)
        tables[size] = a
        start[str(size)] = {"free": pool.free_list(), "a": tuple(a.blocks), "b": tuple(b.blocks)}
    data = {
        "slots": SLOTS,
        "entry_bytes": TABLE_ENTRY_BYTES,
        "lengths": [tokens, other],
        "limits": [96, 128],
        "start": start,
    }
    state = selection(tables[block_size], token)
    return Figure(
        kind="block-table",
        title="From token to block: sequence A's tokens, its block table, and the physical pool it points into",
        data=data,
        state=state,
        states=("tokens", "sliver", "free"),
        fallback=_fallback(tables, state),
    )


def scattered(
    block_size: int, tokens: int, other: int, seed: int
) -> tuple[BlockPool, BlockTable, BlockTable]:
    """A pool in which traffic came and went, and sequences A and B that then grew in it, a token each in turn."""
    rng = random.Random(seed)
    pool = BlockPool(SLOTS // block_size, block_size)
    resident: list[BlockTable] = []
    for _ in range(400):
        table = rng.choice(resident) if resident and rng.random() < 0.7 else BlockTable(pool)
        grow = rng.randint(1, 24)
        if table.can_extend(grow):
            table.extend(grow)
            if table not in resident:
                resident.append(table)
        elif resident:
            resident.pop(rng.randrange(len(resident))).free()
    rng.shuffle(resident)
    for table in resident:
        table.free()
    a, b = BlockTable(pool), BlockTable(pool)
    for position in range(max(tokens, other)):
        if position < tokens:
            a.append()
        if position < other:
            b.append()
    return pool, a, b


def selection(table: BlockTable, token: int) -> dict[str, Any]:
    """What the figure reports of one selected token, under the names that its `state` has."""
    size = table.pool.block_size
    logical, offset = divmod(token, size)
    return {
        "token": token,
        "block_size": size,
        "logical_block": logical,
        "offset": offset,
        "physical_block": table.blocks[logical],
        "slot": table.slot(token),
        "table": list(table.blocks),
        "length": table.length,
    }


def read_out(state: dict[str, Any]) -> str:
    """The sentence that says what the picture shows."""
    return (
        f"Token {state['token']}: logical block {state['logical_block']}, offset {state['offset']} -> "
        f"physical block {state['physical_block']}, slot {state['slot']}"
    )


def _fallback(tables: dict[int, BlockTable], state: dict[str, Any]) -> str:
    size = state["block_size"]
    logical = "".join(f"<td>{i}</td>" for i in range(len(state["table"])))
    physical = "".join(f"<td>{block}</td>" for block in state["table"])
    rows = []
    for table in tables.values():
        held = len(table.blocks) * table.pool.block_size
        rows.append(
            f"<tr><td>{table.pool.block_size}</td><td>{table.slack} of {held}, {100 * table.slack / held:.1f} %</td>"
            f"<td>{len(table.blocks)} × {TABLE_ENTRY_BYTES} B = {len(table.blocks) * TABLE_ENTRY_BYTES} B</td></tr>"
        )
    return (
        f"<p><strong>From token to block.</strong> Sequence A holds {state['length']} tokens in blocks of {size}. "
        f"{read_out(state).replace('->', '-&gt;')}.</p>"
        f'<table class="table"><caption>Block table of A, block size {size}</caption>'
        f'<tr><th scope="row">logical block</th>{logical}</tr>'
        f'<tr><th scope="row">physical block</th>{physical}</tr></table>'
        f'<table class="table"><caption>What the block size costs a sequence of {state["length"]} tokens</caption>'
        '<tr><th scope="col">block size</th><th scope="col">slots unused</th><th scope="col">table, int32</th></tr>'
        f"{''.join(rows)}</table>"
    )
