"""One plotting style: Okabe-Ito colours, each with a marker, dash or hatch; units on axes; readable on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagedkv.book.palette import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))

STYLE: dict[str, Any] = {
    "figure.figsize": (7.2, 3.9),
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    # An opaque light ground: the book shows plots on it in dark mode too.
    "figure.facecolor": "#ffffff",
    "axes.facecolor": "#ffffff",
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10.5,
    "grid.color": "#e3e3e3",
    "font.size": 10.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
    "hatch.linewidth": 0.7,
    "svg.hashsalt": "pagedkv",
    "savefig.bbox": "tight",
}


def use_style() -> None:
    """Apply the course's style to this process, and have notebooks embed vector images that two builds write alike."""
    import matplotlib as mpl
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    mpl.rcParams.update(STYLE)  # type: ignore[arg-type]
    set_matplotlib_formats("svg", metadata={"Date": None})


def lines(
    axes: Axes,
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    title: str,
) -> None:
    """Draw one line per named series, each with its own colour, marker and dash.

    Args:
        axes: where to draw.
        x: abscissae, shared by all series.
        series: name for the legend -> ordinates.
        xlabel, ylabel: with units.
        title: the finding, in a few words.
    """
    for index, (name, values) in enumerate(series.items()):
        axes.plot(
            x,
            values,
            color=COLORS[index % len(COLORS)],
            marker=MARKERS[index % len(MARKERS)],
            linestyle=DASHES[index % len(DASHES)],
            label=name,
        )
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.legend()


def stacked(
    axes: Axes,
    rows: Mapping[str, Mapping[str, float]],
    *,
    xlabel: str,
    title: str,
) -> None:
    """Draw one horizontal stacked bar per row; parts are states of `PALETTE`, drawn in its order.

    Args:
        axes: where to draw.
        rows: label -> {state name -> value}.
        xlabel: with unit.
        title: the finding, in a few words.
    """
    labels = list(rows)
    seen: set[str] = set()
    for position, label in enumerate(labels):
        left = 0.0
        for name, state in PALETTE.items():
            width = rows[label].get(name, 0.0)
            if not width:
                continue
            axes.barh(
                position,
                width,
                left=left,
                height=0.7,
                color=state.color,
                hatch=state.hatch,
                edgecolor="#333333",
                linewidth=0.6,
                label=None if name in seen else state.label,
            )
            seen.add(name)
            if width >= 7:
                axes.text(
                    left + width / 2,
                    position,
                    f"{width:.1f}",
                    ha="center",
                    va="center",
                    color=state.ink,
                    fontsize=9,
                    bbox={"facecolor": state.color, "edgecolor": "none", "pad": 1.2},
                )
            left += width
    axes.set(xlabel=xlabel, title=title, yticks=range(len(labels)), yticklabels=labels)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.figure.legend(loc="outside lower center", ncols=3)


def points(
    axes: Axes,
    series: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    title: str,
) -> None:
    """Draw measurements as markers and a model of them as lines, both from zero.

    Args:
        axes: where to draw.
        series: name for the legend -> (abscissae, measured, modelled).
        xlabel, ylabel: with units.
        title: the finding, in a few words.
    """
    for index, (name, (x, measured, modelled)) in enumerate(series.items()):
        color = COLORS[index % len(COLORS)]
        axes.plot(x, modelled, color=color, linestyle=DASHES[index % len(DASHES)])
        axes.plot(x, measured, MARKERS[index % len(MARKERS)], color=color, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.set_ylim(bottom=0)
    axes.legend()
