"""The scenarios that fail without the gate too or do not apply to it, with the reason. It is the only list of
exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

FILE: Final = Path(__file__).resolve().with_name("expected_failures.yaml")


def expected(revision: str) -> dict[str, str]:
    """Scenario and reason for a protocol version, or for ``auth``: a client's OAuth."""
    entries = yaml.safe_load(FILE.read_text("utf-8")).get(revision) or {}
    return {str(scenario): str(reason) for scenario, reason in entries.items()}
