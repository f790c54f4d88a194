"""What this machine does, measured, with the provenance that a number needs: on which device, with what, and when."""

from __future__ import annotations

from pagedkv.measure.copies import (
    CopyFit,
    CopyMeasurement,
    CopySample,
    Direction,
    fit,
    measure_copies,
)
from pagedkv.measure.provenance import Provenance

__all__ = [
    "CopyFit",
    "CopyMeasurement",
    "CopySample",
    "Direction",
    "Provenance",
    "fit",
    "measure_copies",
]
