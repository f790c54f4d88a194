"""Where a measurement comes from."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch


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


def processor() -> str:
    """Name of this machine's processor, as exactly as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return " ".join(found[1].split())
    return platform.processor() or platform.machine()
