"""The checks of the official client suite that the SDK's own client passes: `client_checks.yaml`, written by ``python
-m tests.conformance.client_checks`` after an upgrade of the suite or of the SDK."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from tests.acceptance.sdk import peers
from tests.conformance.suite import Check, Scenario, client_scenario, failing

FILE: Final = Path(__file__).resolve().with_name("client_checks.yaml")
HEAD: Final = "# What the SDK's own client passes of the official client suite. `client_checks.py` writes this file.\n"
DRIVER: Final = (peers.sdk(2), "-m", "tests.conformance.client_driver")
LEGACY: Final = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "json-schema-2020-12-preservation",
]
MODERN: Final = [
    "tools_call",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
]
SCENARIOS: Final = [*(("2025-11-25", name) for name in LEGACY), *(("2026-07-28", name) for name in MODERN)]


def passed(revision: str, scenario: str) -> Scenario:
    """The checks of a scenario that must pass."""
    ids: list[str] = yaml.safe_load(FILE.read_text("utf-8"))[revision][scenario]
    return {id: Check(id, "SUCCESS", "") for id in ids}


def main() -> None:
    """Run each scenario with the SDK's client and write the checks that it passes. A check that it fails is an
    error."""
    found: dict[str, Any] = {}
    for revision, scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as out:
            checks = client_scenario(DRIVER, scenario, revision, Path(out))
        if failing(checks):
            raise SystemExit(f"{scenario} at {revision}: {failing(checks)}")
        ids = sorted(check.id for check in checks.values() if check.status == "SUCCESS")
        found.setdefault(revision, {})[scenario] = ids
    FILE.write_text(HEAD + yaml.safe_dump(found, sort_keys=False), "utf-8")


if __name__ == "__main__":
    main()
