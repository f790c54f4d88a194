"""Where things are: the sources of the book in a clone, and what building it leaves under `_build/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pagedkv
from pagedkv.errors import BadValue

PACKAGE = Path(pagedkv.__file__).parent


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one book.

    Attributes:
        root: folder of `_config.yml`, `_toc.yml`, `book/` and `notebooks/`.
        package: folder of the package whose sources the results depend on.
    """

    root: Path
    package: Path = PACKAGE

    @property
    def notebooks(self) -> Path:
        """Notebooks as written: no outputs."""
        return self.root / "notebooks"

    @property
    def build(self) -> Path:
        """Everything made; safe to delete."""
        return self.root / "_build"

    @property
    def executed(self) -> Path:
        """Notebooks as executed, each with a record `<name>.json` beside it."""
        return self.build / "executed"

    @property
    def failed(self) -> Path:
        """Partial output of the notebooks that did not run to their end."""
        return self.build / "failed"

    @property
    def source(self) -> Path:
        """What Sphinx reads."""
        return self.build / "source"

    @property
    def html(self) -> Path:
        """The finished book."""
        return self.build / "html"

    @property
    def claims(self) -> Path:
        """All claims of the executed notebooks."""
        return self.build / "claims.json"

    @property
    def run(self) -> Path:
        """How the notebooks were run: versions, machine, times, inputs."""
        return self.build / "run.json"


def find_layout(start: Path | None = None) -> Layout:
    """The book around `start` (default: the working directory), else the one this package was installed from.

    Raises:
        BadValue: when neither has one.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, PACKAGE.parent):
        if (folder / "_toc.yml").is_file() and (folder / "_config.yml").is_file():
            return Layout(folder)
    raise BadValue(
        f"no book at or above {here} (a folder with _config.yml and _toc.yml); run this in a clone"
    )
