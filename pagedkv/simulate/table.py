"""A sweep as a table: line by line while it runs, and as columns to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pagedkv.simulate.files import Columns
from pagedkv.simulate.output import count, percent, plain, seconds
from pagedkv.simulate.sweep import Row

Axes = Mapping[str, Sequence[Any]]

HEADER = (
    "rejected", "preemptions", "per request", "prefill x", "tokens/s", "blocks", "TTFT p50", "TTFT p99", "ITL p99",
    "E2E p99", "goodput/s",
)  # fmt: skip
"""What is shown of each point. `prefill x` is all prefill over the prompts; `blocks` their mean usage; ITL the gap
between two tokens; E2E from arrival to the last token."""


def header(axes: Axes) -> str:
    """The line above the points."""
    return _line(axes, list(axes), HEADER)


def line(axes: Axes, row: Row) -> str:
    """One point."""
    values = [str(value) for value in _point(axes, row)]
    if row.error:
        return f"{_line(axes, values, ())}  failed: {row.error}"
    got = row.figures
    cells = (
        count(got["requests_rejected"]),
        count(got["num_preemptions_total"]),
        plain(got["preemptions_per_request"], 3),
        plain(got["recompute_multiple"], 3),
        plain(got["tokens_per_second"], 1),
        percent(got["kv_cache_usage_perc_mean"]),
        seconds(got["time_to_first_token_seconds_p50"]),
        seconds(got["time_to_first_token_seconds_p99"]),
        seconds(got["inter_token_latency_seconds_p99"]),
        seconds(got["e2e_request_latency_seconds_p99"]),
        plain(got["goodput_requests_per_second"], 3),
    )
    return _line(axes, values, cells)


def columns(axes: Axes, rows: Sequence[Row]) -> Columns:
    """One row per point: the swept options, all figures, and the error of a point that has none."""
    swept = [name.replace("-", "_") for name in axes]
    figures = dict.fromkeys(name for row in rows for name in row.figures)
    return {
        **{name: [getattr(row.options, name) for row in rows] for name in swept},
        **{name: [row.figures.get(name) for row in rows] for name in figures},
        "error": [row.error or None for row in rows],
    }


def _point(axes: Axes, row: Row) -> list[object]:
    return [getattr(row.options, name.replace("-", "_")) for name in axes]


def _line(axes: Axes, values: Sequence[str], cells: Sequence[str]) -> str:
    widths = [max(len(name), *(len(str(value)) for value in values)) for name, values in axes.items()]
    left = [f"{value:>{width}}" for value, width in zip(values, widths, strict=True)]
    return "  ".join(
        [*left, *(f"{cell:>{max(len(name), 10)}}" for cell, name in zip(cells, HEADER, strict=False))]
    )
