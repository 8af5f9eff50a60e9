"""Paths of the repository for tests: independent of the folder that a test file is in."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parent
ROOT: Final = TESTS.parent
PROXY: Final = ROOT / "proxy"
PROGRAMS: Final = TESTS / "fakes" / "programs"
