"""The list of expected failures is short, has reasons, and names no required check."""

from __future__ import annotations

import pytest
import yaml

from tests.conformance.expected import FILE, expected
from tests.conformance.suite import PROGRAM, REVISIONS


@pytest.mark.parametrize("revision", REVISIONS)
def test_no_scenario_that_a_revision_requires_is_excused(revision: str) -> None:
    required = yaml.safe_load((PROGRAM.parents[1] / "requirements" / f"{revision}.yaml").read_text("utf-8"))
    assert set() == set(expected(revision)) & set(required["server"])
    assert set() == set(expected("auth")) & set(required["client"])


@pytest.mark.parametrize("revision", [*REVISIONS, "auth"])
def test_every_expected_failure_has_a_reason(revision: str) -> None:
    assert [] == [scenario for scenario, reason in expected(revision).items() if len(reason.split()) < 4]


def test_the_file_names_revisions_that_are_run() -> None:
    assert {*REVISIONS, "auth"} >= set(yaml.safe_load(FILE.read_text("utf-8")))
