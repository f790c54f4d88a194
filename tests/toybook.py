"""A book small enough to be executed and built within a test."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from pagedkv.book.layout import Layout

ROOT = Path(__file__).parents[1]
DEFAULTS = 'profile = "quick"\ndevice = "auto"\nseed = 0'


def code(source: str, *tags: str, **metadata: Any) -> nbformat.NotebookNode:
    return new_code_cell(source, metadata={**({"tags": list(tags)} if tags else {}), **metadata})


def text(source: str) -> nbformat.NotebookNode:
    return new_markdown_cell(source)


def parameters(source: str = DEFAULTS) -> nbformat.NotebookNode:
    return code(source, "parameters")


def write(path: Path, *cells: nbformat.NotebookNode, kernel: str = "python3") -> Path:
    """A notebook of these cells, with ids that do not change from one writing to the next."""
    made = new_notebook(cells=list(cells))
    made.metadata["kernelspec"] = {"name": kernel, "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, path)
    return path


def layout(root: Path, **notebooks: list[nbformat.NotebookNode]) -> Layout:
    """A book at `root` with these notebooks, the project's own configuration, and a home page."""
    for name, cells in notebooks.items():
        write(root / "notebooks" / f"{name}.ipynb", *cells)
    (root / "book").mkdir(parents=True)
    shutil.copy(ROOT / "_config.yml", root)
    for name in ("references.bib", "favicon.svg"):
        shutil.copy(ROOT / "book" / name, root / "book")
    (root / "book" / "index.md").write_text("# Home\n\nA toy book.\n")
    chapters = "".join(f"  - file: notebooks/{name}\n" for name in notebooks)
    (root / "_toc.yml").write_text(f"format: jb-book\nroot: book/index\nchapters:\n{chapters}")
    package = root / "package"
    package.mkdir()
    (package / "rooms.py").write_text("SLOTS = 16\n")
    return Layout(root, package)
