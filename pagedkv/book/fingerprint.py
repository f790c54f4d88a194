"""One hash over all that a result depends on, so that a result is reused only while none of it has changed."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

from pagedkv.book.layout import Layout
from pagedkv.workloads.traces import TRACES, cache_folder

IGNORED = {"__pycache__", ".ipynb_checkpoints", ".DS_Store"}


def files_under(folder: Path) -> Iterator[Path]:
    """Every file below `folder`, sorted, without caches; nothing when it does not exist."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not IGNORED.intersection(path.parts):
            yield path


def hash_files(paths: Iterable[Path], base: Path) -> str:
    """sha256 over names relative to `base` and contents."""
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(base).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def machinery(layout: Layout) -> str:
    """Hash of what every page depends on: the package with its JavaScript and styles, the versions, Python."""
    lock = layout.root / "requirements.lock"
    digest = hashlib.sha256(hash_files(files_under(layout.package), layout.package).encode())
    digest.update(lock.read_bytes() if lock.is_file() else b"no lock")
    digest.update(f"{platform.python_implementation()} {platform.python_version()}".encode())
    return digest.hexdigest()


def surroundings(layout: Layout) -> str:
    """Hash of what every notebook's result depends on: the machinery, `data/`, and the GPUs there are."""
    data = layout.root / "data"
    digest = hashlib.sha256(machinery(layout).encode())
    digest.update(hash_files(files_under(data), data).encode())
    digest.update("\n".join(sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))).encode())
    return digest.hexdigest()


def traces_at_hand() -> list[str]:
    """Name and size of each published trace that lies where the loader looks; it checks their contents itself."""
    given = os.environ.get("PAGEDKV_TRACES")
    folders = [*([Path(given)] if given else []), cache_folder()]
    paths = [folder / trace.file for trace in TRACES.values() for folder in folders]
    return [f"{path.name} {path.stat().st_size}" for path in paths if os.path.isfile(path)]


def of_notebook(text: bytes, parameters: dict[str, object], around: str) -> str:
    """Hash of one notebook's result: its own text, its parameters, `surroundings`, and the traces there are now.

    A notebook may download a trace; so the hash to remember is the one taken after the notebook has run.
    """
    digest = hashlib.sha256(text)
    digest.update(repr(sorted(parameters.items())).encode())
    digest.update(around.encode())
    digest.update("\n".join(traces_at_hand()).encode())
    return digest.hexdigest()
