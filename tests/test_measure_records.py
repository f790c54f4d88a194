from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pagedkv import cli
from pagedkv.geometry import ModelGeometry
from pagedkv.measure import CopyMeasurement, measure_copies, records

TINY = ModelGeometry("tiny", 1, 8, 8, 2, 1, 4, 16)


def test_a_measurement_survives_the_disk(tmp_path: Path) -> None:
    made = measure_copies(TINY, rounds=2, block_sizes=(1, 4), tokens=(8, 16))
    path = records.write_copies(made, tmp_path / "new")
    assert records.read_copies(path) == made
    assert path.name.startswith("copies-") and path.name.endswith(f"{made.provenance.date}.json")
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert json.loads(path.read_text())["provenance"]["device"] == made.provenance.device


def test_the_latest_record_counts_and_a_gpu_before_any_other(tmp_path: Path) -> None:
    made = measure_copies(TINY, rounds=2, block_sizes=(1, 4), tokens=(8, 16))

    def at(date: str, gpu: bool) -> CopyMeasurement:
        return replace(made, provenance=replace(made.provenance, date=date, gpu=gpu, device=f"d {gpu}"))

    assert records.latest_copies(tmp_path) is None
    assert records.latest_copies(tmp_path / "nowhere") is None
    for date, gpu in (("2026-01-02", False), ("2026-01-01", False), ("2025-01-01", True)):
        records.write_copies(at(date, gpu), tmp_path)
        expected = at("2025-01-01", True) if gpu else at("2026-01-02", False)
        assert records.latest_copies(tmp_path) == expected


def test_what_is_said_names_the_device_and_every_case(tmp_path: Path) -> None:
    made = measure_copies(TINY, rounds=2, block_sizes=(1, 4), tokens=(8, 16))
    said = records.describe_copies(made)
    assert made.provenance.device in said and "in one piece" in said
    assert said.count(" fit: ") == 2 and said.count("blocks of 4") == 2


def test_an_unknown_device_lists_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["measure", "--device", "tpu"]) == cli.MISUSED
    assert "auto, cpu, cuda" in capsys.readouterr().err
