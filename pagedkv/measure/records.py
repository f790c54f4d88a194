"""Measurements on disk: one JSON file each under `data/measurements/`, named by what, on which device, and when."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from pagedkv.measure.copies import CopyMeasurement, Direction

MEASUREMENTS = Path(__file__).parents[2] / "data" / "measurements"
"""Where the repository keeps them. An installed package has no such folder, and thus no records."""


def write_copies(measurement: CopyMeasurement, folder: Path) -> Path:
    """Write a measurement of copies, whole or not at all; one of the same device and day is replaced."""
    source = measurement.provenance
    device = re.sub(r"[^a-z0-9]+", "-", source.device.lower()).strip("-")
    path = folder / f"copies-{device}-{source.date}.json"
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"kind": "copies", **measurement.record()}, indent=1) + "\n")
    os.replace(partial, path)
    return path


def read_copies(path: Path) -> CopyMeasurement:
    """A measurement that `write_copies` wrote."""
    record = json.loads(path.read_text())
    del record["kind"]
    return CopyMeasurement.from_record(record)


def latest_copies(folder: Path = MEASUREMENTS) -> CopyMeasurement | None:
    """The newest measurement of copies in `folder`, one from a GPU before any other; None where there is none."""
    found = [read_copies(path) for path in sorted(folder.glob("copies-*.json"))]
    return max(found, key=lambda m: (m.provenance.gpu, m.provenance.date), default=None)


def describe_copies(measurement: CopyMeasurement) -> str:
    """The medians and the fitted lines, as lines of text."""
    source = measurement.provenance
    lines = [f"{source.device}, torch {source.torch_version}, {source.date}: {measurement.path}"]
    for direction, line in ((Direction.OUT, measurement.out), (Direction.IN, measurement.back)):
        for size in sorted({sample.block_size for sample in measurement.samples}):
            sample = measurement.pick(direction, size)[-1]
            pieces = f"{sample.blocks} blocks of {size}" if size else "in one piece"
            lines.append(
                f"  {direction:3} {pieces:18} {sample.bytes / 2**20:8.1f} MiB {1e3 * sample.median:9.3f} ms "
                f"{sample.bandwidth / 1e9:7.2f} GB/s"
            )
        lines.append(
            f"  {direction:3} fit: {1e6 * line.fixed:.1f} µs + {1e6 * line.per_block:.2f} µs per block + bytes / "
            f"{line.bandwidth / 1e9:.2f} GB/s; off by at most {100 * line.error:.0f} %"
        )
    return "\n".join(lines)
