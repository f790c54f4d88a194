"""Lays out under `_build/source` what Sphinx reads: pages, executed notebooks made presentable, and the records."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import nbformat

import pagedkv
from pagedkv.book import fingerprint, records
from pagedkv.book.claims import CLAIM_MIME, INPUT_MIME
from pagedkv.book.exercises import CHECK_MIME
from pagedkv.book.layout import Layout
from pagedkv.errors import NotebookFailed

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
COPIED = ("_config.yml", "_toc.yml")
READING_TIME = "pkv-reading-time"
WORDS_PER_MINUTE = 180
"""Reading speed for technical prose: slower than the 238 words a minute of a review of studies (Brysbaert 2019)."""


def stage(layout: Layout) -> str:
    """Make `_build/source` anew from the pages and the executed notebooks.

    Returns:
        A hash over everything the finished book depends on.

    Raises:
        NotebookFailed: for a widget with no static twin, which would be dead in the page.
    """
    shutil.rmtree(layout.source, ignore_errors=True)
    (layout.source / "notebooks").mkdir(parents=True)
    for name in COPIED:
        shutil.copyfile(layout.root / name, layout.source / name)
    shutil.copytree(
        layout.root / "book", layout.source / "book", ignore=shutil.ignore_patterns(*fingerprint.IGNORED)
    )
    for notebook in sorted(layout.notebooks.glob("*.ipynb")):
        executed = layout.executed / notebook.name
        if executed.is_file():
            presentable = present(nbformat.read(executed, as_version=4), notebook)
            nbformat.write(presentable, layout.source / "notebooks" / notebook.name)
    shutil.copyfile(layout.claims, layout.source / "claims.json")
    records.write_json(layout.source / "run.json", _settled(records.read_json(layout.run)))
    records.write_json(layout.source / "edition.json", edition(layout.root))
    staged = fingerprint.hash_files(fingerprint.files_under(layout.source), layout.source)
    return f"{staged}-{fingerprint.machinery(layout)}"


def present(notebook: nbformat.NotebookNode, path: Path) -> nbformat.NotebookNode:
    """An executed notebook as it is published.

    The values that papermill injected stand in the parameters cell, as if written there; widget views give way to
    their static twin; nothing is left of times, papermill's own metadata, or widget state.
    """
    injected = [
        cell.source for cell in notebook.cells if "injected-parameters" in cell.metadata.get("tags", [])
    ]
    notebook.cells = [cell for _, cell in records.author_cells(notebook)]
    for number, cell in enumerate(notebook.cells, 1):
        if injected and "parameters" in cell.metadata.get("tags", []):
            cell.source = _folded(cell.source, injected[0])
        for name in ("papermill", "execution"):
            cell.metadata.pop(name, None)
        if len(cell.get("outputs", [])) > 1 and "figure" in cell.metadata.get("mystnb", {}):
            raise NotebookFailed(path, number, "a plot with a caption must be the only output of its cell")
        for output in cell.get("outputs", []):
            shown = output.get("data", {})
            if WIDGET_VIEW in shown:
                if "text/html" not in shown:
                    raise NotebookFailed(
                        path, number, "it shows a bare ipywidget, which is dead in a page; use a figure"
                    )
                del shown[WIDGET_VIEW]
            for name in (CLAIM_MIME, INPUT_MIME, CHECK_MIME):
                shown.pop(name, None)
    for name in ("papermill", "widgets"):
        notebook.metadata.pop(name, None)
    _say_reading_time(notebook)
    return notebook


def _say_reading_time(notebook: nbformat.NotebookNode) -> None:
    """Put how long a reader will need under the title, from the words on the page, those of `say` included."""
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    prose += [output.get("data", {}).get("text/markdown", "") for output in outputs]
    minutes = max(1, round(sum(len(text.split()) for text in prose) / WORDS_PER_MINUTE))
    first = notebook.cells[0] if notebook.cells else None
    if first is not None and first.cell_type == "markdown" and first.source.startswith("# "):
        # A block of its own class and behind the introduction, so that it is not taken for the page's description.
        unit = "minute" if minutes == 1 else "minutes"
        said = f"About {minutes} {unit} to read, longer with the exercises."
        first.source = f"{first.source.rstrip()}\n\n:::{{div}} {READING_TIME}\n{said}\n:::"


def _folded(source: str, injected: str) -> str:
    """The parameters cell with the injected values in place of its defaults; its comments stay."""
    for name, value in re.findall(r"^(\w+) = (.+)$", injected, re.MULTILINE):
        source = re.sub(
            rf"^{name} = (?:\"[^\"]*\"|[^#\n]*?)(\s*#.*)?$",
            rf"{name} = {value}\1",
            source,
            flags=re.MULTILINE,
        )
    return source


def edition(root: Path) -> records.Record:
    """Version of the package and date of the commit; no date outside a repository."""
    asked = ["git", "-C", str(root), "log", "-1", "--format=%cs"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        date = answer.stdout.strip() if answer.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        date = ""
    return {"version": pagedkv.__version__, "date": date}


def _settled(run: records.Record) -> records.Record:
    """The run record without what differs between two builds of the same book."""
    volatile = ("reused", "fingerprint")
    notebooks = [
        {name: value for name, value in entry.items() if name not in volatile} for entry in run["notebooks"]
    ]
    return {**run, "notebooks": notebooks}
