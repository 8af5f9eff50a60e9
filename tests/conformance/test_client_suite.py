"""The official client suite with the gate as the HTTP client under test: the gate passes every check that an SDK's own
client passes. `client_checks.yaml` lists those; `python -m tests.conformance.client_checks` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.sdk import peers
from tests.conformance.client_checks import DRIVER, SCENARIOS, passed
from tests.conformance.listening import gate
from tests.conformance.suite import Scenario, client_output, client_scenario, failing, worse

ANSWERS = Path(__file__).resolve().with_name("answers.yaml")
ASKING = [("2025-11-25", "elicitation-sep1034-client-defaults"), ("2026-07-28", "sep-2322-client-request-state")]


def behind(policy: Path) -> tuple[str, ...]:
    """The command that puts the gate in front of an address."""
    return gate("run", "--policy", str(policy), "--decision-log", "none", "--url")


def lines(checks: Scenario) -> list[str]:
    return [str(check) for check in failing(checks)]


@pytest.mark.parametrize(("revision", "scenario"), SCENARIOS)
def test_what_a_client_of_the_sdk_passes_the_gate_passes(revision: str, scenario: str, tmp_path: Path) -> None:
    gated = client_scenario(
        (*DRIVER, *behind(peers.POLICIES / "forwards.yaml")), scenario, revision, tmp_path / "gated"
    )
    assert [] == worse(passed(revision, scenario), gated), gated["client-ended-well"].said
    assert "samplegate: " in client_output(tmp_path / "gated")  # it was there


@pytest.mark.parametrize(("revision", "scenario"), ASKING)
def test_a_policy_that_answers_passes_for_a_client_that_cannot(revision: str, scenario: str, tmp_path: Path) -> None:
    gated = client_scenario((*DRIVER, "--silent", *behind(ANSWERS)), scenario, revision, tmp_path / "gated")
    assert [] == lines(gated)
    assert any(check.status == "SUCCESS" for check in gated.values())
