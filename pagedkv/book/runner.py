"""Executes the notebooks with papermill, in order, each in a fresh kernel of this very interpreter.

A result is reused while nothing it depends on has changed. A cell that raises, runs out of time, kills its kernel, or
writes to stderr stops the run; then the partial output is kept for inspection and the last good one stays in place.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from traitlets import default

from pagedkv.book import fingerprint, lint, preparation, records
from pagedkv.book.layout import Layout
from pagedkv.book.parameters import Parameters
from pagedkv.errors import BadValue, NotebookFailed

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class Execution:
    """One executed notebook: its file, the wall time of its execution, and whether this run made or reused it."""

    path: Path
    seconds: float
    reused: bool


class OwnKernel(AsyncKernelManager):
    """Starts `python3` as the interpreter that runs this, whatever kernels other environments have installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """A spec that names this interpreter by path."""
        return KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
            env=preparation.KERNEL_ENVIRONMENT,
            metadata={"supported_encryption": ["curve"]},
        )

    @default("transport_encryption")
    def _encrypt(self) -> str:
        """Cells and outputs pass through local ports; without this the kernel warns that others could read them."""
        return "auto"


def find_notebooks(layout: Layout, names: Sequence[str] = ()) -> list[Path]:
    """The notebooks in reading order, or those named (by stem, file name or number).

    Raises:
        BadValue: for a name that no notebook has.
    """
    found = sorted(layout.notebooks.glob("*.ipynb"))
    if not names:
        return found
    chosen = []
    for name in names:
        stem = Path(name).stem
        matches = [path for path in found if stem == path.stem or stem == path.stem.split("_", 1)[0]]
        if not matches:
            raise BadValue(
                f"no notebook {name!r}; there are: {', '.join(path.stem for path in found) or 'none'}"
            )
        chosen += matches
    return chosen


def run(
    layout: Layout, parameters: Parameters, names: Sequence[str] = (), cell_timeout: float = 300.0
) -> list[Execution]:
    """Execute what is not up to date and write the records `claims.json` and `run.json`.

    Args:
        layout: the book.
        parameters: for every notebook alike.
        names: notebooks to run; all of them when empty.
        cell_timeout: seconds that one cell may take.

    Raises:
        NotebookFailed: at the first notebook that does not run to its end.
        BadValue: for a notebook that papermill could not run as meant (no kernel `python3`, no parameters cell).
    """
    notebooks = find_notebooks(layout, names)
    for notebook in notebooks:
        lint.require_runnable(notebook)
    around = fingerprint.surroundings(layout)
    done: list[Execution] = []
    for notebook in notebooks:
        wanted = fingerprint.of_notebook(notebook.read_bytes(), asdict(parameters), around)
        execution = _reusable(layout, notebook, wanted)
        if execution is None:
            if all(earlier.reused for earlier in done):
                preparation.prepare()
            execution = _execute(layout, notebook, parameters, around, cell_timeout)
        else:
            print(f"{notebook.stem}: unchanged, result of {execution.seconds:.1f} s reused")
        done.append(execution)
    _write_records(layout, done)
    return done


def forget(layout: Layout, names: Sequence[str] = ()) -> None:
    """Have the next run execute these notebooks whether or not anything changed; their results stay till then."""
    for notebook in find_notebooks(layout, names):
        _record_path(layout, notebook).unlink(missing_ok=True)


def _record_path(layout: Layout, notebook: Path) -> Path:
    return layout.executed / f"{notebook.stem}.json"


def _reusable(layout: Layout, notebook: Path, wanted: str) -> Execution | None:
    executed = layout.executed / notebook.name
    record = records.read_json(_record_path(layout, notebook))
    if not record or record.get("fingerprint") != wanted or not executed.is_file():
        return None
    return Execution(executed, record["seconds"], reused=True)


def _execute(
    layout: Layout, notebook: Path, parameters: Parameters, around: str, cell_timeout: float
) -> Execution:
    layout.build.mkdir(parents=True, exist_ok=True)
    text = notebook.read_bytes()  # what is executed, should somebody save the notebook meanwhile
    # The kernel works in an empty folder: nothing may depend on where it runs, and nothing it drops stays.
    with (
        tempfile.TemporaryDirectory(prefix="pagedkv-run-") as workspace,
        tempfile.TemporaryDirectory(prefix=".running-", dir=layout.build) as unfinished,
    ):
        output = Path(unfinished) / notebook.name
        started = time.perf_counter()
        try:
            _papermill(notebook, output, asdict(parameters), Path(workspace), cell_timeout)
            _inspect(notebook, output)
        except NotebookFailed as failure:
            raise _keep(layout, output, failure) from failure.__cause__
        seconds = time.perf_counter() - started
        executed, record = layout.executed / notebook.name, _record_path(layout, notebook)
        layout.executed.mkdir(parents=True, exist_ok=True)
        # Without its record a result is not reused, so whatever interrupts these three steps costs one execution.
        record.unlink(missing_ok=True)
        output.replace(executed)
        made_from = fingerprint.of_notebook(text, asdict(parameters), around)
        records.write_json(record, _record(executed, parameters, made_from, seconds))
        (layout.failed / notebook.name).unlink(missing_ok=True)
    return Execution(executed, seconds, reused=False)


def _papermill(
    notebook: Path, output: Path, parameters: dict[str, Any], workspace: Path, cell_timeout: float
) -> None:
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    try:
        papermill.execute_notebook(
            notebook,
            output,
            parameters=parameters,
            kernel_name="python3",
            kernel_manager_class=OwnKernel,
            cwd=workspace,
            execution_timeout=cell_timeout,
            shutdown_kernel="immediate",
            progress_bar={"desc": notebook.stem, "unit": "cell", "file": sys.stderr},
        )
    # Three types without a common base, so each is named.
    except PapermillExecutionError as error:
        reason = "\n".join(error.traceback) or f"{error.ename}: {error.evalue}"
        raise NotebookFailed(notebook, _last_started(output), _readable(reason)) from error
    except CellTimeoutError as error:
        reason = f"the cell took longer than {cell_timeout:g} s (raise it with --cell-timeout)"
        raise NotebookFailed(notebook, _last_started(output), reason) from error
    except DeadKernelError as error:
        reason = "the kernel died while this cell ran (out of memory, or a crash in native code)"
        raise NotebookFailed(notebook, _last_started(output), reason) from error
    # Whatever else goes wrong, as a kernel that does not start, stops the run in the same way.
    except Exception as error:
        reason = f"papermill could not go on: {type(error).__name__}: {error}"
        raise NotebookFailed(notebook, _last_started(output), _readable(reason)) from error


def _readable(traceback: str) -> str:
    """The traceback with its colours only where they show."""
    return traceback if sys.stderr.isatty() else ANSI.sub("", traceback)


def _last_started(output: Path) -> int | None:
    """Number of the last cell that papermill started, from 1, as the author counts."""
    if not output.is_file():
        return None
    started = [
        number
        for number, cell in records.author_cells(nbformat.read(output, as_version=4))
        if cell.metadata.get("papermill", {}).get("start_time")
    ]
    return started[-1] if started else None


def _inspect(notebook: Path, output: Path) -> None:
    """Refuse what papermill lets pass: a `sys.exit()`, which skips the other cells, and warnings."""
    for number, cell in records.author_cells(nbformat.read(output, as_version=4)):
        for shown in cell.get("outputs", []):
            if shown.output_type == "error":
                reason = f"the cell ended the notebook before its last cell, with {shown.ename}"
                raise NotebookFailed(notebook, number, reason)
        for shown in cell.get("outputs", []):
            if shown.output_type == "stream" and shown.name == "stderr":
                reason = f"the cell wrote to stderr, where pages must be free of warnings:\n{shown.text}"
                raise NotebookFailed(notebook, number, _readable(reason))


def _keep(layout: Layout, output: Path, failure: NotebookFailed) -> NotebookFailed:
    """Keep the partial output and say where."""
    if not output.is_file():
        return failure
    layout.failed.mkdir(parents=True, exist_ok=True)
    kept = layout.failed / output.name
    shutil.move(output, kept)
    return NotebookFailed(failure.notebook, failure.cell, f"{failure.detail}\nPartial output: {kept}")


def _record(executed: Path, parameters: Parameters, made_from: str, seconds: float) -> records.Record:
    notebook = nbformat.read(executed, as_version=4)
    return {
        "notebook": executed.stem,
        "title": records.title_of(notebook),
        "seconds": round(seconds, 2),
        "cells": sum(1 for _ in records.author_cells(notebook)),
        "date": datetime.now(UTC).date().isoformat(),
        "parameters": asdict(parameters),
        "inputs": records.inputs_of(notebook),
        "versions": records.versions(),
        "machine": records.machine(),
        "fingerprint": made_from,
    }


def _write_records(layout: Layout, done: list[Execution]) -> None:
    """Over every notebook that has a result, so that running one alone does not lose the others' claims."""
    reused = {execution.path.stem: execution.reused for execution in done}
    executed = [
        layout.executed / notebook.name
        for notebook in find_notebooks(layout)
        if _record_path(layout, notebook).is_file()
    ]
    records.write_json(layout.claims, records.collect(executed))
    _write_run_record(layout, executed, reused)


def _write_run_record(layout: Layout, executed: list[Path], reused: dict[str, bool]) -> None:
    """How the results came about: versions and machine of the latest execution, and one entry per notebook."""
    entries = [records.read_json(path.with_suffix(".json")) for path in executed]
    nothing: records.Record = {"versions": {}, "machine": {}}
    latest = max(entries, key=lambda entry: str(entry["date"]), default=nothing)
    summary = {
        "versions": latest["versions"],
        "machine": latest["machine"],
        "notebooks": [
            {
                **{name: value for name, value in entry.items() if name not in ("versions", "machine")},
                "reused": reused.get(entry["notebook"], True),
            }
            for entry in entries
        ],
    }
    records.write_json(layout.run, summary)
