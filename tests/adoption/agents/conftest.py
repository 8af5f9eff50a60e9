"""Setup for the tests with agents: the `real` marker, time for slow machines, and a failure with the remedy if the
agents are not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.sdk import peers
from tests.adoption.agents import headless

HERE: Final = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(150))


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Check that the agents and the server's environment are installed."""
    programs = (headless.CLAUDE_CODE, headless.CODEX, headless.GEMINI, Path(peers.sdk(2)))
    missing = [str(path) for path in programs if not path.exists()]
    if missing:
        pytest.fail(f"tests/adoption/agents: {', '.join(missing)} is missing; run 'make adoption'")
