"""The three parameters that every notebook of the book has."""

from __future__ import annotations

from dataclasses import dataclass

from pagedkv.errors import BadValue

PROFILES = ("quick", "full")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Parameters:
    """What papermill puts into the cell tagged `parameters`.

    Attributes:
        profile: "quick" (minutes, for CI) or "full" (for a GPU box).
        device: "auto", "cpu" or "cuda".
        seed: seed of every generator in the notebook.
    """

    profile: str = "quick"
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, valid in (("profile", self.profile, PROFILES), ("device", self.device, DEVICES)):
            if value not in valid:
                raise BadValue(f"unknown {name} {value!r}; valid are: {', '.join(valid)}")
