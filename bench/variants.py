"""Variants over stdio: how each is started around the same bare server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

HERE: Final = Path(__file__).resolve().parent
SERVER: Final = (sys.executable, str(HERE / "bare_server.py"))

Name: TypeAlias = Literal["bare", "floor", "gate", "base", "peer"]
"""``base``: an earlier version of the gate."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One program between a client and the bare server."""

    name: Name
    command: tuple[str, ...]


def variants(gate: Sequence[str], peer: Path | None, base: Sequence[str] | None = None) -> list[Variant]:
    """All variants, in the order of a lap. ``gate`` and ``base`` are commands that wrap another."""
    found = [
        Variant("bare", SERVER),
        Variant("floor", (sys.executable, str(HERE / "floor.py"), *SERVER)),
        Variant("gate", (*gate, *SERVER)),
    ]
    if base is not None:
        found.append(Variant("base", (*base, *SERVER)))
    if peer is not None:
        found.append(Variant("peer", (str(peer), str(HERE / "peer_proxy.py"), *SERVER)))
    return found


def gate_command(python: Sequence[str] = (sys.executable,)) -> tuple[str, ...]:
    """`samplegate run` as a user would start it, but without a decision log, because no request is recorded.

    ``python`` is the interpreter whose environment has the gate.
    """
    return (*python, "-m", "samplegate", "run", "--policy", str(HERE / "policy.yaml"), "--decision-log", "none", "--")
