"""Figure 1, two allocators and one stream: a contiguous reservation per request beside 16-token blocks.

Both sides are replays by `pagedkv.replay` of the same requests in pools of the same size; the script looks up where
each request was and draws it. Time is counted in iterations, in each of which a resident request gets one token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagedkv.blocks import BlockPool
from pagedkv.book.figures.base import Figure, look, patterns
from pagedkv.book.palette import PALETTE
from pagedkv.contiguous import FirstFit, Fixed, Span
from pagedkv.errors import BadValue, require_count
from pagedkv.replay import Paged, Replay, Reserved, replay
from pagedkv.waste import Breakdown
from pagedkv.workloads import Request, teaching_stream

STATES = ("tokens", "reserved", "overprovisioned", "sliver", "external", "free")


def two_allocators(
    requests: Sequence[Request] | None = None,
    *,
    slots: int = 4800,
    reservation: int = 560,
    block_size: int = 16,
    step: int | None = None,
) -> Figure:
    """Figure 1: play the stream through both allocators, and read the two ending percentages.

    Args:
        requests: with arrivals in whole iterations; the 24-request teaching stream by default.
        slots: of each pool; a multiple of the block size.
        reservation: slots that the contiguous side sets aside for each request; a multiple of the block size.
        block_size: slots per block of the paged side.
        step: iteration shown at first; by default the one in which most requests wait on the contiguous side.

    Raises:
        BadValue: if the pool or a reservation is not a whole number of blocks, or the stream is empty.
        NeverFits: if a request is longer than the reservation or the pool.
    """
    size = require_count("block_size", block_size, 1)
    if require_count("slots", slots, size) % size or require_count("reservation", reservation, size) % size:
        raise BadValue(f"{slots} slots and a reservation of {reservation} must be whole blocks of {size}")
    stream = tuple(teaching_stream() if requests is None else requests)
    if not stream or any(request.arrival != int(request.arrival) for request in stream):
        raise BadValue("the figure needs at least one request, and arrivals in whole iterations")
    contiguous = replay(stream, Reserved(FirstFit(slots), Fixed(reservation)))
    paged = replay(stream, Paged(BlockPool(slots // size, size)))
    for side in (contiguous, paged):
        for _, reason in side.rejected:
            raise reason
    iterations = max(contiguous.iterations, paged.iterations)
    data = {
        "slots": slots,
        "reservation": reservation,
        "block_size": size,
        "iterations": iterations,
        "totals": {request.id: request.total for request in stream},
        "contiguous": _side(contiguous),
        "paged": _side(paged),
    }
    if step is None:
        step = _most_waiting(contiguous)
    elif require_count("step", step) > iterations:
        raise BadValue(f"step {step} is after the end, which is iteration {iterations}")
    return Figure(
        kind="allocators",
        title=f"Two allocators, one stream of {len(stream)} requests: reservations beside {size}-token blocks",
        data=data,
        state={"step": step, "request": None},
        states=STATES,
        fallback=_fallback(contiguous, paged, data),
    )


def ending_percentages(average: Breakdown) -> tuple[float, float]:
    """What figure 1 ends with, from a breakdown averaged over a run, in percent.

    Returns:
        The share of the slots *taken* that held tokens, and the share of the *pool* that did. A slot is taken when
        nobody else could have it: reserved, rounded away or lost in a hole, or holding a token.
    """
    percent = average.percent()
    taken = 100 - percent.free
    return (100 * percent.tokens / taken if taken else 0.0), percent.tokens


def _side(run: Replay) -> dict[str, Any]:
    of_taken, of_pool = ending_percentages(run.breakdown)
    return {
        # request, queued, admitted, left, tokens held at admission, first slot or physical blocks
        "stays": [
            [
                stay.request.id,
                stay.queued,
                stay.admitted,
                stay.left,
                stay.held,
                stay.placement.start if isinstance(stay.placement, Span) else list(stay.placement),
            ]
            for stay in sorted(run.stays, key=lambda stay: (stay.admitted, stay.queued, stay.request.id))
        ],
        "iterations": run.iterations,
        "of_taken": round(of_taken, 4),
        "of_pool": round(of_pool, 4),
    }


def _most_waiting(run: Replay) -> int:
    """The last iteration before the end of the longest queue."""

    def waiting(step: int) -> int:
        return sum(stay.queued <= step < stay.admitted for stay in run.stays)

    return max(range(run.iterations), key=lambda step: (waiting(step), step))


def _fallback(contiguous: Replay, paged: Replay, data: dict[str, Any]) -> str:
    """Two bars of where the slots were on average, and the key numbers as a table."""
    prefix = "pkv-allocators"
    palette = look(STATES)

    def box(state: str, x: float, y: float, width: float, height: float) -> str:
        fill = f"url(#{prefix}-{state})" if palette[state]["tile"] else palette[state]["color"]
        edge = ' stroke="currentColor"' if fill == "none" else ""
        return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{fill}"{edge}/>'

    def text(x: float, y: float, words: str) -> str:
        return f'<text x="{x}" y="{y}" fill="currentColor" font-size="12">{words}</text>'

    picture, rows = [patterns(STATES, prefix)], []
    for y, name, run in ((16, "contiguous", contiguous), (70, "paged", paged)):
        picture.append(text(0, y - 4, name))
        x = 0.0
        percent = run.breakdown.percent()
        for state in STATES:
            width = 6.0 * getattr(percent, state)
            picture.append(box(state, x, y, width, 32))
            x += width
        of_taken, of_pool = ending_percentages(run.breakdown)
        rows.append(
            f'<tr><th scope="row">{name}</th><td>{of_taken:.1f} %</td><td>{of_pool:.1f} %</td>'
            f"<td>{run.peak_resident}</td><td>{run.mean_waiting:.1f}</td><td>{run.iterations}</td></tr>"
        )
    for i, state in enumerate(STATES):
        x, y = 200.0 * (i % 3), 114 + 20 * (i // 3)
        picture += [box(state, x, y, 18, 12), text(x + 24, y + 10, PALETTE[state].label)]
    label = "Where the slots of each pool were, averaged over the run; the table below has the key numbers."
    return (
        f"<p><strong>Two allocators, one stream.</strong> {len(data['totals'])} requests grow token by token in "
        f"pools of {data['slots']:,} slots: a contiguous reservation of {data['reservation']} slots each, or blocks "
        f"of {data['block_size']} tokens. The bars show where the slots were, averaged over the run.</p>"
        f'<svg viewBox="-1 0 602 150" width="100%" role="img" aria-label="{label}">{"".join(picture)}</svg>'
        '<table class="table"><tr><td></td><th scope="col">of the slots taken, held tokens</th>'
        '<th scope="col">of the pool, held tokens</th><th scope="col">most running at once</th>'
        '<th scope="col">waiting, on average</th><th scope="col">iterations to finish</th></tr>'
        f"{''.join(rows)}</table>"
    )
