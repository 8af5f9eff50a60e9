"""The scenarios for servers that fail without the gate too, with the reason: the one list of exceptions there is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

FILE: Final = Path(__file__).resolve().with_name("expected_failures.yaml")


def expected(revision: str) -> dict[str, str]:
    """Scenario and reason at a revision."""
    entries = yaml.safe_load(FILE.read_text("utf-8")).get(revision) or {}
    return {str(scenario): str(reason) for scenario, reason in entries.items()}
