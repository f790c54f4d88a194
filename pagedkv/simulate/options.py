"""What can be chosen on the command line of `pagedkv simulate`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagedkv.errors import BadValue
from pagedkv.geometry import PRESETS
from pagedkv.hardware import ACCELERATORS

PREEMPT = ("recompute", "swap", "cheaper")
BACKENDS = ("loky", "dask", "ray")

EPILOG = """\
TRACE is the name of a published trace: azure-conversation, azure-code, mooncake-conversation. It is looked for in the
folder $PAGEDKV_TRACES and in the cache, then downloaded; if it cannot be had, requests of the same lengths are
generated, and the first line of the output says so. Or it is a file of yours: CSV with the columns TIMESTAMP,
ContextTokens and GeneratedTokens, or, as .jsonl, JSON lines with timestamp (ms), input_length, output_length and
hash_ids.

  pagedkv simulate azure-conversation --pool 6000 --rate-scale 2
  pagedkv simulate mine.csv --model qwen-2.5-7b --accelerator a100-40gb --csv requests.csv
  pagedkv simulate azure-code --sweep pool=6000,4000,2000 --sweep low=0,0.04 --jobs 4 --csv sweep.csv

A sweep runs every combination of its values, in their order; a combination that fails says why in its row, and the
exit status is then 1. It needs joblib (pip install 'pagedkv[sweep]'), and with another back end of joblib it leaves
this machine. Workers need pagedkv installed, but no traces: the requests travel with the task.

  --backend dask   a cluster of --jobs processes here, or, with DASK_SCHEDULER_ADDRESS=tcp://HOST:8786 in the
                   environment, the one whose 'dask scheduler' listens there (pip install distributed)
  --backend ray    Ray on this machine, or, with RAY_ADDRESS in the environment, that cluster (pip install ray)
"""


def _option(default: object, parse: Callable[[str], object], metavar: str, text: str) -> Any:
    return field(default=default, metadata={"type": parse, "metavar": metavar, "help": text})


@dataclass(frozen=True, slots=True)
class Options:
    """What defines one run, besides its trace. The fields are the options of the command line, and say what they mean.

    Values are not checked here but where they are used, so that one bad point of a sweep fails by itself.
    """

    model: str = _option("llama-3.1-8b", str, "NAME", f"model: {', '.join(PRESETS)}")
    accelerator: str = _option("h100-sxm", str, "NAME", f"accelerator: {', '.join(ACCELERATORS)}")
    pool: int | None = _option(None, int, "BLOCKS", "size of the pool (default: see --memory-fraction)")
    memory_fraction: float | None = _option(
        None,
        float,
        "F",
        "size the pool by this share of the accelerator's memory, less the weights (default 0.9)",
    )
    block_size: int = _option(16, int, "TOKENS", "tokens per block")
    low: float = _option(
        0.04, float, "F", "admit nobody while less than this share of the pool is free; 0: off"
    )
    high: float | None = _option(
        None, float, "F", "having stopped, admit again from this free share on (default twice --low)"
    )
    shed: bool = _option(False, bool, "", "preempt below --low too, not only when no block is left")
    preempt: str = _option("recompute", str, "HOW", f"what becomes of a victim: {', '.join(PREEMPT)}")
    host_blocks: int | None = _option(
        None, int, "BLOCKS", "host pool for swapping (default: as large as the pool)"
    )
    link: float = _option(25.0, float, "GB/S", "host link for swapping, in one direction")
    rate_scale: float = _option(1.0, float, "X", "let requests come X times as fast")
    limit: int | None = _option(None, int, "N", "only the first N requests")
    max_running: int | None = _option(None, int, "N", "most sequences at once (default: no limit)")
    max_prefill_tokens: int | None = _option(
        None, int, "N", "most tokens to prefill in one iteration (default: no limit)"
    )
    seed: int | None = _option(
        None, int, "N", "do not read the published trace but generate one like it with this seed"
    )
    ttft_limit: float = _option(2.0, float, "S", "goodput: longest time to first token, seconds")
    tpot_limit: float = _option(0.2, float, "S", "goodput: longest mean gap between tokens, seconds")
    step_by_step: bool = _option(
        False, bool, "", "schedule every iteration on block tables: the definition; same numbers, slower"
    )


FIELDS = {item.name.replace("_", "-"): item for item in dataclasses.fields(Options)}
SWEPT = [name for name, item in FIELDS.items() if item.type != "bool" and name != "limit"]
"""Options that a sweep can vary."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all arguments of the verb to its parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("trace", metavar="TRACE", help="a published trace by name, or a CSV or JSONL file")
    for name, item in FIELDS.items():
        if item.type == "bool":
            parser.add_argument(f"--{name}", action="store_true", help=item.metadata["help"])
        else:
            shown = "" if item.default is None else " (default %(default)s)"
            parser.add_argument(
                f"--{name}",
                type=item.metadata["type"],
                default=item.default,
                metavar=item.metadata["metavar"],
                help=item.metadata["help"] + shown,
            )
    files = parser.add_argument_group("what to keep")
    files.add_argument(
        "--csv", type=Path, metavar="FILE", help="one row per request, or per point of a sweep"
    )
    files.add_argument("--parquet", type=Path, metavar="FILE", help="the same as Parquet; needs pyarrow")
    files.add_argument("--samples", type=Path, metavar="FILE", help="the pool over time, as CSV")
    files.add_argument("--json", action="store_true", help="print JSON in place of text")
    sweep = parser.add_argument_group("sweep")
    sweep.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="OPTION=VALUE,...",
        help="run with each of these values; repeat it for a grid",
    )
    sweep.add_argument("--jobs", type=int, default=2, metavar="N", help="processes of a sweep (default 2)")
    sweep.add_argument(
        "--backend",
        default="loky",
        metavar="NAME",
        help=f"what runs them: {', '.join(BACKENDS)} (default loky)",
    )


def chosen(arguments: argparse.Namespace) -> Options:
    """The options among the parsed arguments."""
    return Options(**{item.name: getattr(arguments, item.name) for item in FIELDS.values()})


def parse_sweeps(sweeps: list[str]) -> dict[str, list[Any]]:
    """The values of each swept option, from texts like `pool=6000,4000`.

    Raises:
        BadValue: for an option that cannot be swept, is named twice, or has a value of the wrong kind.
    """
    axes: dict[str, list[Any]] = {}
    for text in sweeps:
        name, _, values = text.partition("=")
        if name not in SWEPT:
            raise BadValue(f"--sweep {text}: no option {name!r} to sweep; valid are: {', '.join(SWEPT)}")
        if name in axes:
            raise BadValue(f"--sweep {text}: {name} is swept already; put all its values into one --sweep")
        parse = FIELDS[name].metadata["type"]
        try:
            axes[name] = [parse(value) for value in values.split(",")]
        except ValueError:
            kind = "whole numbers" if parse is int else "numbers"
            raise BadValue(f"--sweep {text}: give {kind} separated by commas, as in {name}=1,2") from None
    return axes
