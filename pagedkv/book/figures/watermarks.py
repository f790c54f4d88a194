"""Figure 4, the pool drains: free blocks over time under five policies, with every admission and preemption.

The runs are the simulator's, one for every pool, concurrency and policy that the reader can choose
(`watermark_runs.py`); the script unrolls the log of the chosen one and draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagedkv.book.figures.base import Figure, look
from pagedkv.book.figures.watermark_runs import (
    ALPHABET,
    BLOCK_SIZE,
    CLOCK,
    CONCURRENCIES,
    KINDS,
    POOLS,
    REQUESTS,
    Run,
    encode_lengths,
    follow,
    grid,
    read_out,
    workload,
)
from pagedkv.errors import BadValue, require_count
from pagedkv.watermarks import POLICIES

STATES = ("tokens", "external", "moving")

CAPTION = (
    "The pool drains: every running sequence takes a block per 16 tokens, until the free blocks fall below the low "
    "mark and the gate closes. A high mark above it keeps the gate closed until several sequences have room; shedding "
    "also preempts at the low mark, before the pool is empty."
)
"""Two sentences for the paragraph beside the figure; the page without JavaScript opens with them."""


def watermarks(
    pool: int = 1000,
    concurrency: int = 64,
    policy: str = "two marks, shedding",
    *,
    iteration: int | None = None,
    seed: int = 1,
) -> Figure:
    """Figure 4: watch the free blocks drain to the marks, and what hysteresis and shedding do about it.

    Args:
        pool: blocks; 800, 1000 or 1200.
        concurrency: requests in the system at any time; 48, 64 or 80.
        policy: a name in `pagedkv.watermarks.POLICIES`.
        iteration: shown at first; by default the first one that lets a preempted sequence in again.
        seed: of the lengths of the requests.

    Raises:
        BadValue: for a choice that the figure does not offer, or an iteration after the end.
    """
    for name, value, offered in (
        ("pool", pool, POOLS),
        ("concurrency", concurrency, CONCURRENCIES),
        ("policy", policy, tuple(POLICIES)),
    ):
        if value not in offered:
            raise BadValue(f"{name} must be one of {', '.join(map(str, offered))}, not {value!r}")
    run = follow(pool, concurrency, policy, seed)
    if iteration is None:
        iteration = run.telling
    elif require_count("iteration", iteration, 1) > run.report.iterations:
        raise BadValue(f"iteration {iteration} is after the end, which is {run.report.iterations}")
    return Figure(
        kind="watermarks",
        title="The pool drains: free blocks over time, the marks, and every admission and preemption",
        data=_data(seed),
        state=selection(run, iteration),
        states=STATES,
        fallback=_fallback(run, seed),
    )


def selection(run: Run, iteration: int) -> dict[str, Any]:
    """What the figure reports to the kernel, under the names that its `state` has."""
    preemptions, held_back, flips, tokens_per_second = run.numbers
    moment = run.moments[iteration - 1]
    return {
        "pool": run.pool,
        "concurrency": run.concurrency,
        "policy": run.policy,
        "iteration": iteration,
        "preemptions": preemptions,
        "held_back": held_back,
        "flips": flips,
        "tokens_per_second": tokens_per_second,
        "free": moment.free,
        "open": moment.open,
        "running": moment.running,
        "waiting": moment.waiting,
    }


def _data(seed: int) -> dict[str, Any]:
    runs, prefill = grid(seed), CLOCK.prefill
    base, per_token, per_sequence = CLOCK.base, CLOCK.per_resident_token, CLOCK.per_sequence
    return {
        "pools": POOLS,
        "concurrencies": CONCURRENCIES,
        "block_size": BLOCK_SIZE,
        "requests": encode_lengths(workload(seed)),
        "clock": [base, per_token, per_sequence, prefill.per_token, prefill.per_pair],
        "alphabet": ALPHABET,
        "kinds": KINDS,
        "policies": [
            {"name": name, "shed": marks.shed, "marks": [marks.in_blocks(pool) for pool in POOLS]}
            for name, marks in POLICIES.items()
        ],
        "longest": max(run.iterations for run in runs.values()),
        "runs": [[[runs[pool, n, name][:2] for name in POLICIES] for n in CONCURRENCIES] for pool in POOLS],
    }


def _fallback(run: Run, seed: int) -> str:
    """The run that is shown first as a curve, the policies beside each other, and what pool and concurrency change."""
    runs = grid(seed)
    columns = ("policy", "preemptions", "iterations held back", "gate flips", "output tokens/s")
    policies = "".join(
        _row(_name(policy), runs[run.pool, run.concurrency, policy].numbers) for policy in POLICIES
    )
    pools = "".join(
        _row(f"{pool:,} blocks", [runs[pool, requests, run.policy].numbers[0] for requests in CONCURRENCIES])
        for pool in POOLS
    )
    marks = f" The marks are at {run.low} and {run.high} blocks." if run.low else ""
    return (
        f"<p>{CAPTION}</p>{_picture(run)}<p>{run.pool:,} blocks, {run.concurrency} requests at a time, "
        f"{_name(run.policy)}.{marks} {read_out(run, run.telling)}</p>"
        f'<table class="table"><caption>The same {REQUESTS} requests under every policy</caption>'
        f"<tr>{_heads(columns)}</tr>{policies}</table>"
        f'<table class="table"><caption>Preemptions with {_name(run.policy)}, by pool and requests at a time</caption>'
        f"<tr>{_heads(('pool', *CONCURRENCIES))}</tr>{pools}</table>"
    )


def _name(policy: str) -> str:
    return "no marks" if policy == "none" else policy


def _heads(words: Sequence[object]) -> str:
    return "".join(f'<th scope="col">{word}</th>' for word in words)


def _row(name: str, numbers: Sequence[int]) -> str:
    return f'<tr><th scope="row">{name}</th>{"".join(f"<td>{number:,}</td>" for number in numbers)}</tr>'


def _picture(run: Run) -> str:
    """Free blocks over the run: the least of every few iterations, so that no touch of a mark is lost."""
    width, height, last = 600, 130, run.report.iterations
    every = -(-last // 90)
    least = [min(m.free for m in run.moments[i : i + every]) for i in range(0, last, every)]
    unit = height / run.pool
    points = " ".join(
        f"{round(i * every * width / last)},{round(height - free * unit)}" for i, free in enumerate(least)
    )
    lines = "".join(
        f'<path d="M0 {height - mark * unit:.1f}h{width}" stroke="currentColor" stroke-dasharray="{dash}"/>'
        for mark, dash in ((run.low, "none"), (run.high, "6 3"))
        if mark
    )
    paint = look(STATES)["tokens"]["color"]
    label = f"Free blocks from iteration 1 to {last:,}: from {least[0]} down to the marks, and up again at the end."
    return (
        f'<svg viewBox="-1 -14 602 146" width="100%" role="img" aria-label="{label}" font-size="12" fill="none">'
        f'<text fill="currentColor" y="-3">free blocks of {run.pool:,} below the curve, in use above it</text>'
        f'<polygon points="{points} {width},0 0,0" fill="{paint}" fill-opacity=".25" stroke="currentColor"/>'
        f"{lines}</svg>"
    )
