"""A pytest plugin (``-p tests.faults.failures``) that writes the ids of the tests that fail, one a line, to the file in
SEEDED_FAULTS_FAILED."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note each test once, whether its setup, its call or its teardown fails."""
    if report.failed:
        with Path(os.environ["SEEDED_FAULTS_FAILED"]).open("a", encoding="utf-8") as file:
            file.write(report.nodeid + "\n")
