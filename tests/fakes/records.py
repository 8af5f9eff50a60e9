"""Decision log records, and functions that read them back from a log's files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from samplegate.audit import jsonl
from samplegate.audit.record import Record
from samplegate.protocol.outcomes import Reason

NOON = 1_795_003_200.0
RECORD = Record(
    decision_id="d1",
    time=NOON,
    server="db",
    caller="local",
    era="legacy",
    revision="2025-11-25",
    door="push",
    kind="sampling",
    effect="deny",
    reason=Reason.RULE,
    outcome="denied",
    policy_hash="abc",
)


def record(id: object, **more: Any) -> Record:
    """A record with its own id."""
    return replace(RECORD, decision_id=str(id), **more)


def ids(*paths: Path) -> list[str]:
    """The ids of all records in these files. Every line must be a record."""
    return [
        json.loads(line)["decision_id"] for path in paths for line in path.read_bytes().decode().splitlines() if line
    ]


def lines(*paths: Path) -> list[str]:
    """Every line of the files. Each must end in a line feed."""
    texts = [path.read_text() for path in paths]
    assert all(text.endswith("\n") for text in texts if text)
    return [line for text in texts for line in text.splitlines() if line]


def log_files(path: Path) -> list[Path]:
    """The files of the log, oldest first."""
    return [part for _, part in jsonl.rotated_files(path)] + ([path] if path.exists() else [])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def numbers(count: Iterable[int]) -> list[str]:
    """Ids as text."""
    return [str(number) for number in count]
