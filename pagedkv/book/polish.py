"""Repairs of the HTML that the tools below this book write: for screen readers, for weight, for staying offline."""

from __future__ import annotations

import re
from pathlib import Path

from pagedkv.errors import BookFailed

_ICON_SCRIPT = re.compile(r"<script[^>]*/fontawesome\.js[^>]*></script>")
_LIVE_CODE = re.compile(
    r"<script type=\"text/x-thebe-config\">.*?</script>|<script>kernelName = [^<]*</script>", re.DOTALL
)
_MATH = re.compile(r"class=\"[^\"]*\b(?:math|text_latex|tex2jax_process|mathjax_process)\b")

# Not needed to read the book: maps for debugging the theme, fonts that no browser of this decade asks for, catalogues
# of translations that are applied while building.
PRUNED = (
    "**/*.map",
    "**/*.ttf",
    "**/*.LICENSE.txt.map",
    "scripts/fontawesome.js",
    "locales/**/*",
    "sphinx-thebe.*",
)


def without_icon_script(head: str) -> str:
    """The head of a page without the theme's icon script; its style sheet has the same icons as a font.

    Raises:
        BookFailed: when it is not there, so that a theme which changed is noticed.
    """
    trimmed, removed = _ICON_SCRIPT.subn("", head)
    if removed != 1:
        raise BookFailed(
            f"{removed} icon scripts in the head of a page, expected one; has the theme changed?"
        )
    return trimmed


def body(text: str) -> str:
    """The body of a page, repaired."""
    text = _LIVE_CODE.sub("", text)
    # The empty corner of a table is no head of anything.
    text = text.replace("<th></th>", "<td></td>")
    # A role that browsers dropped, on the items of a list.
    return text.replace('role="doc-biblioentry"', 'role="listitem"')


def has_math(text: str) -> bool:
    """Whether the body of a page holds a formula."""
    return _MATH.search(text) is not None


def prune(static: Path) -> None:
    """Delete from `_static` what no page uses."""
    for pattern in PRUNED:
        for path in static.glob(pattern):
            if path.is_file():
                path.unlink()
    for folder in sorted((path for path in static.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
