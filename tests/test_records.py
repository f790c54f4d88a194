"""What executed notebooks leave behind as data, and how it is written."""

from __future__ import annotations

import platform
from pathlib import Path

import nbformat
import pytest

import toybook
from pagedkv.book import records
from pagedkv.errors import ClaimFailed
from toybook import code, text


def test_a_key_claimed_twice_is_refused(tmp_path: Path) -> None:
    record = {"key": "waste.toy", "holds": True}
    output = nbformat.v4.new_output("display_data", {"application/vnd.pagedkv.claim+json": record})
    paths = []
    for name in ("01_one", "02_two"):
        cell = code("claim(...)")
        cell.outputs = [output]
        paths.append(toybook.write(tmp_path / f"{name}.ipynb", cell))
    assert len(records.collect(paths[:1])) == 1
    with pytest.raises(
        ClaimFailed, match=r"waste\.toy is made twice: in 01_one, cell 1, and in 02_two, cell 1"
    ):
        records.collect(paths)


def test_a_claim_that_does_not_hold_is_refused(tmp_path: Path) -> None:
    cell = code("claim(...)")
    record = {"key": "waste.toy", "holds": False}
    cell.outputs = [nbformat.v4.new_output("display_data", {"application/vnd.pagedkv.claim+json": record})]
    path = toybook.write(tmp_path / "01_one.ipynb", text("# One"), cell)
    with pytest.raises(ClaimFailed, match=r"waste\.toy in 01_one, cell 2, does not hold"):
        records.collect([path])


def test_cells_are_numbered_as_the_author_sees_them() -> None:
    made = nbformat.v4.new_notebook(
        cells=[text("# One"), code("injected", "injected-parameters"), code("x"), text("end")]
    )
    assert [(number, cell.source) for number, cell in records.author_cells(made)] == [
        (1, "# One"),
        (2, "x"),
        (3, "end"),
    ]
    assert records.title_of(made) == "One"
    assert records.title_of(nbformat.v4.new_notebook(cells=[code("# no title")])) == ""


def test_machine_and_versions_are_those_of_this_process() -> None:
    assert records.versions()["Python"] == platform.python_version()
    machine = records.machine()
    assert machine["cores"] >= 1
    assert isinstance(machine["gpus"], list)
    assert machine["processor"]


def test_json_is_written_at_once_and_read_leniently(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "record.json"
    assert records.read_json(path) is None
    records.write_json(path, {"a": "µs"})
    assert records.read_json(path) == {"a": "µs"}
    assert [entry.name for entry in path.parent.iterdir()] == ["record.json"]
    path.write_text("{")
    assert records.read_json(path) is None
