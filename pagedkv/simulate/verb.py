"""`pagedkv simulate` from its arguments to what is printed."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys

from pagedkv.errors import BadValue
from pagedkv.metrics import Report
from pagedkv.simulate import files, output, table
from pagedkv.simulate.experiment import setting_of, simulate, workload
from pagedkv.simulate.options import Options, chosen, parse_sweeps
from pagedkv.simulate.sweep import SWEEP_EXTRA, points, require_backend, sweep
from pagedkv.simulator import Setting
from pagedkv.workloads import Request


def run(arguments: argparse.Namespace) -> bool:
    """Simulate what the arguments ask for, print and keep what came out; returns whether every point succeeded."""
    files.require_places([arguments.csv, arguments.parquet, arguments.samples], arguments.trace)
    if arguments.parquet:
        files.require("pyarrow", "--parquet", SWEEP_EXTRA)
    return _run_sweep(arguments) if arguments.sweep else _run_once(arguments)


def _run_once(arguments: argparse.Namespace) -> bool:
    options = chosen(arguments)
    setting = setting_of(options)
    source = workload(arguments.trace, options)
    report = _simulate(source.requests, options, setting)
    figures = output.figures(report, options, setting)
    if arguments.json:
        content = {
            "trace": source.name,
            "source": source.source,
            "real": source.real,
            "options": dataclasses.asdict(options),
            "metrics": figures,
            "rejected": [
                {"id": report.requests[at].id, "reason": str(why)} for at, why in report.rejected.items()
            ],
        }
        _print(output.json_text(content))
    else:
        _print(output.source_line(source), *output.setting_lines(options, setting), "")
        _print(output.summary_text(report, figures, options))
    if arguments.csv or arguments.parquet:
        _write(arguments, files.record_columns(report))
    if arguments.samples:
        files.write_csv(arguments.samples, files.sample_columns(report))
    return True


def _simulate(requests: tuple[Request, ...], options: Options, setting: Setting) -> Report:
    if not sys.stderr.isatty():
        return simulate(requests, options, setting)
    with output.ProgressBar(len(requests), sys.stderr) as progress:
        return simulate(requests, options, setting, progress)


def _run_sweep(arguments: argparse.Namespace) -> bool:
    if arguments.samples:
        raise BadValue("--samples keeps the pool over time of one run; leave it out of a sweep")
    axes = parse_sweeps(arguments.sweep)
    require_backend(arguments.backend, arguments.jobs)
    grid = points(chosen(arguments), axes)
    seeds = {options.seed: options for options in grid}
    workloads = {seed: workload(arguments.trace, options) for seed, options in seeds.items()}
    if not arguments.json:
        _print(*map(output.source_line, workloads.values()), "", table.header(axes))
    requests = {seed: source.requests for seed, source in workloads.items()}
    rows = []
    for row in sweep(grid, requests, jobs=arguments.jobs, backend=arguments.backend):
        rows.append(row)
        if not arguments.json:
            _print(table.line(axes, row))
    if arguments.json:
        content = {
            "trace": arguments.trace,
            "sources": [{"source": source.source, "real": source.real} for source in workloads.values()],
            "points": [
                {
                    "options": dataclasses.asdict(row.options),
                    "metrics": row.figures or None,
                    "error": row.error or None,
                }
                for row in rows
            ],
        }
        _print(output.json_text(content))
    _write(arguments, table.columns(axes, rows))
    failed = sum(bool(row.error) for row in rows)
    if failed:
        print(f"pagedkv: {failed} of {len(rows)} points failed", file=sys.stderr)
    return not failed


def _write(arguments: argparse.Namespace, columns: files.Columns) -> None:
    if arguments.csv:
        files.write_csv(arguments.csv, columns)
    if arguments.parquet:
        files.write_parquet(arguments.parquet, columns)


def _print(*lines: str) -> None:
    """Print lines at once. A reader that has left, as `head` does, stops neither the run nor its files."""
    try:
        print(*lines, sep="\n", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
