"""Figure 6, the knee: the same arrivals against pools of different sizes, and what happens to single requests there.

Every point of the curves is a run of 1,000 requests through `pagedkv.pressure`, and the lanes under the curves are some
requests of that very run, from the scheduler's own log. The script looks up and draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pagedkv.book.figures.base import Figure
from pagedkv.book.figures.lanes import (
    COUNT,
    FIRST,
    SPACE,
    SPAN,
    UNIT,
    Lane,
    describe_lanes,
    encode,
    lanes,
    picture,
)
from pagedkv.errors import BadValue
from pagedkv.geometry import LLAMA_3_1_8B
from pagedkv.pressure import MOST_FIRST_TOKEN, MOST_PER_TOKEN, OUTPUT_HEAVY, SERVER, Outcome
from pagedkv.simulator import Setting, fast_forward
from pagedkv.watermarks import OFF, POLICIES, Watermarks

RATES = (4, 5, 6)
"""Requests per second."""
POOLS = tuple(range(1000, 2501, 125))
"""Sizes in blocks."""
BLOCK_SIZE = 16
MARKS: Mapping[bool, Watermarks] = {False: OFF, True: POLICIES["two marks"]}

STATES = ("tokens", "external", "moving", "free")

CAPTION = (
    "The knee: the same arrivals against pools of different sizes. A little below the size that suffices, requests are "
    "evicted and prefilled again over and over; the preemptions per request soon reach a ceiling, while latency goes "
    "on rising. Down there the queue keeps growing, so a longer run has a still longer latency."
)
"""For the paragraph beside the figure; the page without JavaScript opens with it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the figure.

    Attributes:
        rate: requests per second.
        watermarks: whether the marks are on.
        blocks: of the pool.
        numbers: preemptions per request, good requests per second, 99th percentile of the seconds to completion, and
            prefill work as a multiple of the prompts; rounded as they are shown.
        lanes: some of its requests.
    """

    rate: int
    watermarks: bool
    blocks: int
    numbers: tuple[float, float, float, float]
    lanes: tuple[Lane, ...]


Runs = Mapping[tuple[int, bool, int], Run]


def knee(
    blocks: int = 1500, *, rate: int = 5, watermarks: bool = False, request: int | None = None, seed: int = 0
) -> Figure:
    """Figure 6: drag the pool's size over the knee, and see what it does to single requests.

    Args:
        blocks: of the pool at first: 1,000 to 2,500 in steps of 125.
        rate: requests per second at first: 4, 5 or 6.
        watermarks: whether the marks at 4 % and 8 % are on at first.
        request: the request followed at first, 120 to 147, or None.
        seed: of the workload. The 78 runs of a seed take some seconds, once per process.

    Raises:
        BadValue: for a choice that the figure does not have.
    """
    if blocks not in POOLS or rate not in RATES or type(watermarks) is not bool:
        raise BadValue(
            f"the figure has pools of {POOLS[0]} to {POOLS[-1]} blocks in steps of {POOLS[1] - POOLS[0]} and rates of "
            f"{', '.join(map(str, RATES))}, with and without watermarks; not {blocks!r}, {rate!r}, {watermarks!r}"
        )
    if request is not None and request not in range(FIRST, FIRST + COUNT):
        raise BadValue(f"the lanes are those of requests {FIRST} to {FIRST + COUNT - 1}, not {request!r}")
    everything = runs(seed)
    shown = everything[rate, watermarks, blocks]
    strips: dict[str, int] = {}
    table = [
        [
            [[*run.numbers, strips.setdefault(encode(run.lanes), len(strips))] for run in line]
            for line in ([everything[r, marks, b] for b in POOLS] for marks in MARKS)
        ]
        for r in RATES
    ]
    return Figure(
        kind="knee",
        title="The knee: preemptions, goodput and latency by pool size, and some requests of the run in time",
        data={
            "rates": RATES,
            "pools": POOLS,
            "block_bytes": BLOCK_SIZE * LLAMA_3_1_8B.kv_bytes_per_token,
            "marks": [_percent(mark) for mark in (MARKS[True].low, MARKS[True].high)],
            "requests": OUTPUT_HEAVY.count,
            "limits": [MOST_FIRST_TOKEN, round(1000 * MOST_PER_TOKEN)],
            "first": FIRST,
            "span": SPAN,
            "unit": UNIT,
            "arrivals": [[lane.arrival for lane in everything[r, False, POOLS[0]].lanes] for r in RATES],
            "runs": table,
            "strips": list(strips),
        },
        state=selection(shown, request),
        states=STATES,
        fallback=_fallback(everything, shown),
    )


@cache
def runs(seed: int = 0) -> Runs:
    """All runs of the figure, by rate, marks and pool."""
    made = {}
    for rate in RATES:
        requests = replace(OUTPUT_HEAVY, rate=float(rate))(seed)
        for on, marks in MARKS.items():
            for blocks in POOLS:
                setting = Setting(blocks, SERVER, BLOCK_SIZE, watermarks=marks)
                row = Outcome.of(fast_forward(requests, setting), "", blocks, seed)
                numbers = (
                    round(row.preemptions_per_request, 2),
                    round(row.goodput, 2),
                    round(row.completion_p99, 1),
                    round(row.recompute_multiple, 2),
                )
                made[rate, on, blocks] = Run(rate, on, blocks, numbers, lanes(requests, setting))
    return made


def selection(run: Run, request: int | None) -> dict[str, Any]:
    """What the figure reports to the kernel, under the names that its `state` has."""
    preemptions, good, latency, multiple = run.numbers
    return {
        "blocks": run.blocks,
        "rate": run.rate,
        "watermarks": run.watermarks,
        "request": request,
        "preemptions_per_request": preemptions,
        "goodput": good,
        "completion_p99": latency,
        "recompute_multiple": multiple,
    }


def read_out(everything: Runs, run: Run) -> str:
    """The sentences for one pool: its numbers, and those of its neighbours."""
    preemptions, good, latency, multiple = run.numbers
    marks = "with watermarks" if run.watermarks else "without watermarks"
    text = (
        f"{run.blocks:,} blocks at {run.rate} requests per second, {marks}: {preemptions:.2f} preemptions per request, "
        f"p99 {latency:.1f}{SPACE}s."
    )
    place = POOLS.index(run.blocks)
    neighbours = [
        f"with {_percent(abs(POOLS[at] / run.blocks - 1))} {word} ({POOLS[at]:,}), "
        f"{other.numbers[0]:.2f} and {other.numbers[2]:.1f}{SPACE}s"
        for word, at in (("more", place + 1), ("fewer", place - 1))
        if 0 <= at < len(POOLS) and (other := everything[run.rate, run.watermarks, POOLS[at]])
    ]
    return (
        f"{text} W{'; '.join(neighbours)[1:]}. {good:.2f} requests per second are good; "
        f"prefill does {multiple:.2f} times the work of the prompts alone."
    )


def _percent(share: float) -> str:
    """Whole percents, and exactly half a percent up, as the script rounds."""
    return f"{math.floor(round(100 * share, 6) + 0.5)}{SPACE}%"


def _fallback(everything: Runs, shown: Run) -> str:
    """The curves of one load as a table, and the lanes of the pool shown as a picture."""
    marks = [_percent(mark) for mark in (MARKS[True].low, MARKS[True].high)]
    rows = []
    for blocks in POOLS:
        pair = [everything[shown.rate, on, blocks].numbers for on in MARKS]
        cells = "".join(f"<td>{a:.2f}<td>{b:.2f}<td>{c:.1f}" for a, b, c, _ in pair)
        rows.append(f'<tr><th scope="row">{blocks:,}</th>{cells.replace("<td>", "</td><td>")[5:]}</td></tr>')
    heads = "".join(
        f'<th scope="col">{head}</th>'
        for head in ("preemptions per request", "good requests per second", "p99, s") * len(MARKS)
    )
    return (
        f"<p>{CAPTION}</p>"
        f'<table class="table"><caption>{shown.rate} requests per second, pools in blocks</caption>'
        '<tr><td></td><th scope="colgroup" colspan="3">without watermarks</th>'
        f'<th scope="colgroup" colspan="3">with watermarks at {" and ".join(marks)}</th></tr>'
        f'<tr><th scope="col">blocks</th>{heads}</tr>{"".join(rows)}</table>'
        f"<p>{shown.blocks:,} blocks. {describe_lanes(shown.lanes)} Thin: waits to be let in. Thick: runs. Hatched: "
        f"evicted, waits to come back.</p>{picture(shown.lanes)}"
    )
