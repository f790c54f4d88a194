"""One figure, two lives: an anywidget that the kernel can see, and an element that works in a page without a kernel.

Python computes what there is to see; the scripts in `js/` draw it and let the reader move in it. The same classic
scripts serve both lives: the book loads the files, a notebook gets them as one module.
"""

from __future__ import annotations

import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from pagedkv.book.palette import PALETTE
from pagedkv.errors import BadValue

JS_DIR = Path(__file__).parent / "js"

SCRIPTS: dict[str, tuple[str, ...]] = {
    "allocators": ("core.js", "allocators.js"),
    "block-table": ("core.js", "manager.js", "block-table.js"),
    "copy-on-write": ("core.js", "manager.js", "copy-on-write.js"),
    "knee": ("core.js", "knee.js"),
    "watermarks": ("core.js", "watermarks.js"),
    "evict": ("core.js", "preemption.js", "evict.js"),
}
"""For each kind of figure, the files of `JS_DIR` that draw it, in the order in which a page must load them."""

TILES: dict[str, tuple[float, float, str, float]] = {
    "dots": (4, 4, "M1 1h.01M3 3h.01", 1.1),
    "diagonal": (6, 6, "M-1 1l2-2M0 6l6-6M5 7l2-2", 1),
    "narrow": (3, 3, "M1.5 0v3", 0.9),
    "cross": (6, 6, "M0 0l6 6M6 0l-6 6", 0.9),
    "dashed": (8, 5, "M1 2.5h4", 1.2),
}
"""The marks of each pattern of the palette, as an SVG tile: width, height, path, stroke width."""


def look(states: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """How the named states of the palette are drawn: colour, ink for text on it, label, and the tile if any."""
    return {
        name: {
            "color": PALETTE[name].color,
            "ink": PALETTE[name].ink,
            "label": PALETTE[name].label,
            "tile": TILES.get(PALETTE[name].pattern),
        }
        for name in states
    }


def patterns(states: tuple[str, ...], prefix: str) -> str:
    """SVG `<defs>` with one `<pattern id="{prefix}-{state}">` for each state that has a tile."""
    tiles = []
    for name, state in look(states).items():
        if state["tile"]:
            width, height, path, stroke = state["tile"]
            tiles.append(
                f'<pattern id="{prefix}-{name}" width="{width}" height="{height}" patternUnits="userSpaceOnUse">'
                f'<rect width="{width}" height="{height}" fill="{state["color"]}"/>'
                f'<path d="{path}" fill="none" stroke="#000" stroke-opacity=".62" stroke-width="{stroke}" '
                f'stroke-linecap="round"/></pattern>'
            )
    return f"<defs>{''.join(tiles)}</defs>"


class Figure:
    """An interactive figure, displayed when it is the value of a notebook cell.

    Attributes:
        kind: which script draws it; a key of `SCRIPTS`.
        title: what it shows, in one sentence: its accessible name.
        data: what Python computed and the script draws, as JSON values.
        fallback: HTML for a page without JavaScript, with the same key numbers.
    """

    def __init__(
        self,
        kind: str,
        title: str,
        data: dict[str, Any],
        state: dict[str, Any],
        states: tuple[str, ...],
        fallback: str,
    ) -> None:
        if kind not in SCRIPTS:
            raise BadValue(f"no figure is called {kind!r}; there are {', '.join(sorted(SCRIPTS))}")
        self.kind = kind
        self.title = title
        self.data = data
        self.fallback = fallback
        self._state = state
        self._states = states
        self._widget: Any = None

    @property
    def state(self) -> dict[str, Any]:
        """What the reader has selected. In JupyterLab it follows the picture; assigning to it moves the picture."""
        return dict(self._state if self._widget is None else self._widget.state)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        merged = {**self.state, **state}
        if self._widget is None:
            self._state = merged
        else:
            self._widget.state = merged

    @property
    def widget(self) -> Any:
        """The live anywidget behind the figure, made when first asked for; `widget.observe` works as for any other."""
        if self._widget is None:
            self._widget = _widget_class(self.kind)(
                kind=self.kind, payload=self._payload(), state=self._state
            )
        return self._widget

    def to_html(self) -> str:
        """The element that the book's scripts turn into the figure, with its data and its fallback inside."""
        payload = json.dumps({**self._payload(), "state": self.state}, separators=(",", ":"))
        # "</" would end the script element; in JSON "<\/" is the same string.
        payload = payload.replace("</", "<\\/").replace("<!--", "<\\u0021--")
        return (
            f'<pagedkv-figure kind="{escape(self.kind)}"><script type="application/json">{payload}</script>'
            f'<div class="pkv-fallback">{self.fallback}</div></pagedkv-figure>'
        )

    def _payload(self) -> dict[str, Any]:
        return {"title": self.title, "palette": look(self._states), "data": self.data}

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget for a live notebook, and the element for the book and for viewers without a kernel."""
        bundle, metadata = self.widget._repr_mimebundle_()
        return {**bundle, "text/html": self.to_html(), "text/plain": self.title}, metadata

    def __repr__(self) -> str:
        return f"Figure({self.kind!r})"


def module_source(kind: str) -> str:
    """The scripts of one kind as one ECMAScript module, for anywidget."""
    parts = [(JS_DIR / name).read_text(encoding="utf-8") for name in SCRIPTS[kind]]
    return "\n".join([*parts, "export default globalThis.pagedkv.anywidget;\n"])


@cache
def _widget_class(kind: str) -> Any:
    """The anywidget class of one kind. Made late: reading figures or building the book needs no widget machinery."""
    import anywidget
    import traitlets

    members = {
        "_esm": module_source(kind),
        "kind": traitlets.Unicode().tag(sync=True),
        "payload": traitlets.Dict().tag(sync=True),
        "state": traitlets.Dict().tag(sync=True),
        "__doc__": f"Live figure of kind {kind!r}.",
        "__module__": __name__,
    }
    return type(f"LiveFigure_{kind.replace('-', '_')}", (anywidget.AnyWidget,), members)
