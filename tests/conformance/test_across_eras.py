"""The official server suite with the gate between two protocol versions: a server passes the checks of a version that
it does not know."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml

from tests.acceptance.sdk.peers import POLICIES
from tests.conformance.expected import expected
from tests.conformance.listening import known_good, listening, serve
from tests.conformance.suite import server_suite

PAIRS = [("2025-11-25", "modern", "http"), ("2026-07-28", "legacy", "stdio")]
CANNOT = yaml.safe_load(Path(__file__).resolve().with_name("across_eras.yaml").read_text("utf-8"))


def problems(url: str, revision: str, out: Path) -> dict[str, str]:
    """``scenario/check`` and the suite's message for every failed check, without those that fail without the gate
    too."""
    found = server_suite(url, revision, out)
    return {
        f"{scenario}/{check.id}": f"{check.status}: {check.said}"
        for scenario, checks in found.items()
        for check in checks.values()
        if check.status in ("FAILURE", "WARNING") and scenario not in expected(revision)
    }


def covers(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern if "/" in pattern else f"{pattern}/*")


@pytest.mark.parametrize(("revision", "era", "kind"), PAIRS)
def test_a_server_of_one_era_passes_as_one_of_the_other(revision: str, era: str, kind: str, tmp_path: Path) -> None:
    with listening(known_good("http", era)) as server:
        words = ("--url", server.url) if kind == "http" else ("--", *known_good("stdio", era))
        with listening(serve(POLICIES / "forwards.yaml", *words)) as gate:
            found = problems(gate.url, revision, tmp_path)
    cannot = CANNOT[revision]
    unexpected = [
        f"{name}: {said}" for name, said in found.items() if not any(covers(pattern, name) for pattern in cannot)
    ]
    assert not unexpected, "\n".join([*unexpected, "--- on stderr:", gate.said()])
    assert [] == [pattern for pattern in cannot if not any(covers(pattern, name) for name in found)], (
        "these hold by now: take them from the list"
    )
