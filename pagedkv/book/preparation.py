"""What is done once before notebooks are executed, so that it does not happen within one of them."""

from __future__ import annotations

import importlib
from contextlib import suppress

from pagedkv.errors import TraceUnavailable
from pagedkv.workloads.traces import TRACES, fetch

KERNEL_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # two runs see sets in the same order
    "PYTHONBREAKPOINT": "0",  # nobody is there to answer a debugger
    "PAGEDKV_OFFLINE": "1",  # a kernel works with the traces that `prepare` found
}


def prepare() -> None:
    """Download the traces that are not at hand, and let matplotlib look for its fonts.

    Both may take time and write about it; in a notebook that would stand on the page.
    """
    for name in TRACES:
        try:
            fetch(name)
        except TraceUnavailable as reason:
            print(f"{name}: not to be had, so the book works on requests generated in its place ({reason})")
    with suppress(ImportError):
        importlib.import_module("matplotlib.font_manager")
