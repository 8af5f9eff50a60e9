"""All that is measured over HTTP, and how much of it: in full, or as a smoke test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.overhttp import calls, reloads, rounds, sessions
from bench.overhttp.programs import Program


@dataclass(frozen=True, slots=True)
class Size:
    """``idle`` and ``calling``: sessions behind HTTP; ``children``: those behind stdio, each a process."""

    calls: calls.Size
    idle: int
    calling: int
    children: int
    each: int
    rounds: int
    reloads: int


FULL: Final = Size(calls.Size(laps=20, calls=100, many=320), idle=1_000, calling=200, children=100, each=20, rounds=10_000, reloads=10)
QUICK: Final = Size(calls.Size(laps=1, calls=5, many=32), idle=10, calling=10, children=2, each=2, rounds=50, reloads=2)


@dataclass(slots=True)
class OverHttp:
    """The figures."""

    calls: calls.Found
    sessions: list[sessions.Sessions]
    rounds: rounds.Rounds
    reloads: reloads.Reloads


def measure(size: Size, peers: Sequence[Program], say: Callable[[str], None]) -> OverHttp:
    """One measurement after the other."""
    say(f"calls over HTTP: {size.calls.laps} laps")
    found = calls.measure(size.calls, peers)
    say("sessions")
    many = [
        sessions.measure("HTTP", size.idle, size.calling, size.each),
        sessions.measure("stdio", size.children, size.children, size.each),
    ]
    say(f"sampling: {size.rounds} rounds")
    sampled = rounds.measure(size.rounds)
    say("reloads under load")
    return OverHttp(found, many, sampled, reloads.measure(size.reloads))
