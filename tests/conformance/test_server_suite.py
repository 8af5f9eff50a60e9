"""The official server suite: what a server passes by itself it passes behind the gate, over HTTP and over stdio, in
both eras."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.expected import expected
from tests.conformance.listening import Listening, known_good, listening, serve
from tests.conformance.suite import REVISIONS, Found, failing, server_suite, worse
from tests.real.peers import POLICIES

FORWARDS = POLICIES / "forwards.yaml"


def report(problems: dict[str, list[str]], program: Listening) -> str:
    lines = [f"{scenario}:\n    " + "\n    ".join(found) for scenario, found in problems.items()]
    return "\n".join(["", *lines, "--- on stderr:", program.said()])


def names(found: Found) -> set[str]:
    return {scenario for scenario, checks in found.items() if failing(checks)}


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_known_good_server_fails_by_itself_what_is_listed_and_nothing_else(revision: str, tmp_path: Path) -> None:
    with listening(known_good("http")) as server:
        found = server_suite(server.url, revision, tmp_path)
        problems = {
            scenario: [str(check) for check in failing(checks)] for scenario, checks in found.items() if failing(checks)
        }
        assert set(expected("server", revision)) == names(found), report(problems, server)


@pytest.mark.parametrize(
    ("behind", "revision"),
    [*((behind, revision) for behind in ("http", "stdio") for revision in REVISIONS), ("http", "2025-06-18")],
)
def test_what_passes_without_the_gate_passes_through_it(behind: str, revision: str, tmp_path: Path) -> None:
    with listening(known_good("http")) as server:
        direct = server_suite(server.url, revision, tmp_path / "direct")
        words = ("--url", server.url) if behind == "http" else ("--", *known_good("stdio"))
        with listening(serve(FORWARDS, *words)) as gate:
            gated = server_suite(gate.url, revision, tmp_path / "gated")
    lost = {scenario: worse(checks, gated.get(scenario, {})) for scenario, checks in direct.items()}
    problems = {scenario: lines for scenario, lines in lost.items() if lines}
    assert not problems, report(problems, gate)
