"""Accelerators and host links: the figures that models of time are built from, each with its source.

They are data-sheet peaks. What a machine really does is measured, and a measured record is always preferred.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from pagedkv.geometry import ModelGeometry


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device.

    Attributes:
        name: as its maker writes it.
        memory_bytes: capacity in bytes, decimal gigabytes as sold.
        bandwidth: device-memory bytes per second.
        bf16_flops: dense bf16 FLOP per second, without sparsity.
        source: where the figures are from.
    """

    name: str
    memory_bytes: float
    bandwidth: float
    bf16_flops: float
    source: str

    def kv_slots(self, model: ModelGeometry, fraction: float = 0.9) -> int:
        """Tokens of KV that fit beside the weights when `fraction` of the memory may be used.

        0.9 is vLLM's default for `gpu_memory_utilization`; activations come out of the rest.
        """
        return max(0, model.slots_in(self.memory_bytes * fraction - model.weight_bytes))


@dataclass(frozen=True, slots=True)
class HostLink:
    """The way between device and host memory; bandwidth in bytes per second, one direction."""

    name: str
    bandwidth: float
    source: str


A100_40GB = Accelerator("A100 SXM 40 GB", 40e9, 1.555e12, 312e12, "NVIDIA A100 data sheet, 2020")
A100_80GB = Accelerator("A100 SXM 80 GB", 80e9, 2.039e12, 312e12, "NVIDIA A100 data sheet, 2021")
H100_SXM = Accelerator("H100 SXM", 80e9, 3.35e12, 989e12, "NVIDIA H100 data sheet, 2023")
H200_SXM = Accelerator("H200 SXM", 141e9, 4.8e12, 989e12, "NVIDIA H200 data sheet, 2024")

PCIE_4_X16 = HostLink("PCIe 4.0 x16", 31.5e9, "PCI Express Base 4.0: 16 GT/s, 16 lanes, 128b/130b")
PCIE_5_X16 = HostLink("PCIe 5.0 x16", 63.0e9, "PCI Express Base 5.0: 32 GT/s, 16 lanes, 128b/130b")

ACCELERATORS: dict[str, Accelerator] = {
    "a100-40gb": A100_40GB,
    "a100-80gb": A100_80GB,
    "h100-sxm": H100_SXM,
    "h200-sxm": H200_SXM,
}


def processor() -> str:
    """Name of this machine's processor, as exactly as the system tells: what a CPU measurement is labelled with."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return " ".join(found[1].split())
    return platform.processor() or platform.machine()
