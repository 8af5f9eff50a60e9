"""The links run on whichever loop the app chooses, so every test of them runs on both."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}
