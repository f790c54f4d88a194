"""Notebooks run as meant, or stop the book with a reason (papermill#245, #395; jupyter-book#1291, #1292, #1633)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest

import toybook
from pagedkv.book import preparation, records, runner
from pagedkv.book.layout import Layout
from pagedkv.book.parameters import Parameters
from pagedkv.errors import BadValue, NotebookFailed, TraceUnavailable
from pagedkv.workloads.traces import TRACES
from toybook import code, parameters, text

pytestmark = pytest.mark.xdist_group("runner")

READ_BACK = """import json, os, random, sys
random.seed(seed)
print(json.dumps({
    "profile": profile, "device": device, "seed": seed, "prefix": sys.prefix, "cwd": os.getcwd(),
    "offline": os.environ["PAGEDKV_OFFLINE"], "random": random.random(),
    "order": [hash(word) for word in ("block", "slot")],
}))"""
CLAIM = """from pagedkv.book import claim, used_input
used_input("toy", "a toy stream", False)
claim("waste.toy", {value}, "%", "Toy waste", (0, 60), source="toy")"""
OTHER = Parameters("full", "cpu", 7)


@pytest.fixture(autouse=True, scope="module")
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGEDKV_OFFLINE", "1")
        yield


def book(tmp_path: Path, *cells: nbformat.NotebookNode) -> Layout:
    return toybook.layout(tmp_path, **{"01_toy": [text("# Toy"), parameters(), *cells]})


def printed(path: Path) -> dict[str, object]:
    for _, cell in records.author_cells(nbformat.read(path, as_version=4)):
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                return dict(json.loads(output.text))
    raise AssertionError("nothing was printed")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """A book of two notebooks, executed once with other parameters than the defaults, from another folder."""
    root = tmp_path_factory.mktemp("ran")
    cells = [parameters(), code(READ_BACK)]
    made = toybook.layout(
        root,
        **{
            "01_toy": [text("# Toy\n\nText."), *cells, code(CLAIM.format(value=50))],
            "02_more": [text("# More"), *cells],
        },
    )
    # Another environment's kernel of the same name must not be taken.
    foreign = tmp_path_factory.mktemp("foreign")
    (foreign / "kernels/python3").mkdir(parents=True)
    spec = {"argv": ["/bin/false", "{connection_file}"], "display_name": "Python 3", "language": "python"}
    (foreign / "kernels/python3/kernel.json").write_text(json.dumps(spec))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(foreign))
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        runner.run(made, OTHER)
    return made


def test_injected_values_win_over_the_defaults(ran: Layout) -> None:
    got = printed(ran.executed / "01_toy.ipynb")
    assert (got["profile"], got["device"], got["seed"]) == ("full", "cpu", 7)


def test_kernel_is_this_interpreter_in_an_empty_folder(ran: Layout) -> None:
    got = printed(ran.executed / "01_toy.ipynb")
    assert got["prefix"] == sys.prefix
    where = Path(str(got["cwd"]))
    assert not where.exists()  # a folder of its own, gone after the run
    assert ran.root not in where.parents


def test_kernels_do_not_download_but_the_builder_does(
    ran: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(ran.executed / "01_toy.ipynb")["offline"] == "1"
    asked: list[str] = []

    def fetch(name: str) -> Path:
        asked.append(name)
        if name == "azure-code":
            raise TraceUnavailable("no network")
        return Path(name)

    monkeypatch.setattr(preparation, "fetch", fetch)
    preparation.prepare()
    assert asked == list(TRACES)
    assert "azure-code: not to be had, so the book works on requests generated in its place (no network)" in (
        capsys.readouterr().out
    )


def test_two_processes_agree(ran: Layout) -> None:
    first, second = (printed(ran.executed / name) for name in ("01_toy.ipynb", "02_more.ipynb"))
    assert first["random"] == second["random"]
    assert first["order"] == second["order"]  # string hashes too, so sets come in the same order


def test_records(ran: Layout) -> None:
    (made,) = records.read_json(ran.claims)
    assert made["key"] == "waste.toy"
    assert {name: made[name] for name in ("section", "kind", "value", "unit", "low", "high", "holds")} == {
        "section": "waste", "kind": "measured", "value": 50.0, "unit": "%", "low": 0, "high": 60, "holds": True,
    }  # fmt: skip
    assert (made["notebook"], made["cell"], made["source"], made["device"]) == ("01_toy", 4, "toy", None)
    run = records.read_json(ran.run)
    assert run["versions"]["Python"] == sys.version.split()[0]
    assert run["machine"]["cores"] >= 1
    first, second = run["notebooks"]
    assert (first["notebook"], first["title"], first["cells"], first["reused"]) == ("01_toy", "Toy", 4, False)
    assert first["inputs"] == [{"name": "toy", "source": "a toy stream", "real": False}]
    assert second["inputs"] == []
    assert first["seconds"] > 0


def test_reused_until_something_it_depends_on_changes(
    ran: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def would_run(parameters: Parameters = OTHER) -> bool:
        executed: list[str] = []

        def execute(layout: Layout, notebook: Path, *rest: object) -> runner.Execution:
            executed.append(notebook.stem)
            return runner.Execution(layout.executed / notebook.name, 0.0, reused=False)

        with monkeypatch.context() as patch:
            patch.setattr(runner, "_execute", execute)
            patch.setattr(preparation, "prepare", lambda: None)
            runner.run(ran, parameters)
        assert executed in ([], ["01_toy", "02_more"])
        return bool(executed)

    monkeypatch.delenv("PAGEDKV_TRACES", raising=False)
    monkeypatch.setenv("PAGEDKV_CACHE", str(tmp_path / "no-cache"))
    runner.run(ran, OTHER)
    assert not would_run()
    assert [entry["reused"] for entry in records.read_json(ran.run)["notebooks"]] == [True, True]
    for path, change in [
        (ran.package / "rooms.py", "SLOTS = 17\n"),
        (ran.package / "book/figures/js/core.js", "// changed\n"),
        (ran.root / "requirements.lock", "numpy==0\n"),
        (ran.root / "data/table.csv", "1,2\n"),
    ]:
        old = path.read_text() if path.exists() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change)
        assert would_run(), path
        path.write_text(old) if old else path.unlink()
        assert not would_run()
    # Byte code and a newer time stamp are no change.
    (ran.package / "__pycache__").mkdir()
    (ran.package / "__pycache__/rooms.pyc").write_text("")
    os.utime(ran.package / "rooms.py")
    assert not would_run()
    assert would_run(Parameters("quick", "cpu", 7))
    monkeypatch.setenv("PAGEDKV_TRACES", str(tmp_path))
    (tmp_path / "other.csv").write_text("1\n")
    assert not would_run()
    (tmp_path / TRACES["azure-code"].file).write_text("1\n")
    assert would_run()


def test_changed_notebook_alone_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = book(tmp_path)
    toybook.write(made.notebooks / "02_more.ipynb", parameters())
    ran: list[str] = []
    monkeypatch.setattr(
        runner,
        "_papermill",
        lambda notebook, output, *rest: (ran.append(notebook.stem), toybook.write(output)),
    )
    runner.run(made, Parameters())
    toybook.write(made.notebooks / "02_more.ipynb", parameters(), text("More."))
    runner.run(made, Parameters())
    assert ran == ["01_toy", "02_more", "02_more"]
    runner.forget(made, ["01"])
    runner.run(made, Parameters(), ["01_toy"])
    assert ran[3:] == ["01_toy"]
    with pytest.raises(BadValue, match="no notebook 'x'; there are: 01_toy, 02_more"):
        runner.run(made, Parameters(), ["x"])


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("raise ValueError('no blocks left')", "ValueError: no blocks left"),
        ("import time\ntime.sleep(60)", "longer than 2 s"),
        ("import os\nos._exit(1)", "kernel died"),
        ("import warnings\nwarnings.warn('old function')", "old function"),
        ("import sys\nprint('careful', file=sys.stderr)", "careful"),
        ("import sys\nsys.exit()", "ended the notebook before its last cell"),
    ],
    ids=["error", "timeout", "dead kernel", "warning", "stderr", "exit"],
)
def test_what_goes_wrong_stops_the_run_and_keeps_the_last_good_result(
    tmp_path: Path, cell: str, reason: str
) -> None:
    made = book(tmp_path, code("print('before')"), code(cell), code("print('after')"))
    good = toybook.write(made.executed / "01_toy.ipynb", text("the last good result"))
    kept = good.read_bytes()
    with pytest.raises(NotebookFailed) as failure:
        runner.run(made, Parameters(), cell_timeout=2)
    assert (failure.value.notebook, failure.value.cell) == (made.notebooks / "01_toy.ipynb", 4)
    assert reason in str(failure.value)
    assert "\x1b" not in str(failure.value)
    partial = made.failed / "01_toy.ipynb"
    assert str(partial) in str(failure.value)
    assert "before" in partial.read_text()
    assert good.read_bytes() == kept
    assert not list(made.build.glob(".running-*"))
    assert not [child for child in psutil.Process().children() if "ipykernel_launcher" in child.cmdline()]


def test_a_claim_out_of_its_range_stops_the_run(tmp_path: Path) -> None:
    made = book(tmp_path, code(CLAIM.format(value=61)))
    with pytest.raises(
        NotebookFailed, match=r"waste\.toy = 61\.0\s% is not in its range \(0 to 60\)"
    ) as failure:
        runner.run(made, Parameters())
    assert failure.value.cell == 3
    assert not made.claims.exists()


@pytest.mark.parametrize(
    ("cells", "kernel", "problem"),
    [
        ([], "python3", "0 cells are tagged 'parameters'"),
        ([parameters(), parameters()], "python3", "2 cells are tagged 'parameters'"),
        ([parameters('profile = "quick"')], "python3", "must say: device"),
        (
            [parameters('profile = "full"\ndevice = "auto"\nseed = 0')],
            "python3",
            'must say: profile = "quick"',
        ),
        ([parameters()], "conda-env-mine-py", "kernelspec is 'conda-env-mine-py'"),
    ],
)
def test_a_notebook_that_papermill_would_misread_is_refused(
    tmp_path: Path, cells: list[nbformat.NotebookNode], kernel: str, problem: str
) -> None:
    made = book(tmp_path)
    toybook.write(made.notebooks / "01_toy.ipynb", *cells, kernel=kernel)
    with pytest.raises(BadValue, match=problem):
        runner.run(made, Parameters())
    assert not made.executed.exists()


def test_unknown_parameters_list_the_valid_ones() -> None:
    with pytest.raises(BadValue, match="unknown profile 'fast'; valid are: quick, full"):
        Parameters(profile="fast")
    with pytest.raises(BadValue, match="unknown device 'gpu'; valid are: auto, cpu, cuda"):
        Parameters(device="gpu")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_nothing_half_written(tmp_path: Path, stop: signal.Signals) -> None:
    mark = tmp_path / "pid"
    made = book(
        tmp_path, code(f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "pagedkv.cli", "book", "run"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    while not (mark.exists() and mark.read_text()):
        assert running.poll() is None
        time.sleep(0.05)
    kernel = psutil.Process(int(mark.read_text()))
    running.send_signal(stop)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in said
    assert "what was there before is unchanged" in said
    kernel.wait(timeout=10)
    assert sorted(path.name for path in made.build.iterdir()) == [".lock"]
