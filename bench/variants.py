"""What is measured: how each variant is started around the same bare server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

HERE: Final = Path(__file__).resolve().parent
SERVER: Final = (sys.executable, str(HERE / "bare_server.py"))

Name: TypeAlias = Literal["bare", "floor", "gate", "peer"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One thing to put between a client and the bare server."""

    name: Name
    command: tuple[str, ...]


def variants(gate: Sequence[str], peer: Path | None) -> list[Variant]:
    """All of them, in the order of a lap. ``gate`` is the command that wraps another."""
    found = [
        Variant("bare", SERVER),
        Variant("floor", (sys.executable, str(HERE / "floor.py"), *SERVER)),
        Variant("gate", (*gate, *SERVER)),
    ]
    if peer is not None:
        found.append(Variant("peer", (str(peer), str(HERE / "peer_proxy.py"), *SERVER)))
    return found


def gate_command() -> tuple[str, ...]:
    """`samplegate run` as a user would start it, without a decision log: no request is made that would be recorded."""
    return (sys.executable, "-m", "samplegate", "run", "--policy", str(HERE / "policy.yaml"), "--decision-log", "none", "--")
