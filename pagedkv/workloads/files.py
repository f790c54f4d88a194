"""Readers of trace files: Azure-style CSV and Mooncake-style JSON lines, checked row by row.

Both read as a stream and stop at the first row that is wrong, with its line number. Arrivals are counted from the first
row, whatever clock the file keeps.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

from pagedkv.errors import TraceError, require_count
from pagedkv.workloads.request import Request

CSV_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
MOONCAKE_SLOT_MS = 3000.0
"""Mooncake's trace stamps its requests on a grid of three seconds."""

# Digits: a longer token count is a damaged file, and Python itself refuses to read very long ones.
_LONGEST_COUNT = 12
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9})\d*)?(?:Z|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_SECONDS = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?", re.ASCII)


def read_csv(path: Path | str, *, limit: int | None = None) -> tuple[Request, ...]:
    """Read a CSV with the columns of the Azure traces: TIMESTAMP, ContextTokens, GeneratedTokens.

    The columns may stand in any order, among others, none of which may hold a comma. TIMESTAMP is `2023-11-16
    18:15:46.6805900` (a T, up to nine decimals kept, Z or an offset from UTC are understood) or plain seconds, the same
    in all rows.

    Args:
        path: the file: UTF-8 with or without a byte order mark, any line ends.
        limit: stop after so many requests; what follows is not looked at.

    Raises:
        TraceError: for a file that cannot be opened, an empty one, another header, and any row that lacks a column,
            holds anything but whole numbers of tokens, or is older than the row before it.
    """
    wanted = math.inf if limit is None else require_count("limit", limit, 1)
    lines = _lines(path)
    number, header = next(lines, (1, ""))
    names = [name.strip().strip('"') for name in header.split(",")]
    if not set(CSV_COLUMNS) <= set(names):
        needed = ", ".join(CSV_COLUMNS)
        raise TraceError(path, number, f"a header naming {needed} is needed, not {_shown(header)}")
    when, prompt, output = (names.index(name) for name in CSV_COLUMNS)
    requests: list[Request] = []
    seconds_since: Callable[[str], float] | None = None
    before = 0.0
    for number, line in lines:
        fields = line.split(",")
        if len(fields) != len(names):
            raise TraceError(
                path, number, f"{len(names)} columns are needed, not the {len(fields)} of {_shown(line)}"
            )
        stamp = fields[when].strip().strip('"')
        try:
            if seconds_since is None:
                seconds_since = _clock(stamp)
            arrival = seconds_since(stamp)
            tokens = _tokens(CSV_COLUMNS[1], fields[prompt]), _tokens(CSV_COLUMNS[2], fields[output])
            if arrival < before:
                raise ValueError(f"TIMESTAMP {stamp} is before the row above it; sort the rows by time")
        except ValueError as error:
            raise TraceError(path, number, str(error)) from None
        before = arrival
        requests.append(Request(len(requests), arrival, *tokens))
        if len(requests) >= wanted:
            break
    if not requests:
        raise TraceError(path, number + 1, "the file ends without a request")
    return tuple(requests)


def read_mooncake(
    path: Path | str, *, limit: int | None = None
) -> tuple[tuple[Request, ...], tuple[tuple[int, ...], ...]]:
    """Read JSON lines with the keys of the Mooncake traces: timestamp (ms), input_length, output_length, hash_ids.

    The trace puts about ten requests at a time on one tick of a three-second clock, which no server ever saw. They are
    spread: the i-th of n requests with one timestamp comes i/n of the way to the next timestamp, or i/n of three
    seconds where that is further off. Nothing random, and the first of a slot keeps its time.

    Args:
        path: the file, UTF-8.
        limit: keep so many requests.

    Returns:
        The requests, and for each its prefix blocks: one id per 512 prompt tokens, equal where the prompts are equal up
        to the end of that block.

    Raises:
        TraceError: for a file that cannot be opened or has no row, and any row that is not a JSON object, lacks a key,
            holds anything but whole numbers, or is older than the row before it.
    """
    wanted = math.inf if limit is None else require_count("limit", limit, 1)
    stamps: list[float] = []
    rows: list[tuple[int, int]] = []
    blocks: list[tuple[int, ...]] = []
    number = 0
    for number, line in _lines(path):
        try:
            stamp, prompt, output, ids = _mooncake_row(line)
            if stamps and stamp < stamps[-1]:
                raise ValueError(f"timestamp {stamp} is before the row above it; sort the rows by time")
        except (ValueError, RecursionError) as error:
            raise TraceError(path, number, str(error)) from None
        stamps.append(stamp)
        rows.append((prompt, output))
        blocks.append(ids)
        if len(rows) > wanted and stamp > stamps[int(wanted) - 1]:
            break  # the slot of the last request wanted is complete, so its place in it is known
    if not rows:
        raise TraceError(path, number + 1, "the file ends without a request")
    times = spread_slots(stamps)
    requests = (Request(i, time, *row) for i, (time, row) in enumerate(zip(times, rows, strict=True)))
    return tuple(requests)[:limit], tuple(blocks)[:limit]


def spread_slots(stamps_ms: Sequence[float], slot_ms: float = MOONCAKE_SLOT_MS) -> list[float]:
    """Arrivals in seconds from the first stamp: equal stamps are spaced evenly over their slot.

    >>> spread_slots([5000, 5000, 5000, 8000, 8000])
    [0.0, 1.0, 2.0, 3.0, 4.5]
    """
    groups = [(stamp, len(list(group))) for stamp, group in groupby(stamps_ms)]
    ends = [*(stamp for stamp, _ in groups[1:]), math.inf]
    arrivals: list[float] = []
    for (stamp, count), end in zip(groups, ends, strict=False):  # without stamps there is one end too many
        width = min(slot_ms, end - stamp)
        arrivals += [(stamp - groups[0][0] + width * i / count) / 1000 for i in range(count)]
    return arrivals


def _lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; blank ones are allowed at the end of the file only."""
    try:
        # Bytes that are not UTF-8 become lone surrogates: the row that has them is then refused under its own number.
        file = open(path, encoding="utf-8-sig", errors="surrogateescape")  # noqa: SIM115
    except OSError as error:
        raise TraceError(path, 0, f"the file cannot be opened: {error.strerror}") from error
    blank = 0
    with file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if number == 1 and line.startswith(("\x1f\udc8b", "\udcff\udcfe", "\udcfe\udcff")):
                raise TraceError(path, 1, "the file is compressed, or UTF-16; unpack it, or save it as UTF-8")
            if not line.strip():
                blank = blank or number
                continue
            if blank:
                raise TraceError(path, blank, "the line is blank, and rows follow; remove it")
            yield number, line


def _tokens(name: str, text: str) -> int:
    text = text.strip().strip('"')
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_COUNT:
        return int(text)
    raise ValueError(f"{name} must be a whole number of tokens, not {_shown(text)}")


def _clock(first: str) -> Callable[[str], float]:
    """A function from a TIMESTAMP to seconds since `first`, which sets the format of all."""
    if _SECONDS.fullmatch(first):
        start = _plain_seconds(first)
        return lambda text: _plain_seconds(text) - start
    zero = _nanoseconds(first)
    # Integers until the difference is taken: a float of seconds since year 1 is only good to 10 microseconds.
    return lambda text: (_nanoseconds(text) - zero) / 1_000_000_000


def _plain_seconds(text: str) -> float:
    if not _SECONDS.fullmatch(text) or not math.isfinite(seconds := float(text)):
        raise ValueError(f"TIMESTAMP must be seconds, at least 0, like the first row's, not {_shown(text)}")
    return seconds


def _nanoseconds(text: str) -> int:
    found = _MOMENT.fullmatch(text)
    if found is None:
        example = "2023-11-16 18:15:46.68, or plain seconds in all rows"
        raise ValueError(f"TIMESTAMP must be like {example}, not {_shown(text)}")
    day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = found.groups()
    try:
        days = date.fromisoformat(day).toordinal()
    except ValueError as error:
        raise ValueError(f"TIMESTAMP {text}: {error}") from None
    seconds = days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        offset = int(offset_hours) * 3600 + int(offset_minutes) * 60
        seconds -= offset if sign == "+" else -offset
    return seconds * 1_000_000_000 + (int(fraction.ljust(9, "0")) if fraction else 0)


def _mooncake_row(line: str) -> tuple[float, int, int, tuple[int, ...]]:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"the row is not JSON ({error.msg} at column {error.colno}): {_shown(line)}"
        ) from None
    if not isinstance(row, dict):
        raise ValueError(f"the row must be a JSON object, not {_shown(line)}")
    missing = [key for key in MOONCAKE_KEYS if key not in row]
    if missing:
        raise ValueError(f"the row has no {' and no '.join(missing)}")
    stamp, prompt, output, ids = (row[key] for key in MOONCAKE_KEYS)
    if type(stamp) not in (int, float) or not 0 <= stamp < math.inf:
        raise ValueError(f"timestamp must be milliseconds, at least 0, not {stamp!r}")
    for name, value in (("input_length", prompt), ("output_length", output)):
        if type(value) is not int or not 0 <= value < 10**_LONGEST_COUNT:
            raise ValueError(f"{name} must be a whole number of tokens, not {value!r}")
    if type(ids) is not list or not all(type(block) is int and block >= 0 for block in ids):
        raise ValueError("hash_ids must be a list of whole numbers")
    return stamp, prompt, output, tuple(ids)


def _shown(text: str) -> str:
    """`text` as a short literal: a damaged line may be long, and may hold anything."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
