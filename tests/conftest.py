from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Two workers with two threads each fight over two cores, and small tensors gain nothing from a second thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# tests/ holds helpers that tests import by name, whatever folder pytest is started from.
sys.path.insert(0, str(Path(__file__).parent))

# Nothing here asserts a time, and machines are busy. The same examples on every run, so that red means a change.
settings.register_profile("course", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("course")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium; see `browser.chromium` for where it is found and what happens without one."""
    from browser import chromium

    with chromium() as started:
        yield started
