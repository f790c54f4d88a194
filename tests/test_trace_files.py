from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagedkv.errors import BadValue, TraceError
from pagedkv.workloads import Request, Workload, load_csv, load_mooncake
from pagedkv.workloads.files import spread_slots

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
unhurried = settings(deadline=None)  # a busy machine is no failure
in_tmp_path = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes(end.join(lines).encode())
    return path


def lengths(workload: Workload) -> list[tuple[int, int]]:
    return [(request.prompt, request.output) for request in workload.requests]


# CSV: what is read


def test_an_azure_file_is_read_to_the_last_digit(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.csv",
        HEADER,
        "2023-11-16 23:59:59.6805901,374,44",
        "2023-11-16 23:59:59.6805902,396,109",
        "2023-11-17 00:00:01.6805901,0,0",
    )
    workload = load_csv(path)
    assert workload.requests == (Request(0, 0.0, 374, 44), Request(1, 1e-7, 396, 109), Request(2, 2.0, 0, 0))
    assert (workload.name, workload.real, workload.licence) == ("mine.csv", True, "not stated")
    assert workload.source == "mine.csv: 3 requests"
    assert workload.prefix_blocks is None


STAMPS = st.lists(st.integers(0, 10**10), min_size=1, max_size=20).map(sorted)
ROWS = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))


@in_tmp_path
@given(data=st.data(), ticks=STAMPS)
def test_a_csv_round_trips_in_every_dress(tmp_path: Path, data: st.DataObject, ticks: list[int]) -> None:
    rows = data.draw(st.lists(ROWS, min_size=len(ticks), max_size=len(ticks)))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    bom = data.draw(st.sampled_from(["", "\ufeff"]))
    tail = data.draw(st.sampled_from(["", end, end * 2, f"{end}   {end}"]))
    quote = data.draw(st.sampled_from(["", '"']))
    form = data.draw(st.sampled_from(["2023", "2024", "seconds"]))
    columns = data.draw(st.permutations(["TIMESTAMP", "ContextTokens", "GeneratedTokens", "Model"]))
    lines = [",".join(f"{quote}{column}{quote}" for column in columns)]
    for tick, (prompt, output) in zip(ticks, rows, strict=True):
        fields = {
            "TIMESTAMP": stamp(tick, form),
            "ContextTokens": str(prompt),
            "GeneratedTokens": str(output),
            "Model": "é x",
        }
        lines.append(",".join(f"{quote}{fields[column]}{quote}" for column in columns))
    path = tmp_path / "round.csv"
    path.write_bytes((bom + end.join(lines) + tail).encode())
    workload = load_csv(path)
    assert lengths(workload) == rows
    assert [request.id for request in workload.requests] == list(range(len(rows)))
    assert [request.arrival for request in workload.requests] == pytest.approx(
        [(tick - ticks[0]) / 10**7 for tick in ticks], abs=1e-9
    )


def stamp(tick: int, form: str) -> str:
    """A tick of 100 ns as the 2023 traces, the 2024 trace, or a plain clock writes it."""
    seconds, fraction = divmod(tick, 10**7)
    if form == "seconds":
        return f"{seconds}.{fraction:07d}"
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:07d}"
    return f"2023-11-16 {clock}" if form == "2023" else f"2024-05-10T{clock}+02:00"


def test_offsets_fractions_and_other_clocks(tmp_path: Path) -> None:
    path = write(
        tmp_path / "zones.csv",
        HEADER,
        "2024-02-29T12:00:00+02:00,1,1",
        "2024-02-29 10:00:00.5Z,2,2",
        "2024-02-29 06:30:01.123456789123-0330,3,3",
        "2024-03-01 00:00:00,4,4",
    )
    assert [request.arrival for request in load_csv(path).requests] == [0.0, 0.5, 1.123456789, 50400.0]
    path = write(tmp_path / "epoch.csv", HEADER, "1700158546,1,1", "1700158546.25,2,2", "1.7001585475e9,3,3")
    assert [request.arrival for request in load_csv(path).requests] == [0.0, 0.25, 1.5]


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    path = write(tmp_path / "long.csv", HEADER, "0,1,1", "1,2,2", "rubbish")
    assert lengths(load_csv(path, limit=2)) == [(1, 1), (2, 2)]
    for limit in (0, -1, 1.5, True):
        with pytest.raises(BadValue, match="limit"):
            load_csv(path, limit=limit)  # type: ignore[arg-type]


# CSV: what is refused


def refusal(path: Path) -> TraceError:
    with pytest.raises(TraceError) as caught:
        load_csv(path) if path.suffix == ".csv" else load_mooncake(path)
    assert str(caught.value).startswith(f"{path}, line {caught.value.line}: ")
    assert caught.value.path == path
    assert len(caught.value.reason) < 400
    return caught.value


BROKEN = [
    ("", "blank"),
    ("7", "3 columns are needed, not the 1 of '7'"),
    ("{t},5", "3 columns are needed, not the 2"),
    ("{t},5,6,7", "3 columns are needed, not the 4"),
    ("{t},5.0,6", "ContextTokens must be a whole number of tokens, not '5.0'"),
    ("{t},-5,6", "ContextTokens .* '-5'"),
    ("{t},,6", "ContextTokens .* ''"),
    ("{t},5,nan", "GeneratedTokens .* 'nan'"),
    ("{t},5,inf", "GeneratedTokens .* 'inf'"),
    ("{t},5,1_000", "GeneratedTokens .* '1_000'"),
    ("{t},5,\u0663", "GeneratedTokens"),
    ("{t},5,\u00b2", "GeneratedTokens"),
    ("{t},5,0x1F", "GeneratedTokens"),
    ("{t},5," + "9" * 5000, "GeneratedTokens .*9{57}\\.\\.\\."),
    ("{t},5,six", "GeneratedTokens .* 'six'"),
    (",5,6", "TIMESTAMP"),
    ("nan,5,6", "TIMESTAMP .* 'nan'"),
    ("-1,5,6", "TIMESTAMP .* '-1'"),
    ("yesterday,5,6", "TIMESTAMP .* 'yesterday'"),
    ("\x00\x01\x02", "3 columns"),
    ("{t},5,\x00", "GeneratedTokens"),
    (HEADER, "TIMESTAMP"),
]
ISO_ONLY = [
    ("2023-02-30 00:00:00,5,6", "TIMESTAMP 2023-02-30 00:00:00: day is out of range"),
    ("2023-11-16 24:00:00,5,6", "TIMESTAMP .* '2023-11-16 24:00:00'"),
    ("2023-11-16 10:60:00,5,6", "TIMESTAMP"),
    ("2023-11-16,5,6", "TIMESTAMP"),
    ("16/11/2023 10:00:00,5,6", "TIMESTAMP"),
    ("5.5,5,6", "plain seconds in all rows, not '5.5'"),
    ("2022-11-16 10:00:00,5,6", "before the row above"),
]
SECONDS_ONLY = [
    ("2023-11-16 10:00:00,5,6", "seconds, at least 0, like the first row's"),
    ("1e999,5,6", "TIMESTAMP .* '1e999'"),
    ("inf,5,6", "TIMESTAMP"),
    ("0.5,5,6", "before the row above"),
]


@in_tmp_path
@given(data=st.data(), rows=st.integers(2, 8), form=st.sampled_from(["2023", "seconds"]))
def test_any_one_broken_row_is_named_with_its_line(
    tmp_path: Path, data: st.DataObject, rows: int, form: str
) -> None:
    lines = [HEADER] + [f"{stamp((i + 1) * 10**7, form)},{i},{i}" for i in range(rows)]
    at = data.draw(st.integers(1, rows - 1))  # not the last: a blank line is allowed there
    broken, reason = data.draw(st.sampled_from(BROKEN + (ISO_ONLY if form == "2023" else SECONDS_ONLY)))
    if at == 1 and reason.startswith(("before", "plain", "seconds,")):
        at = 2 if rows > 2 else 1
        lines = lines if at == 2 else [*lines, lines[-1]]
    if at == 1 and reason.startswith(("before", "plain", "seconds,")):
        return  # the first row sets the clock: nothing to contradict yet
    lines[at] = broken.replace("{t}", stamp((at) * 10**7, form))
    error = refusal(write(tmp_path / "broken.csv", *lines, end=data.draw(st.sampled_from(["\n", "\r\n"]))))
    assert error.line == at + 1
    assert re.search(reason, error.reason)


@in_tmp_path
@given(st.binary(max_size=300))
def test_rubbish_is_refused_and_nothing_else_happens(tmp_path: Path, content: bytes) -> None:
    for name in ("rubbish.csv", "rubbish.jsonl"):
        path = tmp_path / name
        path.write_bytes(content)
        assert refusal(path).line >= 1


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"", 1, "a header naming TIMESTAMP, ContextTokens, GeneratedTokens is needed, not ''"),
        (b"\n\n", 1, "header"),
        (b"\xef\xbb\xbf", 1, "header"),
        (HEADER.encode(), 2, "ends without a request"),
        (HEADER.encode() + b"\n\n\n", 2, "ends without a request"),
        (b"time,prompt,output\n0,1,1\n", 1, "not 'time,prompt,output'"),
        (b"TIMESTAMP,ContextTokens\n0,1\n", 1, "header"),
        (b"0,1,1\n1,2,2\n", 1, "header"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", 1, "compressed"),
        (HEADER.encode("utf-16"), 1, "UTF-16"),
        (HEADER.encode() + b"\n0,1,1\n1,\xff\xfe,1\n", 3, "ContextTokens"),
        (HEADER.encode() + b"\n0,1,1\n\n\n1,2,2\n", 3, "blank"),
    ],
)
def test_a_file_that_is_no_trace(tmp_path: Path, content: bytes, line: int, reason: str) -> None:
    path = tmp_path / "no.csv"
    path.write_bytes(content)
    error = refusal(path)
    assert (error.line, reason in error.reason) == (line, True), error


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for path in (tmp_path / "absent.csv", tmp_path / "folder.csv", tmp_path / "absent.jsonl"):
        assert "cannot be opened" in refusal(path).reason


def test_an_open_file_is_closed_when_a_row_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.csv", HEADER, "0,1,1", "x,1,1", *["2,1,1"] * 5)
    refusal(path)  # an unclosed file would be a ResourceWarning, and warnings are errors here
    path.unlink()


# Mooncake


def row(timestamp: object = 0, prompt: object = 600, output: object = 5, blocks: object = (0, 1)) -> str:
    return json.dumps(
        {"timestamp": timestamp, "input_length": prompt, "output_length": output, "hash_ids": blocks}
    )


def test_a_mooncake_file_keeps_lengths_and_prefix_blocks(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", row(0), row(0, 7, 8, [9]), row(3000, 0, 0, []), "")
    workload = load_mooncake(path)
    assert workload.requests == (Request(0, 0.0, 600, 5), Request(1, 1.5, 7, 8), Request(2, 3.0, 0, 0))
    assert workload.prefix_blocks == ((0, 1), (9,), ())
    assert (workload.name, workload.real) == ("m.jsonl", True)


@unhurried
@given(st.lists(st.integers(0, 40), min_size=1, max_size=40).map(sorted))
def test_spreading_keeps_order_and_stays_inside_the_slot(slots: list[int]) -> None:
    stamps = [3000.0 * slot for slot in slots]
    arrivals = spread_slots(stamps)
    assert arrivals == sorted(arrivals)
    for i, (stamp_ms, arrival) in enumerate(zip(stamps, arrivals, strict=True)):
        offset = arrival - (stamp_ms - stamps[0]) / 1000
        assert -1e-9 <= offset < 3.0
        if stamps.index(stamp_ms) == i:
            assert offset == pytest.approx(0.0, abs=1e-9)
        if stamps.count(stamp_ms) > 1 and i and stamps[i - 1] == stamp_ms:
            assert arrival - arrivals[i - 1] == pytest.approx(3.0 / stamps.count(stamp_ms))


def test_spreading_stops_at_the_next_stamp_and_after_a_slot() -> None:
    assert spread_slots([0, 0, 1000, 61000, 61000]) == [0.0, 0.5, 1.0, 61.0, 62.5]
    assert spread_slots([0, 0, 60000]) == [0.0, 1.5, 60.0]
    assert spread_slots([]) == []


@given(limit=st.integers(1, 12), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5))
@in_tmp_path
def test_a_limited_mooncake_trace_is_the_beginning_of_the_whole(
    tmp_path: Path, limit: int, sizes: list[int]
) -> None:
    lines = [row(3000 * slot, slot, 1, [slot]) for slot, size in enumerate(sizes) for _ in range(size)]
    path = write(tmp_path / "whole.jsonl", *lines)
    whole, part = load_mooncake(path), load_mooncake(path, limit=limit)
    assert part.requests == whole.requests[:limit]
    assert whole.prefix_blocks is not None
    assert part.prefix_blocks == whole.prefix_blocks[:limit]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("{", "not JSON"),
        ("rubbish", "not JSON"),
        ("\x00", "not JSON"),
        ("[" * 100_000, "recursion"),
        ("[1, 2]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ('{"timestamp": 3000}', "no input_length and no output_length and no hash_ids"),
        (row(prompt="600"), "input_length must be a whole number of tokens, not '600'"),
        (row(prompt=600.0), "input_length"),
        (row(prompt=True), "input_length"),
        (row(output=-1), "output_length"),
        (row(output=None), "output_length"),
        (row(output=float("nan")), "output_length"),
        (row(output=10**12), "output_length"),
        (row(timestamp=-1), "timestamp must be milliseconds"),
        (row(timestamp="0"), "timestamp must be milliseconds"),
        (row(timestamp=float("inf")), "timestamp must be milliseconds"),
        (row(timestamp=True), "timestamp must be milliseconds"),
        (row(timestamp=2999), "before the row above"),
        (row(timestamp=3000, blocks="01"), "hash_ids"),
        (row(timestamp=3000, blocks=[1, -2]), "hash_ids"),
        (row(timestamp=3000, blocks=[1.0]), "hash_ids"),
        ('{"timestamp": ' + "9" * 5000 + "}", "digits"),
        ("", "blank"),
    ],
)
def test_any_one_broken_mooncake_row_is_named_with_its_line(tmp_path: Path, broken: str, reason: str) -> None:
    error = refusal(write(tmp_path / "broken.jsonl", row(0), row(3000), broken, row(6000)))
    assert error.line == 3
    assert reason in error.reason


def test_a_mooncake_file_without_rows(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "empty.jsonl", "")).line == 1
    assert refusal(write(tmp_path / "bom.jsonl", "\ufeff")).line == 1
