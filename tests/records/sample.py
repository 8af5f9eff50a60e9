"""A record, and what can be read back of a log's files. No fixtures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    """One that is told from others by its id."""
    return replace(RECORD, decision_id=str(id), **more)


def ids(*paths: Path) -> list[str]:
    """The ids of all records of these files; every line must be one."""
    return [
        json.loads(line)["decision_id"] for path in paths for line in path.read_bytes().decode().splitlines() if line
    ]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def numbers(count: Iterable[int]) -> list[str]:
    """Ids as text."""
    return [str(number) for number in count]
