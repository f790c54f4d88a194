"""Where a measurement comes from."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import UTC, datetime

import torch

from pagedkv.hardware import processor


@dataclass(frozen=True, slots=True)
class Provenance:
    """Device, software and day of a measurement.

    Attributes:
        device: name of the GPU, or of the processor for one made without.
        gpu: whether it is a GPU.
        torch_version, python_version: of the software.
        cuda_version: that torch was built with, or None.
        threads: threads of torch on the CPU.
        system: operating system and architecture.
        date: of the measurement, ISO 8601, UTC.
    """

    device: str
    gpu: bool
    torch_version: str
    python_version: str
    cuda_version: str | None
    threads: int
    system: str
    date: str

    @classmethod
    def here(cls, device: torch.device) -> Provenance:
        """For a measurement on `device`, made now."""
        gpu = device.type == "cuda"
        return cls(
            device=torch.cuda.get_device_name(device) if gpu else processor(),
            gpu=gpu,
            torch_version=torch.__version__,
            python_version=platform.python_version(),
            cuda_version=torch.version.cuda,
            threads=torch.get_num_threads(),
            system=f"{platform.system()} {platform.machine()}",
            date=datetime.now(UTC).date().isoformat(),
        )
