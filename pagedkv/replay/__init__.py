"""Replay requests through one memory, iteration by iteration, first come first served: what does the memory hold?

An iteration goes like this:

1. every resident request gets room for its next token. Where a paged memory has no block left, the youngest resident
   is preempted: it loses its blocks and waits at the head of the queue, to be computed again (recompute);
2. unless somebody was preempted, requests are admitted from the head of the queue until one does not fit;
3. each resident gets one token, a newcomer after its prompt, and those that have all of theirs leave.

The memory is looked at between the tokens and the leaving. Between two events nothing changes but the number of
tokens, so runs of equal iterations are added up in closed form; a watched replay takes them one by one.

>>> from pagedkv.blocks import BlockPool
>>> from pagedkv.contiguous import FirstFit, Fixed
>>> from pagedkv.workloads import Request
>>> requests = [Request(id=i, arrival=0.0, prompt=8, output=8) for i in range(12)]
>>> replay(requests, Reserved(FirstFit(128), Fixed(64))).iterations
48
>>> replay(requests, Paged(BlockPool(num_blocks=8, block_size=16))).iterations
16
"""

from __future__ import annotations

from pagedkv.replay.clock import ITERATIONS, Clock
from pagedkv.replay.memories import Memory, Paged, Placement, Reserved
from pagedkv.replay.results import Moment, Replay, Stay
from pagedkv.replay.run import replay

__all__ = [
    "ITERATIONS",
    "Clock",
    "Memory",
    "Moment",
    "Paged",
    "Placement",
    "Replay",
    "Reserved",
    "Stay",
    "replay",
]
