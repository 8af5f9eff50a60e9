"""Setup for the tests of fleets: gates behind load balancers and on a shared database. `make fleet` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for a module, whose gates outlive each test."""
    return "asyncio"
