"""What a run leaves behind: CSV and Parquet files, written as a whole or not at all."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from pagedkv.errors import BadValue, PagedKVError
from pagedkv.metrics import Report, Sample

Columns = Mapping[str, Sequence[object]]
"""A table: values by name of column. None and NaN are written as empty."""

Write = Callable[[Path, Columns], None]
"""Writes a table to a path."""


def require(module: str, wanted_by: str, command: str) -> None:
    """Raise PagedKVError, saying how to get it, when an optional module is not installed."""
    if find_spec(module) is None:
        raise PagedKVError(f"{wanted_by} needs {module}, which is not installed: {command}")


def require_places(paths: Sequence[Path | None], trace: str) -> None:
    """Refuse paths that could not be written later, or that would overwrite each other or the trace.

    Raises:
        BadValue: for the first such path.
    """
    taken = {Path(trace).resolve(): "the trace itself"}
    for path in paths:
        if path is None:
            continue
        if path.is_dir() or not path.resolve().parent.is_dir():
            raise BadValue(
                f"{path} cannot be written: {'it is a folder' if path.is_dir() else 'no such folder'}"
            )
        if path.resolve() in taken:
            raise BadValue(f"{path} would overwrite {taken[path.resolve()]}; give it another name")
        taken[path.resolve()] = "another file of this run"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write so that `path` is replaced when all is written, and left alone when anything stops it before.

    Raises:
        PagedKVError: when the system refuses to write there.
    """
    try:
        if path.exists() and not path.is_file():  # a device or a pipe: nothing to replace
            yield path
            return
        target = path.resolve()  # of a link, what it points to is replaced
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            yield part
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise PagedKVError(f"{path} cannot be written: {error.strerror or error}") from error


def write_csv(path: Path, columns: Columns) -> None:
    """Write a table as CSV, with a header."""
    with replacing(path) as part, open(part, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*map(_without_nan, columns.values()), strict=True))


def write_parquet(path: Path, columns: Columns) -> None:
    """Write a table as Parquet."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: list(_without_nan(values)) for name, values in columns.items()})
    with replacing(path) as part:
        pyarrow.parquet.write_table(table, str(part))


def record_columns(report: Report) -> Columns:
    """One row per request, in their order: what it asked for and what became of it; times in seconds."""
    records, requests = report.records, report.requests
    return {
        "id": [r.id for r in requests],
        "arrival_seconds": report.arrivals,
        "prompt_tokens": [r.prompt for r in requests],
        "output_tokens": [r.output for r in requests],
        "first_token_seconds": report.first_tokens,
        "finish_seconds": report.finishes,
        "time_to_first_token_seconds": [r.time_to_first_token for r in records],
        "time_per_output_token_seconds": [r.time_per_output_token for r in records],
        "e2e_request_latency_seconds": [r.completion for r in records],
        "preemptions": report.preemptions,
        "recomputed_tokens": report.recomputed_tokens,
        "rejected": [str(r.rejected) if r.rejected else None for r in records],
    }


def sample_columns(report: Report) -> Columns:
    """One row per sample of the pool; names and units as in `pagedkv.metrics.Sample`."""
    rows = zip(*report.samples, strict=True) if report.samples else ([] for _ in Sample._fields)
    return dict(zip(Sample._fields, map(list, rows), strict=True))


def _without_nan(values: Sequence[object]) -> Iterator[object]:
    return (None if isinstance(value, float) and math.isnan(value) else value for value in values)
