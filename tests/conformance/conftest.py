"""Setup for the conformance tests: the `real` marker, time for whole suites, and a failure with the remedy if these are
not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.sdk import peers
from tests.conformance import suite

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(330))


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Check that the suites and the environment of the known-good server are installed."""
    missing = [str(path) for path in (suite.PROGRAM, Path(peers.sdk(2))) if not path.exists()]
    if missing:
        pytest.fail(f"tests/conformance: {', '.join(missing)} is missing; run 'make counterparts'")
