"""The official suites as programs, and their findings as values. It judges nothing itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.acceptance.sdk import node, peers
from tests.paths import ROOT

PROGRAM: Final = peers.HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REVISIONS: Final = ("2025-11-25", "2026-07-28")  # those with a frozen set of what is required
# seconds for a whole suite: four to seven, forty where each of its sessions starts a stdio server; a client's scenario
# two
WAIT: Final = 150.0
STAMP: Final = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
RANK: Final = {"FAILURE": 4, "WARNING": 3, "SKIPPED": 2, "SUCCESS": 1, "INFO": 0}
# INFO: the other of two ways that the specification leaves open, JSON or a stream for instance
HOLDS: Final = ("SUCCESS", "INFO")


@dataclass(frozen=True)
class Check:
    """One check of a scenario, with its worst result if it ran several times."""

    id: str
    status: str
    said: str

    def __str__(self) -> str:
        return f"[{self.id}] {self.status}: {self.said}"


Scenario: TypeAlias = Mapping[str, Check]
Found: TypeAlias = Mapping[str, Scenario]


def server_suite(url: str, revision: str, out: Path) -> Found:
    """The required set of a protocol version and the unscored scenarios, against a server. All scenarios for a version
    without a required set."""
    which = ["--requirements", revision] if revision in REVISIONS else ["--suite", "all", "--spec-version", revision]
    _run(["server", "--url", url, *which, "-o", str(out)])
    found = {
        STAMP.sub("", path.parent.name).removeprefix("server-"): _checks(path)
        for path in sorted(out.glob("*/checks.json"))
    }
    assert found, f"the suite left no results in {out}"
    return found


def client_scenario(words: Sequence[str], scenario: str, revision: str, out: Path, *, seconds: int = 30) -> Scenario:
    """One scenario for the client that these words and an address start. Its exit is a check too:
    ``client-ended-well``."""
    assert not any(" " in word for word in words), f"the suite splits the command at blanks: {words}"
    options = [
        "--scenario",
        scenario,
        "--spec-version",
        revision,
        "--force",
        "--timeout",
        f"{seconds}000",
        "-o",
        str(out),
    ]
    code, said = _run(["client", "--command", " ".join(words), *options])
    paths = list(out.glob(f"{scenario}-*/checks.json"))
    assert len(paths) == 1, f"{scenario}: the suite left no result:\n{said[-4000:]}"
    checks = dict(_checks(paths[0]))
    ended = "Client exited with code" not in said and "Client timed out" not in said
    checks["client-ended-well"] = Check(
        "client-ended-well", "SUCCESS" if ended else "FAILURE", said[-3000:] if not ended or code else ""
    )
    return checks


def client_output(out: Path) -> str:
    """The stderr of a scenario's client and its descendants."""
    return "".join(path.read_text("utf-8", "replace") for path in out.glob("*/stderr.txt"))


def failing(scenario: Scenario) -> list[Check]:
    return [check for check in scenario.values() if check.status == "FAILURE"]


def worse(direct: Scenario, gated: Scenario) -> list[str]:
    """The checks that passed without the gate and fail or are missing with it, one line each."""
    lost = []
    for check in direct.values():
        if check.status != "SUCCESS":
            continue
        other = gated.get(check.id)
        if other is None or other.status not in HOLDS:
            lost.append(str(other) if other else f"[{check.id}] was not looked at")
    return lost + [str(check) for check in gated.values() if check.status == "FAILURE" and check.id not in direct]


def _checks(path: Path) -> Scenario:
    checks: dict[str, Check] = {}
    for entry in json.loads(path.read_text("utf-8")):
        check = Check(entry["id"], entry["status"], _said(entry))
        if RANK[check.status] >= RANK[checks.get(check.id, check).status]:
            checks[check.id] = check
    return checks


def _said(entry: Mapping[str, Any]) -> str:
    details = json.dumps(entry.get("details", {}))
    return entry.get("errorMessage") or f"{entry.get('description', '')} {details[:800]}"


def _run(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and the whole output. If it does not end, it and its descendants are killed."""
    command = [str(node.node()), str(PROGRAM), *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=WAIT)
    except subprocess.TimeoutExpired as late:
        so_far = (late.stdout or b"").decode("utf-8", "replace")  # bytes, whatever the pipe was opened as
        raise AssertionError(f"the suite did not end within {WAIT:g} s; it said last:\n{so_far[-2000:]}") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    return process.returncode, said
