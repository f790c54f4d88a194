"""`pagedkv simulate`: what it computes, what it keeps, what it refuses, and its sweeps."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from pagedkv import cli
from pagedkv.errors import BadValue, PagedKVError
from pagedkv.geometry import PRESETS, QWEN_2_5_7B
from pagedkv.hardware import A100_40GB, ACCELERATORS
from pagedkv.simulate import experiment, files, options, output, sweep
from pagedkv.simulate.options import Options
from pagedkv.simulator import fast_forward
from pagedkv.workloads import TRACES, Request, load_csv, make_requests, poisson, uniform

Run = Callable[..., str]


def write_trace(path: Path, requests: tuple[Request, ...]) -> Path:
    rows = [f"{request.arrival!r},{request.prompt},{request.output}" for request in requests]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """60 requests, output-heavy, that a pool of 300 blocks holds only with preemptions."""
    chance = random.Random(0)
    lengths = uniform(60, chance, prompt=(100, 300), output=(100, 600))
    arrivals = poisson(60, chance, rate=20.0)
    return write_trace(tmp_path / "mine.csv", make_requests(lengths, [at - arrivals[0] for at in arrivals]))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the verb, and give what it printed."""

    def go(*words: object, status: int = 0) -> str:
        got = cli.main(["simulate", *map(str, words)])
        said = capsys.readouterr()
        assert got == status, said
        return said.err if status else said.out

    return go


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_figures_are_those_of_the_simulator(trace: Path, run: Run) -> None:
    requests = load_csv(trace).requests
    setting = experiment.setting_of(Options(pool=300, low=0.0))
    report = fast_forward(requests, setting)
    got = json.loads(run(trace, "--pool", 300, "--low", 0, "--json"))
    expected = report.summary() | {"kv_cache_usage_perc_max": report.peak_blocks / 300}
    assert {name: got["metrics"][name] for name in expected} == expected
    assert got["metrics"]["num_preemptions_total"] > 10
    assert got["metrics"]["goodput_requests_per_second"] == report.goodput(2.0, 0.2)
    assert got["real"] and got["source"] == "mine.csv: 60 requests" and got["options"]["pool"] == 300


def test_the_most_blocks_in_use_are_those_of_all_iterations(trace: Path, run: Run) -> None:
    report = fast_forward(load_csv(trace).requests, experiment.setting_of(Options(pool=5000)))
    exact = report.peak_blocks / 5000
    assert max(sample.kv_cache_usage_perc for sample in report.samples) < exact
    assert json.loads(run(trace, "--pool", 5000, "--json"))["metrics"]["kv_cache_usage_perc_max"] == exact


def test_the_text_has_the_figures_and_the_names_that_engines_give_them(trace: Path, run: Run) -> None:
    report = fast_forward(load_csv(trace).requests, experiment.setting_of(Options(pool=300, low=0.0)))
    said = run(trace, "--pool", 300, "--low", 0)
    lines = {line[:36].strip(): line[36:].split() for line in said.splitlines()}
    assert said.startswith("input: mine.csv: 60 requests\nmodel: Llama 3.1 8B on H100 SXM")
    assert "pool: 300 blocks of 16 tokens, 4,800 slots, 0.6 GB" in said
    assert lines["preemptions"] == [str(report.num_preemptions_total), "num_preemptions_total"]
    assert lines["finished"] == ["60", "request_success_total"]
    assert lines["recomputed tokens"] == [f"{sum(report.recomputed_tokens):,}"]
    assert lines["blocks in use, mean / max"][-3:] == ["100.0", "%", "kv_cache_usage_perc"]
    assert lines["most of one request"] == [str(max(report.preemptions))]
    assert "time_to_first_token_seconds" in said and "first token in 2 s, then 0.2 s a token" in said
    assert "rejected request" not in said


def test_step_by_step_says_the_same(trace: Path, run: Run) -> None:
    words = (trace, "--pool", 300, "--shed", "--preempt", "cheaper", "--max-running", 20)
    assert run(*words, "--step-by-step") == run(*words)


def test_step_by_step_is_what_it_says(trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "fast_forward", lambda *_, **__: pytest.fail("not step by step"))
    run(trace, "--pool", 300, "--step-by-step")


def test_block_usage_and_slot_usage_are_two_numbers(tmp_path: Path, run: Run) -> None:
    # vllm PR #57336: three sequences of 17 tokens take two blocks each.
    trace = write_trace(tmp_path / "seventeen.csv", (Request(0, 0.0, 17, 1),) * 3)
    said = run(trace, "--pool", 9, "--low", 0)
    assert "66.7 % / 66.7 %  kv_cache_usage_perc" in said
    assert "35.4 % / 35.4 %  of 1 samples" in said


def test_what_never_fits_is_rejected_by_itself(tmp_path: Path, run: Run) -> None:
    # vllm#39734: such a request blocked the queue for ever.
    requests = (
        Request(0, 0.0, 65, 1),
        Request(1, 0.0, 64, 1),
        Request(2, 1.0, 64, 0),
        Request(3, 1.0, 1, 65),
    )
    trace = write_trace(tmp_path / "long.csv", requests)
    kept = tmp_path / "kept.csv"
    said = run(trace, "--pool", 4, "--csv", kept)
    assert "rejected request 0 (65 + 1 tokens): the request needs 5 blocks and only 4 blocks exist" in said
    rows = read_csv(kept)
    assert ["5 blocks" in row["rejected"] for row in rows] == [True, False, False, True]
    assert [bool(row["finish_seconds"]) for row in rows] == [False, True, True, False]
    got = json.loads(run(trace, "--pool", 4, "--json"))
    assert [reason["id"] for reason in got["rejected"]] == [0, 3]


def test_a_pool_that_holds_no_request_is_still_a_run(trace: Path, run: Run) -> None:
    said = run(trace, "--pool", 1)
    assert "... and 57 more; --csv FILE lists them" in said
    got = json.loads(run(trace, "--pool", 1, "--json"))["metrics"]
    assert (got["requests_rejected"], got["request_success_total"], got["useful_tokens"]) == (60, 0, 0)
    assert got["time_to_first_token_seconds_p50"] is None and got["preemptions_per_request"] is None


def test_the_pool_is_sized_by_memory_unless_given() -> None:
    chosen = Options(model="qwen-2.5-7b", accelerator="a100-40gb", memory_fraction=0.8, block_size=32)
    setting = experiment.setting_of(chosen)
    assert setting.num_blocks == A100_40GB.kv_slots(QWEN_2_5_7B, 0.8) // 32
    assert setting.clock.base == QWEN_2_5_7B.weight_bytes / A100_40GB.bandwidth
    assert experiment.setting_of(replace(chosen, memory_fraction=None, pool=7)).num_blocks == 7
    default = experiment.setting_of(Options())
    assert default.num_blocks == ACCELERATORS["h100-sxm"].kv_slots(PRESETS["llama-3.1-8b"]) // 16


def test_options_reach_the_setting() -> None:
    setting = experiment.setting_of(
        Options(pool=50, low=0.1, high=0.3, shed=True, max_running=4, max_prefill_tokens=99, block_size=8)
    )
    assert (setting.watermarks.low, setting.watermarks.high, setting.watermarks.shed) == (0.1, 0.3, True)
    assert (setting.max_running, setting.max_prefill_tokens, setting.block_size) == (4, 99, 8)
    assert experiment.setting_of(Options(pool=50, low=0.07)).watermarks.high == 0.14
    assert experiment.setting_of(Options(pool=50, preempt="swap")).host_blocks == 50
    assert experiment.setting_of(Options(pool=50, preempt="swap", host_blocks=3)).host_blocks == 3
    slow, fast = (
        experiment.setting_of(Options(pool=50, preempt="cheaper", link=link)) for link in (6.0, 60.0)
    )
    assert slow.choose(4000) == "recompute" and fast.choose(4000) == "swap"


def test_preemption_by_swap_moves_blocks_and_recomputes_nothing(trace: Path, run: Run) -> None:
    words = (trace, "--pool", 300, "--low", 0, "--json", "--preempt")
    swap, none, recompute = (
        json.loads(run(*words, *how))["metrics"]
        for how in (["swap"], ["swap", "--host-blocks", 0], ["recompute"])
    )
    assert swap["swapped_blocks"] > 0 and swap["recomputed_tokens"] == 0
    assert none["swapped_blocks"] == 0 and none == recompute


def test_rate_scale_and_limit(trace: Path, run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "kept.csv"
    run(trace, "--rate-scale", 4, "--limit", 10, "--csv", kept)
    arrivals = [float(row["arrival_seconds"]) for row in read_csv(kept)]
    assert arrivals == [request.arrival / 4 for request in load_csv(trace).requests[:10]]


def test_json_lines_are_read_as_such(tmp_path: Path, run: Run) -> None:
    trace = tmp_path / "mine.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 30, "output_length": 5, "hash_ids": []}\n')
    assert "input: mine.jsonl: 1 requests" in run(trace)
    trace.rename(tmp_path / "plain")
    assert "line 1: a header naming" in run(tmp_path / "plain", status=1)


def test_a_stand_in_for_a_trace_is_called_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEDKV_TRACES", str(tmp_path))
    monkeypatch.setenv("PAGEDKV_CACHE", str(tmp_path))
    monkeypatch.setenv("PAGEDKV_OFFLINE", "1")
    said = run("azure-code", "--limit", 50)
    assert said.startswith("GENERATED input: Not the trace itself but 50 requests generated (seed 0)")
    assert "downloads are off" in said
    got = json.loads(run("azure-code", "--limit", 50, "--json"))
    assert not got["real"]
    seeded = json.loads(run("azure-code", "--limit", 50, "--seed", 0, "--json"))
    assert seeded["metrics"] == got["metrics"]
    other = json.loads(run("azure-code", "--limit", 50, "--seed", 1, "--json"))
    assert other["metrics"] != got["metrics"]
    assert "50 requests generated (seed 1)" in other["source"] and not other["real"]


def test_files_hold_every_request_and_sample(trace: Path, run: Run, tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("kept.csv", "kept.parquet", "samples.csv")]
    words = (trace, "--pool", 300, "--low", 0)
    run(*words, "--csv", names[0], "--parquet", names[1], "--samples", names[2])
    report = fast_forward(load_csv(trace).requests, experiment.setting_of(Options(pool=300, low=0.0)))
    rows = read_csv(names[0])
    assert len(rows) == 60
    for row, record in zip(rows, report.records, strict=True):
        assert float(row["finish_seconds"]) == record.finish
        assert float(row["time_to_first_token_seconds"]) == record.time_to_first_token
        assert float(row["time_per_output_token_seconds"]) == record.time_per_output_token
        assert float(row["e2e_request_latency_seconds"]) == record.completion
        assert int(row["preemptions"]) == record.preemptions
        assert int(row["recomputed_tokens"]) == record.recomputed_tokens
    pyarrow = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.read_table(names[1]).to_pylist()
    columns = files.record_columns(report)
    assert list(table[0]) == list(columns) == list(rows[0])
    assert [list(row.values()) for row in table] == [list(row) for row in zip(*columns.values(), strict=True)]
    samples = read_csv(names[2])
    assert [int(row["free_blocks"]) for row in samples] == [sample.free_blocks for sample in report.samples]
    assert {path.name for path in tmp_path.iterdir()} == {"mine.csv", *(path.name for path in names)}


def test_samples_of_a_run_without_an_iteration(trace: Path, run: Run, tmp_path: Path) -> None:
    run(trace, "--pool", 1, "--samples", tmp_path / "samples.csv")
    assert (tmp_path / "samples.csv").read_text().startswith("iteration,seconds,free_blocks,")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("nothing", "no trace and no file 'nothing'; valid are: azure-conversation, azure-code, mooncake-"),
        ("TRACE --model gpt", f"unknown model 'gpt'; valid are: {', '.join(PRESETS)}"),
        ("TRACE --accelerator tpu", f"unknown accelerator 'tpu'; valid are: {', '.join(ACCELERATORS)}"),
        ("TRACE --preempt kill", "unknown preempt 'kill'; valid are: recompute, swap, cheaper"),
        ("TRACE --low 0.2 --high 0.1", "low 0.2 is above high 0.1"),
        ("TRACE --low nan", "low must be a share"),
        ("TRACE --low -0.1", "low must be a share"),
        ("TRACE --pool 0", "pool must be at least 1, not 0"),
        ("TRACE --pool 5 --memory-fraction 0.5", "pool and memory-fraction both set"),
        ("TRACE --memory-fraction 1.1", "memory-fraction must be above 0 and at most 1, not 1.1"),
        ("TRACE --memory-fraction 0.1", "hold no block beside the 16.1 GB of weights of Llama 3.1 8B"),
        ("TRACE --block-size 0", "block-size must be at least 1, not 0"),
        ("TRACE --rate-scale 0", "rate-scale must be finite and above 0, not 0.0"),
        ("TRACE --rate-scale inf", "rate-scale must be finite and above 0, not inf"),
        ("TRACE --rate-scale nan", "rate-scale must be finite and above 0, not nan"),
        ("TRACE --link 0", "bandwidth must be above 0"),
        ("TRACE --host-blocks -1", "host-blocks must be at least 0, not -1"),
        ("TRACE --limit 0", "limit must be at least 1, not 0"),
        ("azure-code --seed 1 --limit 0", "limit must be at least 1, not 0"),
        ("azure-code --seed -1", "seed must be at least 0, not -1"),
        ("TRACE --seed 1", "--seed generates requests like those of azure-conversation"),
        ("TRACE --max-running 0", "max_running must be at least 1"),
        ("TRACE --ttft-limit nan", "ttft-limit must be above 0 seconds"),
        ("TRACE --csv missing/kept.csv", "cannot be written: no such folder"),
        ("TRACE --csv .", "cannot be written: it is a folder"),
        ("TRACE --csv TRACE", "would overwrite the trace itself"),
        ("TRACE --csv kept --samples ./kept", "kept would overwrite another file of this run"),
        ("TRACE --sweep pol=3", "no option 'pol' to sweep; valid are: model, accelerator, pool, "),
        ("TRACE --sweep pool", "--sweep pool: give whole numbers separated by commas, as in pool=1,2"),
        ("TRACE --sweep low=0,", "--sweep low=0,: give numbers separated by commas, as in low=1,2"),
        ("TRACE --sweep pool=1 --sweep pool=2", "--sweep pool=2: pool is swept already"),
        ("TRACE --sweep pool=1 --samples kept", "--samples keeps the pool over time of one run"),
        ("TRACE --sweep pool=1 --backend mpi", "unknown backend 'mpi'; valid are: loky, dask, ray"),
        ("TRACE --sweep pool=1 --jobs 0", "jobs must be at least 1, not 0"),
        ("TRACE --sweep seed=1,2", "--seed generates requests like those of"),
    ],
)
def test_misuse_is_said_in_a_line(
    trace: Path, run: Run, words: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    said = run(*words.replace("TRACE", str(trace)).split(), status=2)
    assert said.startswith("pagedkv: ") and reason in said and said.count("\n") == 1
    assert os.listdir(trace.parent) == ["mine.csv"]


@pytest.mark.parametrize(
    ("rows", "line", "reason"),
    [
        (["0.0,10,5", "2.0,10,5", "1.0,10,5"], 4, "before the row above it"),
        (["0.0,10,5", "0.5,-1,5"], 3, "ContextTokens must be a whole number"),
        (["0.0,10,nan"], 2, "GeneratedTokens must be a whole number"),
        (["nan,10,5"], 2, "TIMESTAMP must be"),
        (["0.0,10"], 2, "3 columns are needed"),
        ([], 2, "ends without a request"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(
    tmp_path: Path, run: Run, rows: list[str], line: int, reason: str
) -> None:
    trace = tmp_path / "bad.csv"
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    for more in ([], ["--sweep", "pool=5,6"]):
        said = run(trace, *more, status=1)
        assert said.startswith(f"pagedkv: {trace}, line {line}: ") and reason in said


def test_help_names_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["simulate", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for names in (PRESETS, ACCELERATORS, TRACES, options.PREEMPT, options.BACKENDS):
        assert ", ".join(names) in said
    parsed = cli.make_parser().parse_args(["simulate", "x"])
    assert options.chosen(parsed) == Options()


def test_an_interrupted_run_leaves_files_alone(
    trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = trace.parent / "kept.csv"
    kept.write_text("before")

    def interrupt(*arguments: object) -> Iterator[object]:
        yield "half a row"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "fast_forward", lambda *_, **__: list(interrupt()))
        assert "unchanged" in run(trace, "--csv", kept, status=130)
    monkeypatch.setattr(files, "_without_nan", interrupt)
    assert "unchanged" in run(trace, "--csv", kept, status=130)
    assert kept.read_text() == "before"
    assert sorted(os.listdir(trace.parent)) == ["kept.csv", "mine.csv"]


def test_a_file_is_replaced_where_a_link_points(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "kept.csv", tmp_path / "link.csv"
    target.write_text("before")
    link.symlink_to(target)
    files.write_csv(link, {"a": [1, math.nan], "b": ["x, y", None]})
    assert link.is_symlink() and target.read_text() == 'a,b\n1,"x, y"\n,\n'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_written_to_and_not_replaced(trace: Path, run: Run) -> None:
    pipe = trace.parent / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    run(trace, "--csv", pipe)
    assert pipe.is_fifo()
    reader.join()
    assert got[0].count("\n") == 61


def test_a_full_disk_is_a_failure_in_a_line(trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> Iterator[object]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_without_nan", full)
    kept = trace.parent / "kept.csv"
    assert run(trace, "--csv", kept, status=1) == (
        f"pagedkv: {kept} cannot be written: No space left on device\n"
    )
    assert os.listdir(trace.parent) == ["mine.csv"]


@pytest.mark.parametrize(
    ("module", "words", "reason"),
    [
        ("pyarrow", ["--parquet", "kept"], "--parquet needs pyarrow, which is not installed: pip install"),
        ("joblib", ["--sweep", "pool=9"], "--sweep needs joblib, which is not installed: pip install"),
        ("distributed", ["--sweep", "pool=9", "--backend", "dask"], "--backend dask needs distributed"),
        (
            "ray",
            ["--sweep", "pool=9", "--backend", "ray"],
            "--backend ray needs ray, which is not installed: pip",
        ),
    ],
)
def test_what_is_not_installed_is_said_before_the_run(
    trace: Path, run: Run, module: str, words: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(experiment, "fast_forward", lambda *_, **__: pytest.fail("ran"))
    assert reason in run(trace, *words, status=1)


def test_a_progress_bar_is_for_terminals_only(
    trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["simulate", str(trace)]) == 0
    assert capsys.readouterr().err == ""
    terminal = StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    run(trace, "--pool", 300)
    drawn = terminal.getvalue().split("\r")
    assert drawn[-2].startswith(f"[{'#' * 40}] 100 %  60 of 60") and drawn[-1] == "\x1b[K"
    assert 10 < len(drawn) <= 62


def test_a_progress_bar_draws_a_hundred_times_at_most() -> None:
    terminal = StringIO()
    with output.ProgressBar(100_000, terminal) as progress:
        for _ in range(100_000):
            progress(1)
    assert terminal.getvalue().count("\r") == 102


GRID = ("--sweep", "pool=300,0,200", "--sweep", "low=0,0.05", "--jobs", 1)


def test_a_sweep_is_its_points_in_order_and_survives_one_that_fails(
    trace: Path, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = tmp_path / "sweep.csv", tmp_path / "sweep.parquet"
    assert (
        cli.main([str(w) for w in ("simulate", trace, *GRID, "--csv", names[0], "--parquet", names[1])]) == 1
    )
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "input: mine.csv: 60 requests" and lines[2].split()[:4] == [
        "pool", "low", "rejected", "preemptions",
    ]  # fmt: skip
    rows = [line.split() for line in lines[3:]]
    grid = [[pool, low] for pool in ("300", "0", "200") for low in ("0.0", "0.05")]
    assert [row[:2] for row in rows] == grid
    assert all("failed: pool must be at least 1, not 0" in line for line in lines[5:7])
    assert said.err == "pagedkv: 2 of 6 points failed\n"
    kept = read_csv(names[0])
    assert [[row["pool"], row["low"]] for row in kept] == grid
    for row, shown in zip(kept, rows, strict=True):
        if row["pool"] == "0":
            assert row["error"] == "pool must be at least 1, not 0" and row["num_preemptions_total"] == ""
            continue
        alone = json.loads(run(trace, "--pool", row["pool"], "--low", row["low"], "--json"))["metrics"]
        assert {name: float(row[name]) for name in alone} == alone and not row["error"]
        assert shown[3] == str(alone["num_preemptions_total"])
    pyarrow = pytest.importorskip("pyarrow.parquet")
    assert pyarrow.read_table(names[1]).column("pool").to_pylist() == [300, 300, 0, 0, 200, 200]


def test_a_sweep_as_json(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", str(trace), *map(str, GRID), "--json"]) == 1
    got = json.loads(capsys.readouterr().out)
    assert [point["options"]["pool"] for point in got["points"]] == [300, 300, 0, 0, 200, 200]
    assert [point["metrics"] is None for point in got["points"]] == [False, False, True, True, False, False]
    assert got["points"][2]["error"] == "pool must be at least 1, not 0"
    assert got["points"][0]["error"] is None and got["sources"][0]["real"]


def test_points_of_one_seed_see_the_same_requests(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "sweep.csv"
    sweeps = ("--sweep", "seed=1,2", "--sweep", "preempt=recompute,swap")
    said = run("azure-code", "--limit", 40, *sweeps, "--jobs", 1, "--csv", kept)
    assert said.count("GENERATED input") == 2
    rows = read_csv(kept)
    assert [row["preempt"] for row in rows] == ["recompute", "swap"] * 2
    tokens = [row["prompt_tokens"] for row in rows]
    assert tokens[0] == tokens[1] != tokens[2] == tokens[3]


POINTS = sweep.points(Options(pool=40), {"seed": [0, 1, 2]})
REQUESTS = [Request(0, 0.0, 10, 5)]


class DiesWhenRead:
    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


class FailsWhenRead:
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("x",)


def test_a_sweep_on_processes_survives_the_death_of_one() -> None:
    requests: Any = {0: REQUESTS, 1: DiesWhenRead(), 2: REQUESTS}
    rows = list(sweep.sweep(POINTS, requests, jobs=2, backend="loky"))
    assert [row.options.seed for row in rows] == [0, 1, 2]
    assert rows[1].error.startswith("the workers stopped: TerminatedWorkerError: A worker process")
    assert rows[2].error or rows[2].figures
    requests[1] = FailsWhenRead()
    rows = list(sweep.sweep(POINTS, requests, jobs=2, backend="loky"))
    assert [bool(row.figures) for row in rows] == [True, False, True]
    assert rows[1].error.startswith("ValueError: invalid literal") and rows[0].figures == rows[2].figures


@pytest.mark.filterwarnings("default")  # distributed's own
def test_a_sweep_on_a_dask_cluster(trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own, started for the sweep, and one that is there already. Their workers are threads, to be quick."""
    distributed = pytest.importorskip("distributed")
    import dask

    start = distributed.LocalCluster
    started: list[int] = []
    worked: list[str] = []

    def in_process(**given: Any) -> Any:
        started.append(given["n_workers"])
        return start(**given, processes=False)

    def on_a_worker(*arguments: Any) -> Any:
        worked.append(distributed.get_worker().address)
        return experiment.simulate(*arguments)

    words = (trace, "--sweep", "pool=300,200", "--sweep", "low=0,0.05")
    expected = run(*words, "--jobs", 1)
    monkeypatch.setattr(distributed, "LocalCluster", in_process)
    monkeypatch.setattr(sweep, "simulate", on_a_worker)
    assert run(*words, "--backend", "dask", "--jobs", 2) == expected
    assert started == [2] and len(worked) == 4
    with start(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster:
        with dask.config.set({"scheduler-address": cluster.scheduler_address}):
            assert run(*words, "--backend", "dask") == expected
        assert worked[4:] == [cluster.workers[0].address] * 4 and started == [2]


@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_that_is_not_there(trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    import dask

    monkeypatch.setattr(sweep, "CONNECT_TIMEOUT", 0.2)
    with dask.config.set({"scheduler-address": "tcp://127.0.0.1:1"}):
        said = run(trace, "--sweep", "pool=300", "--backend", "dask", status=1)
    assert said.startswith("pagedkv: no Dask scheduler answers at tcp://127.0.0.1:1")


def test_ray_is_registered_with_joblib(trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for ray: its back end, like this one, has no generator to return."""
    joblib = pytest.importorskip("joblib")
    from joblib.parallel import ThreadingBackend

    class Ray(ThreadingBackend):  # type: ignore[misc]
        supports_return_generator = False

    module = types.ModuleType("ray.util.joblib")
    module.register_ray = lambda: joblib.register_parallel_backend("ray", Ray)  # type: ignore[attr-defined]
    monkeypatch.setattr(sweep, "require", lambda *_: None)
    for name in ("ray", "ray.util", "ray.util.joblib"):
        monkeypatch.setitem(sys.modules, name, module)
    words = (trace, "--sweep", "pool=300,200")
    assert run(*words, "--backend", "ray") == run(*words, "--jobs", 1)


def test_only_known_back_ends_are_taken() -> None:
    with pytest.raises(BadValue):
        sweep.require_backend("threads", 2)
    with pytest.raises(PagedKVError, match="needs nothing_of_that_name"):
        files.require("nothing_of_that_name", "--x", "")


WHOLE_PROCESS = """
import pathlib, sys
from pagedkv import cli
status = cli.main(["simulate", "azure-conversation", "--csv", sys.argv[1], "--samples", sys.argv[2]])
heavy = [name for name in ("numpy", "pandas", "torch", "joblib", "pyarrow", "tqdm") if name in sys.modules]
peak = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(status, heavy, peak[0].split()[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_the_whole_process_is_light_on_an_hour_of_traffic(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WHOLE_PROCESS, tmp_path / "kept.csv", tmp_path / "samples.csv"]
    offline = os.environ | {"PAGEDKV_OFFLINE": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=offline, check=True)
    status, heavy, peak = done.stdout.splitlines()[-1].split()
    assert (status, heavy) == ("0", "[]")
    assert int(peak) < 60_000  # kB
    assert len(read_csv(tmp_path / "kept.csv")) == 19_366


def test_a_reader_that_leaves_stops_no_file(trace: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.csv"
    words = [sys.executable, "-m", "pagedkv.cli", "simulate", str(trace), "--csv", str(kept)]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(read_csv(kept)) == 60
