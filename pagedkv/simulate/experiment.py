"""From options to requests and a setting, and from both to a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pagedkv.clock import AffineClock
from pagedkv.errors import BadValue, require_count
from pagedkv.geometry import PRESETS, ModelGeometry
from pagedkv.hardware import ACCELERATORS, Accelerator
from pagedkv.metrics import Report
from pagedkv.preemption import Cheaper, Choice, SwapCost, always_recompute, always_swap
from pagedkv.simulate.options import Options
from pagedkv.simulator import Progress, Setting, fast_forward, step_by_step
from pagedkv.watermarks import Watermarks
from pagedkv.workloads import (
    TRACES,
    Request,
    Workload,
    embedded_table,
    from_quantiles,
    load,
    load_csv,
    load_mooncake,
)

JSON_LINES = (".jsonl", ".ndjson", ".json")

T = TypeVar("T")


def workload(trace: str, options: Options) -> Workload:
    """The requests of a published trace, of others generated like it, or of a file.

    Raises:
        BadValue: for a name that is neither, or a seed without a published trace.
        TraceError, ChecksumMismatch: for a file that is not what it should be.
    """
    if options.seed is not None:
        return _generated(trace, options.seed, options.limit)
    if trace in TRACES:
        return load(trace, limit=options.limit)
    path = Path(trace)
    if not path.suffix and not path.exists():
        names = ", ".join(TRACES)
        raise BadValue(
            f"no trace and no file {trace!r}; valid are: {names}, or a path to a CSV or JSONL file"
        )
    read = load_mooncake if path.suffix.lower() in JSON_LINES else load_csv
    return read(path, limit=options.limit)


def model_of(options: Options) -> ModelGeometry:
    """The model by name. Raises BadValue with all names for another one."""
    return _named("model", options.model, PRESETS)


def accelerator_of(options: Options) -> Accelerator:
    """The accelerator by name. Raises BadValue with all names for another one."""
    return _named("accelerator", options.accelerator, ACCELERATORS)


def setting_of(options: Options) -> Setting:
    """The setting that the options describe.

    Raises:
        BadValue: for options that no server could run with.
    """
    model = model_of(options)
    require_count("block-size", options.block_size, 1)
    for name, limit in (("ttft-limit", options.ttft_limit), ("tpot-limit", options.tpot_limit)):
        if not limit > 0:
            raise BadValue(f"{name} must be above 0 seconds, not {limit!r}")
    swap = SwapCost.over_link(model, options.link * 1e9, block_size=options.block_size)
    clock = AffineClock.from_roofline(model, accelerator_of(options), swap=swap)
    choices: dict[str, Choice] = {
        "recompute": always_recompute,
        "swap": always_swap,
        "cheaper": Cheaper(clock.prefill, swap),
    }
    choose = _named("preempt", options.preempt, choices)
    num_blocks = _num_blocks(options)
    host_blocks = options.host_blocks
    if host_blocks is None:
        host_blocks = 0 if choose is always_recompute else num_blocks
    high = 2 * options.low if options.high is None else options.high
    return Setting(
        num_blocks=num_blocks,
        clock=clock,
        block_size=options.block_size,
        watermarks=Watermarks(options.low, high, options.shed),
        choose=choose,
        host_blocks=require_count("host-blocks", host_blocks),
        max_running=options.max_running,
        max_prefill_tokens=options.max_prefill_tokens,
    )


def simulate(
    requests: Sequence[Request], options: Options, setting: Setting, progress: Progress | None = None
) -> Report:
    """Run the requests, at the rate and in the mode that the options ask for."""
    scale = options.rate_scale
    if not 0 < scale < math.inf:
        raise BadValue(f"rate-scale must be finite and above 0, not {scale!r}")
    if scale != 1:
        requests = [Request(r.id, r.arrival / scale, r.prompt, r.output) for r in requests]
    if options.step_by_step:
        return step_by_step(requests, setting, progress=progress)
    return fast_forward(requests, setting, progress=progress)


def _generated(trace: str, seed: int, limit: int | None) -> Workload:
    if trace not in TRACES:
        raise BadValue(
            f"--seed generates requests like those of {', '.join(TRACES)}; {trace!r} is none of them"
        )
    published, table = TRACES[trace], embedded_table(trace)
    if limit is not None:
        require_count("limit", limit, 1)
    requests = from_quantiles(table, table.requests, seed)[:limit]
    source = (
        f"Not the trace itself but {len(requests):,} requests generated (seed {seed}) from a quantile table of the "
        f"{published.title}"
    )
    return Workload(trace, requests, source, False, published.licence, published.citation)


def _num_blocks(options: Options) -> int:
    if options.pool is not None:
        if options.memory_fraction is not None:
            raise BadValue("pool and memory-fraction both set the size of the pool; give one of them")
        return require_count("pool", options.pool, 1)
    fraction = 0.9 if options.memory_fraction is None else options.memory_fraction
    if not 0 < fraction <= 1:
        raise BadValue(f"memory-fraction must be above 0 and at most 1, not {fraction!r}")
    model, accelerator = model_of(options), accelerator_of(options)
    num_blocks = accelerator.kv_slots(model, fraction) // options.block_size
    if not num_blocks:
        raise BadValue(
            f"{fraction:g} of the {accelerator.memory_bytes / 1e9:g} GB of {accelerator.name} hold no block beside "
            f"the {model.weight_bytes / 1e9:.1f} GB of weights of {model.name}; take a larger share or accelerator, "
            f"or set --pool"
        )
    return num_blocks


def _named(what: str, name: str, among: Mapping[str, T]) -> T:
    if name not in among:
        raise BadValue(f"unknown {what} {name!r}; valid are: {', '.join(among)}")
    return among[name]
