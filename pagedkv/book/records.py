"""What executed notebooks leave behind as data: the claims, the inputs used, and how it all was run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from pagedkv.book.claims import CLAIM_MIME, INPUT_MIME
from pagedkv.errors import ClaimFailed
from pagedkv.hardware import processor

Record = dict[str, Any]
"""A JSON object."""

MACHINE_MADE = {"injected-parameters", "papermill-error-cell-tag"}
"""Tags of cells that papermill adds; they do not count when a cell is named to the author."""

SHOWN_VERSIONS = (
    "numpy",
    "pandas",
    "matplotlib",
    "torch",
    "triton",
    "numba",
    "transformers",
    "papermill",
    "jupyter-book",
    "Sphinx",
)


def author_cells(notebook: nbformat.NotebookNode) -> Iterator[tuple[int, nbformat.NotebookNode]]:
    """Cells as the author numbers them, from 1, without those that papermill added."""
    number = 0
    for cell in notebook.cells:
        if not MACHINE_MADE.intersection(cell.metadata.get("tags", [])):
            number += 1
            yield number, cell


def title_of(notebook: nbformat.NotebookNode) -> str:
    """Text of the first top-level heading, or an empty string."""
    for cell in notebook.cells:
        found = re.search(r"^# (.+)$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else None
        if found:
            return found[1].strip()
    return ""


def _emitted(notebook: nbformat.NotebookNode, mime: str) -> Iterator[tuple[int, Record]]:
    """Cell number and content of every output of type `mime`."""
    for number, cell in author_cells(notebook):
        for output in cell.get("outputs", []):
            if mime in output.get("data", {}):
                yield number, dict(output["data"][mime])


def claims_of(notebook: nbformat.NotebookNode, name: str) -> list[Record]:
    """Claims in order: the fields of `claims.Claim`, and section, notebook and cell (from 1)."""
    return [{**claim, "notebook": name, "cell": cell} for cell, claim in _emitted(notebook, CLAIM_MIME)]


def inputs_of(notebook: nbformat.NotebookNode) -> list[Record]:
    """Inputs the notebook said it used, each once: {name, source, real}."""
    found: list[Record] = []
    for _, used in _emitted(notebook, INPUT_MIME):
        if used not in found:
            found.append(used)
    return found


def collect(executed: list[Path]) -> list[Record]:
    """Claims of all executed notebooks, in order.

    Raises:
        ClaimFailed: when two of them have the same key, or one does not hold.
    """
    claims: list[Record] = []
    seen: dict[str, Record] = {}
    for path in executed:
        for claim in claims_of(nbformat.read(path, as_version=4), path.stem):
            key = claim["key"]
            if key in seen:
                first = seen[key]
                raise ClaimFailed(
                    f"claim {key} is made twice: in {first['notebook']}, cell {first['cell']}, "
                    f"and in {claim['notebook']}, cell {claim['cell']}; give one of them another key"
                )
            if not claim["holds"]:
                raise ClaimFailed(f"claim {key} in {claim['notebook']}, cell {claim['cell']}, does not hold")
            seen[key] = claim
            claims.append(claim)
    return claims


def versions() -> dict[str, str]:
    """Versions of Python and of those packages a result may depend on."""
    found = {"Python": platform.python_version()}
    for name in SHOWN_VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> Record:
    """This machine: processor, usable cores, memory in GiB, system, GPUs (an empty list when there is none)."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
        "gpus": _gpus(),
    }


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _gpus() -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    asked = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    return (
        [line.strip() for line in answer.stdout.splitlines() if line.strip()]
        if answer.returncode == 0
        else []
    )


def write_json(path: Path, content: object) -> None:
    """Write `content` to `path` at once: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> Any:
    """Content of a JSON file, or None when it is missing or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
