"""The official server suite: behind the gate a server passes every check that it passes alone, over HTTP and stdio, in
both protocol versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.sdk.peers import POLICIES
from tests.conformance.expected import expected
from tests.conformance.listening import Listening, known_good, listening, serve
from tests.conformance.suite import HOLDS, REVISIONS, Found, failing, server_suite, worse

FORWARDS = POLICIES / "forwards.yaml"


def report(problems: dict[str, list[str]], program: Listening) -> str:
    lines = [f"{scenario}:\n    " + "\n    ".join(found) for scenario, found in problems.items()]
    return "\n".join(["", *lines, "--- on stderr:", program.said()])


class Runs:
    """The known-good server, the gates in front of it, and the suite's findings. Each is started and run only once."""

    def __init__(self, started: ExitStack, folder: Path) -> None:
        self.started = started
        self.folder = folder
        self.server = started.enter_context(listening(known_good("http")))
        self.gates: dict[str, Listening] = {}
        self.found: dict[str, Found] = {}

    def direct(self, revision: str) -> Found:
        """The suite's findings without a gate."""
        if revision not in self.found:
            self.found[revision] = server_suite(self.server.url, revision, self.folder / f"direct-{revision}")
        return self.found[revision]

    def gate(self, behind: str) -> Listening:
        """A gate that serves clients of every version, with the server behind it over HTTP or stdio."""
        if behind not in self.gates:
            words = ("--url", self.server.url) if behind == "http" else ("--", *known_good("stdio"))
            self.gates[behind] = self.started.enter_context(listening(serve(FORWARDS, *words)))
        return self.gates[behind]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with ExitStack() as started:
        yield Runs(started, tmp_path_factory.mktemp("suite"))


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_known_good_server_fails_by_itself_what_is_listed_and_nothing_else(revision: str, runs: Runs) -> None:
    found = runs.direct(revision)
    problems = {scenario: [str(check) for check in failing(checks)] for scenario, checks in found.items()}
    failed = {scenario: lines for scenario, lines in problems.items() if lines}
    assert set(expected(revision)) == set(failed), report(failed, runs.server)


def test_the_scenarios_about_tasks_are_run_and_pass_without_the_gate(runs: Runs) -> None:
    found = {
        scenario: checks for scenario, checks in runs.direct("2026-07-28").items() if scenario.startswith("tasks-")
    }
    passed = [scenario for scenario, checks in found.items() if all(one.status in HOLDS for one in checks.values())]
    assert sorted(found.keys() - {"tasks-status-notifications"}) == sorted(passed)  # that one skips itself
    assert 10 == len(found)


@pytest.mark.parametrize(
    ("behind", "revision"),
    [*((behind, revision) for behind in ("http", "stdio") for revision in REVISIONS), ("http", "2025-06-18")],
)
def test_what_passes_without_the_gate_passes_through_it(behind: str, revision: str, runs: Runs, tmp_path: Path) -> None:
    gate = runs.gate(behind)
    gated = server_suite(gate.url, revision, tmp_path)
    lost = {scenario: worse(checks, gated.get(scenario, {})) for scenario, checks in runs.direct(revision).items()}
    problems = {scenario: lines for scenario, lines in lost.items() if lines}
    assert not problems, report(problems, gate)
