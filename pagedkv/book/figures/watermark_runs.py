"""The runs behind figure 4: for every pool, concurrency and policy on offer, what the simulator does in each iteration.

Given the requests, a run is settled by who was let in and who was evicted in which iteration. `encode` writes that log
with one character for each entry; the script of the figure counts every iteration again from it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product
from typing import NamedTuple

from pagedkv.blocks import blocks_needed
from pagedkv.clock import AffineClock
from pagedkv.errors import require_count
from pagedkv.geometry import LLAMA_3_1_8B
from pagedkv.hardware import H100_SXM
from pagedkv.metrics import Report
from pagedkv.scheduler import Scheduler
from pagedkv.sequences import Event, Plan
from pagedkv.simulator import Setting, step_by_step
from pagedkv.watermarks import POLICIES
from pagedkv.workloads.generators import uniform
from pagedkv.workloads.request import Request, make_requests

POOLS = (800, 1000, 1200)
CONCURRENCIES = (48, 64, 80)
BLOCK_SIZE = 16
REQUESTS = 168
PROMPT = (48, 144)
OUTPUT = (160, 480)
CLOCK = AffineClock.from_roofline(LLAMA_3_1_8B, H100_SXM)

KINDS = (6, 3, 2, 1, -2, -1, 0)
"""Entries of an encoded log: so many sequences let in, so many (negative) evicted, or nothing yet."""
GAPS = 13
ALPHABET = "".join(chr(code) for code in range(33, 127) if chr(code) not in '"\\<')
"""A character for every gap (iterations since the entry before) and kind; none needs escaping in JSON or HTML."""


class Moment(NamedTuple):
    """One iteration, after its preemptions, growth and admissions, and before those that finish in it leave.

    Attributes:
        iteration: its number, from 1.
        seconds: its end on the modelled clock.
        before: free blocks before anybody was let in; unless somebody was preempted, those that the gate saw.
        free: blocks.
        open: whether the gate is.
        running, waiting: sequences.
        admitted: newcomers let in.
        resumed: preempted sequences let in again, to be recomputed.
        preempted, finished: sequences.
        why: why the head of the queue is not in: "" (nobody waits), "evicted" (this iteration preempted), "memory"
            (too few free blocks), "gate" (it would fit, but the gate is closed) or "low" (it would fit, but would not
            leave the low mark free).
        need: blocks that the head of the queue needs; 0 without one.
    """

    iteration: int
    seconds: float
    before: int
    free: int
    open: bool
    running: int
    waiting: int
    admitted: int
    resumed: int
    preempted: int
    finished: int
    why: str
    need: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what came out, and every iteration of it.

    Attributes:
        pool, concurrency, policy: what was chosen.
        low, high: the marks in blocks.
        report: of the simulator.
        moments: the iterations.
    """

    pool: int
    concurrency: int
    policy: str
    low: int
    high: int
    report: Report
    moments: tuple[Moment, ...]

    @property
    def held_back(self) -> int:
        """Iterations in which the head of the queue would have fitted, and the marks kept it out."""
        return sum(moment.why in ("gate", "low") for moment in self.moments)

    @property
    def numbers(self) -> list[int]:
        """Preemptions, iterations held back, flips of the gate, output tokens per second."""
        report = self.report
        speed = round(report.tokens_per_second)
        return [report.num_preemptions_total, self.held_back, report.gate_flips, speed]

    @property
    def telling(self) -> int:
        """The first iteration that lets a preempted sequence in again; else the one with the fewest free blocks."""
        back = (moment.iteration for moment in self.moments if moment.resumed)
        return next(back, min(self.moments, key=lambda moment: moment.free).iteration)


def workload(seed: int = 1) -> tuple[Request, ...]:
    """The requests of the figure: short chats, so that a few seconds of traffic show everything."""
    chance = random.Random(require_count("seed", seed))
    return make_requests(uniform(REQUESTS, chance, prompt=PROMPT, output=OUTPUT))


def setting(pool: int, concurrency: int, policy: str) -> Setting:
    """What one run depends on besides its requests: a closed loop on the modelled clock of an H100."""
    marks = POLICIES[policy]
    return Setting(pool, CLOCK, block_size=BLOCK_SIZE, watermarks=marks, concurrency=concurrency, samples=2)


def follow(pool: int, concurrency: int, policy: str, seed: int = 1) -> Run:
    """Run the simulator step by step, and note every iteration."""
    moments: list[Moment] = []

    def observe(scheduler: Scheduler, plan: Plan, now: float) -> None:
        resumed = sum(sequence.preemptions > 0 for sequence, _ in plan.prefills)
        taken = sum(blocks_needed(tokens, scheduler.residency.block_size) for _, tokens in plan.prefills)
        why, need = _why(scheduler, plan)
        moments.append(
            Moment(
                iteration=plan.iteration,
                seconds=now,
                before=scheduler.residency.num_free + taken,
                free=scheduler.residency.num_free,
                open=scheduler.gate.open,
                running=len(scheduler.running),
                waiting=len(scheduler.queue),
                admitted=len(plan.prefills) - resumed,
                resumed=resumed,
                preempted=len(plan.recomputing),
                finished=sum(one.due == plan.iteration for one in scheduler.running.values()),
                why=why,
                need=need,
            )
        )

    report = step_by_step(workload(seed), setting(pool, concurrency, policy), observe=observe)
    low, high = POLICIES[policy].in_blocks(pool)
    return Run(pool, concurrency, policy, low, high, report, tuple(moments))


def _why(scheduler: Scheduler, plan: Plan) -> tuple[str, int]:
    if not scheduler.queue:
        return "", 0
    head = scheduler.queue[0]
    held = head.request.prompt + head.paused_at
    # Who was preempted comes back only with room for its next token too.
    room = min(held + 1, head.longest) if head.preemptions else held
    need = blocks_needed(room, scheduler.residency.block_size)
    if plan.recomputing:
        return "evicted", need
    if need > scheduler.residency.num_free:
        return "memory", need
    return ("low" if scheduler.gate.open else "gate"), need


def encode_lengths(requests: Sequence[Request]) -> str:
    """Prompt and output of every request in turn, as two digits of `ALPHABET` each."""
    lengths = (tokens for request in requests for tokens in (request.prompt, request.output))
    return "".join(ALPHABET[digit] for tokens in lengths for digit in divmod(tokens, len(ALPHABET)))


def encode(events: Sequence[Event]) -> str:
    """A log as text: who came in and who was evicted, each entry with the iterations since the one before.

    >>> log = encode([(1, "admit", 0), (1, "admit", 1), (16, "preempt", 1)])
    >>> [divmod(ALPHABET.index(letter), len(KINDS)) for letter in log]  # gap, and where in KINDS
    [(1, 2), (12, 6), (3, 5)]
    """
    signs = {"admit": 1, "resume": 1, "preempt": -1}
    moves = ((iteration, signs[kind]) for iteration, kind, _ in events if kind in signs)
    entries, last = [], 0
    for (iteration, sign), group in groupby(moves):
        gap, left = iteration - last, len(list(group))
        while gap >= GAPS:
            entries.append((GAPS - 1, 0))
            gap -= GAPS - 1
        while left:
            kind = next(count for count in KINDS if 0 < count * sign <= left)
            entries.append((gap, kind))
            gap, left = 0, left - kind * sign
        last = iteration
    return "".join(ALPHABET[gap * len(KINDS) + KINDS.index(kind)] for gap, kind in entries)


class Outcome(NamedTuple):
    """What the figure gets of a run: its log, encoded, its `Run.numbers`, and its length in iterations."""

    log: str
    numbers: list[int]
    iterations: int


@cache
def grid(seed: int = 1) -> dict[tuple[int, int, str], Outcome]:
    """The outcome for every choice of pool, concurrency and policy."""
    return {
        choice: Outcome(encode(run.report.events), run.numbers, run.report.iterations)
        for choice in product(POOLS, CONCURRENCIES, POLICIES)
        for run in (follow(*choice, seed),)
    }


def read_out(run: Run, iteration: int) -> str:
    """The sentences that say what one iteration shows."""
    moment = run.moments[iteration - 1]
    gate = f", gate {'open' if moment.open else 'closed'}" if run.low else ""
    entered = moment.admitted + moment.resumed
    again = "let in again, to be recomputed" if moment.resumed == entered else "let in"
    if 0 < moment.resumed < entered:
        again += f", {moment.resumed} of them again"
    happened = (
        (moment.preempted, "preempted"),
        (entered, again),
        (moment.finished, "finishes" if moment.finished == 1 else "finish"),
    )
    events = ", ".join(f"{count} {what}" for count, what in happened if count)
    needs = f"The next in line needs {moment.need} {'block' if moment.need == 1 else 'blocks'}"
    why = {
        "": "",
        "evicted": " An iteration that preempts lets nobody in.",
        "memory": f" {needs}: more than are free.",
        "gate": f" {needs} and would fit, but the gate stays closed until {run.high} are free.",
        "low": f" {needs} and would fit, but would leave fewer than {run.low}.",
    }[moment.why]
    return (
        f"Iteration {iteration:,}, {moment.seconds:.2f} s: {moment.free:,} of {run.pool:,} blocks free{gate}; "
        f"{moment.running} running, {moment.waiting} waiting.{f' {events}.' if events else ''}{why}"
    )
