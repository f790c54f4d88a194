"""What a scheduler talks about: a request on its way, and the plan of one iteration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pagedkv.errors import NeverFits
from pagedkv.workloads.request import Request

Event = tuple[int, str, int]
"""(iteration, kind, request id). Kinds: arrive, reject, admit, finish, abort; preempt and resume, with recompute;
swap-out and swap-in; close and open of the gate, with `GATE` in place of an id. What happens between two iterations is
logged under the later one."""

GATE = -1


class State(StrEnum):
    """Where a sequence is; always exactly one of these."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    SWAPPED = "swapped"
    FINISHED = "finished"
    REJECTED = "rejected"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way through a scheduler, which alone changes it.

    Attributes:
        request: what was asked for.
        state: where it is now.
        preemptions: how often it was evicted.
        recomputed_tokens: tokens prefilled again because of that.
        reason: why it was rejected.
        paused_at: output tokens when it last stopped running; `Scheduler.emitted` knows those of a running one too.
        longest: tokens of KV in its last iteration. The token emitted last is never fed back: its KV is never written.
        due: the iteration that would emit its last token, while it runs.
        ticket: the number under which its leaving is booked, while it runs; 0 otherwise.
    """

    request: Request
    state: State = State.WAITING
    preemptions: int = 0
    recomputed_tokens: int = 0
    reason: NeverFits | None = None
    paused_at: int = 0
    longest: int = 0
    due: int = 0
    ticket: int = 0

    def __post_init__(self) -> None:
        """Work out `longest`."""
        output = self.request.output
        self.longest = self.request.prompt + (output - 1 if output else 0)


Prefill = tuple[Sequence, int]
"""A sequence let in without KV, and the tokens to prefill: its prompt and what it emitted before."""


class Transfer(NamedTuple):
    """A sequence moved between device and host, and how much of it: blocks, and the tokens in them."""

    sequence: Sequence
    blocks: int
    tokens: int


@dataclass(slots=True)
class Plan:
    """What one iteration does, in this order.

    Attributes:
        iteration: its number, from 1.
        recomputing: victims whose KV was given up.
        swapped_out: victims whose KV was moved to the host.
        decodes: how many ran before and run on, one token each: the first so many of `Scheduler.running`.
        swapped_in: sequences whose KV came back from the host; each decodes one token too.
        prefills: sequences let in without KV; each emits one token after its prefill.
    """

    iteration: int
    recomputing: list[Sequence]
    swapped_out: list[Transfer]
    decodes: int
    swapped_in: list[Transfer]
    prefills: list[Prefill]
