from __future__ import annotations

import sys
from pathlib import Path

# tests/ holds helpers that tests import by name, whatever folder pytest is started from.
sys.path.insert(0, str(Path(__file__).parent))
