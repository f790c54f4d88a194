"""The floors of the package: a room imports only rooms below it, and the manager runs on the standard library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pagedkv"

# From the ground up. Rooms on one line may not import each other.
FLOORS = [
    {"errors"},
    {"geometry"},
    {"hardware", "blocks"},
    {"tables"},
    {"contiguous"},
    {"waste"},
    {"workloads"},
    {"replay"},
    {"paper"},
    {"sharing"},
    {"watermarks"},
    {"preemption"},
    {"sequences"},
    {"residency"},
    {"scheduler"},
    {"clock"},
    {"fast_forward"},
    {"metrics"},
    {"simulator"},
    {"pressure", "sizing"},
    {"simulate"},
    {"kernels"},
    {"cache_interface"},
    {"cache"},
    {"contiguous_cache"},
    {"swap"},
    {"cache_residency"},
    {"model"},
    {"train"},
    {"generate"},
    {"huggingface"},
    {"engine"},
    {"bench"},
    {"measure"},
    {"book"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
STANDARD_LIBRARY_ONLY = [
    "errors", "geometry", "hardware", "blocks", "tables", "contiguous", "waste", "workloads", "replay",
    "paper", "sharing", "watermarks", "preemption", "sequences", "residency", "scheduler", "clock", "fast_forward",
    "metrics", "simulator", "pressure", "sizing", "simulate",
]  # fmt: skip
SOURCES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Rooms that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    names = {name.split(".")[1] for name in found if name.startswith("pagedkv.")}
    return {name for name in names if name in LEVEL}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_floors_below_it(path: Path) -> None:
    here = room(path)
    assert here in LEVEL, f"{here} has no floor yet: give it one in FLOORS"
    above = {other for other in imports(path) if other != here and LEVEL[other] >= LEVEL[here]}
    assert not above, f"{path.name} imports {sorted(above)}, which lie on its own floor or above"


def test_the_memory_manager_runs_on_the_standard_library() -> None:
    rooms = [
        name
        for name in STANDARD_LIBRARY_ONLY
        if (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()
    ]
    code = (
        "import sys, importlib\n"
        f"for name in {rooms!r}: importlib.import_module('pagedkv.' + name)\n"
        "import pagedkv.cli\n"
        "outside = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - {'pagedkv'}\n"
        "print(*sorted(n for n in outside if not n.startswith('_') and 'pagedkv' not in n))"
    )
    run = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() in ([], ["sitecustomize"])


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_stay_readable_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 320
