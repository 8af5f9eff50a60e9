"""One line of the table, and how its numbers are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``met`` is None for a row without a goal."""

    what: str
    measured: str
    beside: str
    goal: str = "no goal"
    met: bool | None = None


def us(took: float) -> str:
    """Microseconds, as many digits as mean something."""
    return f"{took:.1f} us" if took < 10 else f"{took:.0f} us"
