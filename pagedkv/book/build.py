"""Makes the book: notebooks executed, pages built with every warning an error, the finished book put in place at once.

Whatever goes wrong on the way, the book made before stays where it is.
"""

from __future__ import annotations

import html
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from pagedkv.book import runner, staging
from pagedkv.book.layout import Layout
from pagedkv.book.parameters import Parameters
from pagedkv.errors import BookFailed

STAMP = ".source"
"""File in the finished book that says what it was made from."""

JUPYTER_BOOK = "1"
"""Major version whose formats `_config.yml` and `_toc.yml` follow; version 2 exits 0 on them and makes no page."""

COMPLAINT = re.compile(r"WARNING|ERROR|CRITICAL|Traceback|Error:|error:")


def build(layout: Layout, parameters: Parameters, cell_timeout: float = 300.0) -> Path:
    """Run the notebooks that need it (see `runner.run`) and make the pages; returns the folder of the book.

    Raises:
        NotebookFailed, BadValue, ClaimFailed: from the notebooks.
        BookFailed: from the pages.
    """
    with locked(layout):
        recover(layout)
        runner.run(layout, parameters, cell_timeout=cell_timeout)
        return make_pages(layout)


def make_pages(layout: Layout) -> Path:
    """Stage the sources and build them, unless the finished book was made from the same."""
    wanted = staging.stage(layout)
    stamp = layout.html / STAMP
    if stamp.is_file() and stamp.read_text() == wanted and not missing_pages(layout, layout.html):
        print(f"The book is up to date: {layout.html / 'index.html'}")
        return layout.html
    require_jupyter_book(importlib.metadata.version("jupyter-book"))
    started = time.perf_counter()
    print("Building the pages ...", flush=True)
    with tempfile.TemporaryDirectory(prefix=".html-", dir=layout.build) as unfinished:
        made = _sphinx(layout, Path(unfinished))
        missing = missing_pages(layout, made)
        if missing:
            raise BookFailed(f"no page was made for: {', '.join(missing)}; see {_log(layout)}")
        (made / "index.html").write_text(front_door(layout), encoding="utf-8")
        (made / STAMP).write_text(wanted)
        swap(made, layout.html)
    print(f"The book is ready after {time.perf_counter() - started:.0f} s: {layout.html / 'index.html'}")
    return layout.html


def front_door(layout: Layout) -> str:
    """The page at the top of the book's folder, which leads to the home page at once."""
    home = f"{expected_pages(layout)[0]}.html"
    title = html.escape(yaml.safe_load((layout.root / "_config.yml").read_text(encoding="utf-8"))["title"])
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta http-equiv="refresh" content="0; url={home}">\n</head>\n'
        f'<body><main><h1>{title}</h1><p><a href="{home}">Read the book</a></p></main></body>\n</html>\n'
    )


def require_jupyter_book(version: str) -> None:
    """Raise BookFailed unless `version` has the formats this book is written in."""
    if version.split(".", 1)[0] != JUPYTER_BOOK:
        raise BookFailed(
            f"jupyter-book {version} is installed, and this book needs version {JUPYTER_BOOK}.x; "
            f"install the versions of requirements.lock"
        )


def expected_pages(layout: Layout) -> list[str]:
    """Documents that the table of contents names, the root first."""
    toc = yaml.safe_load((layout.root / "_toc.yml").read_text(encoding="utf-8"))
    return list(_documents(toc))


def missing_pages(layout: Layout, made: Path) -> list[str]:
    """Documents of the table of contents that have no page in the folder `made`."""
    return [name for name in expected_pages(layout) if not (made / f"{name}.html").is_file()]


def swap(made: Path, place: Path) -> None:
    """Put the folder `made` at `place`; what was there before comes back if that fails."""
    previous = _previous(place)
    shutil.rmtree(previous, ignore_errors=True)
    if place.exists():
        place.rename(previous)
    try:
        made.rename(place)
    except BaseException:
        if previous.exists():
            previous.rename(place)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def recover(layout: Layout) -> None:
    """Bring back the book that a build killed in the middle of `swap` left aside."""
    previous = _previous(layout.html)
    if previous.exists() and not layout.html.exists():
        previous.rename(layout.html)
    for leftover in [*layout.build.glob(".html-*"), *layout.build.glob(".running-*")]:
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Let one build of this book run at a time, where the system has file locks; a second one waits."""
    layout.build.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with (layout.build / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another build of this book is running; waiting for it ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def clean(layout: Layout) -> None:
    """Delete all that was made."""
    shutil.rmtree(layout.build, ignore_errors=True)


def _sphinx(layout: Layout, into: Path) -> Path:
    command = [sys.executable, "-P", "-c", "from jupyter_book.cli.main import main; main()"]
    command += ["build", str(layout.source), "--path-output", str(into), "--all", "-W", "-n", "--keep-going"]
    log = _log(layout)
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(command, cwd=into, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        lines = runner.ANSI.sub("", log.read_text(encoding="utf-8")).splitlines()
        complaints = [line for line in lines if COMPLAINT.search(line)] or lines[-20:]
        raise BookFailed("\n".join(["the pages were not built:", *complaints[:40], f"The whole log: {log}"]))
    return into / "_build" / "html"


def _documents(entry: object) -> Iterator[str]:
    """Every `root:` and `file:` of a table of contents, in order."""
    if isinstance(entry, dict):
        for name, value in entry.items():
            if name in ("root", "file"):
                yield str(value).removesuffix(".md").removesuffix(".ipynb")
            else:
                yield from _documents(value)
    elif isinstance(entry, list):
        for item in entry:
            yield from _documents(item)


def _previous(place: Path) -> Path:
    return place.with_name(place.name + ".previous")


def _log(layout: Layout) -> Path:
    return layout.build / "sphinx.log"
