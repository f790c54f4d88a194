"""Files that the pages need, copied into the book: styles, figure scripts, and a MathJax cut down to what is used."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

from pagedkv.book.layout import PACKAGE
from pagedkv.errors import BookFailed

HERE = PACKAGE / "book"
FIGURES = HERE / "figures" / "js"
STATIC = HERE / "static"
TEMPLATES = HERE / "templates"

# Under `_static/`, in a folder of their own so that no theme's file is replaced.
PREFIX = "pagedkv"
STYLESHEET = f"{PREFIX}/course.css"
MATHJAX_PATH = f"{PREFIX}/mathjax/tex-chtml.js"

MATHJAX_PACKAGE = "sphinx-mathjax-offline"
MATHJAX_PARTS = ("tex-chtml.js", "output/chtml/fonts/woff-v2")
"""TeX input and HTML output with its fonts: 1.5 of the 23 MB that MathJax has."""

FIGURE = re.compile(r"<pagedkv-figure\b[^>]*?\bkind=\"([a-z0-9-]+)\"")


def install(static: Path) -> None:
    """Copy all of it into `static`, the `_static` folder of a book being built."""
    target = static / PREFIX
    target.mkdir(parents=True, exist_ok=True)
    for source in [*sorted(STATIC.glob("*")), *sorted(FIGURES.glob("*.js"))]:
        shutil.copyfile(source, target / source.name)
    mathjax = _mathjax()
    for part in MATHJAX_PARTS:
        source, place = mathjax / part, target / "mathjax" / part
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, place)


def figure_scripts(body: str) -> list[str]:
    """Scripts for the figures that occur in the HTML `body`, in loading order, as paths under `_static`.

    Raises:
        BookFailed: for a kind of figure that no script draws.
    """
    kinds = sorted(set(FIGURE.findall(body)))
    if not kinds:
        return []
    from pagedkv.book.figures import SCRIPTS

    unknown = [kind for kind in kinds if kind not in SCRIPTS]
    if unknown:
        raise BookFailed(
            f"no script draws figures of kind {', '.join(unknown)}; there are: {', '.join(SCRIPTS)}"
        )
    return [f"{PREFIX}/{name}" for name in dict.fromkeys(name for kind in kinds for name in SCRIPTS[kind])]


def _mathjax() -> Path:
    found = importlib.util.find_spec(MATHJAX_PACKAGE)
    if found is None or found.origin is None:
        raise BookFailed(f"{MATHJAX_PACKAGE} is not installed; install the versions of requirements.lock")
    return Path(found.origin).parent / "static" / "mathjax"
