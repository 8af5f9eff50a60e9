"""Sizes of the benchmarks over HTTP: a full run and a smoke test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.overhttp import calls
from tests.fakes.hostile_frames import SIZES


@dataclass(frozen=True, slots=True)
class Size:
    """``idle`` and ``calling`` are sessions with an HTTP server behind, ``children`` are sessions with a stdio server
    each. ``most_idle`` sessions are idle while others make ``idle_calls`` calls in each of ``idle_laps`` laps."""

    calls: calls.Size
    idle: int
    calling: int
    children: int
    each: int
    most_idle: int
    idle_laps: int
    idle_calls: int
    rounds: int
    reloads: int
    five: int
    """Rounds of five calls at once, with and without a standalone stream."""
    hostile: int
    """Every n-th hostile frame is sent."""
    hostile_sizes: tuple[int, ...]
    """Sizes in bytes of each frame."""


FULL: Final = Size(
    calls.Size(laps=20, calls=100, many=320),
    idle=1_000,
    calling=200,
    children=100,
    each=20,
    most_idle=5_000,
    idle_laps=20,
    idle_calls=320,
    rounds=10_000,
    reloads=10,
    five=100,
    hostile=1,
    hostile_sizes=SIZES,
)
QUICK: Final = Size(
    calls.Size(laps=1, calls=5, many=32),
    idle=10,
    calling=10,
    children=2,
    each=2,
    most_idle=50,
    idle_laps=2,
    idle_calls=32,
    rounds=50,
    reloads=2,
    five=2,
    hostile=60,
    hostile_sizes=(1 << 20,),
)
