"""The colour language of the course: one state of a slot or a request, one colour, one second cue.

Colours are from Okabe and Ito's palette, which colour-blind readers can tell apart. The second cue (a hatch, or a
written count) means that nothing is said by colour alone. Figures and plots both take them from here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """How one state looks.

    Attributes:
        label: what a legend writes.
        color: fill, #rrggbb, or "none" for an outline only.
        hatch: Matplotlib's hatch string; figures draw the pattern of the same name.
        pattern: name of the pattern: "solid", "dots", "diagonal", "narrow", "cross", "count", "dashed", "outline".
        ink: text colour with at least 4.5:1 contrast on `color`.
    """

    label: str
    color: str
    hatch: str
    pattern: str
    ink: str


PALETTE: dict[str, State] = {
    "tokens": State("token states", "#0072B2", "", "solid", "#FFFFFF"),
    "reserved": State("reserved for later", "#56B4E9", "..", "dots", "#000000"),
    "overprovisioned": State("over-provisioned, never used", "#E69F00", "//", "diagonal", "#000000"),
    "sliver": State("rounding sliver", "#F0E442", "||||", "narrow", "#000000"),
    "external": State("external hole", "#D55E00", "xx", "cross", "#000000"),
    "shared": State("shared", "#CC79A7", "", "count", "#000000"),
    "moving": State("recomputing or swapping", "#009E73", "--", "dashed", "#000000"),
    "free": State("free", "none", "", "outline", "#000000"),
}
