"""The two event loops that the gate runs on, for tests of transports that may differ between them."""

from __future__ import annotations

import importlib.util
from typing import Final

import pytest

LOOPS: Final = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]
BOTH_LOOPS: Final = pytest.mark.parametrize(
    "anyio_backend", [pytest.param(("asyncio", {"use_uvloop": loop == "uvloop"}), id=loop) for loop in LOOPS]
)
