"""Setup for the tests with clients: the `real` marker, time for slow machines, and the agents' check."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.adoption.agents.conftest import installed  # noqa: F401 - a fixture for the whole session

HERE: Final = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(240))
