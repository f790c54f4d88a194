"""What a run says: figures, text and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TextIO

from pagedkv.metrics import Report
from pagedkv.simulate.experiment import accelerator_of, model_of
from pagedkv.simulate.options import Options
from pagedkv.simulator import Setting
from pagedkv.workloads import Workload

Figures = dict[str, float]

REJECTED_SHOWN = 3


def figures(report: Report, options: Options, setting: Setting) -> Figures:
    """The summary of a report, the goodput within the limits asked for, and maxima."""
    slots = [sample.kv_slot_usage_perc for sample in report.samples]
    return report.summary() | {
        "recompute_multiple": report.recompute_multiple,
        "num_blocks": setting.num_blocks,
        "peak_blocks": report.peak_blocks,
        # Of all iterations: the samples may miss it.
        "kv_cache_usage_perc_max": report.peak_blocks / setting.num_blocks,
        "kv_slot_usage_perc_max": max(slots, default=math.nan),
        "goodput_requests_per_second": report.goodput(options.ttft_limit, options.tpot_limit),
    }


def source_line(workload: Workload) -> str:
    """Where the requests are from, and whether they are real."""
    return f"{'input' if workload.real else 'GENERATED input'}: {workload.source}"


def setting_lines(options: Options, setting: Setting) -> list[str]:
    """The server that was simulated, in sentences."""
    model, accelerator = model_of(options), accelerator_of(options)
    slots = setting.num_blocks * setting.block_size
    marks = setting.watermarks
    low, high = marks.in_blocks(setting.num_blocks)
    gate = (
        f"admits nobody below {low:,} free blocks, and again from {high:,}"
        if marks.low or marks.high
        else "off"
    )
    preempt = options.preempt
    if preempt != "recompute":
        preempt += f", into {setting.host_blocks:,} host blocks at {options.link:g} GB/s"
    return [
        f"model: {model.name} on {accelerator.name}, timed by a roofline of its data sheet",
        f"pool: {setting.num_blocks:,} blocks of {setting.block_size} tokens, {slots:,} slots, "
        f"{slots * model.kv_bytes_per_token / 1e9:.1f} GB",
        f"watermarks: {gate}{'; preempts below too' if marks.shed else ''}",
        f"preemption: {preempt}",
    ]


def summary_text(report: Report, got: Mapping[str, float], options: Options) -> str:
    """The figures as a table with units: what, how much, and the metric's name in engines where it has one."""
    goal = f"first token in {options.ttft_limit:g} s, then {options.tpot_limit:g} s a token"
    rows = [
        ("requests", count(got["requests"]), ""),
        ("finished", count(got["request_success_total"]), "request_success_total"),
        ("rejected, too long for the pool", count(got["requests_rejected"]), ""),
        ("iterations", count(got["iterations"]), ""),
        ("time on the simulated clock", seconds(got["seconds"]), ""),
        ("preemptions", count(got["num_preemptions_total"]), "num_preemptions_total"),
        ("  per finished request", plain(got["preemptions_per_request"], 3), ""),
        ("  most of one request", count(got["preemptions_max"]), ""),
        ("useful tokens", count(got["useful_tokens"]), "generation_tokens_total"),
        ("  per second", plain(got["tokens_per_second"], 1), ""),
        ("prompt tokens", count(got["prompt_tokens"]), "prompt_tokens_total"),
        ("recomputed tokens", count(got["recomputed_tokens"]), ""),
        ("  all prefill / prompts", plain(got["recompute_multiple"], 3), ""),
        ("swapped blocks, out and in", count(got["swapped_blocks"]), ""),
        ("blocks in use, mean / max", _usage(got, "kv_cache_usage_perc"), "kv_cache_usage_perc"),
        (
            "slots in use, mean / max",
            _usage(got, "kv_slot_usage_perc"),
            f"of {len(report.samples):,} samples",
        ),
        ("gate opened or closed", count(got["gate_flips"]), ""),
        _latency(got, "time to first token", "time_to_first_token_seconds"),
        _latency(got, "between tokens", "inter_token_latency_seconds"),
        _latency(got, "arrival to last token", "e2e_request_latency_seconds"),
        ("goodput, requests per second", plain(got["goodput_requests_per_second"], 3), goal),
    ]
    lines = [f"{what:<36} {value:>32}  {name}".rstrip() for what, value, name in rows]
    for position, reason in list(report.rejected.items())[:REJECTED_SHOWN]:
        request = report.requests[position]
        lines.append(
            f"rejected request {request.id} ({request.prompt:,} + {request.output:,} tokens): {reason}"
        )
    if len(report.rejected) > REJECTED_SHOWN:
        lines.append(f"... and {len(report.rejected) - REJECTED_SHOWN:,} more; --csv FILE lists them")
    return "\n".join(lines)


def json_text(content: object) -> str:
    """JSON, in which a figure that does not exist is null."""
    return json.dumps(_null_for_nan(content), indent=1, ensure_ascii=False, allow_nan=False)


class ProgressBar:
    """How many requests of `total` have left, on one line of a terminal that is wiped in the end.

    Use it as a context manager, and call it with a number of requests that have just left.
    """

    WIDTH = 40

    def __init__(self, total: int, terminal: TextIO) -> None:
        self._total, self._terminal = total, terminal
        self._done = 0
        self._drawn = -1

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *raised: object) -> None:
        self._terminal.write("\r\x1b[K")
        self._terminal.flush()

    def __call__(self, count: int) -> None:
        """Draw when that makes a difference to the eye."""
        self._done += count
        done = self._done * 100 // self._total
        if done > self._drawn:
            self._drawn = done
            bar = "#" * (self.WIDTH * done // 100)
            self._terminal.write(f"\r[{bar:<{self.WIDTH}}] {done:3} %  {self._done:,} of {self._total:,}")
            self._terminal.flush()


def _latency(got: Mapping[str, float], what: str, name: str) -> tuple[str, str, str]:
    return f"{what}, p50 / 90 / 99", " / ".join(seconds(got[f"{name}_p{p}"]) for p in (50, 90, 99)), name


def _usage(got: Mapping[str, float], name: str) -> str:
    return f"{percent(got[f'{name}_mean'])} / {percent(got[f'{name}_max'])}"


def count(number: float) -> str:
    """A whole number."""
    return f"{number:,.0f}"


def plain(number: float, digits: int) -> str:
    """A number without a unit; a dash when there is none."""
    return "-" if math.isnan(number) else f"{number:,.{digits}f}"


def percent(share: float) -> str:
    """A share in per cent; a dash when there is none."""
    return "-" if math.isnan(share) else f"{share * 100:.1f} %"


def seconds(duration: float) -> str:
    """A duration in a unit that suits it; a dash when there is none."""
    if math.isnan(duration):
        return "-"
    return f"{duration * 1e3:.1f} ms" if duration < 1 else f"{duration:,.2f} s"


def _null_for_nan(content: object) -> object:
    if isinstance(content, Mapping):
        return {name: _null_for_nan(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_null_for_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
