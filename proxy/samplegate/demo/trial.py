"""One pass of the demo: the server's tool called through the real gate, and all that was told of it checked. Prints nothing."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from samplegate.demo import client, database
from samplegate.demo.client import Era, Seen

POLICY: Final = Path(__file__).with_name("demo.yaml")
"""The same file as policies/demo.yaml, which is for readers: an installed package has no repository around it. A test holds the two together."""

TICKET: Final = "OPS-7"
EXPECTED: Final = (("sampling", "allow"), ("elicitation", "answer"), ("sampling", "allow"))
"""Kind and effect of the three requests, in order."""


@dataclass(slots=True)
class Trial:
    """What one pass saw. ``problems`` is empty where all went as told."""

    era: Era
    database: Path
    log: Path
    stderr: Path
    seen: Seen = field(default_factory=Seen)
    records: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def server_command(path: Path) -> list[str]:
    """The server over one database file, as a client would start it."""
    return [sys.executable, "-m", "samplegate.demo.server", str(path)]


def gate_command(log: Path, command: list[str]) -> list[str]:
    """The same behind the gate."""
    run = [sys.executable, "-m", "samplegate", "run", "--policy", str(POLICY), "--server", "users", "--decision-log", str(log)]
    return [*run, "--", *command]


def without_gate(folder: Path) -> Trial:
    """The call as it goes with the server alone: it must fail, or the demo shows nothing."""
    trial = _start(folder, "legacy", "alone")
    trial.seen = client.call(server_command(trial.database), _environment(), trial.era, TICKET, trial.stderr)
    if trial.seen.failure is None:
        trial.problems.append("the call went through without the gate, so there was nothing to answer")
    return trial


def through_gate(folder: Path, era: Era) -> Trial:
    """The call through `samplegate run`, checked in the result, in the database file and in the decision log."""
    trial = _start(folder, era, era)
    command = gate_command(trial.log, server_command(trial.database))
    trial.seen = client.call(command, _environment() | _settings(folder), era, TICKET, trial.stderr)
    trial.records, unread = read_log(trial.log)
    trial.problems += [*_wrong_result(trial.seen), *unread, *_wrong_rows(trial), *_wrong_records(trial.records)]
    return trial


def read_log(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The decision log's records, and what is wrong with the file."""
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()], []
    except (OSError, ValueError) as problem:
        return [], [f"decision log: it cannot be read: {problem}"]


def _start(folder: Path, era: Era, name: str) -> Trial:
    trial = Trial(era, folder / f"users-{name}.db", folder / f"decisions-{name}.jsonl", folder / f"stderr-{name}.txt")
    database.create(trial.database)
    return trial


def _environment() -> dict[str, str]:
    """Beside the few variables that MCP clients hand on: where a source tree's modules are, so that the demo runs uninstalled too."""
    return {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}


def _settings(folder: Path) -> dict[str, str]:
    """The gate's own: the log keeps what was said, so that the demo can show it, and nothing lands in the user's state folder."""
    return {"SAMPLEGATE_RECORD_CONTENT": "full", "SAMPLEGATE_STATE": str(folder / "state")}


def _inactive() -> int:
    return sum(not active for _, _, active in database.USERS)


def _wrong_result(seen: Seen) -> list[str]:
    if seen.failure is not None or seen.structured is None:
        return [f"the tool's call failed: {seen.failure}"]
    expected = {"found": _inactive(), "deleted": _inactive(), "remaining": len(database.USERS) - _inactive()}
    return [f"result: {name} is {seen.structured.get(name)}, not {value}" for name, value in expected.items() if seen.structured.get(name) != value]


def _wrong_rows(trial: Trial) -> list[str]:
    """Whether the rows are really gone, asked of the file and not of the server."""
    left, kept = database.names(trial.database), [name for name, _, active in database.USERS if active]
    out = [] if left == kept else [f"database: it holds {', '.join(left)}; it should hold {', '.join(kept)}"]
    purge = database.purge(trial.database, TICKET)
    if purge is None or not purge.audit:
        out.append("database: the purge has no audit entry")
    return out


def _wrong_records(records: list[dict[str, Any]]) -> list[str]:
    found = [(record.get("kind"), record.get("effect")) for record in records]
    out = [] if found == list(EXPECTED) else [f"decision log: it has {found}, not {list(EXPECTED)}"]
    return out + [
        f"decision log: a request by rule {record.get('rule')!r} ended {record.get('outcome')}" for record in records if not _answered(record)
    ]


def _answered(record: dict[str, Any]) -> bool:
    return record.get("outcome") == "answered"
